"""What shows a session that is to be forgotten."""

import pytest

from wellkept.core.ids import SessionId
from wellkept.core.text import dumps
from wellkept.sessions.rows.forgetting import Citations

OWN = SessionId("20261116_053226_4d2836")


@pytest.mark.parametrize(
    ("session_id", "text", "is_cited"),
    [
        (SessionId("5"), dumps({"results": [{"session_id": "5"}]}), True),
        (SessionId("5"), dumps({"results": [{"session_id": "15", "content": "5 eggs"}]}), False),
        (SessionId('a"b'), dumps({"session_id": 'a"b'}), True),
        (OWN, f"said in {OWN} on Monday", True),
        (OWN, "said in 20261116_053226_4d2837", False),
    ],
)
def test_a_session_is_cited_by_its_id(session_id, text, is_cited):
    """A short imported id counts only as a whole string, an id of ours anywhere in the text."""
    assert Citations(sessions=(session_id,)).are_in(text) is is_cited

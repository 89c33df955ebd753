"""Arguments of the memory tool: anything a model sends becomes a request or a refusal with a remedy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.errors import Reason, Refused
from wellkept.memory.page import Add, Remove, Replace, Target
from wellkept.memory.tool import ArchiveRequest, ReadRequest, WriteRequest, read_request

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
    | st.sampled_from(["add", "remove", "replace", "memory", "user", "read", "\ud800", "\x00"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
operations = st.dictionaries(st.sampled_from(["action", "content", "old_text", "x"]), json_values, max_size=4)
arguments = st.dictionaries(
    st.sampled_from(["action", "target", "content", "old_text", "operations", "other"]),
    json_values | st.lists(operations, max_size=3),
    max_size=6,
)


@given(arguments | json_values, st.booleans())
def test_any_json_is_understood_or_refused(given_arguments, may_read):
    """No argument, however odd, raises; every refusal carries an instruction."""
    result = read_request(given_arguments, may_read=may_read)

    if isinstance(result, Refused):
        assert result.error
        assert result.remedy
    elif isinstance(result, WriteRequest):
        assert result.edits
        assert all(isinstance(edit, Add | Replace | Remove) for edit in result.edits)


@pytest.mark.parametrize(
    ("sent", "edits"),
    [
        ({"action": "add", "content": "a"}, (Add("a"),)),
        ({"action": " ADD ", "content": "a"}, (Add("a"),)),
        ({"content": "a"}, (Add("a"),)),
        ({"action": None, "content": "a", "old_text": "b"}, (Replace("b", "a"),)),
        ({"action": "remove", "old_text": "b"}, (Remove("b"),)),
        ({"action": "add", "content": "ignored", "operations": [{"action": "remove", "old_text": "b"}, {"content": "c"}]}, (Remove("b"), Add("c"))),
        ({"action": "add", "content": "a", "operations": []}, (Add("a"),)),
        ({"action": "add", "content": "a", "operations": None}, (Add("a"),)),
    ],
)  # fmt: skip
def test_what_is_plainly_meant_is_read_so(sent, edits):
    """A missing action with content is an add, with both texts a replace; operations win when there are any."""
    assert read_request({"target": "user", **sent}, may_read=False) == WriteRequest(Target.USER, edits)


@pytest.mark.parametrize(
    "sent",
    [
        {}, {"action": "delete", "content": "a"}, {"action": "read"}, {"action": 5, "content": "a"}, {"old_text": "b"},
        {"action": "add"}, {"action": "add", "content": 5}, {"action": "replace", "content": "a"},
        {"action": "remove", "old_text": "  "}, {"action": "remove", "content": "a"}, {"operations": "add"},
        {"operations": {"action": "add"}}, {"operations": [5]}, {"operations": [{"action": "read"}]}, {"content": ""},
    ],
)  # fmt: skip
def test_what_is_not_is_refused(sent):
    """Unknown actions list the valid ones; a bad step names itself."""
    refused = read_request({"target": "memory", **sent}, may_read=False)

    assert refused.reason in {Reason.INVALID, Reason.BATCH}
    assert refused.remedy


@pytest.mark.parametrize("target", [None, "", "Memory ", "both", 5, [], {}])
def test_the_target_is_needed(target):
    """Without a page nothing is done, but its case does not matter."""
    result = read_request({"action": "add", "content": "a", "target": target}, may_read=False)

    assert isinstance(result, WriteRequest) == (target == "Memory ")


def test_reading_is_offered_only_where_it_is_switched_on():
    """`read` and `search` exist with memory.read_action only, and the error lists what there is."""
    assert read_request({"action": "read", "target": "user"}, may_read=True) == ReadRequest(Target.USER)
    assert read_request({"action": "search", "target": "user", "content": "x"}, may_read=True) == ArchiveRequest(
        Target.USER, "x"
    )
    assert (
        read_request({"action": "read", "target": "user"}, may_read=False).remedy
        == "Valid actions: add, replace, remove."
    )


def test_a_batch_only_writes():
    """Reading is not a step of a batch, even where it is switched on."""
    refused = read_request({"target": "memory", "operations": [{"action": "read"}]}, may_read=True)

    assert isinstance(refused, Refused)
    assert "add, replace, remove." in refused.remedy


def test_a_refusal_does_not_echo_what_may_be_a_secret():
    """A long word in the wrong place is described, not quoted."""
    assert (
        "hunter2"
        not in read_request({"action": "hunter2 hunter2 hunter2 hunter2", "target": "memory"}, may_read=False).error
    )

"""Search results and sent texts that show messages of other sessions."""

import re
from dataclasses import dataclass

from kept.core.ids import MessageId, SessionId
from kept.storage.sqlite import Connection
from kept.storage.statements import statements

SQL = statements("kept.sessions.sqlite", "forgetting.sql")
_PAGE = 2_000
_ID = re.compile(r'"(?:id|match_message_id)": ?(\d{1,18})')


@dataclass(frozen=True, slots=True)
class Citations:
    """What may be cited: whole sessions, single messages, words."""

    sessions: tuple[SessionId, ...] = ()
    messages: frozenset[MessageId] = frozenset()
    needle: str = ""

    def are_in(self, text: str) -> bool:
        """Whether `text` cites any of them."""
        if any(session_id in text for session_id in self.sessions):
            return True
        if self.needle and self.needle in text.casefold():
            return True
        return bool(self.messages) and any(int(found) in self.messages for found in _ID.findall(text))


def citing(
    connection: Connection, told: Citations, *, outside: frozenset[SessionId] = frozenset()
) -> tuple[MessageId, ...]:
    """Return the messages, in sessions that stay, whose search result or sent text cites what goes."""
    found: list[MessageId] = []
    last = 0
    while page := list(connection.execute(SQL.citing, (last, _PAGE))):
        last = page[-1][0]
        for number, owner, tool_name, content, sent in page:
            texts = [text for text in (content if tool_name == "session_search" else None, sent) if text]
            if owner not in outside and any(told.are_in(text) for text in texts):
                found.append(MessageId(number))
    return tuple(found)

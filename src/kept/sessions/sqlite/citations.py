"""Search results, sent texts and quotations that show messages of other sessions."""

import re
from dataclasses import dataclass

from kept.core.ids import MessageId, SessionId, UserId
from kept.core.text import dumps, find_quoted_messages
from kept.storage.sql import statements
from kept.storage.sqlite import Connection

SQL = statements("kept.sessions.sqlite", "forgetting.sql")
_PAGE = 2_000
_TELLING_ID = 12
_ID = re.compile(r'"(?:id|match_message_id)": ?(\d{1,18})')


@dataclass(frozen=True, slots=True)
class Citations:
    """What may be cited: whole sessions, single messages, words."""

    sessions: tuple[SessionId, ...] = ()
    messages: frozenset[MessageId] = frozenset()
    needle: str = ""

    def are_in(self, text: str) -> bool:
        """Whether `text` cites any of them."""
        if any(_names(text, session_id) for session_id in self.sessions):
            return True
        if self.needle and self.needle in text.casefold():
            return True
        return bool(self.messages) and any(int(found) in self.messages for found in _ID.findall(text))

    def are_quoted_in(self, text: str) -> bool:
        """Whether `text` names any of them as the source of a quotation."""
        return any(owner in self.sessions or number in self.messages for owner, number in find_quoted_messages(text))


def _names(text: str, session_id: SessionId) -> bool:
    # an imported id may be as short as "5": that stands in any text, but as a whole JSON string only where it is meant
    return (session_id if len(session_id) >= _TELLING_ID else dumps(session_id)) in text


def citing(
    connection: Connection, told: Citations, *, user: UserId, outside: frozenset[SessionId] = frozenset()
) -> tuple[MessageId, ...]:
    """Return the messages, in sessions that stay, whose search result, sent text or quotation shows what goes."""
    found: list[MessageId] = []
    last = 0
    while page := list(connection.execute(SQL.citing, (last, user, _PAGE))):
        last = page[-1][0]
        for number, owner, tool_name, content, sent in page:
            texts = [text for text in (content if tool_name == "session_search" else None, sent) if text]
            shown = any(told.are_in(text) for text in texts) or told.are_quoted_in(content or "")
            if owner not in outside and shown:
                found.append(MessageId(number))
    return tuple(found)

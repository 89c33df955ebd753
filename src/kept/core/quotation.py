"""The line under a quotation that names its source: written by who quotes, known again by who forgets."""

import re

from kept.core.ids import MessageId, SessionId

_DASH = "\n  — "
_MESSAGE = re.compile(
    r"^  — (?:you|assistant), [^,\n]*, session (?P<session>.+), message (?P<message>\d{1,18})$", re.MULTILINE
)
_PAGE = re.compile(r"^  — (?:MEMORY|USER)\.md\b", re.MULTILINE)


def quotation(text: str, source: str) -> str:
    """Return a text with its source beneath."""
    return f"{text}{_DASH}{source}"


def message_source(who: str, when: str, session_id: SessionId, message_id: MessageId) -> str:
    """Return how a message of a past conversation is named as a source."""
    return f"{who}, {when}, session {session_id}, message {message_id}"


def quoted_messages(text: str) -> list[tuple[SessionId, MessageId]]:
    """Return the messages that a text quotes."""
    return [(SessionId(found["session"]), MessageId(int(found["message"]))) for found in _MESSAGE.finditer(text)]


def quotes_a_page(text: str) -> bool:
    """Whether a text quotes an entry of a memory page."""
    return _PAGE.search(text) is not None

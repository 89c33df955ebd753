"""Passages as a model reads them: windows around a match, bookends, and what the budget leaves of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from kept.core.clock import from_epoch, iso
from kept.core.errors import StorageError
from kept.core.ids import MessageId
from kept.core.messages import ImagePart, Session, StoredMessage
from kept.core.text import JSON
from kept.sessions.budget import Caps
from kept.sessions.ports import Readable
from kept.sessions.search.snippets import Marker

SNIPPET_CHARS = 240
PREVIEW_CHARS = 60
SHORTENED = " […]"
_NO_TERMS = Marker()


@dataclass(frozen=True, slots=True)
class Passage:
    """One session that was found: its match, what stands around it, how it began and ended."""

    session: Session
    match: StoredMessage
    around: tuple[StoredMessage, ...]
    start: tuple[StoredMessage, ...]
    end: tuple[StoredMessage, ...]
    before: int
    """How many messages the session has before the window."""
    after: int


def passage(store: Readable, match: StoredMessage, *, window: int, bookend: int = 3) -> Passage | None:
    """Return the passage around `match`, or None when its session went away meanwhile."""
    session = store.session(match.session_id)
    if session is None:
        return None
    around = store.window(match.id, before=window, after=window)
    start, end = store.edges(match.session_id, first=bookend, last=bookend)
    before = store.count_before(match.session_id, around[0].id)
    after = max(0, session.message_count - before - len(around))
    return Passage(session, match, tuple(around), tuple(start), tuple(end), before, after)


def when(epoch: float) -> str:
    """Return a moment as a model reads it; a damaged time stamp is shown as it is."""
    try:
        return iso(from_epoch(epoch))
    except (OverflowError, ValueError, OSError):
        return str(epoch)


def said(message: StoredMessage) -> str:
    """Return the text of a message; calls and images are named, what was sent to the model is never shown."""
    inner = message.message
    text = inner.text
    if not isinstance(inner.content, str):
        images = sum(isinstance(part, ImagePart) for part in inner.content)
        text = f"{text}\n[{images} image{'s' if images != 1 else ''}]".strip() if images else text
    if not text and inner.tool_calls:
        return f"[called {', '.join(call.name for call in inner.tool_calls)}]"
    return text


def shown(
    message: StoredMessage, *, chars: int, marker: Marker = _NO_TERMS, is_anchor: bool = False
) -> dict[str, JSON]:
    """Return a message in the tool's shape, shortened around the terms."""
    text = said(message)
    if len(text) > chars:
        text = marker.around(text, width=chars) + SHORTENED
    value: dict[str, JSON] = {
        "id": message.id,
        "role": message.message.role.value,
        "content": text,
        "timestamp": when(message.timestamp),
    }
    if is_anchor:
        value["anchor"] = True
    return value


def window_shown(
    messages: Sequence[StoredMessage], *, anchor: MessageId, caps: Caps, marker: Marker, hidden: frozenset[int]
) -> list[JSON]:
    """Return the messages of a window, the anchor with the most room, those in the context left out."""
    place = next((place for place, message in enumerate(messages) if message.id == anchor), 0)
    near = messages[max(0, place - caps.window) : place + caps.window + 1]
    return [
        shown(
            message,
            chars=caps.anchor_chars if message.id == anchor else caps.other_chars,
            marker=marker,
            is_anchor=message.id == anchor,
        )
        for message in near
        if message.id not in hidden or message.id == anchor
    ]


def passage_shown(found: Passage, *, caps: Caps, marker: Marker, hidden: frozenset[int]) -> dict[str, JSON]:
    """Return a found session in the tool's shape; bookends do not repeat what the window shows."""
    seen = {message.id for message in found.around} | hidden
    start = [message for message in found.start if message.id not in seen][: caps.bookend]
    ids = seen | {message.id for message in start}
    end = [message for message in found.end if message.id not in ids]
    end = end[len(end) - caps.bookend :] if caps.bookend < len(end) else end
    window = window_shown(found.around, anchor=found.match.id, caps=caps, marker=marker, hidden=hidden)
    dropped = _dropped(found, caps.window)
    return {
        **index_shown(found.session, found.match, marker=marker),
        "bookend_start": [shown(message, chars=caps.other_chars) for message in start],
        "messages": window,
        "bookend_end": [shown(message, chars=caps.other_chars) for message in end],
        "messages_before": found.before + dropped[0],
        "messages_after": found.after + dropped[1],
    }


def _dropped(found: Passage, window: int) -> tuple[int, int]:
    place = next(place for place, message in enumerate(found.around) if message.id == found.match.id)
    return max(0, place - window), max(0, len(found.around) - place - 1 - window)


def index_shown(session: Session, match: StoredMessage, *, marker: Marker) -> dict[str, JSON]:
    """Return a found session in its shortest form: ids, dates and the snippet."""
    text = " ".join(said(match).split())
    return {
        "session_id": session.id,
        "title": session.title,
        "when": when(match.timestamp),
        "source": session.source,
        "model": session.model,
        "matched_role": match.message.role.value,
        "match_message_id": match.id,
        "snippet": marker.around(text, width=SNIPPET_CHARS),
    }


def unavailable(error: StorageError) -> dict[str, JSON]:
    """Return the tool's answer while the database cannot be used."""
    return {
        "success": False,
        "error": f"session store unavailable: {error.message}",
        "remedy": error.remedy or "go on without past sessions; run `kept doctor` to see what is wrong",
    }

"""Messages and sessions as a person reads them in a terminal."""

from collections.abc import Sequence

from kept.cli.terminal import is_styled, say
from kept.cli.text import indented, printable
from kept.core.clock import from_epoch
from kept.core.messages import Session, StoredMessage
from kept.core.text import JSON
from kept.sessions.recall import said, when
from kept.sessions.search import snippets

_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def local(epoch: float) -> str:
    """Return a moment in the person's own zone."""
    try:
        return f"{from_epoch(epoch).astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return str(epoch)


def highlighted(text: str, terms: Sequence[str]) -> str:
    """Return `text` with the found words in bold, when a person looks."""
    wanted = snippets.pattern(terms) if is_styled() else None
    return text if wanted is None else wanted.sub(lambda match: f"{_BOLD}{match.group()}{_PLAIN}", text)


def say_message(message: StoredMessage, *, terms: Sequence[str] = (), mark: str = " ") -> None:
    """Print one message with its id and date."""
    head = f"{mark}[{message.id}] {local(message.timestamp)} {message.message.role.value}"
    note = "" if message.state.value == "active" else f" ({message.state.value})"
    say(f"{head}{note}")
    say(highlighted(indented(printable(said(message))), terms))


def say_session(session: Session, *, preview: str = "") -> None:
    """Print one session on a line or two."""
    title = printable(session.title or snippets.one_line(preview, width=60) or "(no title)")
    flags = " archived" if session.archived else ""
    when_active = local(session.last_active or session.started)
    messages = f"{session.message_count:>5} {'message ' if session.message_count == 1 else 'messages'}"
    say(f"{printable(session.id)}  {when_active}  {messages}  {printable(session.source)}{flags}")
    say(f"    {title}")


def session_json(session: Session) -> dict[str, JSON]:
    """Return a session for programs."""
    return {
        "session_id": session.id,
        "title": session.title,
        "source": session.source,
        "user_id": session.user_id,
        "project": session.project,
        "model": session.model,
        "started": when(session.started),
        "last_active": when(session.last_active or session.started),
        "ended": None if session.ended is None else when(session.ended),
        "end_reason": session.end_reason,
        "archived": session.archived,
        "message_count": session.message_count,
        "parent_session_id": session.parent_session_id,
        "link": session.link.value if session.link else None,
    }


def message_json(message: StoredMessage) -> dict[str, JSON]:
    """Return a message for programs; what was sent to the model is never in it."""
    return {
        "id": message.id,
        "session_id": message.session_id,
        "role": message.message.role.value,
        "content": said(message),
        "timestamp": when(message.timestamp),
        "state": message.state.value,
        "external_id": message.external_id,
    }

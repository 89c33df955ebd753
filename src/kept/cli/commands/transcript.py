"""Messages and sessions as a person reads them in a terminal."""

from collections.abc import Sequence

from kept.cli.terminal import is_styled, say
from kept.cli.text import indented, printable
from kept.core.clock import from_epoch
from kept.core.messages import Session, StoredMessage
from kept.sessions.recall import said
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

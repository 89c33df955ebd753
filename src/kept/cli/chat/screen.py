"""The screen of a chat: what a person sees of the events of a conversation."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from kept.cli.chat.streaming_markdown import Growing
from kept.cli.terminal import indented, note, printable, put, say
from kept.core.events import (
    Compacted,
    Event,
    ModelCalled,
    Reviewed,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    Warned,
)
from kept.core.messages import Usage

ARGUMENT_CHARS = 80


@dataclass(slots=True)
class Screen:
    """Shows text as it comes, tools as one line each, and what was saved."""

    notifications: str = "on"
    quiet: bool = False
    """Whether the answer itself is printed by someone else."""
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    """What the calls with a known price cost, in dollars."""
    cost_of: "Callable[[str, Usage], float | None] | None" = None
    is_terminal: bool = field(default_factory=sys.stdout.isatty)
    is_verbatim: bool = False
    """Whether answers are shown as they are: without a model they quote a person, and no sign of it is markup."""
    _growing: Growing = field(default_factory=Growing)
    _column: int = 0
    _tools: list[tuple[str, str]] = field(default_factory=list)
    _lost: OSError | None = None
    """Why nothing can be shown any more."""
    _warned: str = ""
    """The warning that was shown last: the same one again says nothing new."""

    def __call__(self, event: Event, /) -> None:
        """Show what a person should see of `event`; a turn goes on to be kept though nobody sees it any more."""
        try:
            self._show(event)
        except OSError as error:
            self._lost = error

    def _show(self, event: Event) -> None:
        match event:
            case TextStreamed(text):
                self._stream(text)
            case ModelCalled():
                self._count(event)
            case ToolFinished():
                self._tools.append((event.name, event.answer))
                self._tell(event)
            case Reviewed():
                self._reviewed(event)
            case _:
                self._tell(event)

    def _tell(self, event: Event) -> None:
        line = _told(event)
        if isinstance(event, Warned):
            if line == self._warned:
                return
            self._warned = line
        if line:
            self._line(line)

    def _count(self, event: ModelCalled) -> None:
        self.usage += event.usage
        cost = self.cost_of(event.model, event.usage) if self.cost_of is not None else None
        self.cost += cost or 0.0

    def begin(self) -> None:
        """Begin a turn: what can be expanded is what this turn does."""
        self._tools.clear()

    def expanded(self) -> str:
        """Return the tool answers of the last turn whole, each under the name of its tool."""
        return "\n".join(f"· {name}\n{answer}" for name, answer in self._tools)

    def _reviewed(self, event: Reviewed) -> None:
        if self.notifications == "off":
            return
        kept = "; ".join(event.saved) if self.notifications == "verbose" else f"{len(event.saved)} change(s) to memory"
        if event.saved:
            self._line(f"kept from this conversation: {kept} (undo: kept memory undo --review {event.group_id})")
        if event.staged:
            self._line(f"{len(event.staged)} waiting for approval: kept memory pending")
        for told in event.skills:
            self._line(f"learned: {told}")

    def _stream(self, text: str) -> None:
        if self.quiet:
            return
        if self.is_terminal and not self.is_verbatim:
            self._growing.feed(text)
            return
        put(indented(printable(text), "") if self.is_terminal else text)
        self._column = 0 if text.endswith("\n") else 1

    def end(self) -> None:
        """Finish an answer: what is left of it is shown, and the cursor stands on a new line.

        Raises the OSError of a reader or a terminal that went away meanwhile.
        """
        if self._lost is not None:
            raise self._lost
        self._growing.finish()
        if self._column:
            say()
        self._column = 0

    def _line(self, text: str) -> None:
        self.end()
        note(printable(text))


def _told(event: Event) -> str:
    """Return the one line that tells of an event, nothing for those that stay quiet."""
    match event:
        case ToolStarted(name=name, arguments=arguments):
            return f"· {name} {_short(arguments)}"
        case ToolFinished(name=name, ok=False, answer=answer):
            return f"  {name} failed: {_short(_error_in(answer))}"
        case Warned(message, remedy):
            return f"kept: {message}{f' ({remedy})' if remedy else ''}"
        case Compacted(before_tokens=before, after_tokens=after, messages_covered=covered, note=words):
            told = f": {words}" if words else ""
            return f"context compacted: {before:,} → {after:,} tokens, {covered} messages summarised{told}"
        case _:
            return ""


def _error_in(answer: str) -> str:
    """Return what a tool's answer says went wrong, the whole answer when it does not say it our way."""
    try:
        error = json.loads(answer)["error"]
    except (ValueError, TypeError, KeyError):
        return answer
    return error if isinstance(error, str) else answer


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= ARGUMENT_CHARS else line[: ARGUMENT_CHARS - 1] + "…"

"""The screen of a chat: prints the events of a conversation."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.cli.terminal import complete_hint, indent_lines, note, put, say
from wellkept.core.errors import StorageError
from wellkept.core.events import (
    Compacted,
    Event,
    ModelCalled,
    Reviewed,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    Warned,
)
from wellkept.core.messages import Usage
from wellkept.core.text import printable
from wellkept.operations import memory

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.live import Live
    from rich.segment import Segment

    from wellkept.agent.agent import Agent
    from wellkept.app import Caller
    from wellkept.memory.page import Target

ARGUMENT_CHARS = 80


_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")
_LEAST_COLUMNS = 20
_LEAST_ROWS = 3
_READ_BACK = 3
"""How many screens of a long block are rendered to show its last one."""


class StreamingMarkdown:
    """The answer of a model, rendered as Markdown while it is streamed.

    While a block is taller than the screen, only its end is shown, because a terminal cannot redraw lines that
    have scrolled away. When the block is complete, it is printed in full.
    """

    def __init__(self) -> None:
        self._block = ""
        self._read = 0
        """The position up to which the block was parsed, always after a line break."""
        self._fence = ""
        """The line that opened the code block at the current position; empty outside of code."""
        self._follows = False
        """Whether a block of the same answer was printed before."""
        self._live: Live | None = None

    def feed(self, text: str) -> None:
        """Show more of the answer."""
        self._block += text.replace("\r", "")
        while (end := self._block.find("\n", self._read)) >= 0:
            line, self._read = self._block[self._read : end], end + 1
            fence = _FENCE.match(line)
            if fence is not None and not self._fence:
                self._fence = line
            elif fence is not None and _closes(fence, self._fence):
                self._fence = ""
            if not self._fence and not line.strip() and bool(self._block[: self._read].strip()):
                self._leave(self._block[: self._read])
                self._block, self._read = self._block[self._read :], 0
        if self._block.strip():
            self._shown().update(_Tail(self._block, self._fence))

    def finish(self) -> None:
        """Print the last block; the next text belongs to another answer."""
        self._leave(self._block)
        self._block, self._read, self._fence, self._follows = "", 0, "", False

    def _shown(self) -> "Live":
        """Return the area of the screen that shows the current block."""
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            # keep the last column free: a ^C echoed there would start a line that is never cleared
            console = Console(width=max(_LEAST_COLUMNS, shutil.get_terminal_size().columns - 1))
            if self._follows:
                console.print()
            self._live = Live(console=console, refresh_per_second=10, transient=True, vertical_overflow="crop")
            self._live.start()
        return self._live

    def _leave(self, block: str) -> None:
        if not block.strip():
            return
        live = self._shown()
        live.stop()
        self._live = None
        live.console.print(_Whole(block))
        self._follows = True


def _closes(fence: re.Match[str], opening: str) -> bool:
    opened = _FENCE.match(opening)
    return opened is not None and fence[1].startswith(opened[1]) and not fence[2].strip()


class _Whole(Struct, frozen=True):
    """A block of Markdown without blank lines around it."""

    text: str

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterable[Segment]":
        return _join(_lines(self.text, console, options))


class _Tail(Struct, frozen=True):
    """The end of a block, as many lines as fit the screen."""

    text: str
    fence: str

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterable[Segment]":
        rows = max(_LEAST_ROWS, shutil.get_terminal_size().lines - 2)
        lines = self.text.split("\n")
        text = self.text
        if len(lines) > rows * _READ_BACK:
            opening = [self.fence] if self.fence else []
            text = "\n".join([*opening, *lines[-rows * _READ_BACK :]])
        return _join(_lines(text, console, options)[-rows:])


def _lines(text: str, console: "Console", options: "ConsoleOptions") -> "list[list[Segment]]":
    from rich.markdown import Markdown

    # show the address of a link, because a hidden one could lead anywhere
    document = Markdown(printable(text.strip("\n")), hyperlinks=False)
    # remove the blank lines around lists and headings, which would be doubled between two blocks
    lines = console.render_lines(document, options.update(height=None), pad=False)
    while lines and _is_blank(lines[0]):
        del lines[0]
    while lines and _is_blank(lines[-1]):
        del lines[-1]
    return lines


def _is_blank(line: "list[Segment]") -> bool:
    return not any(segment.text.strip() for segment in line)


def _join(lines: "list[list[Segment]]") -> "Iterable[Segment]":
    from rich.segment import Segment

    for line in lines:
        # after parsing: Markdown itself decodes entities and escapes, `&#x202e;` for example
        yield from (Segment(printable(part.text), part.style, part.control) for part in line)
        yield Segment.line()


class Screen(Struct):
    """Prints streamed text, one line per tool call, and what was saved."""

    notifications: str = "on"
    quiet: bool = False
    """Whether the caller prints the answer."""
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    """What the calls with a known price cost, in dollars."""
    cost_of: "Callable[[str, Usage], float | None] | None" = None
    is_terminal: bool = field(default_factory=lambda: sys.stdout.isatty())  # noqa: PLW0108 - the stream of now, not of the import
    is_verbatim: bool = False
    """Whether answers are printed as plain text: without a model they quote messages, which are not Markdown."""
    _markdown: StreamingMarkdown = field(default_factory=StreamingMarkdown)
    _column: int = 0
    _tools: list[tuple[str, str]] = field(default_factory=list)
    _lost: OSError | None = None
    """The error after which nothing can be printed any more."""
    _warned: str = ""
    """The last warning; the same one is not printed twice in a row."""

    def __call__(self, event: Event, /) -> None:
        """Print `event`; if output fails, the turn continues, so that it is stored."""
        try:
            self._show(event)
        except OSError as error:
            self._lost = error

    def _show(self, event: Event) -> None:
        match event:
            case TextStreamed(text):
                self._stream(text)
            case ModelCalled():
                self.usage += event.usage
                cost = self.cost_of(event.model, event.usage) if self.cost_of is not None else None
                self.cost += cost or 0.0
            case ToolFinished():
                self._tools.append((event.name, event.answer))
                self._tell(event)
            case Reviewed():
                self._show_review(event)
            case _:
                self._tell(event)

    def _tell(self, event: Event) -> None:
        line = _describe(event)
        if isinstance(event, Warned):
            if line == self._warned:
                return
            self._warned = line
        if line:
            self._line(line)

    def begin(self) -> None:
        """Begin a turn; `tool_answers` returns those of this turn only."""
        self._tools.clear()

    def tool_answers(self) -> str:
        """Return the full tool answers of the last turn, each under the name of its tool."""
        return "\n".join(f"· {name}\n{answer}" for name, answer in self._tools)

    def _show_review(self, event: Reviewed) -> None:
        if self.notifications == "off":
            return
        kept = "; ".join(event.saved) if self.notifications == "verbose" else f"{len(event.saved)} change(s) to memory"
        if event.saved:
            undo = complete_hint(f"undo: kept memory undo --review {event.group_id}")
            self._line(f"kept from this conversation: {kept} ({undo})")
        if event.staged:
            self._line(complete_hint(f"{len(event.staged)} waiting for approval: kept memory pending"))
        for told in event.skills:
            self._line(complete_hint(f"learned: {told}"))

    def _stream(self, text: str) -> None:
        if self.quiet:
            return
        if self.is_terminal and not self.is_verbatim:
            self._markdown.feed(text)
            return
        put(indent_lines(text, "") if self.is_terminal else text, exactly=not self.is_terminal)
        self._column = 0 if text.endswith("\n") else 1

    def end(self) -> None:
        """Print the rest of an answer and end its line.

        Raises the OSError of an earlier output that failed.
        """
        if self._lost is not None:
            raise self._lost
        self._markdown.finish()
        if self._column:
            say()
        self._column = 0

    def _line(self, text: str) -> None:
        self.end()
        note(text)


def _describe(event: Event) -> str:
    """Return the line to print for an event; empty for events that are not shown."""
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
    """Return the `error` of a tool's answer, or the whole answer when it has none."""
    try:
        error = json.loads(answer)["error"]
    except (ValueError, TypeError, KeyError):
        return answer
    return error if isinstance(error, str) else answer


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= ARGUMENT_CHARS else line[: ARGUMENT_CHARS - 1] + "…"


def status_line(caller: "Caller", agent: "Agent", screen: "Screen") -> str:
    """Return the line under the prompt: model, tokens, cache share, cost, fill of memory."""
    usage, model = screen.usage, agent.parts.model
    share = f", {usage.cache_read_tokens * 100 // usage.prompt_tokens} % from cache" if usage.prompt_tokens else ""
    tokens = f"{usage.prompt_tokens + usage.output_tokens:,} tokens{share}"
    cost = [f"${screen.cost:.4f}"] if screen.cost else []
    fill = ", ".join(f"{page.value} {_describe_fill(caller, page)}" for page in memory.list_pages(caller))
    return wrap_parts([model.name if model is not None else "none", tokens, *cost, fill], get_terminal_size().columns)


def _describe_fill(caller: "Caller", target: "Target") -> str:
    try:
        return f"{memory.read_page(caller, target).percent} %"
    except StorageError:  # the line is drawn after every key; the commands report what is wrong with the page
        return "unreadable"


def wrap_parts(parts: list[str], columns: int) -> str:
    """Return the parts next to each other, on as many lines as the terminal needs."""
    lines = [f" {parts[0]} "]
    for part in parts[1:]:
        longer = f"{lines[-1]}· {part} "
        if len(longer) <= columns:
            lines[-1] = longer
        else:
            lines.append(f" {part} ")
    return "\n".join(lines)

"""Markdown that grows on a terminal: the block that is being written is redrawn, a whole one stays."""

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kept.cli.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.live import Live
    from rich.segment import Segment

_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")
_LEAST_COLUMNS = 20
_LEAST_ROWS = 3
_READ_BACK = 3
"""How many screens of a long block are looked at for what its last screen shows."""


class Growing:
    """The answer of a model while it is written.

    Of a block that is higher than the screen only the end is shown while it grows: a terminal
    cannot redraw what has left it. Once whole, it is printed from its beginning.
    """

    def __init__(self) -> None:
        self._block = ""
        self._read = 0
        """Up to where the block was read in whole lines."""
        self._fence = ""
        """What opened the code in which the block stands."""
        self._follows = False
        """Whether another block of the same answer stands above."""
        self._live: Live | None = None

    def feed(self, text: str) -> None:
        """Show more of the answer."""
        self._block += printable(text.replace("\r", ""))
        while (end := self._block.find("\n", self._read)) >= 0:
            line, self._read = self._block[self._read : end], end + 1
            if self._is_end(line):
                self._leave(self._block[: self._read])
                self._block, self._read = self._block[self._read :], 0
        if self._block.strip():
            self._shown().update(_Tail(self._block, self._fence))

    def finish(self) -> None:
        """Leave what is there on the screen; what comes next is another answer."""
        self._leave(self._block)
        self._block, self._read, self._fence, self._follows = "", 0, "", False

    def _is_end(self, line: str) -> bool:
        """Whether the block ends with this line: a blank one outside of code."""
        fence = _FENCE.match(line)
        if fence is not None and not self._fence:
            self._fence = line
        elif fence is not None and _closes(fence, self._fence):
            self._fence = ""
        return not self._fence and not line.strip() and bool(self._block[: self._read].strip())

    def _shown(self) -> "Live":
        """Return the area of the screen in which the present block grows."""
        if self._live is None:
            from rich.live import Live

            console = _console()
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


def _console() -> "Console":
    from rich.console import Console

    # the last column stays free: the terminal's own ^C there would begin a line that nobody clears
    return Console(width=max(_LEAST_COLUMNS, shutil.get_terminal_size().columns - 1))


@dataclass(frozen=True, slots=True)
class _Whole:
    """A block of Markdown without blank lines around it."""

    text: str

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterable[Segment]":
        return _joined(_lines(self.text, console, options))


@dataclass(frozen=True, slots=True)
class _Tail:
    """The end of a block, as much as the screen can redraw."""

    text: str
    fence: str

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterable[Segment]":
        rows = max(_LEAST_ROWS, shutil.get_terminal_size().lines - 2)
        lines = self.text.split("\n")
        text = self.text
        if len(lines) > rows * _READ_BACK:
            opening = [self.fence] if self.fence else []
            text = "\n".join([*opening, *lines[-rows * _READ_BACK :]])
        return _joined(_lines(text, console, options)[-rows:])


def _lines(text: str, console: "Console", options: "ConsoleOptions") -> "list[list[Segment]]":
    from rich.markdown import Markdown

    # every block stands alone: what a list or a heading puts around itself would stand between two of them twice
    lines = console.render_lines(Markdown(text.strip("\n")), options.update(height=None), pad=False)
    while lines and _is_blank(lines[0]):
        del lines[0]
    while lines and _is_blank(lines[-1]):
        del lines[-1]
    return lines


def _is_blank(line: "list[Segment]") -> bool:
    return not any(segment.text.strip() for segment in line)


def _joined(lines: "list[list[Segment]]") -> "Iterable[Segment]":
    from rich.segment import Segment

    for line in lines:
        yield from line
        yield Segment.line()

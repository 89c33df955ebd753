"""Whether a terminal shows what is typed: not while an answer is being written there."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def unseen() -> Iterator[None]:
    """Hide what is typed until the end of the block, where the next prompt takes it up."""
    with _echoing(on=False):
        yield


@contextmanager
def seen() -> Iterator[None]:
    """Show what is typed until the end of the block; what was typed before its question is no answer to it."""
    with _echoing(on=True) as terminal:
        if terminal is not None:
            import termios

            termios.tcflush(terminal, termios.TCIFLUSH)
        yield


@contextmanager
def _echoing(*, on: bool) -> Iterator[int | None]:
    if not sys.stdin.isatty():
        yield None
        return
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    flags = before[3] | termios.ECHO if on else before[3] & ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, [*before[:3], flags, *before[4:]])
    try:
        yield terminal
    finally:
        with suppress(termios.error):  # the terminal may be closed by now
            termios.tcsetattr(terminal, termios.TCSANOW, before)

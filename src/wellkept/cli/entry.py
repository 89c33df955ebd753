"""The start of the `kept` command: a hook skips everything that the command line needs."""

import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

_WITH_VALUE = ("--home", "--profile", "-p", "--as")
_LOST_INTERRUPT_SECONDS = 0.02
"""Seconds until an interrupt is repeated: long enough to leave the callback in which it was lost."""


def main() -> None:
    """Run `kept`."""
    ensure_streams()
    options = split_hook(sys.argv[1:])
    if options is not None:
        run_hook(*options)
    report = sys.unraisablehook
    sys.unraisablehook = lambda lost: repeat_lost_interrupt(lost, report)
    try:
        try:
            from wellkept.cli.main import main as run_command
        except KeyboardInterrupt:
            sys.exit(130)  # as later, and without a traceback
        run_command()
    finally:
        sys.unraisablehook = report  # a process that runs many commands must not nest the hooks


def ensure_streams() -> None:
    """Open the null device for standard streams that the parent process closed (`<&-`), as some schedulers do.

    Another file would get the number of such a stream, and the output of the command.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until the process ends


def repeat_lost_interrupt(lost: "sys.UnraisableHookArgs", report: "Callable[[sys.UnraisableHookArgs], object]") -> None:
    """Interrupt again if Ctrl-C came where Python cannot raise it, as in a callback of the database."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        report(lost)
        return
    import signal
    import threading

    # a real signal, because it also ends a system call that waits
    here, again = threading.main_thread().ident, signal.SIGINT
    threading.Timer(_LOST_INTERRUPT_SECONDS, signal.pthread_kill, (here, again)).start()


def run_hook(options: dict[str, str], words: list[str]) -> NoReturn:
    """Run `kept hook`; never returns."""
    from wellkept.cli.hook import run

    run(options, words)


def split_hook(arguments: list[str]) -> tuple[dict[str, str], list[str]] | None:
    """Return the global options and the words after `hook`; None for every other command."""
    options: dict[str, str] = {}
    words = iter(enumerate(arguments))
    for place, word in words:
        name, equals, value = word.partition("=")
        if name in _WITH_VALUE:
            options[name] = value if equals else next(words, (0, ""))[1]
        elif word == "hook":
            return options, arguments[place + 1 :]
        elif word != "--debug":
            return None
    return None

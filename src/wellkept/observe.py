"""Log files: one per open app, rotated, created with the first record, without output on the terminal.

Several apps may be open in one process. Each writes to the log in its own home. A record belongs to the app that the
current task or thread used last (`AppLog.use`, which `App` calls). A record from a thread that used no app goes to the
logs of all open apps, because it is better to have it twice than not at all.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO

from wellkept.core.errors import REMEDY
from wellkept.core.text import printable

MAX_BYTES = 2_000_000
BACKUPS = 3

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_used: ContextVar["AppLog | None"] = ContextVar("kept_log", default=None)
_open: list["AppLog"] = []
_lingering: list["AppLog"] = []
"""The log that closed last: `cli.main` logs an unexpected error after the app is closed."""


class RotatingFile(logging.Handler):
    """A log file that is created with its folder on the first record, and renamed when it is full.

    `logging.handlers` has such a handler, but importing it takes 10 ms of each start.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file: TextIO | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line; a home that cannot be written must not stop a command, and `kept doctor` reports it."""
        line = f"{self.format(record)}\n"
        try:
            if self._file is None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = self._open()
            if self._file.tell() + len(line) > MAX_BYTES:
                self._rotate()
            self._file.write(line)
            self._file.flush()
        except OSError:
            _tell_system(record.levelno, line)

    def _rotate(self) -> None:
        assert self._file is not None
        self._file.close()
        for number in range(BACKUPS, 0, -1):
            older = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number}"))
        self._file = self._open()

    def _open(self) -> TextIO:
        # without O_NONBLOCK, opening a pipe in place of the log would wait for a reader
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(self._path, flags, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def close(self) -> None:
        """Close the file, if a record was written."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        super().close()


def _tell_system(level: int, line: str) -> None:
    """Pass a warning to the system log: hooks print nothing, so on a full disk it would be lost."""
    if level < logging.WARNING:
        return
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows has none
        import syslog

        syslog.syslog(syslog.LOG_WARNING, f"kept: {line.strip()}")


class _PrintableLines(logging.Formatter):
    """Formats records without control characters: messages quote file names and answers, and people read logs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        return printable(super().format(record))


class _Announcer(logging.Handler):
    """Reports the records that the user has to see, and that come from modules without a sink of events."""

    report: Callable[[str, str], object] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Report a record that names a remedy."""
        remedy = getattr(record, REMEDY, None)
        if remedy is not None and self.report is not None:
            self.report(record.getMessage(), remedy)


class AppLog:
    """The log of one app: its file, and stderr with `debug`."""

    def __init__(self, folder: Path, *, debug: bool) -> None:
        self._level = logging.DEBUG if debug else logging.INFO
        self._announcer = _Announcer()
        self._handlers: list[logging.Handler] = [RotatingFile(folder / "kept.log"), self._announcer]
        if debug:
            self._handlers.append(logging.StreamHandler())
        for handler in self._handlers:
            handler.setLevel(self._level)
            handler.setFormatter(_PrintableLines(_FORMAT))
            handler.addFilter(self._accepts)

    def _accepts(self, _record: logging.LogRecord) -> bool:
        used = _used.get()
        return used is None or used is self or used not in _open

    def announce(self, report: Callable[[str, str], object]) -> None:
        """Pass warnings for the user, each with what to do next, to `report` as well."""
        self._announcer.report = report

    def use(self) -> None:
        """Send the records of the current task or thread to this log from now on."""
        _used.set(self)

    def close(self) -> None:
        """Stop logging for this app; later records go to the log that closed last, until another app is opened."""
        if self not in _open:
            return
        _open.remove(self)
        if _open:
            self._detach()
        else:
            _lingering.append(self)

    def _attach(self) -> None:
        logger = logging.getLogger("wellkept")
        for handler in self._handlers:
            logger.addHandler(handler)
        logger.setLevel(min(each._level for each in _open))  # noqa: SLF001 - the same class

    def _detach(self) -> None:
        logger = logging.getLogger("wellkept")
        for handler in self._handlers:
            logger.removeHandler(handler)
            handler.close()
        if _open:
            logger.setLevel(min(each._level for each in _open))  # noqa: SLF001 - the same class


def open_log(folder: Path, *, debug: bool) -> AppLog:
    """Log warnings (with `debug` everything) to `folder`/kept.log, and with `debug` also to stderr."""
    logging.getLogger("wellkept").propagate = False
    opened = AppLog(folder, debug=debug)
    _open.append(opened)
    while _lingering:
        _lingering.pop()._detach()  # noqa: SLF001 - part of this module
    opened._attach()  # noqa: SLF001
    opened.use()
    return opened

"""The log file of a home: rotated, without secrets, quiet on the terminal."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

MAX_BYTES = 2_000_000
BACKUPS = 3


class _LazyFileHandler(RotatingFileHandler):
    """A rotating file that is created with its folder when the first line is written."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            Path(self.baseFilename).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            super().emit(record)
        except OSError:  # a home that cannot be written must not stop a command that only reads
            return

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base class's signature
        """Stay silent: a log that cannot be written is reported by `kept doctor`."""


def configure(folder: Path, *, debug: bool) -> None:
    """Send warnings (with `debug` everything) to `folder`/kept.log, and with `debug` also to stderr."""
    root = logging.getLogger("kept")
    root.handlers.clear()
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    root.propagate = False
    form = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handlers: list[logging.Handler] = [
        _LazyFileHandler(folder / "kept.log", maxBytes=MAX_BYTES, backupCount=BACKUPS, delay=True, encoding="utf-8")
    ]
    if debug:
        handlers.append(logging.StreamHandler())
    for handler in handlers:
        handler.setFormatter(form)
        root.addHandler(handler)

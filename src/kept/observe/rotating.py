"""The file behind the log: rotated, made with its folder, silent where it cannot be written."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

MAX_BYTES = 2_000_000
BACKUPS = 3


class RotatingLog(RotatingFileHandler):
    """A rotating file that is created with its folder when the first line is written."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=BACKUPS, delay=True, encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        try:
            Path(self.baseFilename).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            super().emit(record)
        except OSError:  # a home that cannot be written must not stop a command that only reads
            return

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base class's signature
        """Stay silent: a log that cannot be written is reported by `kept doctor`."""

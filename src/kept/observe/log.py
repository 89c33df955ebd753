"""The log of a home: a rotated file without secrets, quiet on the terminal."""

import logging
from functools import cached_property
from pathlib import Path


class _FirstLineOpens(logging.Handler):
    """Hands records to the rotating file, and loads what that needs with the first: most commands log nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    @cached_property
    def _file(self) -> logging.Handler:
        from kept.observe.rotating import RotatingLog

        file = RotatingLog(self._path)
        file.setFormatter(self.formatter)
        return file

    def emit(self, record: logging.LogRecord) -> None:
        """Hand one record on."""
        self._file.emit(record)

    def close(self) -> None:
        """Close the file, if a line was ever written."""
        if "_file" in self.__dict__:
            self._file.close()
        super().close()


def configure(folder: Path, *, debug: bool) -> None:
    """Send warnings (with `debug` everything) to `folder`/kept.log, and with `debug` also to stderr."""
    root = logging.getLogger("kept")
    root.handlers.clear()
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    root.propagate = False
    form = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handlers: list[logging.Handler] = [_FirstLineOpens(folder / "kept.log")]
    if debug:
        handlers.append(logging.StreamHandler())
    for handler in handlers:
        handler.setFormatter(form)
        root.addHandler(handler)

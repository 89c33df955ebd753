"""What each connected agent last sent, what was last stored of it, and its last errors; for `connect status`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.regular_files import load_bytes
from wellkept.core.text import dumps, one_line
from wellkept.core.values import asdict

_MOST_ERRORS = 5
_ERROR_CHARS = 300


class Health(Struct, frozen=True):
    """The last signs of one client; moments are epoch seconds."""

    last_event: float | None = None
    event: str = ""
    """The name of the last event."""
    last_hook: float | None = None
    """The last event of a hook that needs trust, as opposed to Codex' `notify`."""
    last_captured: float | None = None
    errors: tuple[tuple[float, str], ...] = ()
    """The newest errors, the last one last; they are dropped when an event succeeds."""

    def after_event(self, event: str, now: float, *, is_hook: bool) -> Health:
        """Return the health after an event arrived."""
        return replace(self, last_event=now, event=event, last_hook=now if is_hook else self.last_hook)

    def after_capture(self, now: float) -> Health:
        """Return the health after turns were stored."""
        return replace(self, last_captured=now, errors=())

    def after_error(self, message: str, now: float) -> Health:
        """Return the health after an event failed."""
        return replace(self, errors=(*self.errors, (now, one_line(message, width=_ERROR_CHARS)))[-_MOST_ERRORS:])


def load_health(folder: Path, client: str) -> Health:
    """Return the health of a client; an unreadable file counts as none."""
    try:
        return msgspec.json.decode(load_bytes(folder / f"health-{client}.json"), type=Health)
    except (OSError, ValueError):
        return Health()


def save_health(folder: Path, client: str, health: Health) -> None:
    """Write the health of a client; without a sync, because losing it costs nothing, and best effort."""
    path = folder / f"health-{client}.json"
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temp.touch(0o600)
        temp.write_text(dumps(asdict(health)), encoding="utf-8")
        temp.replace(path)

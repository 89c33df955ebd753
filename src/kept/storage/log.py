"""The write-ahead log kept short: folded back now and then, and begun anew even while many read and write."""

from contextlib import suppress

import apsw

LOG_PAGES = 2_000
"""About 4 MB: each time the log is folded back, somebody waits for the disk."""
LONG_LOG_PAGES = 12_000
"""From here on the others are made to wait for a moment: among steady readers and writers it would only grow."""
PATIENCE_MILLISECONDS = 200
_AGAIN_PAGES = 500


class ShortLog:
    """Called by SQLite after each commit of one connection, with the pages that are in the log."""

    def __init__(self) -> None:
        self._next = LOG_PAGES

    def __call__(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """Fold the log back when it has grown enough since the last time."""
        if pages < LOG_PAGES:
            self._next = LOG_PAGES
        elif pages >= self._next:
            self._next = pages + _AGAIN_PAGES
            with suppress(apsw.BusyError, apsw.LockedError):  # somebody reads an older state: the next time, then
                _fold(connection, name, begin_anew=pages >= LONG_LOG_PAGES)
        return apsw.SQLITE_OK


def _fold(connection: apsw.Connection, name: str, *, begin_anew: bool) -> None:
    if not begin_anew:
        connection.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_PASSIVE)
        return
    patience = int(str(connection.pragma("busy_timeout")))
    connection.set_busy_timeout(PATIENCE_MILLISECONDS)
    try:
        connection.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_RESTART)
    finally:
        connection.set_busy_timeout(patience)

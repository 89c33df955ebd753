"""The seam between rows and index: what is written is indexed with it, what others wrote is caught up."""

from collections.abc import Sequence

from kept.core.ports import EventSink
from kept.core.search import Found, SearchRequest
from kept.sessions.records import Row
from kept.storage.sqlite import Connection, Database
from kept.storage.statements import statements

SQL = statements("kept.sessions.sqlite", "queue.sql")


def make_ready(database: Database, sink: EventSink) -> None:
    """Make the index tables where they are missing, and rebuild what another version made."""


def add(connection: Connection, rows: Sequence[tuple[int, Row]]) -> None:
    """Index inserted rows, each given with its id."""


def find(connection: Connection, request: SearchRequest, *, now: float) -> Found:
    """Run the ranked search."""
    return Found()


def drain(database: Database) -> None:
    """Index the rows that another program wrote."""

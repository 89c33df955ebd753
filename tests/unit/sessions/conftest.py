"""A store of its own for each test."""

import pytest

from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state


@pytest.fixture
def store(tmp_path):
    """An empty store in a temporary file."""
    database = open_state(tmp_path / "state.db")
    yield SqliteSessionStore(database)
    database.close()

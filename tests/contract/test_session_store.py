"""Every session store keeps the same promises."""

import pytest

from kept.core.ports import SessionStore
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.storage.state import open_state
from kept.testing.session_store_contract import LineageContract


class TestSqlite(LineageContract):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path):
        self.path = tmp_path / "state.db"
        self.database = open_state(self.path)
        yield
        self.database.close()

    def store(self) -> SessionStore:
        return SqliteSessionStore(self.database)

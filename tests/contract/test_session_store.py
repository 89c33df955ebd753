"""Every session store keeps the same promises."""

import pytest

from wellkept.core.ports import ignore
from wellkept.sessions.ports import Sessions
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.testing.receipts_contract import ReceiptsContract
from wellkept.testing.session_keeping_contract import KeepingContract
from wellkept.testing.session_reading_contract import ReadingContract, TransferContract
from wellkept.testing.session_store_contract import LineageContract
from wellkept.testing.session_user_contract import UserContract


class TestSqlite(LineageContract, ReadingContract, KeepingContract, TransferContract, UserContract, ReceiptsContract):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path):
        self.path = tmp_path
        self.opened = []
        yield
        for store in self.opened:
            store.close()

    def store(self, *, clock=None, sink=ignore) -> Sessions:
        self.opened.append(SqliteSessionStore(self.path / f"{len(self.opened)}.db", clock=clock, sink=sink))
        return self.opened[-1]


class TestPostgres(LineageContract, ReadingContract, KeepingContract, TransferContract, UserContract, ReceiptsContract):
    @pytest.fixture(autouse=True)
    def server(self, postgres_server):
        self.embedded = postgres_server
        self.opened = []
        yield
        for store in self.opened:
            store.close()

    def store(self, *, clock=None, sink=ignore) -> Sessions:
        from wellkept.sessions.postgres.store import PostgresSessionStore
        from wellkept.storage.postgres.database import PostgresServer

        server = PostgresServer(self.embedded.shared_url, tenant=self.embedded.make_tenant())
        self.opened.append(PostgresSessionStore(server, clock=clock, sink=sink))
        return self.opened[-1]

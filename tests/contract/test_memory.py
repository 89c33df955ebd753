"""Every storage for curated memory keeps the same promises."""

import pytest

from wellkept.core.ids import OWNER
from wellkept.memory.ledger import Ledger
from wellkept.memory.store import FILE_NAMES, FilePages
from wellkept.testing.memory_contract import StorageContract


class TestFolder(StorageContract):
    @pytest.fixture(autouse=True)
    def folders(self, tmp_path):
        self.path = tmp_path
        self.opened = []
        yield
        for ledger in self.opened:
            ledger.close()

    def pages(self, user=OWNER):
        return FilePages(self.path / user)

    def put(self, target, raw):
        (self.path / OWNER / FILE_NAMES[target]).write_bytes(raw)

    def ledger(self, user=OWNER):
        self.opened.append(Ledger(self.path / user / "ledger.db", user=user))
        return self.opened[-1]


class TestPostgres(StorageContract):
    @pytest.fixture(autouse=True)
    def server(self, postgres_server):
        from wellkept.storage.postgres.database import PostgresServer

        self.server = PostgresServer(postgres_server.shared_url, tenant=postgres_server.make_tenant())
        yield
        self.server.close()

    def _open(self, user):
        from wellkept.memory.postgres import open_storage

        database = self.server.for_user(user)
        return open_storage(database, database.key)

    def pages(self, user=OWNER):
        return self._open(user).pages

    def ledger(self, user=OWNER):
        return self._open(user).ledger

    def put(self, target, raw):
        """Write as a program that knows nothing of locks, over a connection of its own."""
        from wellkept.storage.postgres.database import PostgresServer

        other = PostgresServer(self.server.address, tenant=self.server.tenant)
        with other.for_user(OWNER).writing() as unit:
            unit.execute(
                "INSERT INTO pages AS p (tenant, user_id, name, raw, version) VALUES (:tenant, :user, ?1, ?2, 1) "
                "ON CONFLICT (tenant, user_id, name) DO UPDATE SET raw = ?2, version = p.version + 1",
                (target.value, raw),
            )
        other.close()

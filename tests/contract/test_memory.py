"""Every storage for curated memory keeps the same promises."""

import pytest

from kept.core.ids import OWNER
from kept.memory.ledger import SqliteLedger
from kept.memory.writer import FILE_NAMES, FilePages
from kept.testing.memory_contract import StorageContract


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
        self.opened.append(SqliteLedger(self.path / user / "ledger.db", user=user))
        return self.opened[-1]

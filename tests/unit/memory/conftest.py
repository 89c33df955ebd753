"""What tests of curated memory share: stores on real temporary folders."""

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest

from wellkept.core.clock import FixedClock
from wellkept.memory.settings import MemorySettings
from wellkept.memory.store import MemoryStore


@pytest.fixture
def clock():
    return FixedClock(step=timedelta(seconds=1))


@pytest.fixture
def folder(tmp_path):
    """A real folder, in memory where the system offers that: durability is the matter of tests/faults."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path / "memories"
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name) / "memories"


@pytest.fixture
def make_store(folder, clock):
    """Open stores on the folder with the given settings; each is closed at the end."""
    stores = []

    def make(**settings):
        heard = settings.pop("sink", lambda event: None)
        stores.append(MemoryStore(folder, MemorySettings(**settings), clock=clock, sink=heard))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(make_store):
    return make_store()

"""Real processes on one page: many writers at once, and writers killed in the middle of a write."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from tests import forks

from wellkept.memory.history import History
from wellkept.memory.page import Add, Remove, Target, page_hash, parse, replay
from wellkept.memory.settings import MemorySettings
from wellkept.memory.store import MemoryStore

WIDE = MemorySettings(memory_char_limit=1_000_000, user_char_limit=1_000_000, lock_timeout_seconds=300)

ADDER = """
import sys
from wellkept.memory.page import Add
from wellkept.memory.settings import MemorySettings
from wellkept.memory.store import MemoryStore
folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = MemoryStore(folder, MemorySettings(memory_char_limit=1_000_000, lock_timeout_seconds=300))
for number in range(count):
    outcome = store.apply("memory", Add(f"fact {number} of writer {name}"))
    assert outcome.ledger_ids, outcome
store.close()
"""


def writers(folder, processes, count):
    running = [
        forks.Popen([sys.executable, "-c", ADDER, str(folder), str(name), str(count)], stderr=subprocess.PIPE)
        for name in range(processes)
    ]
    for process in running:
        _, errors = process.communicate()
        assert process.returncode == 0, errors.decode()


def none_lost(folder, processes, count):
    writers(folder, processes, count)
    store = MemoryStore(folder, WIDE)
    wanted = {f"fact {number} of writer {name}" for name in range(processes) for number in range(count)}
    entries = store.entries("memory")

    assert len(entries) == processes * count
    assert set(entries) == wanted
    assert replay(store.ledger.rows(Target.MEMORY)) == tuple(entries)
    assert History(store).gap(Target.MEMORY) is None
    assert len(History(store).rows()) == processes * count
    assert not list(folder.glob(".*kept-tmp*"))
    store.close()


def test_six_writers_at_once_lose_nothing(tmp_path):
    """Six processes adding fifteen entries each: ninety entries, none lost, none torn."""
    none_lost(tmp_path, 6, 15)


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_sixteen_writers_at_once_lose_nothing(tmp_path):
    """16 processes adding 50 entries each: 800 entries, none lost, none torn."""
    none_lost(tmp_path, 16, 50)


class Writer:
    """A child that edits without end and says each edit once it was accepted; forked, so that a round is cheap."""

    def __init__(self, folder, seed):
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(reading)
                edit_forever(folder, seed, writing)
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        self._reading = reading

    def killed_after(self, seconds):
        """Kill -9, and return what was acknowledged before."""
        time.sleep(seconds)
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        assert os.WIFSIGNALED(status), "the writer ended by itself"
        with os.fdopen(self._reading, "rb") as pipe:
            lines = pipe.read().decode().split("\n")
        return [line.split(" ", 1) for line in lines[:-1]]


def edit_forever(folder, seed, pipe):
    store = MemoryStore(folder, WIDE)
    chance = random.Random(seed)
    mine = []
    number = 0
    while True:
        number += 1
        if len(mine) > 3 and chance.random() < 0.4:
            text = mine.pop(chance.randrange(len(mine)))
            os.write(pipe, f"removing {text}\n".encode())
            store.apply("memory", Remove(text))
            os.write(pipe, f"removed {text}\n".encode())
        else:
            text = f"round {seed} edit {number:06d} {'padding ' * chance.randrange(6)}end"
            store.apply("memory", Add(text))
            mine.append(text)
            os.write(pipe, f"added {text}\n".encode())


def killed_in_a_loop(folder, rounds):
    chance = random.Random(20261115)
    store = MemoryStore(folder, WIDE)
    store.apply("memory", Add("the entry that was there before"))
    store.close()
    expected = {"the entry that was there before"}
    acknowledged = voided = 0
    for seed in range(rounds):
        told = Writer(folder, seed).killed_after(chance.uniform(0.002, 0.08))
        gone = {text for word, text in told if word == "removed"}
        maybe_gone = {text for word, text in told if word == "removing"} - gone
        expected = (expected | {text for word, text in told if word == "added"}) - gone
        acknowledged += sum(word != "removing" for word, _ in told)
        entries = verified(folder)
        lost = expected - set(entries) - maybe_gone
        assert not lost, f"round {seed} lost {lost}"
        assert not gone & set(entries), f"round {seed} brought back {gone & set(entries)}"
        extra = set(entries) - expected
        assert len(extra) <= 1, f"round {seed}: only the edit in flight may be there unsaid: {extra}"
        voided += settled(folder, entries)
        expected = set(keep_small(folder, entries))
    return acknowledged, voided


def verified(folder):
    """Return the page after a kill: it parses, every entry is whole, and it was read without a lock."""
    text = (folder / "MEMORY.md").read_bytes().decode()
    entries = parse(text)
    assert "\n§\n".join(entries) == text
    assert all(entry.endswith(("end", "before")) for entry in entries)
    store = MemoryStore(folder, WIDE)
    history = History(store)
    rows = history.rows(Target.MEMORY)
    assert rows[-1].page_after == page_hash(entries) or history.gap(Target.MEMORY)
    store.close()
    return entries


def settled(folder, entries):
    """Make the next edit and see the ledger agree again; return how many rows were voided by it."""
    store = MemoryStore(folder, WIDE)
    before = len(store.ledger.rows(Target.MEMORY))
    store.apply("memory", Add("probe end"))
    store.apply("memory", Remove("probe end"))
    assert replay(store.ledger.rows(Target.MEMORY)) == entries
    assert History(store).gap(Target.MEMORY) is None
    assert not any(row.origin == "outside" for row in History(store).rows())
    voided = before + 2 - len(store.ledger.rows(Target.MEMORY))
    store.close()
    return voided


def keep_small(folder, entries):
    """Keep the page short, so that a round stays cheap; the ledger goes with it now and then."""
    if len(entries) < 40:
        return entries
    store = MemoryStore(folder, WIDE)
    store.apply_all("memory", [Remove(entry) for entry in entries[10:]])
    kept = store.entries("memory")
    store.close()
    return kept


@pytest.fixture
def folder(tmp_path):
    """A folder in memory, where there is one: a kill is not a power loss, and faster edits are killed at more different moments."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def test_killed_writers_lose_nothing(folder):
    """kill -9 at random moments, sixty times: every acknowledged edit is there, the page always parses."""
    acknowledged, _ = killed_in_a_loop(folder, 60)

    assert acknowledged > 20


@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_a_thousand_killed_writers_lose_nothing(folder):
    """kill -9 in 1,200 rounds; ledger rows whose page was never written occurred and were voided."""
    acknowledged, voided = killed_in_a_loop(folder, 1_200)

    assert acknowledged > 500
    assert voided > 0

"""The outbox over kill -9: every finished turn reaches the provider, none twice where the backend is idempotent."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import apsw
import pytest
from tests import forks

from wellkept.providers.writes import FinishedTurn
from wellkept.testing.provider_contract import Bench, RecordingProvider, eventually

CHILD = """
import pathlib, random, sys, time
import apsw
from wellkept.providers.writes import FinishedTurn
from wellkept.testing.provider_contract import Bench, RecordingProvider

home, first, last = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


class Backend(RecordingProvider):
    def sync_turn(self, user, assistant, *, session_id="", idempotency_key=""):
        backend = apsw.Connection(str(home / "backend.db"))
        backend.set_busy_timeout(5000)
        backend.execute("INSERT INTO deliveries (key, session) VALUES (?, ?)", (idempotency_key, session_id))
        backend.execute("INSERT OR IGNORE INTO facts (key, text) VALUES (?, ?)", (idempotency_key, user))
        backend.close()
        if random.random() < 0.05:
            raise ConnectionError("the answer was lost")


bench = Bench(home)
manager = bench.manager(Backend(), session_id=f"session-{first}", breaker_failures=1000)
print("ready", flush=True)
for number in range(first, last):
    turn = FinishedTurn(session_id=f"session-{first}", key=str(number), user=f"turn {number}", assistant="done")
    with bench.database.writing() as unit:
        unit.execute("INSERT INTO state_meta (key, value) VALUES (?, ?)", (f"turn:{number}", "done"))
        manager.writes.queue_turn(unit, turn)
    manager.writes.after_turn(turn)
    time.sleep(random.uniform(0, 0.02))
time.sleep(60)
"""


def finished(bench):
    with bench.database.reading() as unit:
        return sorted(
            int(key.partition(":")[2]) for (key,) in unit.execute("SELECT key FROM state_meta WHERE key LIKE 'turn:%'")
        )


def run_until_killed(home, first, last, *, rng):
    child = forks.Popen([sys.executable, "-c", CHILD, str(home), str(first), str(last)], stdout=subprocess.PIPE)
    child.stdout.readline()
    time.sleep(rng.uniform(0.01, 0.2))
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()


@pytest.mark.timeout(600)
def test_every_finished_turn_arrives_over_kills(tmp_path):
    """Killed at random moments; after the last drain the backend holds each finished turn exactly once."""
    total = 1_000 if os.environ.get("KEPT_HEAVY") else 60
    rng = random.Random(7)
    backend = apsw.Connection(str(tmp_path / "backend.db"))
    backend.execute(
        "CREATE TABLE deliveries (key TEXT, session TEXT); CREATE TABLE facts (key TEXT PRIMARY KEY, text TEXT)"
    )
    bench = Bench(tmp_path)
    done = []
    while len(done) < total:
        run_until_killed(tmp_path, len(done), total, rng=rng)
        done = finished(bench)

    class Backend(RecordingProvider):
        def sync_turn(self, user, assistant, *, session_id="", idempotency_key=""):
            backend.execute("INSERT INTO deliveries (key, session) VALUES (?, ?)", (idempotency_key, session_id))
            backend.execute("INSERT OR IGNORE INTO facts (key, text) VALUES (?, ?)", (idempotency_key, user))

    bench.manager(Backend(), session_id="last")
    bench.outbox.retry()
    eventually(lambda: bench.outbox.items() == [], seconds=60)
    bench.close()

    assert done == list(range(total))
    texts = [text for (text,) in backend.execute("SELECT text FROM facts")]
    assert sorted(texts) == sorted(f"turn {number}" for number in done)
    first_arrivals = list(dict.fromkeys(key for (key,) in backend.execute("SELECT key FROM deliveries ORDER BY rowid")))
    assert [int(key.rpartition(":")[2]) for key in first_arrivals] == done, "strictly in order"
    sessions = backend.execute("SELECT count(*) FROM deliveries WHERE session = 'last' OR session = ''").fetchall()
    assert sessions == [(0,)], "each item keeps its own session id"


def test_two_processes_drain_one_lane_without_overlap(tmp_path):
    """Managers that share a home deliver each turn once, in order."""
    bench = Bench(tmp_path)
    seen, guard = [], threading.Lock()

    class Slow(RecordingProvider):
        def sync_turn(self, user, assistant, *, session_id=""):
            with guard:
                seen.append(user)
            time.sleep(0.002)

    first, second = bench.manager(Slow()), bench.manager(Slow())
    for number in range(40):
        bench.settle(
            random.choice([first, second]),
            FinishedTurn(session_id="s1", key=str(number), user=str(number), assistant="a"),
        )
    eventually(lambda: bench.outbox.items() == [], seconds=30)
    bench.close()

    assert seen == [str(number) for number in range(40)]

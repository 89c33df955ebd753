"""How long the screens of the web app take to their first byte, on a large store.

    python benchmarks/web.py [--messages 100000] [--sessions 50000] [--edits 10000] [--runs 15] [--keep FOLDER]

Starts `kept serve` on a made-up home and asks every screen in turn, so that all of them meet the same load. Prints the
clock and the processor time of the server to the first byte, p50, and the size of the page. Ends with 1 when a screen
takes more than 100 ms at p50; on a loaded machine only the processor time can be compared.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median

import httpx2
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.corpus import Corpus
from benchmarks.scale import new

from wellkept.app import open_app
from wellkept.core.ids import SessionId
from wellkept.core.messages import Session
from wellkept.memory.page import Add, Replace
from wellkept.operations import memory
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

BAR = 0.1
"""Seconds to the first byte, p50."""
TICK = os.sysconf("SC_CLK_TCK")
SCREENS = (
    "/", "/memory", "/memory/time", "/memory/stale", "/memory/archive", "/search",
    "/search?q=the+river+and+the+mountain", "/sessions", "/chat", "/preview", "/preview?prompt=what+about+the+river",
    "/receipts", "/receipts?often=true", "/skills",
    "/agents", "/providers", "/usage", "/forget", "/settings", "/more",
)  # fmt: skip


def main() -> int:
    """Measure all screens."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=100_000)
    options.add_argument("--sessions", type=int, default=50_000)
    options.add_argument("--edits", type=int, default=10_000)
    options.add_argument("--runs", type=int, default=15)
    options.add_argument("--keep", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = chosen.keep or Path(folder)
        fill(home, chosen.messages, chosen.sessions, chosen.edits)
        with serve(home) as (url, pid):
            found = measure(url, pid, chosen.runs)
    slow = 0
    for address, rows in found.items():
        wall, used, size = (median(column) for column in zip(*rows, strict=True))
        slow += wall > BAR
        print(f"{address:<40} {wall * 1_000:7.1f} ms {used * 1_000:7.1f} ms processor {size / 1_000:8.1f} KB")
    return int(bool(slow))


def fill(home: Path, messages: int, sessions: int, edits: int) -> None:
    """Make the store, its conversations two hours apart until now, and a ledger, unless they are there."""
    home.mkdir(parents=True, exist_ok=True)
    if (home / "state.db").exists():
        return
    store = SqliteSessionStore(open_state(home / "state.db"))
    each = max(1, messages // sessions)
    begin = time.time() - sessions * 7_200
    talk = Corpus().messages(each * sessions)
    for start in range(0, sessions, 1_000):
        with store.database.writing():
            for number in range(start, min(start + 1_000, sessions)):
                name, moment = SessionId(f"s{number}"), begin + number * 7_200
                store.create(Session(name, ("cli", "claude-code", "codex")[number % 3], moment))
                store.append(name, [replace(new(one), timestamp=moment) for one in islice(talk, each)])
    store.close()
    app = open_app(str(home), environ={"HOME": str(home)})
    caller = app.caller()
    for number in range(edits):
        place = number % 20
        if number < 20:
            memory.edit_entry(caller, Add(f"fact {place}: version {number}"))
        else:
            memory.edit_entry(caller, Replace(f"fact {place}: version", f"fact {place}: version {number}"))
    app.close()


@contextmanager
def serve(home: Path) -> Iterator[tuple[str, int]]:
    """Run the server as a process of its own; this machine needs no token."""
    environ = {**os.environ, "KEPT_HOME": str(home), "HOME": str(home), "KEPT_SERVE__REQUESTS_PER_MINUTE": "100000"}
    environ["KEPT_SERVE__REQUIRE_TOKEN"] = "false"
    command = [sys.executable, "-m", "wellkept", "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, env=environ, cwd="/", stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        try:
            yield ready["url"], ready["pid"]
        finally:
            process.terminate()


def measure(url: str, pid: int, runs: int) -> dict[str, list[tuple[float, float, int]]]:
    """Return seconds of the clock and of the processor to the first byte, and the bytes of each answer, by screen."""
    found: dict[str, list[tuple[float, float, int]]] = {address: [] for address in SCREENS}
    with httpx2.Client(base_url=url, headers={"Accept": "text/html"}, timeout=60) as client:
        for number in range(runs + 1):
            for address in SCREENS:
                used, began = read_processor_seconds(pid), time.perf_counter()
                with client.stream("GET", address) as answer:
                    pieces = answer.iter_raw()
                    size = len(next(pieces, b""))
                    wall = time.perf_counter() - began
                    size += sum(len(piece) for piece in pieces)
                assert answer.status_code == 200, (address, answer.status_code)
                if number:  # the first round fills caches
                    found[address].append((wall, read_processor_seconds(pid) - used, size))
    return found


def read_processor_seconds(pid: int) -> float:
    """Return how long the process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


if __name__ == "__main__":
    sys.exit(main())

"""Curated memory: what an edit costs with every byte synced, and what a session pays to load its pages.

    python benchmarks/memory.py [--folder WHERE] [--rounds N] [--json]

Times are also given as shares of a fixed loop of pure Python, which makes machines comparable.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from wellkept.memory.page import Add, Replace
from wellkept.memory.settings import MemorySettings
from wellkept.memory.store import MemoryStore

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.baseline import reference_loop_seconds

ENTRIES = 15


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--folder", help="a folder on the disk that is measured; the system's temporary one by default"
    )
    options.add_argument("--rounds", type=int, default=200)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    reference = reference_loop_seconds()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        measured = measure(Path(name), chosen.rounds)
    rows = {what: summary(times, reference) for what, times in measured.items()}
    if chosen.json:
        print(json.dumps({"reference_loop_ms": reference * 1000, **rows}, indent=2))
        return
    print(
        f"reference loop {reference * 1000:.1f} ms; {chosen.rounds} rounds on {chosen.folder or tempfile.gettempdir()}"
    )
    for what, row in rows.items():
        figures = f"p50 {row['p50_ms']:8.2f} ms   p99 {row['p99_ms']:8.2f} ms"
        print(f"{what:34} {figures}   p50/loop {row['p50_per_loop']:.3f}")


def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return the times of each kind of work, on pages of fifteen entries as they are in real use."""
    store = MemoryStore(folder / "memories", MemorySettings(memory_char_limit=1_000_000))
    for number in range(ENTRIES):
        store.apply(
            "memory", Add(f"Fact {number}: the staging database of project {number} runs on port {5400 + number}.")
        )
    bare = folder / "bare"
    measured = {
        "add (fsync, ledger, read back)": timed(
            lambda n: store.apply("memory", Add(f"A new fact, number {n}.")), rounds
        ),
        "replace (fsync, ledger, read back)": timed(
            lambda n: store.apply("memory", Replace(f"new fact, number {n}.", f"A changed fact, number {n}.")), rounds
        ),
        "one fsynced 2 KB file, for scale": timed(lambda n: synced(bare, n), rounds),
    }
    store.close()
    small = MemoryStore(folder / "small")
    small.apply_all(
        "memory", [Add(f"Fact {number}: staging runs on port {5400 + number}.") for number in range(ENTRIES)]
    )
    small.apply_all("user", [Add(f"Prefers answer style {number}.") for number in range(ENTRIES)])
    small.close()

    def load(_: int) -> None:
        MemoryStore(folder / "small").load()

    load(0)
    measured[f"load both pages, {ENTRIES} entries each"] = timed(load, rounds)
    return measured


def synced(path: Path, number: int) -> None:
    import os

    with path.open("wb") as file:
        file.write(bytes([number % 256]) * 2_000)
        file.flush()
        os.fsync(file.fileno())


def timed(work: Callable[[int], object], rounds: int) -> list[float]:
    times = []
    for number in range(rounds):
        start = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - start)
    return sorted(times)


def summary(times: list[float], reference: float) -> dict[str, float]:
    middle, late = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
    return {"p50_ms": middle * 1000, "p99_ms": late * 1000, "p50_per_loop": middle / reference}


if __name__ == "__main__":
    main()

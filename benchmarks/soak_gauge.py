"""What a long run is measured by: the process, its files, its threads, and whether they grow."""

import gc
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

WARM_SHARE = 0.25
"""The part of the run after which growth counts: caches and pools fill in the beginning."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the process."""

    seconds: float
    turns: int
    resident_mb: float
    sqlite_mb: float
    """What SQLite holds of that: page caches, which fill as the store grows and are bounded per connection."""
    objects: int
    """Objects that the collector knows of; unlike the resident set it knows no fragmentation."""
    open_files: int
    threads: int
    wal_mb: float
    databases_mb: float
    processor_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the run may come to."""

    mb_per_hour: float = 20.0
    """Growth of the resident set without SQLite's caches, which have a bound of their own."""
    sqlite_mb: float = 200.0
    objects_per_hour: float = 50_000.0
    open_files: int = 150
    threads: int = 60
    wal_mb: float = 32.0


def sample(home: Path, *, began: float, turns: int) -> Sample:
    """Look at this process and at the databases under `home`."""
    gc.collect()
    return Sample(
        time.monotonic() - began,
        turns,
        int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6,
        apsw.memory_used() / 1e6,
        len(gc.get_objects()),
        sum(1 for _ in Path("/proc/self/fd").iterdir()),
        threading.active_count(),
        _megabytes(home, "*.db-wal"),
        _megabytes(home, "*.db"),
        time.process_time(),
    )


def _megabytes(home: Path, pattern: str) -> float:
    return sum(path.stat().st_size for path in home.rglob(pattern)) / 1e6


def slope_per_hour(samples: Sequence[Sample], of: Callable[[Sample], float]) -> float:
    """Return the growth per hour, by least squares."""
    middle = sum(each.seconds for each in samples) / len(samples)
    mean = sum(of(each) for each in samples) / len(samples)
    spread = sum((each.seconds - middle) ** 2 for each in samples)
    together = sum((each.seconds - middle) * (of(each) - mean) for each in samples)
    return 3600 * together / spread if spread else 0.0


def warmed_up(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples after the beginning."""
    since = samples[-1].seconds * WARM_SHARE
    return [each for each in samples if each.seconds >= since]


def table(samples: Sequence[Sample], *, rows: int = 16) -> str:
    """Return some of the samples, evenly spaced, the last one among them."""
    step = max(1, -(-len(samples) // rows))
    shown = [*samples[:-1:step], samples[-1]]
    names = ("min", "turns", "RSS MB", "SQLite", "objects", "files", "threads", "WAL MB", "DB MB")
    lines = ["".join(f"{name:>9}" for name in names)]
    lines += [
        f"{each.seconds / 60:9.1f}{each.turns:9,}{each.resident_mb:9.1f}{each.sqlite_mb:9.1f}{each.objects:9,}"
        f"{each.open_files:9}{each.threads:9}{each.wal_mb:9.1f}{each.databases_mb:9.1f}"
        for each in shown
    ]
    return "\n".join(lines)


def verdict(samples: Sequence[Sample], bounds: Bounds) -> tuple[list[str], bool]:
    """Return a line per bound, and whether all were kept."""
    settled = warmed_up(samples)
    found = [
        ("SQLite's caches", max(each.sqlite_mb for each in settled), bounds.sqlite_mb, "MB at most"),
        (
            "resident set without them",
            slope_per_hour(settled, lambda each: each.resident_mb - each.sqlite_mb),
            bounds.mb_per_hour,
            "MB per hour",
        ),
        ("objects", slope_per_hour(settled, lambda each: each.objects), bounds.objects_per_hour, "per hour"),
        ("open files", max(each.open_files for each in settled), bounds.open_files, "at most"),
        ("threads", max(each.threads for each in settled), bounds.threads, "at most"),
        ("WAL", max(each.wal_mb for each in settled), bounds.wal_mb, "MB at most"),
    ]
    lines = [
        f"  {'ok  ' if value <= bound else 'GREW'} {name}: {value:,.1f} {unit} (bound {bound:,.0f})"
        for name, value, bound, unit in found
    ]
    return lines, all(value <= bound for _, value, bound, _ in found)

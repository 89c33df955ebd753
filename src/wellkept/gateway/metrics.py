"""Metrics of the server: `/metrics` in the text format of Prometheus, and log lines about the process."""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, field

from wellkept import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

log = logging.getLogger(__name__)

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MONITOR_SECONDS = 300.0
_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper ends of the buckets for turns, in seconds: from a scripted model to an agent with many tools."""


class Metrics(Struct):
    """What was counted since the start of the process."""

    requests: Counter[int] = field(default_factory=Counter)
    """Answers by status."""
    turns: Counter[str] = field(default_factory=Counter)
    """Turns by outcome: done, interrupted or failed."""
    began: float = field(default_factory=time.monotonic)
    _seconds: float = 0.0
    _buckets: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))

    def count_turn(self, seconds: float, outcome: str) -> None:
        """Count a turn that ended."""
        self.turns[outcome] += 1
        self._seconds += seconds
        self._buckets[bisect_left(_BOUNDS, seconds)] += 1

    def render(self, gauges: Iterable[tuple[str, str, float]]) -> str:
        """Return all figures; each gauge has a name, a description and its value now."""
        lines = [
            *_render("kept_requests_total", "counter", "Answered requests by status.", self._list_requests()),
            *_render("kept_turns_total", "counter", "Turns by how they ended.", self._list_turns()),
            *_render("kept_turn_seconds", "histogram", "Duration of turns.", self._list_seconds()),
        ]
        for name, description, value in (*gauges, *self._list_process()):
            lines += _render(f"kept_{name}", "gauge", description, [("", value)])
        lines += _render("kept_info", "gauge", "The running version.", [(f'{{version="{__version__}"}}', 1)])
        return "\n".join(lines) + "\n"

    def _list_requests(self) -> list[tuple[str, float]]:
        return [(f'{{status="{status}"}}', count) for status, count in sorted(self.requests.items())]

    def _list_turns(self) -> list[tuple[str, float]]:
        return [(f'{{outcome="{name}"}}', self.turns[name]) for name in ("done", "interrupted", "failed")]

    def _list_seconds(self) -> Iterator[tuple[str, float]]:
        total = 0
        for bound, count in zip((*_BOUNDS, None), self._buckets, strict=True):
            total += count  # buckets are cumulative: each counts what the smaller ones count
            yield (f'_bucket{{le="{"+Inf" if bound is None else f"{bound:g}"}"}}', total)
        yield ("_sum", round(self._seconds, 6))
        yield ("_count", total)

    def _list_process(self) -> list[tuple[str, str, float]]:
        return [
            ("resident_memory_bytes", "Memory of the process.", measure_memory()),
            ("threads", "Threads of the process.", threading.active_count()),
            ("uptime_seconds", "Seconds since the start.", round(time.monotonic() - self.began, 3)),
        ]

    def describe_process(self) -> str:
        """Return memory, garbage collections, threads and uptime of the process in one line."""
        collections = sum(one["collections"] for one in gc.get_stats())
        return (
            f"memory {measure_memory() // 1_000_000} MB, peak {_measure_peak() // 1_000_000} MB, "
            f"{collections} collections, {threading.active_count()} threads, up {time.monotonic() - self.began:.0f} s"
        )

    async def monitor(self) -> None:
        """Log the state of the process: now, every few minutes, and when this is cancelled because the server stops."""
        try:
            when = "start"
            while True:
                log.info("at %s: %s", when, self.describe_process())
                when = "work"
                await anyio.sleep(MONITOR_SECONDS)
        finally:
            log.info("at stop: %s", self.describe_process())


def _render(name: str, kind: str, description: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP {name} {description}"
    yield f"# TYPE {name} {kind}"
    for suffix, value in samples:
        yield f"{name}{suffix} {value}"


def measure_memory() -> int:
    """Return the resident memory of the process in bytes; its peak if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return _measure_peak()
    return pages * os.sysconf("SC_PAGE_SIZE")


def _measure_peak() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes on Linux

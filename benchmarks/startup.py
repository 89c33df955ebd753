"""Start-up: the time of commands that only read, each in a process of its own, files and bytecode warm.

    python benchmarks/startup.py [--runs 15] [--json]

Ends with 1 when the best time of `kept memory show` is over its bar of 0.35 s.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.baseline import reference_loop_seconds

BAR_SECONDS = 0.35
COMMANDS = {
    "kept version": ["version"],
    "kept memory show": ["memory", "show"],
    "kept memory show --json": ["memory", "show", "--json"],
    "kept memory snapshot": ["memory", "snapshot"],
    "kept memory log": ["memory", "log"],
    "kept config show": ["config", "show"],
    "kept profile list": ["profile", "list"],
    "kept --help": ["--help"],
}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=15)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    reference = reference_loop_seconds()
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "KEPT_HOME": home}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has its bytecode
        for number in range(15):
            kept(["memory", "add", f"Fact {number}: staging runs on port {5400 + number}."], environment)
        runs = {name: [kept(words, environment) for _ in range(chosen.runs)] for name, words in COMMANDS.items()}
        runs["python -c pass"] = [used([sys.executable, "-c", "pass"], environment) for _ in range(chosen.runs)]
    rows = {name: summary(each, reference) for name, each in runs.items()}
    if chosen.json:
        print(json.dumps({"reference_loop_s": reference, **rows}, indent=2))
    else:
        print(f"reference loop {reference * 1000:.0f} ms; {chosen.runs} runs each")
        for name, row in rows.items():
            wall = f"wall min {row['min_s'] * 1000:5.0f} ms, median {row['median_s'] * 1000:5.0f} ms"
            print(f"{name:26} {wall}   cpu {row['cpu_s'] * 1000:5.0f} ms   wall/loop {row['min_per_loop']:.2f}")
    return 0 if rows["kept memory show"]["min_s"] <= BAR_SECONDS else 1


def summary(runs: list[tuple[float, float]], reference: float) -> dict[str, float]:
    walls, cpus = zip(*runs, strict=True)
    return {
        "min_s": min(walls),
        "median_s": statistics.median(walls),
        "cpu_s": min(cpus),
        "min_per_loop": min(walls) / reference,
    }


def kept(words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    return used([str(Path(sys.executable).with_name("kept")), *words], environment)


def used(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the wall and the processor seconds that a command takes."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, capture_output=True, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())

"""Start-up: the time of commands that only read, and how long until a chat can be typed into.

    python benchmarks/startup.py [--runs 15] [--json]

Each run is a process of its own, files and bytecode warm; a chat runs in a pseudo-terminal until its prompt is drawn.
Ends with 1 when the best time of a reading command is over 0.35 s, or that of a chat over 0.6 s.
"""

import argparse
import json
import os
import pty
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.baseline import reference_loop_seconds

KEPT = str(Path(sys.executable).with_name("kept"))
READ_BAR, CHAT_BAR = 0.35, 0.6
PROMPT = "›".encode()
GIVE_UP_SECONDS = 20
READS = {
    "kept version": ["version"],
    "kept memory show": ["memory", "show"],
    "kept memory show --json": ["memory", "show", "--json"],
    "kept memory snapshot": ["memory", "snapshot"],
    "kept memory log": ["memory", "log"],
    "kept config show": ["config", "show"],
    "kept profile list": ["profile", "list"],
    "kept sessions list": ["sessions", "list"],
    "kept sessions search": ["sessions", "search", "staging port"],
    "kept skills list": ["skills", "list"],
    "kept tool skills_list": ["tool", "skills_list", "{}"],
    "kept tool session_search": ["tool", "session_search", '{"query": "staging port"}'],
    "kept usage": ["usage"],
    "kept providers status": ["providers", "status"],
    "kept --help": ["--help"],
}
NOWHERE = "http://127.0.0.1:9"
CHATS = {
    "kept chat, no model": {},
    "kept chat, openai": {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{NOWHERE}/v1"},
    "kept chat, anthropic": {"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": NOWHERE},
}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=15)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    reference = reference_loop_seconds()
    with tempfile.TemporaryDirectory() as home:
        runs = measured(chosen.runs, environment(home))
    rows = {name: summary(each, reference) for name, each in runs.items()}
    if chosen.json:
        print(json.dumps({"reference_loop_s": reference, **rows}, indent=2))
    else:
        print(f"reference loop {reference * 1000:.0f} ms; {chosen.runs} runs each")
        for name, row in rows.items():
            wall = f"wall min {row['min_s'] * 1000:5.0f} ms, median {row['median_s'] * 1000:5.0f} ms"
            print(f"{name:34} {wall}   cpu {row['cpu_s'] * 1000:5.0f} ms   wall/loop {row['min_per_loop']:.2f}")
    late = [name for name, row in rows.items() if row["min_s"] > (CHAT_BAR if "chat" in name else READ_BAR)]
    if late:
        print("over the bar:", ", ".join(late), file=sys.stderr)
    return 1 if late else 0


def environment(home: str) -> dict[str, str]:
    """Return the environment of a person with a terminal and nothing configured but the home."""
    keys = {"PYTHONDONTWRITEBYTECODE"} | {key for each in CHATS.values() for key in each}  # installed means compiled
    kept_out = {name: value for name, value in os.environ.items() if name not in keys}
    return {**kept_out, "KEPT_HOME": home, "TERM": "xterm-256color"}


def measured(count: int, around: dict[str, str]) -> dict[str, list[tuple[float, float]]]:
    """Return wall and processor seconds of each run, by name."""
    for number in range(15):
        spent([KEPT, "memory", "add", f"Fact {number}: staging runs on port {5400 + number}."], around)
    spent([KEPT, "run", "The staging database listens on port 5433."], around)
    runs = {name: [spent([KEPT, *words], around) for _ in range(count)] for name, words in READS.items()}
    runs["python -c pass"] = [spent([sys.executable, "-c", "pass"], around) for _ in range(count)]
    for name, extra in CHATS.items():
        runs[name] = [ready(around | extra) for _ in range(count)]
    spent([KEPT, "config", "set", "memory.provider", "holographic"], around)
    runs["kept chat, openai and holographic"] = [ready(around | CHATS["kept chat, openai"]) for _ in range(count)]
    return runs


def summary(runs: list[tuple[float, float]], reference: float) -> dict[str, float]:
    walls, cpus = zip(*runs, strict=True)
    return {
        "min_s": min(walls),
        "median_s": statistics.median(walls),
        "cpu_s": min(cpus),
        "min_per_loop": min(walls) / reference,
    }


def spent(command: list[str], around: dict[str, str]) -> tuple[float, float]:
    """Return the wall and the processor seconds that a command takes."""
    start = time.perf_counter()
    process = subprocess.Popen(command, env=around, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} failed")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def ready(around: dict[str, str]) -> tuple[float, float]:
    """Return the wall and the processor seconds until a chat has drawn its prompt."""
    start = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.execve(KEPT, [KEPT, "chat"], around)
    seen = b""
    while PROMPT not in seen:
        if not select.select([terminal], [], [], GIVE_UP_SECONDS)[0]:
            raise SystemExit(f"no prompt within {GIVE_UP_SECONDS} s")
        seen += os.read(terminal, 65_536)
    wall = time.perf_counter() - start
    os.kill(child, signal.SIGKILL)
    _, _, usage = os.wait4(child, 0)
    os.close(terminal)
    return wall, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())

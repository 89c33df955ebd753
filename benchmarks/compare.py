"""Compare two checkouts of kept, alternating them command by command in one run.

    python benchmarks/compare.py OLD/.venv/bin/python NEW/.venv/bin/python --rounds 15 --messages 20000

Each side has a home of its own with the same synthetic conversations. The figures are processor seconds of the whole
process (its own and the system's), median of all rounds, and the ratio new/old. Sizes of the databases come last.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import tempfile
from pathlib import Path
from statistics import median

WORDS = [f"{start}{end}" for start in ("har", "mel", "tor", "bin", "cas", "del", "fen", "gol") for end in
         ("bor", "dan", "fix", "gate", "hull", "line", "moss", "pine", "rock", "stone", "vale", "wood")]  # fmt: skip

COMMANDS = {
    "memory show": ["memory", "show"],
    "memory add": ["memory", "add", "The build number is {round}"],
    "sessions list": ["sessions", "list"],
    "search, rare words": ["sessions", "search", "harbor{round} pinewood"],
    "search, question": ["sessions", "search", "what did we say about the melstone and the fengate?"],
    "run, one turn": ["run", "What do you know about the torvale?"],
}


def main() -> None:
    """Run every command on both sides in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the python of the older checkout's environment")
    parser.add_argument("new", help="the python of the newer checkout's environment")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--messages", type=int, default=20_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kept-compare-") as folder:
        sides = {"old": asked.old, "new": asked.new}
        homes = {side: Path(folder) / side for side in sides}
        lines = Path(folder) / "talk.jsonl"
        _write_conversations(lines, asked.messages)
        for side, python in sides.items():
            _run(python, homes[side], ["sessions", "import", str(lines)])
            _run(python, homes[side], ["memory", "show"])  # compiles what is imported
        print(f"{'command':<24} {'old ms':>9} {'new ms':>9}  ratio")
        for name, arguments in COMMANDS.items():
            seconds: dict[str, list[float]] = {side: [] for side in sides}
            for number in range(asked.rounds):
                filled = [each.format(round=number) for each in arguments]
                for side, python in sides.items():
                    seconds[side].append(_run(python, homes[side], filled))
            old, new = median(seconds["old"]), median(seconds["new"])
            print(f"{name:<24} {old * 1000:>9.1f} {new * 1000:>9.1f}  {new / old:.2f}")
        sizes = {side: (homes[side] / "state.db").stat().st_size for side in sides}
        print(f"{'state.db, bytes':<24} {sizes['old']:>9,} {sizes['new']:>9,}  {sizes['new'] / sizes['old']:.2f}")


def _write_conversations(file: Path, count: int) -> None:
    chance = random.Random(12)
    with file.open("w", encoding="utf-8") as out:
        for number in range(count):
            text = " ".join(chance.choices(WORDS, k=chance.randint(6, 30)))
            line = {
                "session_id": f"s{number // 20}",
                "role": "user" if number % 2 == 0 else "assistant",
                "content": text,
                "timestamp": 1_700_000_000 + number * 60,
            }
            out.write(json.dumps(line) + "\n")


def _run(python: str, home: Path, arguments: list[str]) -> float:
    """Run one command and return its processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [python, "-m", "wellkept", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(home.parent), "KEPT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()

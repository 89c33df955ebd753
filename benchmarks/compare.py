"""Compare two checkouts of kept, alternating them command by command in one run.

    python benchmarks/compare.py OLD/.venv/bin/python NEW/.venv/bin/python --rounds 15 --messages 20000

Each side has a home of its own with the same synthetic conversations. The figures are processor seconds of the whole
process (its own and the system's), the best and the median of all rounds, the ratios new/old, and the largest resident
memory in MB. Completions over HTTP are those of one server each. Sizes of the databases come last.
"""

import argparse
import json
import os
import pty
import random
import select
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from msgspec import Struct

WORDS = [f"{start}{end}" for start in ("har", "mel", "tor", "bin", "cas", "del", "fen", "gol") for end in
         ("bor", "dan", "fix", "gate", "hull", "line", "moss", "pine", "rock", "stone", "vale", "wood")]  # fmt: skip

COMMANDS = {
    "version": ["version"],
    "memory show": ["memory", "show"],
    "memory add": ["memory", "add", "The build number is {round}"],
    "sessions list": ["sessions", "list"],
    "search, one word": ["sessions", "search", "harbor"],
    "search, AND": ["sessions", "search", "melstone AND fengate"],
    "search, phrase": ["sessions", "search", '"melstone fengate"'],
    "search, part of a word": ["sessions", "search", "elston"],
    "search, prefix": ["sessions", "search", "mels*"],
    "search, question": ["sessions", "search", "what did we say about the melstone and the fengate?"],
    "run, one turn": ["run", "What do you know about the torvale?"],
    "prompt hook": ["hook", "claude-code"],
}
PROMPT = "›".encode()
COMPLETIONS = 10
"""In each round, because the processor time of a running process is counted in ticks."""
IMPORT, IMPORTS = "import", 3
"""Of all messages into a new home; fewer rounds than the others have, because one takes seconds."""


class Cost(Struct, frozen=True):
    """What one piece of work took."""

    seconds: float
    megabytes: float


class Side:
    """One of the checkouts, with its home."""

    def __init__(self, python: str, home: Path) -> None:
        self.home = home
        find = "import importlib.util as u; print(next(name for name in ('wellkept', 'kept') if u.find_spec(name)))"
        package = subprocess.run([python, "-c", find], capture_output=True, text=True, check=True).stdout.strip()
        self._command = [python, "-m", package]
        self._server: subprocess.Popen[str] | None = None
        self._request = urllib.request.Request("http://127.0.0.1")

    def run(self, arguments: list[str], *, home: Path | None = None, given: str = "") -> Cost:
        """Run one command."""
        process = subprocess.Popen(
            [*self._command, *arguments], env=self._environment(home or self.home),
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(given)
        process.stdin.close()
        return _wait(process.pid)

    def open_chat(self) -> Cost:
        """Start a chat in a terminal, until its prompt is drawn."""
        child, terminal = pty.fork()
        if child == 0:
            os.execve(self._command[0], [*self._command, "chat"], {**self._environment(self.home), "TERM": "xterm"})
        drawn = b""
        while PROMPT not in drawn:
            if not select.select([terminal], [], [], 60)[0]:
                raise SystemExit("no prompt within 60 s")
            drawn += os.read(terminal, 65_536)
        os.kill(child, signal.SIGKILL)
        cost = _wait(child)
        os.close(terminal)
        return cost

    def serve(self) -> None:
        """Start a server."""
        environment = self._environment(self.home)
        create = [*self._command, "serve", "token", "create", "--json"]
        token = json.loads(subprocess.run(create, env=environment, capture_output=True, text=True, check=True).stdout)
        self._server = subprocess.Popen(
            [*self._command, "serve", "--port", "0", "--json"], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self._server.stdout is not None
        url = json.loads(self._server.stdout.readline())["url"]
        body = {"model": "kept", "messages": [{"role": "user", "content": "What do you know about the torvale?"}]}
        headers = {"authorization": f"Bearer {token['token']}", "content-type": "application/json"}
        self._request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)

    def complete(self) -> Cost:
        """Ask the server for completions; return what one of them took, and the memory in use."""
        if self._server is None:
            self.serve()
            self.complete()
        assert self._server is not None
        folder = Path("/proc", str(self._server.pid))
        before = _read_ticks(folder)
        for _ in range(COMPLETIONS):
            with urllib.request.urlopen(self._request, timeout=60) as answer:
                answer.read()
        ticks = _read_ticks(folder) - before
        pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
        return Cost(ticks / os.sysconf("SC_CLK_TCK") / COMPLETIONS, pages * os.sysconf("SC_PAGE_SIZE") / 1_048_576)

    def stop(self) -> None:
        """Stop the server, if there is one."""
        if self._server is not None:
            self._server.terminate()
            self._server.communicate()

    def _environment(self, home: Path) -> dict[str, str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home.parent), "KEPT_HOME": str(home)}
        return {**environment, "KEPT_CONNECT__PROMPT_SECONDS": "20"}


def main() -> None:
    """Run every command on both sides in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the python of the older checkout's environment")
    parser.add_argument("new", help="the python of the newer checkout's environment")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--only", nargs="+", default=[], help="names of rows")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kept-compare-") as folder:
        sides = [Side(python, Path(folder, name)) for name, python in (("old", chosen.old), ("new", chosen.new))]
        lines = Path(folder) / "talk.jsonl"
        _write_conversations(lines, chosen.messages)
        for side in sides:
            side.run(["sessions", "import", str(lines)])
            side.run(["memory", "show"])  # compiles what is imported
        work: dict[str, Callable[[Side, int], Cost]] = {name: partial(_run, name) for name in COMMANDS}
        work["chat ready"] = lambda side, _: side.open_chat()
        work["HTTP completion"] = lambda side, _: side.complete()
        work[IMPORT] = partial(_import, lines)
        print(f"{'':<24} {'best ms':>17} {'ratio':>6} {'median ms':>17} {'ratio':>6} {'MB':>11}")
        for name, piece in work.items():
            if not chosen.only or name in chosen.only:
                _compare(name, sides, chosen.rounds if name != IMPORT else min(IMPORTS, chosen.rounds), piece)
        for side in sides:
            side.stop()
        old, new = ((side.home / "state.db").stat().st_size for side in sides)
        print(f"{'state.db, bytes':<24} {old:>9,} {new:>9,}  {new / old:.2f}")


def _compare(name: str, sides: list[Side], rounds: int, work: Callable[[Side, int], Cost]) -> None:
    costs: list[list[Cost]] = [[], []]
    for number in range(rounds):
        for index in (0, 1) if number % 2 else (1, 0):
            costs[index].append(work(sides[index], number))
    cells = [f"{name:<24}"]
    for summarise in (min, median):
        old, new = (summarise([cost.seconds for cost in side]) * 1000 for side in costs)
        cells.append(f"{old:>8.1f} {new:>8.1f} {new / old:>6.2f}")
    old, new = (median(cost.megabytes for cost in side) for side in costs)
    print(*cells, f"{old:>5.1f} {new:>5.1f}", flush=True)


def _run(name: str, side: Side, number: int) -> Cost:
    filled = [argument.format(round=number) for argument in COMMANDS[name]]
    if filled[0] != "hook":
        return side.run(filled)
    prompt = f"what did we say about the melstone and the fengate in harbor {number}"
    event = {"hook_event_name": "UserPromptSubmit", "session_id": f"s-{number}", "cwd": "/", "prompt": prompt}
    return side.run(filled, given=json.dumps(event))


def _import(lines: Path, side: Side, number: int) -> Cost:
    return side.run(["sessions", "import", str(lines)], home=side.home.with_name(f"{side.home.name}-{number}"))


def _wait(process: int) -> Cost:
    _, _, usage = os.wait4(process, 0)
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def _read_ticks(folder: Path) -> int:
    fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


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


if __name__ == "__main__":
    main()

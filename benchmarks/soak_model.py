"""The models of the soak: both vendors' APIs on loopback, in a process of their own, so that they do not count."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from wellkept.core.messages import Usage
from wellkept.llm.scripted import Says, call
from wellkept.testing.loopback import Drops, Loopback, Status, Step
from wellkept.testing.loopback_servers import LoopbackAnthropic, LoopbackOpenAI

TURN = "Turn "
REVIEW = "[Background review."
ANSWER = "Here is what I found, with a <memory-context> that was echoed </memory-context> in between. " * 6
PAGE_ENTRIES = 12
"""How many entries of the soak's stand on the page at a time: each write takes an older one back."""


@contextmanager
def models() -> Iterator[dict[str, str]]:
    """Run both servers; gives the variables that point a program at them."""
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(10)


def _last(body: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether the newest message is a tool's, and its text."""
    last = body["messages"][-1]
    content = last.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": str(content)}]
    is_tool = last["role"] == "tool" or any(block["type"] == "tool_result" for block in blocks)
    return is_tool, "\n".join(str(block.get("text", "")) for block in blocks)


def _usage(body: Mapping[str, Any]) -> Usage:
    sent = sum(len(str(message)) for message in body["messages"]) // 4
    return Usage(input_tokens=max(1, sent // 10), output_tokens=60, cache_read_tokens=sent - sent // 10)


def script(forget: Callable[[], None]) -> Callable[[dict[str, Any]], Step]:
    """Return how one server answers; `forget` drops what it recorded."""
    numbers = count(1)

    def answer(body: dict[str, Any]) -> Step:
        forget()
        says = _said(body)
        number = next(numbers)
        if number % 211 == 0:
            return Status(503, "overloaded for a moment")
        return Drops(says, after_events=3) if number % 307 == 0 else says

    return answer


def _said(body: Mapping[str, Any]) -> Says:
    is_tool, text = _last(body)
    usage = _usage(body)
    if not body.get("tools"):
        return Says("## Goal\nThe soak goes on.\n## Done\n" + "Topics were looked up. " * 40, usage=usage)
    if is_tool:
        return Says(ANSWER, usage=usage, piece_length=40, thinking="I compare what was found.")
    if text.startswith(REVIEW):
        entry = f"The soak had {len(body['messages'])} messages at a review"
        return Says("", (call("memory", action="add", target="user", content=entry),), usage=usage)
    if not text.startswith(TURN):
        return Says("Done as asked.", usage=usage)
    number = int(text.split()[1])
    slow = {"delay_seconds": 0.02, "piece_length": 4} if "slowly" in text else {"piece_length": 40}
    calls = () if "slowly" in text else tuple(_calls(number))
    return Says("Let me look at that first. " * 4, calls, usage=usage, **slow)


def _calls(number: int) -> Iterator[Any]:
    yield call("session_search", query=f"what was said about topic {number % 50}")
    yield call("list_files", path=".")
    if number % 3 == 0:
        yield call("memory", action="add", target="memory", content=f"Topic {number} was settled for good")
        if number >= 3 * PAGE_ENTRIES:
            yield call("memory", action="remove", target="memory", old_text=f"Topic {number - 3 * PAGE_ENTRIES} was")
    if number % 40 == 7:
        yield call("delegate_task", task="Say that you are there", context="nothing")
    if number % 25 == 4:
        yield call("fact_store", action="search", query=f"topic {number - 1}")


def main() -> None:
    """Serve until standard input ends."""
    servers: list[Loopback] = []

    def forget() -> None:
        for server in servers:
            server.requests.clear()

    with LoopbackOpenAI(script(forget)) as one, LoopbackAnthropic(script(forget)) as other:
        servers += [one, other]
        print(json.dumps({**one.environment, **other.environment}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()

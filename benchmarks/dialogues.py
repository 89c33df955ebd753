"""Score dialogues: the share of exchanges that the assistant without a model answers as a person would expect.

    python benchmarks/dialogues.py tests/corpora/dialogues/*.jsonl

A row is {"id", "lang", "kind", "earlier": [messages], "say": message, "expect": {...}}. Every exchange is run through
the real agent in a home of its own. What can be expected, each part on its own:

    reply          any of these texts or expressions is in the answer
    not            none of these is
    page           all of these are on the pages afterwards
    not_on_page    none of these is
    pending        all of these wait for approval afterwards; an empty list: nothing waits
    nothing_saved  the last message put nothing on the pages
    reply_lang     the language of the answer

A row of tests/corpora/facts has {"language", "turns": [{"say", "expect", "expect_any", "reject", "after", "page_has",
"page_lacks"}]} instead: the README there explains them. Such a dialogue is right if all of its turns are.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from wellkept.agent.toolbox import deny
from wellkept.app import open_app
from wellkept.languages.language import detect
from wellkept.operations.conversations import open_conversation

SOURCE = re.compile(r"^.*\n  — .*$", re.MULTILINE)
"""A quotation with its source: it is in the language of whoever said it."""


@dataclass
class Outcome:
    """How one exchange went."""

    row: Mapping[str, Any]
    reply: str
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """How long the last answer took."""


def run(row: Mapping[str, Any]) -> Outcome:
    """Run one exchange in a home of its own and compare it with what is expected."""
    with tempfile.TemporaryDirectory() as folder:
        app = open_app(folder, environ={"HOME": folder})
        try:
            caller = app.caller()
            agent = open_conversation(caller, approve=deny, model_name="extractive")

            async def talk() -> tuple[str, list[str], float]:
                for text in row["earlier"]:
                    await agent.turn(text)
                before = _list_entries(caller)
                began = time.perf_counter()
                answer = await agent.turn(row["say"])
                return answer.text, before, time.perf_counter() - began

            reply, before, seconds = anyio.run(talk)
            pages = _list_entries(caller)
            pending = [text for one in caller.space.approvals.waiting() for text in (*one.texts, one.summary)]
        finally:
            app.close()
    return Outcome(row, reply, list(_compare(row["expect"], reply, before, pages, pending)), seconds)


def run_turns(row: Mapping[str, Any]) -> Outcome:
    """Run a dialogue whose turns say by themselves what is expected."""
    problems: list[str] = []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        app = open_app(folder, environ={"HOME": folder})
        try:
            caller = app.caller()
            agent = open_conversation(caller, approve=deny, model_name="extractive")

            async def talk() -> None:
                for turn in row["turns"]:
                    reply = (await agent.turn(turn["say"])).text
                    page = "\n".join(_list_entries(caller))
                    problems.extend(f"{turn['say']!r} -> {reply!r}: {what}" for what in _judge(turn, reply, page))

            anyio.run(talk)
        finally:
            app.close()
    seconds = (time.perf_counter() - began) / len(row["turns"])
    said = [turn["say"] for turn in row["turns"]]
    named = {**row, "lang": row["language"], "kind": "facts", "earlier": said[:-1], "say": said[-1]}
    return Outcome(named, "", problems, seconds)


def _judge(turn: Mapping[str, Any], reply: str, page: str) -> Iterable[str]:
    """Yield what is wrong with one answer."""
    folded, page = reply.casefold(), page.casefold()
    expected, any_of = turn.get("expect", ()), turn.get("expect_any", ())
    yield from (f"lacks {text!r}" for text in expected if text.casefold() not in folded)
    if any_of and not any(text.casefold() in folded for text in any_of):
        yield f"has none of {any_of}"
    yield from (f"has {text!r}" for text in turn.get("reject", ()) if text.casefold() in folded)
    leading = [folded.find(text.casefold()) for text in (*any_of, *expected[:1]) if text.casefold() in folded]
    for text in turn.get("after", ()):
        if text.casefold() in folded and folded.find(text.casefold()) < min(leading, default=len(folded)):
            yield f"{text!r} comes first"
    yield from (f"the page lacks {text!r}" for text in turn.get("page_has", ()) if text.casefold() not in page)
    yield from (f"the page has {text!r}" for text in turn.get("page_lacks", ()) if text.casefold() in page)


def _list_entries(caller: Any) -> list[str]:
    memory = caller.space.memory
    return [entry for target in memory.targets for entry in memory.entries(target)]


def _compare(
    expect: Mapping[str, Any], reply: str, before: Sequence[str], pages: Sequence[str], pending: Sequence[str]
) -> Iterable[str]:
    """Yield what is not as expected."""
    if "reply" in expect and not any(_occurs(one, reply) for one in expect["reply"]):
        yield f"the answer has none of {expect['reply']}"
    yield from (f"the answer has {one!r}" for one in expect.get("not", ()) if _occurs(one, reply))
    page, waiting = "\n".join(pages), "\n".join(pending)
    yield from (f"not on the pages: {one!r}" for one in expect.get("page", ()) if not _occurs(one, page))
    yield from (f"on the pages: {one!r}" for one in expect.get("not_on_page", ()) if _occurs(one, page))
    yield from (f"not pending: {one!r}" for one in expect.get("pending", ()) if not _occurs(one, waiting))
    if expect.get("pending") == [] and pending:
        yield f"pending: {pending}"
    if expect.get("nothing_saved") and (new := [entry for entry in pages if entry not in before]):
        yield f"saved: {new}"
    if expect.get("reply_lang"):
        own = SOURCE.sub("", reply).strip()
        spoken = detect(own) if own else None
        if spoken not in {None, expect["reply_lang"]}:
            yield f"the answer is in {spoken}"


def _occurs(part: str, text: str) -> bool:
    if part.casefold() in text.casefold():
        return True
    try:
        return re.search(part, text, re.IGNORECASE) is not None
    except re.error:
        return False


def read_rows(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the rows of all files."""
    return [
        json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]


def report(outcomes: Sequence[Outcome], *, shows_failures: bool = True) -> None:
    """Print each failure, then the shares by language and by kind, and the time of an answer."""
    if shows_failures:
        for one in outcomes:
            if one.problems:
                said = [*one.row["earlier"], one.row["say"]]
                print(f"{one.row['id']} [{one.row['kind']}] {said}\n    {one.reply!r}\n    {'; '.join(one.problems)}")
    for name in ("kind", "lang"):
        groups: dict[str, list[Outcome]] = defaultdict(list)
        for one in outcomes:
            groups[one.row[name]].append(one)
        for key, each in groups.items():
            print(f"{key:<16} {_share(each)}")
    times = [one.seconds for one in outcomes]
    print(f"{'all':<16} {_share(outcomes)}")
    p95 = statistics.quantiles(times, n=20)[-1] if len(times) > 1 else times[0]
    p50, p95 = statistics.median(times) * 1_000, p95 * 1_000
    print(f"an answer takes p50 {p50:.1f} ms, p95 {p95:.1f} ms (search and storing included)")


def _share(outcomes: Sequence[Outcome]) -> str:
    right = sum(1 for one in outcomes if not one.problems)
    return f"{right:>4} of {len(outcomes):<4} {100 * right / len(outcomes):5.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--lang", help="only this language")
    parser.add_argument("--quiet", action="store_true", help="print no failures")
    asked = parser.parse_args()
    rows = [row for row in read_rows(asked.files) if asked.lang in {None, row.get("lang", row.get("language"))}]
    if not rows:
        sys.exit("there are no rows")
    report([run_turns(row) if "turns" in row else run(row) for row in rows], shows_failures=not asked.quiet)


if __name__ == "__main__":
    main()

"""How often the fact that holds is found before the one it replaced.

    python benchmarks/current.py FOLDER… [--show]
    python benchmarks/current.py FOLDER --cross-validate DATA

A folder has NAME.messages.jsonl and NAME.questions.jsonl for each store; a question names texts of what holds
(`current`) and of what no longer does (`stale`). A passage is current if it has one of the first; it is stale if it has
one of the second and none of the first. Many stores differ only in names and numbers, so that each template counts as
one: the share of its stores. With `--cross-validate` the questions are asked with weights that were fitted, on DATA as
`benchmarks/facts.py --fit` does, without what has the same question.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.sessions.search.discovery import find_conversations
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

sys.path.insert(0, str(Path(__file__).parent.parent))  # `benchmarks.facts`
PASSAGES = 10


class Case(Struct, frozen=True):
    """A question to one store."""

    name: str
    template: str
    kind: str
    question: str
    current: tuple[str, ...]
    stale: tuple[str, ...]
    messages: tuple[dict[str, str], ...]


class Outcome(Struct, frozen=True):
    """Where the two facts were found among the passages; None where they were not."""

    case: Case
    passages: tuple[str, ...]
    current: int | None
    stale: int | None

    @property
    def is_right(self) -> bool:
        """Whether the current fact was found, and before the stale one."""
        return self.current is not None and (self.stale is None or self.current < self.stale)


def read_cases(folder: Path) -> Iterator[Case]:
    """Yield the questions of a folder."""
    for path in sorted(folder.glob("*.questions.jsonl")):
        name = path.name.removesuffix(".questions.jsonl")
        lines = (folder / f"{name}.messages.jsonl").read_text(encoding="utf-8").splitlines()
        messages = tuple(json.loads(line) for line in lines)
        template = fold(" / ".join(row["content"] for row in messages))
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield Case(
                name, template, row["type"], row["question"], tuple(row["current"]), tuple(row["stale"]), messages
            )


_NAMED = re.compile(r"(?<!^)(?<![.!?:/] )\b[A-Z][\w-]*(?: [A-Z][\w-]*)*")
_BY_SHAPE = re.compile(r"[$€]?\d[\d.,:/]*(?:st|nd|rd|th|am|pm|k|K)?")


def fold(text: str) -> str:
    """Return a text without its names and numbers: stores of one template differ in nothing else."""
    return " ".join(_NAMED.sub("N", _BY_SHAPE.sub("#", text)).split()[:12]).casefold()


def ask(case: Case) -> Outcome:
    """Store the messages as a client does, ask the question, and say where the facts are."""
    with tempfile.TemporaryDirectory() as folder:
        database = open_state(Path(folder) / "state.db")
        store = SqliteSessionStore(database)
        by_session: dict[str, list[NewMessage]] = defaultdict(list)
        for row in case.messages:
            message = Message(Role(row["role"]), row["content"])
            moment = datetime.fromisoformat(row["timestamp"]).timestamp()
            by_session[row["session_id"]].append(NewMessage(message, moment, Origin.PERSON))
        for name, messages in by_session.items():
            store.create(Session(SessionId(name), "benchmark", messages[0].timestamp))
            store.append(SessionId(name), messages)
        found = find_conversations(store, SearchRequest(case.question, limit=PASSAGES)).found.messages[:PASSAGES]
        texts = {row.id: row.message.text for row in store.messages_by_id([hit.message_id for hit in found])}
        passages = tuple(texts[hit.message_id] for hit in found)
        database.close()
    is_current = [holds(text, case.current) for text in passages]
    is_stale = [holds(text, case.stale) and not now for text, now in zip(passages, is_current, strict=True)]
    return Outcome(case, passages, next_true(is_current), next_true(is_stale))


def holds(text: str, facts: Sequence[str]) -> bool:
    """Return whether a text has one of the facts."""
    return any(fact.casefold() in text.casefold() for fact in facts)


def next_true(values: Sequence[bool]) -> int | None:
    """Return the place of the first true value."""
    return next((place for place, value in enumerate(values) if value), None)


def report(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the shares by kind: of stores, and of templates."""
    yield f"{'':24}{'stores':>8}{'right':>8}{'found':>8}{'templates':>11}{'right':>8}"
    for kind in ("", *sorted({outcome.case.kind for outcome in outcomes})):
        chosen = [outcome for outcome in outcomes if kind in {"", outcome.case.kind}]
        by_template: dict[str, list[float]] = defaultdict(list)
        for outcome in chosen:
            by_template[outcome.case.template].append(float(outcome.is_right))
        right = statistics.mean(outcome.is_right for outcome in chosen)
        found = statistics.mean(outcome.current is not None for outcome in chosen)
        folded = statistics.mean(statistics.mean(values) for values in by_template.values())
        yield f"{kind or 'all':24}{len(chosen):>8}{right:>8.3f}{found:>8.3f}{len(by_template):>11}{folded:>8.3f}"


def cross_validate(cases: Sequence[Case], data: Path, *, folds: int = 10) -> list[Outcome]:
    """Return the outcomes with weights that were fitted without the stores that ask the same question."""
    from benchmarks import facts

    from wellkept.facts import comparison

    pairs, measures = facts.read_fitted(data)
    questions = sorted({case.question for case in cases})
    outcomes = []
    for number in range(folds):
        asked = frozenset(questions[number::folds])
        comparison.WEIGHTS = facts.fit_without(pairs, measures, asked)
        outcomes += [ask(case) for case in cases if case.question in asked]
    return outcomes


def main() -> None:
    """Print how often the current fact is first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--show", action="store_true", help="print the passages of one store of each template missed")
    parser.add_argument("--cross-validate", type=Path, metavar="DATA", help="fit the weights without each question")
    options = parser.parse_args()
    cases = [case for folder in options.folders for case in read_cases(folder)]
    data = options.cross_validate
    outcomes = [ask(case) for case in cases] if data is None else cross_validate(cases, data)
    for line in report(outcomes):
        print(line)
    missed = {outcome.case.template: outcome for outcome in outcomes if not outcome.is_right}
    for outcome in missed.values() if options.show else ():
        print(f"\n{outcome.case.name}: {outcome.case.question}  {outcome.case.current} not {outcome.case.stale}")
        for passage in outcome.passages:
            print(f"   {passage[:160]}")


if __name__ == "__main__":
    main()

"""How often a plain question finds its passage: ranked search beside plain BM25, question by question.

python benchmarks/recall.py LOCOMO.json
python benchmarks/recall.py MESSAGES.jsonl QUESTIONS.jsonl (a question with `question_date` is asked at that date)
python benchmarks/recall.py LOCOMO.json --vectors MODEL (a folder, an ONNX file, an installed model, or "auto")
"""

import argparse
import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.languages.language import STOP_WORDS
from wellkept.sessions.rows.store import RowStore
from wellkept.sessions.sqlite.postings import find
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import Connection, Database, open_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from wellkept.sessions.search.postings import Similarity

LIMIT = 50
WHOLE_SESSIONS = "BM25 of whole sessions"
PLAIN = ("plain BM25", "plain BM25, no stop words", WHOLE_SESSIONS)
_EVIDENCE = re.compile(r"D(\d+):(\d+)")


@dataclass(frozen=True)
class Said:
    """One message of the data."""

    session_id: str
    role: str
    text: str
    timestamp: float
    external_id: str


class Question(Struct, frozen=True):
    """A question and where its answer stands."""

    text: str
    kind: str
    sessions: frozenset[str]
    turns: frozenset[str]
    asked: float | None = None
    """When it was asked, which "last week" in it refers to; None where the data do not say."""


@dataclass
class Pool:
    """Messages that are searched together, and what is asked of them."""

    name: str
    said: list[Said]
    questions: list[Question]


@dataclass
class Tally:
    """What one way of searching reached."""

    rows: list[tuple[str, dict[str, float]]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def locomo(path: Path) -> list[Pool]:
    return [_conversation(sample) for sample in json.loads(path.read_text(encoding="utf-8"))]


def _conversation(sample: dict[str, Any]) -> Pool:
    talk = sample["conversation"]
    said = []
    for number in sorted(int(key.split("_")[1]) for key in talk if re.fullmatch(r"session_\d+", key)):
        start = datetime.strptime(talk[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for place, turn in enumerate(talk[f"session_{number}"]):
            text = f"{turn['speaker']}: {turn['text']}"
            said.append(Said(f"S{number}", "user", text, start.timestamp() + 60 * place, turn["dia_id"]))
    known = {item.external_id for item in said}
    questions = []
    for asked in sample["qa"]:
        turns = {f"D{int(a)}:{int(b)}" for item in asked["evidence"] for a, b in _EVIDENCE.findall(item)} & known
        if turns:
            sessions = frozenset("S" + turn[1:].partition(":")[0] for turn in turns)
            questions.append(Question(asked["question"], str(asked["category"]), sessions, frozenset(turns)))
    return Pool(sample["sample_id"], said, questions)


def pooled(messages: Path, questions: Path) -> list[Pool]:
    said = []
    for line in messages.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        moment = datetime.fromisoformat(row["timestamp"]).timestamp()
        said.append(Said(row["session_id"], row["role"], row["content"], moment, row["external_id"]))
    asked = []
    for line in questions.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        date = row.get("question_date") or row.get("date")
        asked.append(
            Question(
                row["question"],
                row["type"],
                frozenset(row["sessions"]),
                frozenset(row["turns"]),
                None if date is None else datetime.fromisoformat(date).timestamp(),
            )
        )
    return [Pool(messages.stem, said, asked)]


def fill(store: RowStore, pool: Pool) -> None:
    by_session: dict[str, list[Said]] = {}
    for item in pool.said:
        by_session.setdefault(item.session_id, []).append(item)
    for session_id, items in by_session.items():
        store.create(Session(SessionId(session_id), "cli", items[0].timestamp))
        new = [
            NewMessage(Message(Role(item.role), item.text), item.timestamp, Origin.PERSON, external_id=item.external_id)
            for item in items
        ]
        store.append(SessionId(session_id), new)
    store.file.catch_up()


def metrics(question: Question, sessions: Sequence[str], turns: Sequence[str]) -> dict[str, float]:
    want, wanted = question.sessions, question.turns
    row = {f"hit@{k}": float(bool(want & set(sessions[:k]))) for k in (1, 5, 10)}
    row |= {f"all@{k}": float(want <= set(sessions[:k])) for k in (5, 10)}
    row["fraction@10"] = len(want & set(sessions[:10])) / len(want)
    if wanted:
        row |= {f"turn@{k}": float(bool(wanted & set(turns[:k]))) for k in (10, 20)}
    return row


def plain(
    connection: Connection, pool: Pool, question: Question, *, with_stop_words: bool
) -> tuple[list[str], list[str]]:
    """Return what stemmed BM25 over the question's words finds; sessions in the order of their best message."""
    words = re.findall(r"\w+", question.text)
    kept = [word for word in words if with_stop_words or word.lower() not in STOP_WORDS] or words
    expression = " OR ".join(f'"{word}"' for word in kept)
    rows = connection.execute("SELECT rowid FROM plain WHERE plain MATCH ? ORDER BY rank LIMIT 400", (expression,))
    found = [pool.said[number] for (number,) in rows]
    return list(dict.fromkeys(item.session_id for item in found)), [item.external_id for item in found]


def whole_sessions(connection: Connection, question: Question) -> list[str]:
    """Return what BM25 over whole sessions finds, stop words left out."""
    words = re.findall(r"\w+", question.text)
    kept = [word for word in words if word.lower() not in STOP_WORDS] or words
    expression = " OR ".join(f'"{word}"' for word in kept)
    rows = connection.execute("SELECT name FROM whole WHERE whole MATCH ? ORDER BY rank LIMIT 60", (expression,))
    return [str(name) for (name,) in rows]


def compare(connection: Connection, pool: Pool) -> None:
    """Make the tables that plain BM25 searches: one of messages, one of sessions."""
    connection.execute("CREATE VIRTUAL TABLE temp.plain USING fts5(body, tokenize='porter unicode61')")
    connection.execute("CREATE VIRTUAL TABLE temp.whole USING fts5(body, name UNINDEXED, tokenize='porter unicode61')")
    connection.executemany(
        "INSERT INTO plain (rowid, body) VALUES (?, ?)", [(n, item.text) for n, item in enumerate(pool.said)]
    )
    by_session: dict[str, list[str]] = {}
    for item in pool.said:
        by_session.setdefault(item.session_id, []).append(item.text)
    connection.executemany(
        "INSERT INTO whole (body, name) VALUES (?, ?)", [("\n".join(texts), name) for name, texts in by_session.items()]
    )


def run(pools: Sequence[Pool], model: str | None = None) -> dict[str, Tally]:
    tallies = {name: Tally() for name in ("kept", *PLAIN)}
    for pool in pools:
        with tempfile.TemporaryDirectory() as folder:
            database = open_state(Path(folder) / "state.db")
            store = SqliteSessionStore(database)
            fill(store, pool)
            connection = database.connection
            compare(connection, pool)
            embed = _embed(database, model)
            last = max(item.timestamp for item in pool.said) + 86_400
            for question in pool.questions:
                now = last if question.asked is None else question.asked
                _ask(connection, pool, question, now=now, embed=embed, tallies=tallies)
            database.close()
    return tallies


def _embed(database: Database, model: str | None) -> "Callable[[str], Similarity | None] | None":
    """Give every message its vectors, and return what holds a question against them."""
    if model is None:
        return None
    from wellkept.sessions.embedding.local import local_model
    from wellkept.sessions.settings import EmbeddingSettings
    from wellkept.sessions.sqlite.semantic import FileVectors

    settings = EmbeddingSettings(provider="local", background=False)
    chosen = None if model == "auto" else model
    meaning = FileVectors(database, settings, model=lambda: local_model(chosen, os.environ), sink=lambda _event: None)
    meaning.embed_all()
    return lambda text: meaning.embed_question(database.connection, text)


def _ask(
    connection: Connection,
    pool: Pool,
    question: Question,
    *,
    now: float,
    embed: "Callable[[str], Similarity | None] | None",
    tallies: dict[str, Tally],
) -> None:
    start = time.perf_counter()
    request = SearchRequest(question.text, limit=LIMIT)
    found = find(connection, request, now=now, embed=embed)
    tallies["kept"].seconds.append(time.perf_counter() - start)
    answers = {
        "kept": (
            [str(item.session_id) for item in found.sessions],
            [item.external_id or "" for item in found.messages],
        ),
        "plain BM25": plain(connection, pool, question, with_stop_words=True),
        "plain BM25, no stop words": plain(connection, pool, question, with_stop_words=False),
        WHOLE_SESSIONS: (whole_sessions(connection, question), []),
    }
    for name, (sessions, turns) in answers.items():
        asked = replace(question, turns=frozenset()) if name == WHOLE_SESSIONS else question
        tallies[name].rows.append((question.kind, metrics(asked, sessions, turns)))


def lines(tallies: dict[str, Tally]) -> Iterator[str]:
    names = ("hit@1", "hit@5", "hit@10", "all@5", "all@10", "fraction@10", "turn@10", "turn@20")
    yield f"{'':28}{'n':>6}" + "".join(f"{name:>12}" for name in names)
    for title, tally in tallies.items():
        kinds = ["all", *sorted({kind for kind, _ in tally.rows})] if title == "kept" else ["all"]
        for kind in kinds:
            rows = [row for own, row in tally.rows if kind in {"all", own}]
            cells = [statistics.mean([row[name] for row in rows if name in row] or [0.0]) for name in names]
            label = title if kind == "all" else f"  {kind}"
            yield f"{label:28}{len(rows):>6}" + "".join(f"{cell:>12.3f}" for cell in cells)
    for title in PLAIN:
        yield f"kept above {title}, in points: " + ", ".join(differences(tallies["kept"], tallies[title]))
    times = sorted(tallies["kept"].seconds)
    yield f"latency p50 {times[len(times) // 2] * 1e3:.1f} ms, p95 {times[int(len(times) * 0.95)] * 1e3:.1f} ms"


def differences(ours: Tally, theirs: Tally) -> Iterator[str]:
    """Yield the mean difference of each figure over the same questions, with its standard error."""
    for name in ("hit@1", "all@5", "turn@10"):
        pairs = zip(ours.rows, theirs.rows, strict=True)
        gaps = [100.0 * (own[name] - other[name]) for (_, own), (_, other) in pairs if name in own and name in other]
        if len(gaps) > 1:
            yield f"{name} {statistics.mean(gaps):+.1f} ± {statistics.stdev(gaps) / len(gaps) ** 0.5:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", help="a LoCoMo file, or messages and questions as JSONL")
    parser.add_argument("--vectors", metavar="MODEL", help="a local model by path or name, or auto: fuse its vectors")
    options = parser.parse_args()
    pools = locomo(options.data[0]) if len(options.data) == 1 else pooled(*options.data)
    for line in lines(run(pools, options.vectors)):
        print(line)


if __name__ == "__main__":
    main()

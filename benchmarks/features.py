"""The features of every message for every question, recorded once by the real search, so that weights can be fitted.

A recording holds what the search knows of each message before it adds up a score, of all messages of a store instead
of the best candidates. `benchmarks/crossval.py` scores it with other weights in a fraction of a second.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.recall import LIMIT, Pool, Question, compare, fill, metrics, plain
from numpy.typing import NDArray

from wellkept.core.ids import OWNER
from wellkept.core.search import SearchRequest
from wellkept.sessions.search.candidates import EXHAUSTIVE, Filters
from wellkept.sessions.search.engine import _Search
from wellkept.sessions.search.query import parse
from wellkept.sessions.search.ranking import Line, Ranking, SessionLines
from wellkept.sessions.search.terms import WordForms, look_up_terms
from wellkept.sessions.sqlite.postings import SqliteCatalog, SqlitePostings, find
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import Connection, open_state

TEXTS = 200
"""Messages per question whose text is read; the search itself reads 48 to 100."""
_EVERY = 10**9


@dataclass(frozen=True)
class Recording:
    """One question and the features of all messages, one row each, ordered by session."""

    pool: str
    question: Question
    total: float
    """The weight of the question."""
    mean_length: float
    """Words of a message of the store on average."""
    columns: dict[str, NDArray[Any]]
    """Features by name; `message` is the place in `Pool.said`, `session` a number, `score` what the search gave."""
    sessions: list[str]
    sums: NDArray[Any]
    """Of each session: its own sum, and how much it is like one text."""
    today: dict[str, float]
    """What the search, with its own candidates, reaches."""
    plain: dict[str, float]
    """What plain BM25 without stop words reaches."""


class Recorder(_Search):
    """A search that ranks every message of the store and keeps the features."""

    def record(self, everything: Sequence[int]) -> list[SessionLines]:
        """Return all lines with their features."""
        self._budget = EXHAUSTIVE._replace(texts=TEXTS)
        heads = self._filters.passing(everything)
        self._scope()
        for term in self._terms:
            term.ids = self._postings.ids(term.lookup) if term.ids is None else term.ids
        by_session: dict[str, list[int]] = {}
        for number, head in heads.items():
            by_session.setdefault(head.session_id, []).append(number)
        sessions = self._read_sessions(list(by_session.items()))
        self._refine(sessions, self._best_lines(sessions))
        return sessions

    def _session_lines(self, session_id: str, ids: Sequence[int], hits: Sequence[int]) -> SessionLines:
        session = super()._session_lines(session_id, ids, hits)
        known = {line.message_id for line in session.lines}
        spoken = set(self._speakers.between(self._postings, ids[0], ids[-1])) if self._speakers is not None else set()
        session.lines += [Line(number, 0, 1, spoken=number in spoken) for number in ids if number not in known]
        session.lines.sort(key=lambda line: line.message_id)
        return session

    @property
    def ranking(self) -> Ranking:
        """What scores the lines."""
        return self._ranking


def record(pool: Pool) -> list[Recording]:
    """Return the recordings of all questions of a pool."""
    with tempfile.TemporaryDirectory() as folder:
        database = open_state(Path(folder) / "state.db")
        fill(SqliteSessionStore(database), pool)
        connection = database.connection
        compare(connection, pool)
        numbers = {name: number for number, name in connection.execute("SELECT id, external_id FROM messages")}
        places = {numbers[item.external_id]: place for place, item in enumerate(pool.said)}
        last = max(item.timestamp for item in pool.said) + 86_400
        made = [
            _record_question(connection, pool, question, places=places, now=question.asked or last)
            for question in pool.questions
        ]
        database.close()
    return made


def _record_question(
    connection: Connection, pool: Pool, question: Question, *, places: dict[int, int], now: float
) -> Recording:
    request = SearchRequest(question.text, limit=LIMIT)
    found = find(connection, request, now=now)
    today = metrics(
        question, [str(one.session_id) for one in found.sessions], [one.external_id or "" for one in found.messages]
    )
    postings, catalog = SqlitePostings(connection), SqliteCatalog(connection, user=OWNER)
    query = parse(question.text, now)
    request = SearchRequest(question.text, limit=_EVERY)
    forms = WordForms.choose(postings, query, question.text)
    search = Recorder(
        forms,
        query,
        look_up_terms(postings, query, forms, is_asked=True),
        request=request,
        filters=Filters(request, catalog),
        budget=EXHAUSTIVE,
    )
    sessions = search.record(sorted(places))
    ranking = search.ranking
    return Recording(
        pool.name,
        question,
        ranking.total,
        max(postings.mean_length, 1.0),
        _columns(sessions, ranking, places),
        [session.session_id for session in sessions],
        np.array([(ranking.session_sum(session), session.size * postings.mean_length) for session in sessions]),
        today,
        metrics(question, *plain(connection, pool, question, with_stop_words=False)),
    )


def _columns(sessions: Sequence[SessionLines], ranking: Ranking, places: dict[int, int]) -> dict[str, NDArray[Any]]:
    """Return one row of features per line; the weights of terms are added up, so that no column depends on a weight."""
    rows: list[dict[str, float]] = []
    for place, session in enumerate(sessions):
        scores = {item.line.message_id: item.score for item in ranking.score_lines(session)}
        rows += [
            {
                "message": places[line.message_id],
                "session": place,
                "score": scores.get(line.message_id, 0.0),
                **_features(line, ranking),
            }
            for line in session.lines
        ]
    names = rows[0] if rows else {}
    return {name: np.array([row[name] for row in rows], np.float32) for name in names}


def _features(line: Line, ranking: Ranking) -> dict[str, float]:
    """Return the features of one line as numbers."""
    later = line.after & ~line.before
    far = line.around & ~line.before & ~line.after
    held = {"previous": line.before, "next": later, "near": far}
    return {
        "own": ranking.sum(line.mask),
        "share": ranking.share(line.mask),
        "whole": float(ranking.holds_all(line.mask)),
        "length": line.length,
        **{name: ranking.sum(mask) for name, mask in held.items()},
        **{f"{name}_doubled": ranking.sum(mask & line.mask) for name, mask in held.items()},
        "spoken": float(line.spoken),
        "factor": line.factor,
        "date": line.date,
        "closeness": line.gap,
        "wording": line.wording,
        "related": line.related,
        "asks": line.asks,
        "answers": line.answers,
        "small": line.small if line.mask and ranking.counts_small else 0.0,
    }

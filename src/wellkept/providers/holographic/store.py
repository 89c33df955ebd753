"""The fact store of one user: a database file in which text, index, entities and vector change together."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from wellkept.core.errors import Busy, Unreadable
from wellkept.core.ids import UserId
from wellkept.core.ports import Clock, UnitOfWork
from wellkept.core.text import dumps
from wellkept.core.values import hide
from wellkept.providers.base import ForgetRequest
from wellkept.providers.holographic.features import (
    content_words,
    entities_in,
    entity_key,
    fact_vector,
    speaker_of,
    words,
)
from wellkept.storage.connections import sql_migrations, statements
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.sqlite import Database
from wellkept.storage.texts import Texts

Source = Literal["tool", "page", "extracted"]

_SQL = statements("wellkept.providers.holographic", "store.sql")
_NO_LIMIT = 1_000_000


class Fact(Struct, frozen=True):
    """A stored fact."""

    id: int
    text: str
    speaker: str | None
    """Who says it, in lower case, if the text starts with a name and a colon."""
    category: str
    tags: str
    source: str
    session_id: str
    trust: float
    helpful: int
    unhelpful: int
    created: float
    updated: float
    length: int
    vector: bytes

    __repr__ = hide("vector")


class Outline(Struct, frozen=True):
    """The parts of a fact that ranking needs, without its text and vector."""

    id: int
    length: int
    speaker: str | None
    session_id: str
    source: str
    asks: int
    """1 if it ends with a question mark."""
    trust: float
    created: float
    updated: float
    category: str


class FactStore:
    """The facts of one user in the shared file of a home."""

    def __init__(self, path: Path, *, user: UserId, clock: Clock, dim: int) -> None:
        try:
            self._database = Database(
                path,
                application_id=APPLICATION_ID,
                migrations=sql_migrations("wellkept.providers.holographic"),
                durability="full",  # a fact is stored here before the outbox counts it as delivered
            )
        except Unreadable as error:  # the doctor has no repair for it
            remedy = f"restore {path.name} from a backup, or give it another name: a new one is begun"
            raise Unreadable(error.message, remedy) from error
        self._user = user
        self._clock = clock
        self._dim = dim
        self.rebuild_vectors()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def now(self) -> float:
        return self._clock.now().timestamp()

    def add(  # noqa: PLR0913 - the columns of a fact
        self, text: str, *, trust: float, source: Source = "tool", category: str = "general",
        tags: str = "", entities: Sequence[str] = (), session_id: str = "",
    ) -> tuple[int, bool]:  # fmt: skip
        """Store a fact; return its id and whether it is new. A fact that is already known is not changed."""
        text = text.strip()
        with self._database.writing() as unit:
            existing = self._id_of(unit, text)
            if existing is not None:
                return existing, False
            names = _entity_names(text, entities)
            row = {
                **self._derive(text, names), "text": text, "category": category, "tags": tags,
                "source": source, "session_id": session_id, "trust": trust, "now": self.now(),
            }  # fmt: skip
            fact_id = int(self._run(unit, _SQL.insert, **row)[0][0])
            self._index(unit, fact_id, text, names)
            return fact_id, True

    def rewrite(self, fact_id: int, text: str) -> bool:
        """Replace the text of a fact; return False if there is no such fact."""
        text = text.strip()
        with self._database.writing() as unit:
            if self.fact(fact_id) is None:
                return False
            duplicate = self._id_of(unit, text)
            if duplicate not in {None, fact_id}:
                self._delete(unit, duplicate)
            names = _entity_names(text, ())
            self._run(unit, _SQL.rewrite, **self._derive(text, names), id=fact_id, text=text, now=self.now())
            self._run(unit, _SQL.unlink, fact_id=fact_id)
            self._run(unit, _SQL.unindex, id=fact_id)
            self._index(unit, fact_id, text, names)
            return True

    def describe(self, fact: Fact, *, category: str | None, tags: str | None, trust: float | None) -> None:
        """Change the category, tags or trust of a fact, not its text."""
        with self._database.writing() as unit:
            self._run(
                unit,
                _SQL.describe,
                id=fact.id,
                category=fact.category if category is None else category,
                tags=fact.tags if tags is None else tags,
                trust=fact.trust if trust is None else min(1.0, max(0.0, trust)),
                now=self.now(),
            )

    def remove(self, fact_id: int) -> bool:
        """Delete a fact; return False if there is none."""
        with self._database.writing() as unit:
            if self.fact(fact_id) is None:
                return False
            self._delete(unit, fact_id)
            return True

    def forget(self, request: ForgetRequest) -> int:
        """Delete the facts that `request` selects, and erase their bytes; return how many.

        Erases even if there is nothing to delete: a process may have been killed between the two.
        """
        with self._database.writing() as unit:
            going = self._select_facts(unit, request)
            for fact_id in going:
                self._delete(unit, fact_id)
            texts = Texts(request.texts)
            for _, session_id, *_rest in self._run(unit, _SQL.contents):
                if session_id and texts.are_in(session_id):
                    self._run(unit, _SQL.hide_session, session_id=session_id)
        with self._database.writing() as unit:
            self._run(unit, _SQL.merge_index)  # deleted words stay in the segments of the index until they are merged
        with self._database.reading() as unit:
            ((busy, *_),) = self._run(unit, _SQL.truncate_log)
        if busy == 1:
            raise Busy("another process is reading the facts, so their last bytes stay in the log", "try again later")
        return len(going)

    def holds(self, request: ForgetRequest) -> bool:
        """Whether there are facts that `request` selects."""
        with self._database.reading() as unit:
            return bool(self._select_facts(unit, request))

    def _select_facts(self, unit: UnitOfWork, request: ForgetRequest) -> list[int]:
        texts = Texts(request.texts)
        return [
            int(fact_id)
            for fact_id, session_id, *columns in self._run(unit, _SQL.contents)
            if request.everything
            or session_id in request.session_ids
            or any(texts.are_in(column) for column in columns if column)
        ]

    def find(self, text: str) -> int | None:
        """Return the id of the fact with exactly this text."""
        with self._database.reading() as unit:
            return self._id_of(unit, text)

    def feedback(self, fact_id: int, change: float) -> Fact | None:
        """Change the trust of a fact, within 0 and 1, and return the fact."""
        with self._database.writing() as unit:
            self._run(unit, _SQL.feedback, id=fact_id, change=change, helpful=change > 0, unhelpful=change < 0)
        return self.fact(fact_id)

    def fact(self, fact_id: int) -> Fact | None:
        """Return one fact."""
        return next((Fact(*row) for row in self._read(_SQL.fact, id=fact_id)), None)

    def facts(self, ids: Iterable[int]) -> dict[int, Fact]:
        """Return the facts with these ids that exist."""
        return {row[0]: Fact(*row) for row in self._read(_SQL.facts, ids=dumps(list(ids)))}

    def outlines(self, ids: Iterable[int]) -> dict[int, Outline]:
        """Return the outlines of the facts with these ids that exist."""
        return {row[0]: Outline(*row) for row in self._read(_SQL.outlines, ids=dumps(list(ids)))}

    def vectors_of(self, ids: Iterable[int]) -> dict[int, bytes]:
        """Return the vectors of facts."""
        return {int(row[0]): bytes(row[1]) for row in self._read(_SQL.vectors_of, ids=dumps(list(ids)))}

    def newest(self, *, min_trust: float = 0.0, category: str | None = None, limit: int = _NO_LIMIT) -> list[Fact]:
        """Return facts, the newest first."""
        return [Fact(*row) for row in self._read(_SQL.newest, min_trust=min_trust, category=category, limit=limit)]

    def vectors(self, *, min_trust: float, limit: int) -> list[tuple[int, bytes]]:
        """Return the vectors of the newest facts."""
        return [(int(row[0]), bytes(row[1])) for row in self._read(_SQL.vectors, min_trust=min_trust, limit=limit)]

    def count(self) -> int:
        """Return the number of facts."""
        return int(self._read(_SQL.count)[0][0])

    def session_sizes(self) -> list[tuple[str, int, int]]:
        """Return each session that facts come from, with the number of its facts and of their words."""
        return [(str(session), int(facts), int(words)) for session, facts, words in self._read(_SQL.session_sizes)]

    def speakers(self, candidates: Sequence[str]) -> frozenset[str]:
        """Return those of `candidates` that are the speaker of some fact."""
        return frozenset(str(row[0]) for row in self._read(_SQL.speakers, words=dumps(list(candidates))))

    def postings(self, word: str, *, spoken: bool = False) -> dict[int, str]:
        """Return the facts that contain a form of `word`, with their sessions.

        Facts in which `word` is only the name of the speaker are left out, unless `spoken` is set.
        """
        rows = self._read(_SQL.postings, term=f'"{word}"')
        return {int(row[0]): str(row[1]) for row in rows if spoken or row[2] != word}

    def near(self, pair: tuple[str, str], distance: int) -> set[int]:
        """Return the ids of facts that contain two words with at most `distance` others between them.

        The ids are those of all users, because the index has no user column: use them only to filter ids of this user.
        """
        query = f'NEAR("{pair[0]}" "{pair[1]}", {distance})'
        return {int(row[0]) for row in self._read(_SQL.near, pair=query)}

    def entities_of(self, ids: Iterable[int]) -> dict[int, list[str]]:
        """Return the entities of facts; `ids` must come from this store's own answers."""
        found: dict[int, list[str]] = {}
        for fact_id, name in self._read(_SQL.entities_of, ids=dumps(list(ids))):
            found.setdefault(int(fact_id), []).append(str(name))
        return found

    def facts_about(self, entity: str, *, min_trust: float, limit: int = _NO_LIMIT) -> list[int]:
        """Return the ids of facts about an entity, the newest first."""
        rows = self._read(_SQL.facts_about, key=entity_key(entity), min_trust=min_trust, limit=limit)
        return [int(row[0]) for row in rows]

    def related_entities(self, entity: str, *, min_trust: float, limit: int) -> list[tuple[str, int]]:
        """Return the entities that share facts with `entity`, and how many facts."""
        rows = self._read(_SQL.related_entities, key=entity_key(entity), min_trust=min_trust, limit=limit)
        return [(str(name), int(times)) for name, times in rows]

    def mirror(self, action: str, content: str, *, ledger_id: int | None, before: str, trust: float) -> None:
        """Apply one write to the pages; a ledger id that was applied before is ignored."""
        with self._database.writing() as unit:
            if ledger_id is not None and not self._run(unit, _SQL.mark_mirrored, ledger_id=ledger_id):
                return
            old = self._id_of(unit, content if action == "remove" else before)
            if action == "remove":
                if old is not None:
                    self._delete(unit, old)
            elif action == "replace" and before and old is not None:
                self.rewrite(old, content)
            else:
                self.add(content, trust=trust, source="page")

    def rebuild_vectors(self) -> None:
        """Recompute all vectors, of every user, whose length is not the configured one."""
        for fact_id, text in self._read(_SQL.wrong_length, dim=self._dim):
            names = self.entities_of([fact_id]).get(fact_id, [])
            vector = fact_vector(content_words(text), names, self._dim)
            with self._database.writing() as unit:
                self._run(unit, _SQL.set_vector, id=fact_id, vector=vector)

    def _id_of(self, unit: UnitOfWork, text: str) -> int | None:
        for (fact_id,) in self._run(unit, _SQL.by_key, key=fact_key(text)):
            return int(fact_id)
        return None

    def _derive(self, text: str, names: Sequence[str]) -> dict[str, object]:
        """Return the columns that are computed from the text."""
        return {
            "key": fact_key(text),
            "speaker": speaker_of(text),
            "length": max(1, len(words(text))),
            "vector": fact_vector(content_words(text), names, self._dim),
        }

    def _index(self, unit: UnitOfWork, fact_id: int, text: str, names: Sequence[str]) -> None:
        self._run(unit, _SQL.index, id=fact_id, words=" ".join(words(text)))
        for name in names:
            ((entity_id,),) = self._run(unit, _SQL.add_entity, key=entity_key(name), name=name)
            self._run(unit, _SQL.link, fact_id=fact_id, entity_id=entity_id)

    def _delete(self, unit: UnitOfWork, fact_id: int | None) -> None:
        self._run(unit, _SQL.unlink, fact_id=fact_id)
        self._run(unit, _SQL.unindex, id=fact_id)
        self._run(unit, _SQL.delete, id=fact_id)
        self._run(unit, _SQL.drop_unused_entities)

    def _read(self, sql: str, **bindings: object) -> list[tuple[Any, ...]]:
        with self._database.reading() as unit:
            return self._run(unit, sql, **bindings)

    def _run(self, unit: UnitOfWork, sql: str, **bindings: object) -> list[tuple[Any, ...]]:
        """Run a statement for this store's user."""
        return list(unit.execute(sql, {"user": self._user, **bindings}))


def fact_key(text: str) -> str:
    """Return what makes two texts the same fact: case, spacing and the final full stop are ignored."""
    return re.sub(r"\s+", " ", text).strip().rstrip(".").casefold()


def _entity_names(text: str, given: Sequence[str]) -> list[str]:
    unique = {entity_key(name): name.strip() for name in (*given, *entities_in(text)) if entity_key(name)}
    return list(unique.values())

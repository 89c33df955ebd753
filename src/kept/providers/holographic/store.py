"""The store of facts: a database of its own, where text, index, entities and vector change together."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kept.core.ports import Clock, UnitOfWork
from kept.core.text import dumps
from kept.providers.holographic.features import content_words, entities_in, entity_key, fact_vector, speaker_of, words
from kept.storage.files import APPLICATION_ID
from kept.storage.sql import sql_migrations, statements
from kept.storage.sqlite import Database

Source = Literal["tool", "page", "extracted"]

_SQL = statements("kept.providers.holographic", "store.sql")
_ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class Fact:
    """A stored fact."""

    id: int
    text: str
    speaker: str | None
    """Who says it, in lower case, where the text begins with a name and a colon."""
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
    vector: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outline:
    """What ranking needs of a fact, without its text and vector."""

    id: int
    length: int
    speaker: str | None
    session_id: str
    source: str
    asks: int
    """1 when it ends with a question mark."""
    trust: float
    created: float
    updated: float
    category: str


class FactStore:
    """The facts of one home; every method sees only those of the user it is given."""

    def __init__(self, path: Path, *, clock: Clock, dim: int) -> None:
        self._database = Database(
            path, application_id=APPLICATION_ID, migrations=sql_migrations("kept.providers.holographic")
        )
        self._clock = clock
        self._dim = dim
        self.rebuild_vectors()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def now(self) -> float:
        """Return the present moment in epoch seconds."""
        return self._clock.now().timestamp()

    def add(  # noqa: PLR0913 - the columns of a fact
        self, text: str, *, user_id: str, trust: float, source: Source = "tool", category: str = "general",
        tags: str = "", entities: Sequence[str] = (), session_id: str = "",
    ) -> tuple[int, bool]:  # fmt: skip
        """Store a fact and return its id; one that is there already is kept, and the second value is False."""
        text = text.strip()
        with self._database.writing() as unit:
            for (existing,) in unit.execute(_SQL.by_key, {"user_id": user_id, "key": fact_key(text)}):
                return int(existing), False
            names = _named(text, entities)
            row = {
                **self._derived(text, names), "user_id": user_id, "text": text, "category": category, "tags": tags,
                "source": source, "session_id": session_id, "trust": trust, "now": self.now(),
            }  # fmt: skip
            identity = _whole(unit.execute(_SQL.insert, row).fetchall()[0][0])
            self._relate(unit, identity, text, names)
            return identity, True

    def rewrite(self, fact_id: int, text: str, *, user_id: str) -> bool:
        """Give a fact new words; False when there is no such fact."""
        text = text.strip()
        with self._database.writing() as unit:
            if self.fact(fact_id, user_id=user_id) is None:
                return False
            for (twin,) in unit.execute(_SQL.by_key, {"user_id": user_id, "key": fact_key(text)}):
                if twin != fact_id:
                    self._delete(unit, int(twin))
            names = _named(text, ())
            row = {**self._derived(text, names), "id": fact_id, "text": text, "now": self.now()}
            unit.execute(_SQL.rewrite, row)
            unit.execute(_SQL.unlink, {"fact_id": fact_id})
            unit.execute(_SQL.unindex, {"id": fact_id})
            self._relate(unit, fact_id, text, names)
            return True

    def describe(self, fact: Fact, *, category: str | None, tags: str | None, trust: float | None) -> None:
        """Change what is said about a fact, not the fact."""
        with self._database.writing() as unit:
            row = {
                "id": fact.id,
                "category": fact.category if category is None else category,
                "tags": fact.tags if tags is None else tags,
                "trust": fact.trust if trust is None else min(1.0, max(0.0, trust)),
                "now": self.now(),
            }
            unit.execute(_SQL.describe, row)

    def remove(self, fact_id: int, *, user_id: str) -> bool:
        """Delete a fact; False when there is none."""
        with self._database.writing() as unit:
            if self.fact(fact_id, user_id=user_id) is None:
                return False
            self._delete(unit, fact_id)
            return True

    def remove_text(self, text: str, *, user_id: str) -> bool:
        """Delete the fact that says exactly this."""
        found = self.find(text, user_id=user_id)
        return found is not None and self.remove(found, user_id=user_id)

    def find(self, text: str, *, user_id: str) -> int | None:
        """Return the id of the fact that says exactly this."""
        with self._database.reading() as unit:
            for (identity,) in unit.execute(_SQL.by_key, {"user_id": user_id, "key": fact_key(text)}):
                return int(identity)
        return None

    def feedback(self, fact_id: int, change: float, *, user_id: str) -> Fact | None:
        """Move the trust of a fact, within 0 and 1."""
        with self._database.writing() as unit:
            row = {"helpful": change > 0, "unhelpful": change < 0}
            unit.execute(_SQL.feedback, {"id": fact_id, "user_id": user_id, "change": change, **row})
        return self.fact(fact_id, user_id=user_id)

    def fact(self, fact_id: int, *, user_id: str) -> Fact | None:
        """Return one fact."""
        with self._database.reading() as unit:
            return next((Fact(*row) for row in unit.execute(_SQL.fact, {"id": fact_id, "user_id": user_id})), None)

    def facts(self, ids: Iterable[int], *, user_id: str) -> dict[int, Fact]:
        """Return those of `ids` that exist and are the user's."""
        with self._database.reading() as unit:
            rows = unit.execute(_SQL.some, {"user_id": user_id, "ids": dumps(list(ids))})
            return {row[0]: Fact(*row) for row in rows}

    def outlines(self, ids: Iterable[int], *, user_id: str) -> dict[int, Outline]:
        """Return the outlines of those of `ids` that exist and are the user's."""
        with self._database.reading() as unit:
            rows = unit.execute(_SQL.places, {"user_id": user_id, "ids": dumps(list(ids))})
            return {row[0]: Outline(*row) for row in rows}

    def vectors_of(self, ids: Iterable[int], *, user_id: str) -> dict[int, bytes]:
        """Return the vectors of facts."""
        with self._database.reading() as unit:
            rows = unit.execute(_SQL.vectors_of, {"user_id": user_id, "ids": dumps(list(ids))})
            return {int(row[0]): bytes(row[1]) for row in rows}

    def newest(
        self, *, user_id: str, min_trust: float = 0.0, category: str | None = None, limit: int = _ALL
    ) -> list[Fact]:
        """Return facts, the newest first."""
        bindings = {"user_id": user_id, "min_trust": min_trust, "category": category, "limit": limit}
        with self._database.reading() as unit:
            return [Fact(*row) for row in unit.execute(_SQL.newest, bindings)]

    def vectors(self, *, user_id: str, min_trust: float, limit: int) -> list[tuple[int, bytes]]:
        """Return the vectors of the newest facts."""
        with self._database.reading() as unit:
            bindings = {"user_id": user_id, "min_trust": min_trust, "limit": limit}
            return [(int(row[0]), bytes(row[1])) for row in unit.execute(_SQL.vectors, bindings)]

    def count(self, *, user_id: str) -> int:
        """Return how many facts there are."""
        with self._database.reading() as unit:
            return _whole(unit.execute(_SQL.count, {"user_id": user_id}).fetchall()[0][0])

    def session_sizes(self, *, user_id: str) -> list[tuple[str, int, int]]:
        """Return the sessions that facts come from, each with how many facts and how many words they have."""
        with self._database.reading() as unit:
            rows = unit.execute(_SQL.session_sizes, {"user_id": user_id})
            return [(str(session), int(facts), int(words)) for session, facts, words in rows]

    def speakers(self, candidates: Sequence[str], *, user_id: str) -> frozenset[str]:
        """Return which of `candidates` speak in some fact."""
        with self._database.reading() as unit:
            rows = unit.execute(_SQL.speakers, {"user_id": user_id, "words": dumps(list(candidates))})
            return frozenset(str(row[0]) for row in rows)

    def holding(self, word: str, *, user_id: str, spoken: bool = False) -> dict[int, str]:
        """Return the facts that hold a form of `word`, with their sessions.

        The name of who says something is no word of what is said, unless `spoken` asks for these facts as well.
        """
        with self._database.reading() as unit:
            rows = unit.execute(_SQL.holding, {"term": f'"{word}"', "user_id": user_id})
            return {int(row[0]): str(row[1]) for row in rows if spoken or row[2] != word}

    def side_by_side(self, words: tuple[str, str], between: int) -> set[int]:
        """Return the ids of the facts where two words stand with at most `between` others between them."""
        with self._database.reading() as unit:
            pair = f'NEAR("{words[0]}" "{words[1]}", {between})'
            return {int(row[0]) for row in unit.execute(_SQL.side_by_side, {"pair": pair})}

    def entities_of(self, ids: Iterable[int]) -> dict[int, list[str]]:
        """Return the entities of facts."""
        found: dict[int, list[str]] = {}
        with self._database.reading() as unit:
            for fact_id, name in unit.execute(_SQL.entities_of, {"ids": dumps(list(ids))}):
                found.setdefault(int(fact_id), []).append(str(name))
        return found

    def facts_about(self, entity: str, *, user_id: str, min_trust: float, limit: int = _ALL) -> list[int]:
        """Return the ids of facts about an entity, the newest first."""
        with self._database.reading() as unit:
            bindings = {"key": entity_key(entity), "user_id": user_id, "min_trust": min_trust, "limit": limit}
            return [int(row[0]) for row in unit.execute(_SQL.facts_about, bindings)]

    def beside(self, entity: str, *, user_id: str, min_trust: float, limit: int) -> list[tuple[str, int]]:
        """Return the entities that share facts with `entity`, and how many."""
        with self._database.reading() as unit:
            bindings = {"key": entity_key(entity), "user_id": user_id, "min_trust": min_trust, "limit": limit}
            return [(str(name), int(times)) for name, times in unit.execute(_SQL.beside, bindings)]

    def mirror(
        self, action: str, content: str, *, ledger_id: int | None, user_id: str, before: str, trust: float
    ) -> None:
        """Follow one write to the pages; the same ledger id is followed once."""
        with self._database.writing() as unit:
            if ledger_id is not None:
                if unit.execute(_SQL.was_mirrored, {"ledger_id": ledger_id}).fetchall():
                    return
                unit.execute(_SQL.set_mirrored, {"ledger_id": ledger_id})
            if action == "remove":
                self.remove_text(content, user_id=user_id)
                return
            old = self.find(before, user_id=user_id) if action == "replace" and before else None
            if old is None:
                self.add(content, user_id=user_id, trust=trust, source="page")
            else:
                self.rewrite(old, content, user_id=user_id)

    def rebuild_vectors(self) -> None:
        """Make the vectors anew where their length is not the one that is set."""
        with self._database.reading() as unit:
            wrong = [(_whole(row[0]), str(row[1])) for row in unit.execute(_SQL.wrong_length, {"dim": self._dim})]
        for fact_id, text in wrong:
            names = self.entities_of([fact_id]).get(fact_id, [])
            with self._database.writing() as unit:
                vector = fact_vector(content_words(text), names, self._dim)
                unit.execute(_SQL.set_vector, {"id": fact_id, "vector": vector})

    def _derived(self, text: str, names: Sequence[str]) -> dict[str, object]:
        return {
            "key": fact_key(text),
            "speaker": speaker_of(text),
            "length": max(1, len(words(text))),
            "vector": fact_vector(content_words(text), names, self._dim),
        }

    @staticmethod
    def _relate(unit: UnitOfWork, fact_id: int, text: str, names: Sequence[str]) -> None:
        unit.execute(_SQL.index, {"id": fact_id, "words": " ".join(words(text))})
        for name in names:
            ((entity_id,),) = list(unit.execute(_SQL.add_entity, {"key": entity_key(name), "name": name}))
            unit.execute(_SQL.link, {"fact_id": fact_id, "entity_id": entity_id})

    @staticmethod
    def _delete(unit: UnitOfWork, fact_id: int) -> None:
        unit.execute(_SQL.unlink, {"fact_id": fact_id})
        unit.execute(_SQL.unindex, {"id": fact_id})
        unit.execute(_SQL.delete, {"id": fact_id})
        unit.execute(_SQL.drop_unused_entities)


def fact_key(text: str) -> str:
    """Return what makes two texts the same fact: case, spacing and the final stop do not count."""
    return re.sub(r"\s+", " ", text).strip().rstrip(".").casefold()


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def _named(text: str, given: Sequence[str]) -> list[str]:
    unique = {entity_key(name): name.strip() for name in (*given, *entities_in(text)) if entity_key(name)}
    return list(unique.values())

"""The contract of every session store for vectors: semantic search, and how vectors are computed and removed."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from wellkept.core.errors import ModelRefused
from wellkept.core.events import Progressed, Warned
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.ports import Embeds, EventSink
from wellkept.core.search import SearchRequest
from wellkept.sessions.ports import Sessions
from wellkept.sessions.reports import Coverage
from wellkept.sessions.settings import EmbeddingSettings

TOPICS = (("dog", "puppy", "hound"), ("car", "vehicle", "sedan"), ("rain", "storm", "weather"))
_WAIT_SECONDS = 20.0


class Topical:
    """A model that knows three topics and the words of each."""

    def __init__(self, name: str = "topical") -> None:
        self.name = name
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the share of each topic in each text."""
        self.seen += texts
        return [
            [0.1 + float(sum(word in text.lower().split() for word in topic)) for topic in TOPICS] for text in texts
        ]


class Refusing:
    """A model that refuses every text."""

    name = "refusing"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:  # noqa: ARG002 - as every model takes them
        """Refuse."""
        raise ModelRefused("the key is wrong")


class MakesVectors(Protocol):
    """What the suite needs of a semantic search."""

    def embed_all(self, *, anew: bool = False) -> int:
        """Compute the missing vectors; return for how many messages."""

    def close(self) -> None:
        """Stop the background thread."""


def say(store: Sessions, name: str, *texts: str) -> list[MessageId]:
    """Add what a person says to a session, which begins with it if it is new."""
    if store.session(SessionId(name)) is None:
        store.create(Session(SessionId(name), "cli", 1.0))
    return store.append(SessionId(name), [NewMessage(Message(Role.USER, text), 1.0, Origin.PERSON) for text in texts])


def find(store: Sessions, text: str) -> list[MessageId]:
    """Return the messages that a search finds."""
    return [hit.message_id for hit in store.search(SearchRequest(text)).messages]


class VectorsContract:
    """Inherit it and implement `open`."""

    def open(self, settings: EmbeddingSettings, model: Embeds, sink: EventSink) -> tuple[Sessions, MakesVectors]:
        """Return the same store at every call within a test, each time with that model."""
        raise NotImplementedError

    @contextmanager
    def equip(
        self, model: Embeds | None = None, *, batch: int = 64, background: bool = False
    ) -> "Iterator[tuple[Sessions, MakesVectors]]":
        """Open the store with a model; `self.events` gets the events."""
        self.events: list[object] = []
        settings = EmbeddingSettings(provider="local", batch=batch, background=background)
        store, vectors = self.open(settings, model or Topical(), self.events.append)
        try:
            yield store, vectors
        finally:
            vectors.close()

    def test_a_message_is_found_by_its_meaning_where_no_word_matches(self) -> None:
        """The word puppy finds the hound; without vectors nothing does."""
        with self.equip() as (store, vectors):
            (hound,) = say(store, "a", "we took the hound outside")
            say(store, "b", "the sedan needs oil")
            assert find(store, "puppy") == []
            assert vectors.embed_all() == 2

            found = store.search(SearchRequest("puppy"))

            assert found.messages[0].message_id == hound
            assert found.messages[0].parts["meaning"] > 0.0

    def test_filters_hold_for_meaning_too(self) -> None:
        """Excluded messages are not found by their meaning; others are, however many excluded ones are nearer."""
        with self.equip(batch=512) as (store, vectors):
            (hound,) = say(store, "a", "we took the hound outside")
            say(store, "b", "the sedan needs oil")
            say(store, "crowd", *(f"a dog and a puppy, number {number}" for number in range(700)))
            vectors.embed_all()

            inside = store.search(SearchRequest("puppy", session_id=SessionId("a")))
            elsewhere = store.search(SearchRequest("puppy", session_id=SessionId("b")))

            assert [hit.message_id for hit in inside.messages] == [hound]
            assert all(hit.session_id == "b" for hit in elsewhere.messages)

    def test_vectors_go_with_their_messages(self) -> None:
        """A removed or overwritten message leaves no vector; an overwritten one gets a new one."""
        with self.equip() as (store, vectors):
            (hound,) = say(store, "a", "we took the hound outside")
            say(store, "b", "the sedan needs oil")
            vectors.embed_all()
            store.forgetting.carry_out(store.forgetting.plan_sessions([SessionId("b")]))
            store.transfer.overwrite(hound, NewMessage(Message(Role.USER, "the storm came"), 1.0, Origin.PERSON))

            assert store.upkeep.coverage() == Coverage("topical", 0, 1)
            assert vectors.embed_all() == 1
            assert find(store, "weather") == [hound]

    def test_forgotten_messages_leave_no_vector(self) -> None:
        """Forgetting a session removes its vectors, and its meaning finds nothing."""
        with self.equip() as (store, vectors):
            say(store, "a", "we took the hound outside")
            (sedan,) = say(store, "b", "the sedan needs oil")
            vectors.embed_all()
            find(store, "puppy")

            report = store.forgetting.carry_out(store.forgetting.plan_sessions([SessionId("a")]))

            assert (report.still_found, report.vectors) == (0, 1)
            assert find(store, "puppy") in ([], [sedan])
            assert store.upkeep.coverage() == Coverage("topical", 1, 0)

    def test_another_model_recomputes_all_vectors(self) -> None:
        """Vectors of another model are never compared: first they are not used, with a note, then replaced."""
        with self.equip(Topical("old")) as (store, vectors):
            (hound,) = say(store, "a", "we took the hound outside")
            say(store, "b", "the sedan needs oil")
            vectors.embed_all()
        with self.equip(Topical("new")) as (store, vectors):
            assert find(store, "puppy") == find(store, "puppy") == []
            assert [event.message for event in self.events if isinstance(event, Warned)] == [
                "search uses words only: the vectors of the messages are another model's"
            ]
            assert vectors.embed_all() == 2
            assert find(store, "puppy")[0] == hound
            assert store.upkeep.coverage() == Coverage("new", 2, 0)

    def test_computing_vectors_continues_where_it_stopped(self) -> None:
        """A second run computes only the missing ones."""
        model = Topical()
        with self.equip(model, batch=3) as (store, vectors):
            say(store, "a", *(f"the storm number {number}" for number in range(10)))
            assert vectors.embed_all() == 10
            assert [event.done for event in self.events if isinstance(event, Progressed)] == [3, 6, 9, 10]
            say(store, "a", "one more dog came along")
            seen = len(model.seen)

            assert (vectors.embed_all(), vectors.embed_all()) == (1, 0)

            assert model.seen[seen:] == ["one more dog came along"]
            assert vectors.embed_all(anew=True) == 11

    def test_search_never_fails_because_of_its_vectors(self) -> None:
        """With a broken model, search uses words only, with one warning."""
        with self.equip() as (store, vectors):
            (hound,) = say(store, "a", "we took the hound outside")
            vectors.embed_all()
        with self.equip(Refusing()) as (store, _):
            assert [find(store, "hound") for _ in range(3)] == [[hound]] * 3
            assert [event.message for event in self.events if isinstance(event, Warned)] == [
                "search uses words only: the key is wrong"
            ]

    def test_new_messages_get_their_vectors_in_the_background(self) -> None:
        """After an append the vectors are computed in the background, including those that were missing before."""
        with self.equip() as (store, _):
            say(store, "a", "the sedan needs oil")
        with self.equip(background=True) as (store, _):
            (hound,) = say(store, "a", "we took the hound outside")

            deadline = time.monotonic() + _WAIT_SECONDS
            while store.upkeep.coverage().covered < 2 and time.monotonic() < deadline:
                time.sleep(0.05)

            assert find(store, "puppy")[0] == hound

    def test_rewound_messages_are_not_found_by_their_meaning(self) -> None:
        """Rewound messages are neither embedded nor found."""
        with self.equip() as (store, vectors):
            say(store, "a", "the sedan needs oil")
            (hound,) = say(store, "a", "we took the hound outside")
            vectors.embed_all()
            store.rewind(SessionId("a"), hound)

            assert hound not in find(store, "puppy")

"""Vectors beside the words: optional, derived, fused."""

import time

import pytest

from wellkept.core.errors import ModelBusy, ModelRefused
from wellkept.core.search import SearchRequest
from wellkept.sessions.reports import Coverage
from wellkept.sessions.rows import vectors
from wellkept.sessions.rows.semantic import LEASE, VectorCache, compare
from wellkept.sessions.settings import EmbeddingSettings
from wellkept.sessions.sqlite.semantic import FileVectors
from wellkept.testing.vectors_contract import Refusing, Topical, say

np = pytest.importorskip("numpy")


@pytest.fixture
def told():
    return []


@pytest.fixture
def equip(store, told):
    """Give the store a model; compute the vectors unless told otherwise."""

    def equip(model=None, *, embed=True, **options):
        settings = EmbeddingSettings(provider="local", **{"background": False, **options})
        store.meaning = FileVectors(store.database, settings, model=lambda: model or Topical(), sink=told.append)
        if embed:
            store.meaning.embed_all()
        return store.meaning

    yield equip
    if store.meaning is not None:
        store.meaning.close()


@pytest.fixture
def hound(store) -> int:
    (number,) = say(store, "a", "we took the hound outside")
    say(store, "b", "the sedan needs oil")
    return number


def test_one_sentence_of_a_long_message_is_enough(store, equip):
    """The sentence that answers is not hidden by the others."""
    (long,) = say(
        store, "a", "The weather was fine all day. " * 5 + "Then the hound ran away. " + "More rain came. " * 5
    )
    say(store, "b", "nothing of that kind happened here")
    equip()

    assert store.search(SearchRequest("puppy")).messages[0].message_id == long


def test_names_of_speakers_are_left_out_of_the_question(store, equip):
    """Names that occur in every message of a conversation do not count as similarity."""
    say(store, "a", "Anna: we took the hound outside", "Tom: fine")
    model = Topical()
    equip(model)

    store.search(SearchRequest("What did Anna's puppy do with Tom?"))

    assert model.seen[-1] == "What did puppy do with ?"
    assert "we took the hound outside" in model.seen


def test_an_endpoint_that_refuses_one_text_gets_the_others(store, equip):
    """A text that is refused is left without a vector and not asked again; others have theirs."""

    class Choosy(Topical):
        def embed(self, texts):
            if any("bomb" in text for text in texts):
                raise ModelRefused("no")
            return super().embed(texts)

    say(store, "a", "the hound is here today", "a bomb of a sentence", "the sedan is red today")
    equip(Choosy())

    assert store.upkeep.coverage() == Coverage("topical", 3, 0)
    assert len(store.search(SearchRequest("puppy vehicle")).messages) >= 2
    with pytest.raises(ModelRefused):
        equip(Refusing())


def test_an_endpoint_that_is_busy_is_tried_again(store, hound, equip, monkeypatch):
    """Overload is waited out; a server that is not there is not waited for."""
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)

    class Late(Topical):
        left = 2

        def embed(self, texts):
            self.left -= 1
            if self.left >= 0:
                raise ModelBusy("later")
            return super().embed(texts)

    equip(Late())
    assert waits == [0.5, 1.0]


def test_a_short_life_still_makes_the_vectors_of_its_own_messages(store, equip):
    """Closed right after an append, as after `kept run`, the newest messages have theirs."""
    found = equip(embed=False, background=True)
    say(store, "a", "the sedan needs oil", "we took the hound outside")

    found.close()

    assert store.upkeep.coverage().waiting == 0


def test_closing_does_not_wait_when_nothing_is_owed(store, equip):
    """A background that is idle, or was never woken, ends at once and asks nothing of the model."""
    model = Topical()
    found = equip(model, embed=False, background=True)
    say(store, "a", "we took the hound outside")
    deadline = time.monotonic() + 20
    while store.upkeep.coverage().waiting and time.monotonic() < deadline:
        time.sleep(0.05)
    seen, start = len(model.seen), time.monotonic()

    found.close()

    assert time.monotonic() - start < 2
    assert len(model.seen) == seen


def test_one_process_at_a_time_makes_vectors_in_the_background(store, equip):
    """While another process has the lease nothing is made here; once it is given back, it is."""
    say(store, "a", "we took the hound outside")
    found = equip(embed=False, background=True)
    assert store.lease(LEASE, holder="another", seconds=60)

    assert found.make_some() is False
    store.release(LEASE, holder="another")
    assert found.make_some() is True

    assert found.make_some() is False
    assert store.upkeep.coverage().waiting == 0
    assert store.lease(LEASE, holder="another", seconds=60)


def test_packed_vectors_are_nearly_the_same():
    """Eight bits a number change a similarity by less than a hundredth."""
    rows = np.random.default_rng(1).normal(size=(50, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    again = vectors.unpack(vectors.pack(rows), 384)

    assert np.abs(again @ again.T - rows @ rows.T).max() < 0.01
    assert vectors.pack([]) == b""


def test_short_forms_choose_what_an_exact_comparison_would(store):
    """Among thousands of vectors in clusters, the nearest by short forms hold the nearest by all numbers."""
    chance = np.random.default_rng(2)
    centres = chance.normal(size=(40, 96))
    rows = (centres[chance.integers(0, 40, 6_000)] + 0.6 * chance.normal(size=(6_000, 96))).astype(np.float32)
    numbers = say(store, "a", *(f"number {place}" for place in range(6_000)))
    connection = store.database.connection
    with store.database.writing():
        vectors.begin(connection, "m")
        made = [
            (number, f"number {place}", vectors.pack(rows[place : place + 1])) for place, number in enumerate(numbers)
        ]
        vectors.put(connection, "m", made[:100])
    cache = VectorCache(96)
    cache.follow(connection)
    with store.database.writing():
        vectors.put(connection, "m", made)
    cache.follow(connection)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    shares = []
    for asked in unit[::500]:
        exact = {numbers[place] for place in np.argsort(-(unit @ asked))[:50]}
        near = compare(connection, asked, cache.nearest_candidates(asked, None))
        best = sorted(near, key=near.__getitem__, reverse=True)[:50]
        shares.append(len(exact & set(best)) / 50)

    assert min(shares) > 0.9
    assert cache._rows.shape[1] == 64

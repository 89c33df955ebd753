"""Segments of posting lists: whatever is packed comes back, and a merge is what one build would have made."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.sessions.postgres import segments
from wellkept.sessions.postgres.segments import (
    MOST_DOCUMENTS,
    SUBSTRING,
    Bucket,
    build,
    find_bucket,
    merge,
    pack,
    unpack,
)

terms = st.text(min_size=1, max_size=6) | st.sampled_from(
    ["wort", "wor", "wo", "w", SUBSTRING + "wor", SUBSTRING + "a\n:"]
)
texts = st.dictionaries(
    st.integers(1, 10**12), st.tuples(st.integers(0, 90_000), st.frozensets(terms, max_size=8)), min_size=1, max_size=30
).map(lambda found: [(number, *found[number]) for number in sorted(found)])


def store(draft):
    """Return the bytes that a database keeps."""
    return segments.to_bytes(draft.messages), segments.to_bytes(draft.lengths), draft.write_buckets()


def load(stored):
    messages, lengths, buckets = stored
    return segments.read(segments.from_bytes("q", messages), segments.from_bytes("H", lengths), buckets)


@given(st.sets(st.integers(0, MOST_DOCUMENTS - 1)), st.integers(1, MOST_DOCUMENTS))
def test_places_come_back_in_both_forms(places, documents):
    chosen = array("H", sorted(place for place in places if place < documents))
    packed = pack(chosen, documents)

    assert unpack(packed) == chosen
    assert segments.count_places(packed) == len(chosen)
    assert len(packed) - 1 <= min(2 * len(chosen), (documents + 7) // 8)


@given(st.integers(1, 300))
def test_a_list_of_all_places_is_a_bitmap(documents):
    everything = array("H", range(documents))

    assert len(pack(everything, documents)) == 1 + (documents + 7) // 8
    assert unpack(pack(everything, documents)) == everything


@given(texts)
def test_a_stored_segment_is_the_one_that_was_built(given_texts):
    draft = build(given_texts)

    assert load(store(draft)) == draft


@given(texts)
def test_a_term_is_found_in_its_bucket(given_texts):
    draft = build(given_texts)
    buckets = [Bucket(data) for data in draft.write_buckets()]

    for term, places in draft.lists.items():
        packed = buckets[find_bucket(term, len(buckets))].find(term)
        assert packed is not None
        assert unpack(packed) == places
    assert all(bucket.find("no such term") is None for bucket in buckets)


@given(texts, st.integers(0, 2**16), st.integers(0, 30))
def test_a_merge_is_what_one_build_would_have_made(given_texts, seed, gone):
    """However messages are spread over segments, also with ids that interleave, and whichever are left out."""
    parts = [[text for place, text in enumerate(given_texts) if (seed >> place % 16) & 1 == side] for side in (0, 1)]
    without = frozenset(number for number, _, _ in given_texts[gone:])

    merged = merge([build(part) for part in parts if part], without=without)

    assert merged == build([text for text in given_texts if text[0] not in without])


def test_words_with_the_same_beginning_share_a_bucket():
    """So that a prefix of two characters is one row of each segment."""
    assert len({find_bucket(word, 1_000) for word in ("haus", "hausboot", "hafen", "ha")}) == 1
    assert segments.is_beginning("ha")
    assert not segments.is_beginning("h")


@pytest.mark.parametrize("count", [1, 255, 4_096])
def test_buckets_stay_small(count):
    """A bucket of short lists fits a row that PostgreSQL does not move out of its table."""
    draft = build((number, 9, [f"{number * 7919 % 10_000:x}{word}" for word in "abc"]) for number in range(count))

    assert sum(len(data) > 2_000 for data in draft.write_buckets()) <= len(draft.write_buckets()) // 2

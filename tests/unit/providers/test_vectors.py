"""Holographic vectors."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.providers.holographic.features import (
    atom,
    bind,
    bundle,
    fact_vector,
    query_vector,
    similarity,
    unbind,
    word_vector,
)

VECTORS = st.binary(min_size=64, max_size=64)


@given(VECTORS, VECTORS)
def test_binding_adds_angles_lane_by_lane(left, right):
    """No carry crosses from one lane into the next."""
    assert bind(left, right) == bytes((a + b) % 256 for a, b in zip(left, right, strict=True))


@given(VECTORS, VECTORS)
def test_unbinding_takes_back_a_binding(left, right):
    """What was bound comes back exactly."""
    assert unbind(bind(left, right), right) == left


@given(VECTORS)
def test_a_vector_is_like_itself(vector):
    """The likeness of equal vectors is 1."""
    assert similarity(vector, vector) == 1.0


def test_vectors_are_the_same_on_every_machine():
    """They come from hashes, not from a random generator."""
    assert atom("word tea", 8).hex() == "e73393b380ab29b6"


def test_a_bundle_is_like_its_parts_and_like_nothing_else():
    """Parts are recognised in a bundle of several."""
    parts = [atom(name, 1024) for name in "abcde"]
    whole = bundle(parts, 1024)

    assert min(similarity(whole, part) for part in parts) > 0.25
    assert abs(similarity(whole, atom("z", 1024))) < 0.1


def test_related_spellings_are_alike():
    """Runs of letters make word forms and typing errors resemble the word."""
    assert similarity(word_vector("paint", 1024), word_vector("painting", 1024)) > 0.3
    assert similarity(word_vector("paint", 1024), word_vector("zebra", 1024)) < 0.15


def test_a_question_is_like_the_fact_that_answers_it():
    """Common words show in the vectors."""
    fact = fact_vector(["anna", "favourite", "tea", "oolong"], ["Anna"], 1024)

    assert (
        similarity(fact, query_vector(["tea", "anna"], 1024))
        > similarity(fact, query_vector(["port", "database"], 1024)) + 0.2
    )


def test_vectors_of_different_lengths_are_not_alike():
    """A vector that was made with another setting is neither a match nor an error."""
    assert similarity(atom("a", 64), atom("a", 128)) == 0.0

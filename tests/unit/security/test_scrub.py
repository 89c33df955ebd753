"""The scrubber of streamed answers."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.security.fence import StreamingContextScrubber, build_memory_context_block, fence_tags, sanitize_context
from wellkept.security.fence import scrub as scrubbed_whole

PIECES = st.sampled_from(
    [
        "<memory-context>",
        "</memory-context>",
        "<memory-context x='1'>",
        "</ Memory-Context >",
        "<memory-context/>",
        "<memory>",
        "<memory-contex",
        "<",
        "</",
        ">",
        "\n",
        "word ",
        "é",
        "𝄞",
        "<memory-context " + "a" * 230,
        "<" + " " * 250,
        "t>",
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=6), max_size=12).map("".join)


def scrubbed(pieces):
    scrubber = StreamingContextScrubber()
    return "".join([*map(scrubber.feed, pieces), scrubber.flush()])


def cut(text, places):
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@given(TEXTS, st.lists(st.integers(min_value=0), max_size=12))
def test_any_split_gives_the_same_output(text, places):
    """Where a stream is cut changes nothing of what is shown."""
    assert scrubbed(cut(text, places)) == scrubbed([text])


@given(TEXTS)
def test_one_character_at_a_time_gives_the_same_output(text):
    """The finest split is not an exception."""
    assert scrubbed(text) == scrubbed([text])


@given(st.text(alphabet="<>/memory-context \n", max_size=80))
def test_text_without_tags_passes_unchanged(text):
    """What only looks similar is never altered."""
    if not list(fence_tags(text)):
        assert scrubbed([text]) == text


@given(st.text(max_size=60), st.text(alphabet="abc \n.", max_size=30), st.lists(st.integers(min_value=0), max_size=8))
def test_an_echoed_block_leaks_nothing(recalled, around, places):
    """A model that repeats the fenced block, split anywhere, shows only the rest."""
    block = build_memory_context_block(recalled)

    assert scrubbed(cut(around + block + around, places)) == around + around


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <memory-context>secret", "a "),
        ("a <memory-context>secret</memory-context", "a "),
        ("a <memory-context>x<memory-context>y</memory-context>z</memory-context> b", "a  b"),
        ("a </memory-context> b", "a  b"),
        ("a <memory-context/> b", "a  b"),
        ("a <memory> b </memory>", "a <memory> b </memory>"),
        ("x <memory-conte", "x <memory-conte"),
        ("1 < 2", "1 < 2"),
    ],
)
def test_spans_and_tags_are_removed(text, shown):
    """Fenced spans, unterminated ones too, and stray tags are discarded; other text is not."""
    assert scrubbed([text]) == shown


@given(TEXTS)
def test_ordinary_text_is_never_held_back_longer_than_a_tag(text):
    """At most 255 characters wait for the next piece."""
    scrubber = StreamingContextScrubber()
    for character in text:
        scrubber.feed(character)
        assert len(scrubber._held) < 256


def test_a_flush_makes_it_ready_for_the_next_stream():
    """An unterminated span does not swallow the answer after it."""
    scrubber = StreamingContextScrubber()
    scrubber.feed("<memory-context>secret")
    scrubber.flush()

    assert scrubber.feed("next answer") == "next answer"


@given(st.text(alphabet="<>/memory-context \nxS[]:ystem note", max_size=80))
def test_a_whole_text_is_kept_as_it_was_shown(text):
    """Nothing that the stream held back comes back with the whole text."""
    shown = StreamingContextScrubber()
    streamed = "".join(shown.feed(piece) for piece in text) + shown.flush()

    assert scrubbed_whole(text) == sanitize_context(streamed)


@pytest.mark.parametrize("cut", [1, 7, 100])
@pytest.mark.parametrize(
    "text",
    [
        "kept wraps recalled text in `<memory-context>` tags, so that a model can tell it apart.\nThat is all.",
        'The tag "<memory-context>" begins recalled text, and "</memory-context>" ends it.\nThat is all.',
        "It stands between `<memory-context>` and `</memory-context>`.",
    ],
)
def test_a_sentence_that_mentions_the_tag_is_shown_whole(cut, text):
    """A tag in quotation marks, or before punctuation, is a mention: nothing is lost."""
    shown = scrubbed([text[place : place + cut] for place in range(0, len(text), cut)])

    assert shown == text.replace("</memory-context>", "memory context").replace("<memory-context>", "memory context")


@pytest.mark.parametrize("cut", [1, 7, 100])
@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("a <memory-context> SECRET </memory-context> b", "a  b"),
        ("a <memory-context>SECRET</memory-context> b", "a  b"),
        ("a <memory-context> SECRET\nSECRET </memory-context> b", "a  b"),
        ("x <memory-context> SECRET and no end", "x "),
    ],
)
def test_a_fence_inside_a_line_is_removed_with_what_it_holds(cut, text, rest):
    """Words after a bare tag may be recalled; leaking is worse than truncating."""
    assert scrubbed([text[place : place + cut] for place in range(0, len(text), cut)]) == rest

"""Text as the indexes are given it."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.sessions.search.analysis import (
    SPEAKER,
    STRONG,
    WHOLE,
    IndexedText,
    clean,
    compounds,
    pieces,
    prepare,
    remove_noise,
    split_speaker,
    tool_text,
)


def test_a_run_of_chinese_is_cut_into_single_characters_and_pairs() -> None:
    """Words of one and of two characters both match."""
    singles, pairs = pieces("去北京")

    assert singles == ["去", "北", "京"]
    assert pairs == ["去北", "北京"]


def test_thai_vowel_signs_stay_with_their_consonant() -> None:
    """A Thai cluster is one piece, because half of it means nothing."""
    singles, _ = pieces("ที่นี่")

    assert singles == ["ที่", "นี่"]


def test_identifiers_are_found_whole_and_by_their_parts() -> None:
    """Paths and versions become one word; camelCase is split."""
    found = compounds("see src/kept/app.py in getUserName at 3.11.7 and snake_case")

    assert WHOLE.join(("src", "kept", "app", "py")) in found
    assert WHOLE.join(("3", "11", "7")) in found
    assert WHOLE.join(("snake", "case")) in found
    assert {"get", "User", "Name"} <= set(found)


def test_the_speaker_is_a_mark_and_not_a_word() -> None:
    """ "Caroline: hello" is said by Caroline; it does not speak of her."""
    row = prepare(IndexedText(1, "Caroline: I went to the lake"))

    assert "Caroline" not in row.words
    assert SPEAKER + "caroline" in row.marks.split()
    assert "go" in row.marks.split()


def test_only_a_name_is_a_speaker() -> None:
    """A lower-case word, a URL and a time are no speakers."""
    assert split_speaker("note: this")[0] == ""
    assert split_speaker("https://example.org")[0] == ""
    assert split_speaker("at 10:30 we met")[0] == ""
    assert split_speaker("Ana María: hola") == ("Ana María", "hola")


def test_the_longest_name_is_a_speaker() -> None:
    """Three words of 25 letters each, after three spaces."""
    name = " ".join(letter * 25 for letter in "ABC")

    assert split_speaker(f"   {name}: hello") == (name, "hello")


@given(st.text("aB9_./:- ,é\n", max_size=12))
def test_the_quick_look_at_ascii_misses_no_identifier(text: str) -> None:
    """Letters of another script, for which expressions decide, do not change what is found in the rest."""
    assert compounds(f"{text} é") == compounds(text)


def test_the_words_of_a_short_message_are_marked() -> None:
    """Where few words are said, each says more; stop words say nothing."""
    short = prepare(IndexedText(1, "the violin recital"))
    long = prepare(IndexedText(2, " ".join(f"word{number}" for number in range(40))))

    assert {STRONG + "violin", STRONG + "recital"} <= set(short.marks.split())
    assert STRONG + "the" not in short.marks
    assert STRONG not in long.marks


def test_noise_is_not_indexed() -> None:
    """Base64 and long hexadecimal runs reach neither index."""
    blob = "QUJD" * 60
    row = prepare(IndexedText(1, f"look {blob} here {'ab12' * 10}"))

    assert "QUJD" not in row.words
    assert "QUJD" not in row.spelled
    assert "ab12ab12" not in row.words
    assert remove_noise("deadbeef cafe") == "deadbeef cafe"


def test_tool_text_is_capped_and_free_of_json_marks() -> None:
    """Of a tool's output the beginning is indexed, without braces and quotes."""
    text = tool_text('{"path": "/tmp/x", "lines": [1, 2]} ' + "word " * 5_000)

    assert "{" not in text
    assert '"' not in text
    assert len(text) <= 2_000
    assert "path" in text


def test_scripts_without_spaces_are_left_to_the_word_index() -> None:
    """The substring index holds no Chinese, which would double its size."""
    row = prepare(IndexedText(1, "hello 北京 world"))

    assert "北" not in row.spelled
    assert "hello" in row.spelled


@given(st.text())
def test_any_text_can_be_prepared(text: str) -> None:
    """No text raises, and what comes out can be stored as UTF-8."""
    row = prepare(IndexedText(1, text, text))

    for part in (row.words, row.marks, row.spelled):
        assert "\x00" not in part
        part.encode()


@given(st.text(alphabet=st.characters(codec=None, categories=("Cs", "Co", "Cc", "Lo", "Ll"))))
def test_cleaning_removes_what_no_database_takes(text: str) -> None:
    """Lone surrogates, NULs and private-use characters go."""
    cleaned = clean(text)

    cleaned.encode()
    assert not any("\ue000" <= character <= "\uf8ff" or character == "\x00" for character in cleaned)

"""Text as the index is given it."""

from hypothesis import given
from hypothesis import strategies as st

from kept.sessions.search.analysis import (
    LONGEST_WORD,
    SPEAKER,
    WHOLE,
    IndexedText,
    clean,
    compounds,
    cut,
    fold,
    pieces,
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
    words, length = cut(IndexedText(1, "Caroline: I went to the lake"))

    assert "caroline" not in words
    assert SPEAKER + "caroline" in words
    assert length == 5


def test_only_a_name_is_a_speaker() -> None:
    """A lower-case word, a URL and a time are no speakers."""
    assert split_speaker("note: this")[0] == ""
    assert split_speaker("https://example.org")[0] == ""
    assert split_speaker("at 10:30 we met")[0] == ""
    assert split_speaker("Ana María: hola") == ("Ana María", "hola")


def test_words_are_indexed_as_written_without_case_and_accents() -> None:
    """Stems are found by the question; й is a letter of its own, which Russian endings need."""
    words, _ = cut(IndexedText(1, "Élan Straße running ёлка НОВЫЙ Ελλάδα"))

    assert words == {"elan", "straße", "running", "елка", "новый", "ελλαδα"}
    assert fold("Crème Brûlée") == "creme brulee"


def test_very_long_words_are_indexed_by_their_beginning() -> None:
    """A vocabulary of lines without spaces would be as large as the text."""
    words, length = cut(IndexedText(1, "x" * 90 + " y"))

    assert words == {"x" * LONGEST_WORD, "y"}
    assert length == 2


def test_noise_is_not_indexed() -> None:
    """Base64 and long hexadecimal runs do not reach the index."""
    blob = "QUJD" * 60
    words, _ = cut(IndexedText(1, f"look {blob} here {'ab12' * 10}"))

    assert words == {"look", "here"}
    assert remove_noise("deadbeef cafe") == "deadbeef cafe"


def test_the_words_of_tools_are_indexed_with_those_of_the_message() -> None:
    """Tool names and arguments count like words."""
    words, length = cut(IndexedText(1, "let me look", "read_file {path: notes.txt}"))

    assert {"let", "read", "file", "notes", WHOLE.join(("read", "file"))} <= words
    assert length == 8


def test_tool_text_is_capped_and_free_of_json_marks() -> None:
    """Of a tool's output the beginning is indexed, without braces and quotes."""
    text = tool_text('{"path": "/tmp/x", "lines": [1, 2]} ' + "word " * 5_000)

    assert "{" not in text
    assert '"' not in text
    assert len(text) <= 2_000
    assert "path" in text


@given(st.text())
def test_any_text_can_be_cut(text: str) -> None:
    """No text raises, and what comes out can be stored as UTF-8."""
    words, length = cut(IndexedText(1, text, text))

    assert length >= 0
    for word in words:
        assert "\x00" not in word
        assert len(word.encode()) > 0


@given(st.text(alphabet=st.characters(codec=None, categories=("Cs", "Co", "Cc", "Lo", "Ll"))))
def test_cleaning_removes_what_no_database_takes(text: str) -> None:
    """Lone surrogates, NULs and private-use characters go."""
    cleaned = clean(text)

    cleaned.encode()
    assert not any("\ue000" <= character <= "\uf8ff" or character == "\x00" for character in cleaned)

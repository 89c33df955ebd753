"""Forms of one word have one base."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.sessions.search.analysis import IndexedText, base, prepare


@pytest.mark.parametrize(
    "forms",
    [
        "книга книги книге книгу книгой книгах книгами",
        "сервер сервера серверу сервером серверов серверах",
        "анна анны анне анну анной",
        "новый новая новое новые нового новому новыми",
        "работать работал работала работали работает работают",
        "вернулся вернулась вернулись вернуться",
        "ёлка елка ёлки елкой",
    ],
)
def test_forms_of_a_word_have_one_base(forms: str) -> None:
    """Case, number, gender, person and past are endings."""
    assert len({base(form) for form in forms.split()}) == 1


def test_different_words_keep_their_own() -> None:
    """What is left tells words apart."""
    words = "книга сервер отпуск договор больница переезд квартира паспорт".split()  # noqa: SIM905 -- read as a row

    assert len({base(word) for word in words}) == len(words)


@pytest.mark.parametrize("word", ["running", "été", "東京", "они", "x1", ""])
def test_other_scripts_and_short_words_are_their_own_base(word: str) -> None:
    """English is stemmed by the index itself."""
    assert base(word) == word


@given(st.text(alphabet=st.characters(min_codepoint=0x430, max_codepoint=0x451), min_size=1, max_size=30))
def test_a_base_is_how_the_word_begins(word: str) -> None:
    """Only an ending goes, and three letters stay."""
    found = base(word)

    assert word.replace("ё", "е").startswith(found) or found == word
    assert len(found) >= min(3, len(word))


def test_a_message_is_found_by_words_and_bases_and_keeps_its_length() -> None:
    """Bases are marks: the words stay as they were written."""
    ready = prepare(IndexedText(1, "Анна: мы купили новые книги"))

    assert ready.words == "мы купили новые книги"
    assert {"куп", "нов", "книг"} <= set(ready.marks.split())
    assert all(word not in ready.marks.split() for word in ("книги", "купили"))

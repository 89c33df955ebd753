"""Forms of one word are found together, in the languages that people write."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.core.ids import SessionId
from kept.core.messages import Message, NewMessage, Origin, Role, Session
from kept.core.search import SearchRequest
from kept.sessions.search.analysis import choose_languages, guess_language
from kept.sessions.search.terms import find_forms


def forms(word, vocabulary, *languages):
    """Return the forms of `word` in a vocabulary."""
    words = vocabulary.split()
    found = find_forms(word, languages or ["english"], lambda start: [one for one in words if one.startswith(start)])
    return {one for one in found if one in words}


@pytest.mark.parametrize(
    "one_word",
    [
        "книга книги книге книгу книгой книгах книгами",
        "сервер сервера серверу сервером серверов серверах",
        "анна анны анне анну анной",
        "новый новая новое новые нового новому новыми",
        "работал работала работали",
        "вернулся вернулась вернулись",
    ],
)
def test_russian_forms_are_known_by_their_script(one_word):
    """Case, number, gender, person and past are endings; no setting is needed."""
    for word in one_word.split():
        assert forms(word, one_word) == set(one_word.split())


@pytest.mark.parametrize(
    ("language", "one_word"),
    [
        ("english", "hope hoping hoped hopes"),
        ("english", "happy happiness"),
        ("english", "deploy deploys deployed deploying"),
        ("german", "haus hauses"),
        ("spanish", "gato gatos"),
        ("french", "maison maisons"),
        ("finnish", "talo talossa talosta"),
    ],
)
def test_forms_of_a_language_that_is_written_are_found(language, one_word):
    """Any form finds all others."""
    for word in one_word.split():
        assert forms(word, one_word, language) == set(one_word.split())


def test_irregular_and_short_forms_are_found_too():
    """The parser asks for "went" as "go", and for "mom" as "mother"."""
    assert forms("go", "go going went gone god", "english") == {"go", "going", "went", "gone"}
    assert forms("mother", "mom mothers", "english") == {"mom", "mothers"}
    assert forms("taking", "take took taken token", "english") == {"take", "took", "taken"}


def test_different_words_stay_apart():
    """A common beginning is not enough, and a number has one form."""
    assert forms("cat", "cat cats catalog category") == {"cat", "cats"}
    assert forms("2024", "2024 20241") == {"2024"}
    assert forms("東京", "東京 東京都") == {"東京"}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("ich habe das nicht gesehen und der Zug ist weg", "german"),
        ("we have seen that and it was good", "english"),
        ("no es para mi pero las casas del pueblo", "spanish"),
        ("jeg har ikke set det", None),  # Danish and Norwegian look the same here
        ("violin concert", None),
    ],
)
def test_the_language_of_a_message_is_told_by_its_small_words(text, language):
    """None where nothing tells it, or where two fit."""
    assert guess_language(text.split()) == language


def test_the_languages_of_a_store_are_those_that_people_write_most_often_first():
    """One message in a thousand makes no language; English is always one, because code is written in it."""
    assert choose_languages(Counter(german=900, french=100, dutch=1)) == ["german", "french", "english"]
    assert choose_languages(Counter()) == ["english"]


@given(st.text(max_size=20), st.lists(st.text(max_size=10), max_size=5))
def test_any_word_has_itself_as_a_form(word, vocabulary):
    """No text raises."""
    assert find_forms(word, ["english", "german"], lambda _: vocabulary)[0] == word


def test_a_question_in_german_finds_other_forms_where_german_is_written(store):
    """The stems of a language are joined as soon as messages are written in it."""
    store.create(Session(SessionId("a"), "cli", 1.0))
    said = [f"Das ist nicht der Weg und ich war mit Katze {number} auf dem Dach" for number in range(20)]
    said.append("Zwei Verträge wurden gestern unterschrieben")
    store.append(SessionId("a"), [NewMessage(Message(Role.USER, text), 1.0, Origin.PERSON) for text in said])

    assert store.search(SearchRequest("Vertrages unterschrieb")).messages[0].message_id == len(said)

"""What can answer a question: no repetition of it, and corrections before what they correct."""

import pytest

from kept.core.ids import SessionId
from kept.core.messages import Message, NewMessage, Origin, Role, Session
from kept.core.search import SearchRequest
from kept.sessions.search.answers import Statement, complete, corrects, find_superseded
from kept.sessions.search.discovery import find_conversations
from kept.sessions.search.query import is_asking
from kept.sessions.search.why import explain
from kept.sessions.sqlite.store import SqliteSessionStore

DAY = 86_400.0


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I live in Leipzig", "I moved to Dresden last month"),
        ("I live in Leipzig", "I don't live in Leipzig anymore"),
        ("We use npm", "we use yarn now"),
        ("My favourite colour is green", "My favourite colour is blue"),
        ("Mein Geburtstag ist am 4. Mai", "Mein Geburtstag ist am 5. Mai"),
        ("Die Besprechung ist am 4. Mai", "Die Besprechung ist am 5. Mai"),
        ("Ich wohne in Leipzig", "Ich bin letzten Monat nach Dresden gezogen"),
        ("Wir nutzen npm", "Wir nutzen jetzt yarn"),
        ("Vivo en Madrid", "Me he mudado a Sevilla"),
        ("J'habite à Lyon", "J'ai déménagé à Lille"),
        ("我住在上海", "我上个月搬到北京"),
        ("We use npm", "We use Slack now instead of npm"),
        ("We use npm", "We switched from npm to yarn"),
        ("We use npm for packages", "We use Yarn for packages now"),
        ("Wir nutzen npm", "Wir nutzen jetzt Yarn statt npm"),
        ("Usamos npm", "Usamos ahora yarn en vez de npm"),
        ("Nous utilisons npm", "Nous utilisons maintenant yarn au lieu de npm"),
        ("我们用npm", "我们现在用yarn而不是npm"),
        ("We use Teams", "We use Slack now"),
        ("we use teams", "we use slack now"),
    ],
)
def test_a_later_statement_about_the_same_thing_corrects(earlier: str, later: str) -> None:
    """In five languages, by what a person has one of, a word for a change, or another number."""
    assert corrects(Statement(earlier, 1.0), Statement(later, 2.0))


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I like tea", "I like coffee"),
        ("I live in Leipzig", "where do I live now?"),
        ("I live in Leipzig", "I live in Leipzig"),
        ("I work on the parser", "I work on the parser and the lexer now"),
        ("We use npm", "I use vim now"),
        ("The meeting is at 4", "The train leaves at 5"),
        ("My dog is called Rex", "My cat is called Tom"),
        ("No, blue", "no, red"),
        ("We use npm", "We use Slack now"),
        ("We use npm", "we use slack now"),
        ("we use postgres", "we use redis now"),
        ("Wir nutzen npm", "Wir nutzen jetzt Slack"),
        ("Usamos npm", "Usamos Slack ahora"),
        ("Nous utilisons npm", "Nous utilisons maintenant Slack"),
        ("我们用npm", "我们现在用Slack"),
    ],
)
def test_a_statement_about_another_thing_corrects_nothing(earlier: str, later: str) -> None:
    """Likes may be many, and a question states nothing."""
    assert not corrects(Statement(earlier, 1.0), Statement(later, 2.0))


def test_a_vague_change_takes_the_place_of_none_of_several() -> None:
    """Nobody can tell which of two things went; one after the other is a chain; a named one or its kind is clear."""
    texts = ["We use acorn", "We use birch", "we use maple now"]
    kind = ["We use npm", "We use nginx", "we use yarn now"]
    chain = ["We use npm", "we use yarn now", "we use pnpm now"]
    named = ["We use npm", "We use nginx", "we use yarn now instead of npm"]

    def superseded(said: list[str]) -> dict[int, int]:
        return find_superseded([Statement(text, float(place)) for place, text in enumerate(said)])

    assert superseded(texts) == {}
    assert superseded(kind) == {0: 2}
    assert superseded(chain) == {0: 2, 1: 2}
    assert superseded(named)[0] == 2


@pytest.mark.parametrize("later", ["no, blue", "it moved to 5", "actually 5", "nein, blau", "不对,蓝色"])
def test_a_bare_correction_refers_to_the_statement_before_it(later: str) -> None:
    """Only right after it in the same conversation."""
    earlier = Statement("The stand-up is at 4", 1.0, "s", 1)

    assert corrects(earlier, Statement(later, 2.0, "s", 3))
    assert not corrects(earlier, Statement(later, 2.0, "t", 3))
    assert not corrects(earlier, Statement(later, 2.0, "s", 30))


def test_a_bare_correction_becomes_a_whole_statement() -> None:
    """The frame is that of the statement before it."""
    assert complete("My favourite colour is green", "no, blue") == "My favourite colour is blue"
    assert complete("I live in Leipzig.", "no, Dresden") == "I live in Dresden."


@pytest.mark.parametrize(
    "text",
    [
        "where do i live",
        "wo wohne ich",
        "¿dónde vivo?",
        "我住在哪里",
        "tell me my name",
        "Kannst du mir sagen wo ich wohne",
        "Weißt du noch, wo ich wohne",
        "Erinnere mich bitte, wo ich wohne",
        "puedes decirme dónde vivo",
        "rappelle-moi où j'habite",
        "Please, tell me where I live",
        "Por favor, dime dónde vivo",
        "S'il te plaît, dis-moi où j'habite",
        "bei wem lernt Jonte Trompete",
        "for which company does she work",
        "de qué hablamos",
        "d'où viens-je",
        "on a fait quoi hier",
        "worüber haben wir zuletzt gesprochen",
        "钢琴课是周几",
    ],
)
def test_questions_and_orders_to_tell_are_asking(text: str) -> None:
    """With or without a question mark."""
    assert is_asking(text)


@pytest.mark.parametrize(
    "text",
    [
        "Please call me Bob",
        "Bitte nenn mich Jörg",
        "por la mañana corro",
        "我住在成都",
        "pour que tu saches",
        "In der Regel esse ich um acht",
    ],
)
def test_a_polite_statement_is_not_asking(text: str) -> None:
    """A polite word begins orders of every kind."""
    assert not is_asking(text)


def say(store: SqliteSessionStore, name: str, at: float, *texts: str) -> None:
    """Store a session in which a person and a program without a model speak in turn."""
    store.create(Session(SessionId(name), "cli", at))
    roles = (Role.USER, Role.ASSISTANT)
    store.append(
        SessionId(name),
        [
            NewMessage(Message(roles[place % 2], text), at + place, Origin.PERSON if place % 2 == 0 else Origin.MODEL)
            for place, text in enumerate(texts)
        ],
    )


def quoted(text: str) -> str:
    """Return an answer that quotes memory."""
    return f"{text}\n  — you, 2026-11-17, session a, message 1"


def test_an_earlier_question_is_not_the_answer_to_it(store: SqliteSessionStore) -> None:
    """Nor is an answer that quotes memory: the conversation with the statement is all that is found."""
    say(store, "a", DAY, "I live in Leipzig", "Noted")
    for number in range(3):
        say(store, f"q{number}", (number + 2) * DAY, "where do i live", quoted("I live in Leipzig"))

    found = find_conversations(store, SearchRequest("Where do I live?"))

    assert [(match.session.id, match.message.message.text) for match in found.matches] == [("a", "I live in Leipzig")]


def test_why_says_that_a_message_repeats_the_question(store: SqliteSessionStore) -> None:
    """A person who misses it learns the reason."""
    say(store, "a", DAY, "where is the violin lesson", "no idea")
    message = store.messages(SessionId("a"))[0]

    explanation = explain(store, SearchRequest("where is the violin lesson?"), message)

    assert (explanation.outcome, explanation.excluded_by) == ("excluded", "repetition")


def test_words_to_find_find_questions_too(store: SqliteSessionStore) -> None:
    """Only a question is not answered by a question."""
    say(store, "a", DAY, "where is the violin lesson?", "no idea")

    found = find_conversations(store, SearchRequest("violin lesson"))

    assert [match.session.id for match in found.matches] == ["a"]


def test_the_newest_statement_comes_first_and_the_earlier_says_by_what_it_is_superseded(
    store: SqliteSessionStore,
) -> None:
    """Though the later one shares no word with the question."""
    say(store, "a", DAY, "I live in Leipzig", "Noted")
    say(store, "b", 2 * DAY, "I moved to Dresden last month", "Noted")

    found = find_conversations(store, SearchRequest("where do i live"))

    assert [match.session.id for match in found.matches] == ["b", "a"]
    assert found.matches[1].superseded_by == found.matches[0].message.id
    assert found.found.messages[0].message_id == found.matches[0].message.id


def test_a_correction_in_the_same_conversation_comes_first(store: SqliteSessionStore) -> None:
    """A bare "no, blue" answers where the statement that it corrects was found."""
    say(store, "a", DAY, "my favourite colour is green", "Noted", "no, blue", "Noted")

    found = find_conversations(store, SearchRequest("what is my favourite colour?"))

    assert found.matches[0].message.message.text == "no, blue"
    assert set(found.superseded.values()) == {found.matches[0].message.id}

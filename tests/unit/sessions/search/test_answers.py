"""What can answer a question: no repetition of it, and corrections before what they correct."""

import pytest

from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.languages.questions import is_asking
from wellkept.sessions.search.discovery import explain, find_conversations
from wellkept.sessions.sqlite.store import SqliteSessionStore

DAY = 86_400.0


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
        "And who lent me the ladder",
        "hat das Auto den TÜV bestanden",
        "a-t-on fini hier",
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
        "a violin",
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


def test_no_question_to_the_memory_answers_another_one(store: SqliteSessionStore) -> None:
    """A chat without a model that asks for a name tells none; of its conversation what it tells is shown.

    It was stored before such messages had an origin: only our own chats have notes.
    """
    say(store, "a", DAY, "my sister is called Anna", "Noted")
    say(store, "q", 2 * DAY, "what is the name of my sister in law", "I have nothing on that")
    say(store, "b", 3 * DAY, "is my sister home", "no idea", "my sister comes on Sunday", "Noted")
    for name in ("a", "q", "b"):
        store.note(SessionId(name), "frozen", {})

    found = find_conversations(store, SearchRequest("what is my sister called?"))
    explanation = explain(store, SearchRequest("what is my sister called?"), store.messages(SessionId("q"))[0])

    assert [match.message.message.text for match in found.matches] == [
        "my sister is called Anna",
        "my sister comes on Sunday",
    ]
    assert (explanation.outcome, explanation.excluded_by) == ("excluded", "question")


@pytest.mark.parametrize(
    ("fact", "question", "again", "reply"),
    [
        ("The staging database listens on port 5433.", "Which port does the staging database use?",
         "Remind me which port the staging database uses?", "I could not find that in the repository."),
        ("Die Testdatenbank lauscht auf Port 5433.", "Welchen Port hat die Testdatenbank?",
         "Welchen Port hat die Testdatenbank nochmal?", "Das habe ich nicht gefunden."),
        ("La base de pruebas escucha en el puerto 5433.", "¿Qué puerto usa la base de pruebas?",
         "¿Qué puerto usa la base de pruebas?", "No lo he encontrado."),
        ("La base de test écoute sur le port 5433.", "Quel port utilise la base de test ?",
         "Quel port utilise la base de test ?", "Je ne l'ai pas trouvé."),
        ("测试数据库的端口是5433。", "测试数据库的端口是多少？", "测试数据库的端口是多少？", "我没有找到。"),
    ],
)  # fmt: skip
def test_a_question_that_was_asked_before_takes_no_place_of_a_fact(
    store: SqliteSessionStore, fact: str, question: str, again: str, reply: str
) -> None:
    """The question itself is not shown; an answer without its words comes after the fact, and once."""
    say(store, "fact", DAY, fact, "Noted.")
    for number, asked in enumerate((question, again, question)):
        say(store, f"q{number}", (2 + number) * DAY, asked, reply)

    found = find_conversations(store, SearchRequest(question, limit=3))

    texts = [match.message.message.text for match in found.matches]
    assert texts[0] == fact
    assert not {question, again} & {*texts}
    assert texts.count(reply) <= 1


@pytest.mark.parametrize(
    ("fact", "question", "replies"),
    [
        ("We decided that the staging database runs on heron, port 5433.", "Which port does the staging database use?",
         ("I don't have that information. Let me know where to look for the staging database port.",
          "Sorry, I have no record of which port the staging database uses.",
          "I couldn't find the staging database port anywhere.")),
        ("Wir haben entschieden, dass die Staging-Datenbank auf heron läuft, Port 5433.",
         "Welchen Port nutzt die Staging-Datenbank?",
         ("Dazu habe ich leider keine Information zum Port der Staging-Datenbank.",
          "Ich weiß nicht, welchen Port die Staging-Datenbank nutzt.",
          "Zum Port der Staging-Datenbank finde ich nichts.")),
        ("测试数据库的端口是5433。", "测试数据库的端口是多少？",
         ("我没有关于测试数据库端口的信息。", "抱歉，我不知道测试数据库的端口。", "找不到测试数据库端口。")),
    ],
)  # fmt: skip
def test_an_answer_that_found_nothing_is_no_evidence_whatever_its_words(
    store: SqliteSessionStore, fact: str, question: str, replies: tuple[str, ...]
) -> None:
    """It often repeats the words of the question; it is not shown even if there is nothing else."""
    for number, reply in enumerate(replies):
        say(store, f"q{number}", (2 + number) * DAY, question, reply)
    before = find_conversations(store, SearchRequest(question, limit=3))
    say(store, "fact", DAY, fact, "Noted.")

    after = find_conversations(store, SearchRequest(question, limit=3))

    assert not before.matches
    assert after.matches[0].message.message.text == fact
    assert not {*replies} & {match.message.message.text for match in after.matches}


def test_an_answer_to_the_question_keeps_its_weight_where_nothing_else_is(store: SqliteSessionStore) -> None:
    """It has none of the words that were asked for, and may be the answer all the same."""
    say(store, "q", DAY, "Which port does the staging database use?", "5433 on heron.")
    alone = store.search(SearchRequest("Which port does the staging database use?")).sessions
    say(store, "fact", DAY, "The staging database is slow.", "Noted.")

    beside = store.search(SearchRequest("Which port does the staging database use?")).sessions

    assert [hit.session_id for hit in alone] == ["q"]
    assert [hit.session_id for hit in beside] == ["fact", "q"]
    assert beside[1].score < alone[0].score


def test_what_is_asked_for_may_be_told_in_another_language(store: SqliteSessionStore) -> None:
    """A person has one employer, whatever it is called."""
    say(store, "a", DAY, "I work at Brightlane as a developer", "Noted")
    say(store, "b", 2 * DAY, "The oven works again", "Noted")

    found = find_conversations(store, SearchRequest("wo arbeite ich?"))

    assert [match.session.id for match in found.matches][:1] == ["a"]


def test_whether_something_still_holds_is_answered_by_what_holds_now(store: SqliteSessionStore) -> None:
    """The question names the old value, so that only the old statement has its words."""
    say(store, "a", DAY, "Wir wohnen in Kassel", "Gut")
    say(store, "b", 2 * DAY, "Wir sind nach Marburg umgezogen", "Gut")

    found = find_conversations(store, SearchRequest("wohnen wir noch in Kassel?"))

    assert [match.session.id for match in found.matches] == ["b", "a"]


def test_what_tells_two_things_is_not_superseded_in_both(store: SqliteSessionStore) -> None:
    """A new job leaves the name as it is."""
    say(store, "a", DAY, "My name is Tomasz and I work at Brightlane", "Noted")
    say(store, "b", 2 * DAY, "I work at Globex now", "Noted")

    of_name = find_conversations(store, SearchRequest("what is my name?"))
    of_work = find_conversations(store, SearchRequest("where do I work?"))

    assert (of_name.matches[0].session.id, of_name.superseded) == ("a", {})
    assert [match.session.id for match in of_work.matches] == ["b", "a"]


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


def test_a_correction_of_something_else_does_not_answer(store: SqliteSessionStore) -> None:
    """It refers to the statement right before it, which the question does not ask for."""
    bath = ["The bathroom is done by the plumber Uhl", "Fine", "The tiles will be blue", "Nice"]
    say(store, "a", DAY, *bath, "no, white. Blue makes it dark.", "Good")

    of_bath = find_conversations(store, SearchRequest("which plumber does the bathroom?"))
    of_tiles = find_conversations(store, SearchRequest("what colour are the tiles?"))

    assert of_bath.matches[0].message.message.text == bath[0]
    assert of_bath.superseded == {}
    assert of_tiles.matches[0].message.message.text == "no, white. Blue makes it dark."


def test_a_question_for_what_was_before_gets_it_where_it_was_found(store: SqliteSessionStore) -> None:
    """The earlier statement is marked all the same."""
    say(store, "a", DAY, "the api listens on port 8443", "Noted")
    say(store, "b", 2 * DAY, "the api listens on port 9443 now", "Noted")

    now = find_conversations(store, SearchRequest("which port does the api listen on?"))
    before = find_conversations(store, SearchRequest("which port did the api listen on before?"))

    assert [match.session.id for match in now.matches] == ["b", "a"]
    assert now.superseded == before.superseded != {}
    assert {match.session.id for match in before.matches} == {"a", "b"}


def test_an_answer_that_confirms_follows_the_statement(store: SqliteSessionStore) -> None:
    """Otherwise it would give the outdated value first."""
    say(store, "a", DAY, "The project budget is $100,000.", "Noted. Project budget set at $100,000.")
    say(store, "b", 2 * DAY, "The project budget is now $150,000.", "Fine")

    found = find_conversations(store, SearchRequest("what's the project budget?"))

    assert found.matches[0].session.id == "b"
    assert len(found.superseded) == 2


def test_a_correction_that_says_what_was_wrong_comes_first(store: SqliteSessionStore) -> None:
    """It refers to the statement before it, and tells the right value itself."""
    say(store, "a", DAY, "The hourly rate is $125.", "Noted", "That's wrong, the hourly rate is $150.", "Noted")

    found = find_conversations(store, SearchRequest("what is the hourly rate?"))

    assert found.matches[0].message.message.text == "That's wrong, the hourly rate is $150."
    assert len(found.superseded) == 1

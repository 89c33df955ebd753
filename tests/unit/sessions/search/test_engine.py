"""The search, over real tables."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wellkept.core.ids import SessionId, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import Found, SearchRequest
from wellkept.sessions.search import engine
from wellkept.sessions.search.candidates import EXHAUSTIVE
from wellkept.sessions.sqlite.postings import find
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

NOW = 1_700_000_000.0
DAY = 86_400.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteSessionStore]:
    database = open_state(tmp_path / "state.db")
    yield SqliteSessionStore(database)
    database.close()


def say(store: SqliteSessionStore, name: str, texts: Sequence[str], **session: object) -> list[int]:
    started = session.pop("started", NOW - DAY)
    role = session.pop("role", Role.USER)
    identity = SessionId(name)
    if store.session(identity) is None:
        store.create(Session(identity, session.pop("source", "cli"), started, **session))  # type: ignore[arg-type]
    return store.append(
        identity,
        [
            NewMessage(
                Message(role, text, tool_name="shell" if role is Role.TOOL else None), started + place, Origin.PERSON
            )
            for place, text in enumerate(texts)
        ],
    )


def search(store: SqliteSessionStore, query: str, **request: object) -> Found:
    asked = SearchRequest(query, **request)  # type: ignore[arg-type]
    store.file.catch_up()
    return find(store.database.connection, asked, user=store.user, now=NOW)


def best(store: SqliteSessionStore, query: str, **request: object) -> str:
    found = search(store, query, **request)
    message = store.message(found.messages[0].message_id)
    assert message is not None
    return message.message.text


def test_a_plain_question_finds_its_message(store: SqliteSessionStore) -> None:
    """Stop words and word forms do not matter; the best session holds the best message."""
    say(store, "a", ["we talked of gardens", "I went to a support group yesterday", "how was it?"])
    say(store, "b", ["the group project is late", "please send support"])

    found = search(store, "When did I go to the support groups?")

    assert best(store, "When did I go to the support groups?") == "I went to a support group yesterday"
    assert found.sessions[0].session_id == "a"
    assert not found.abstained
    assert found.messages[0].parts["words"] > 0.0


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("我们昨天去了北京烤鸭店", "北京"),
        ("我们昨天去了北京烤鸭店", "鸭"),
        ("我们昨天去了北京烤鸭店", "什么时候去的北京烤鸭店"),
        ("東京タワーに行きました", "東京タワー"),
        ("한국어를 배우고 있어요", "한국어"),
        ("เมื่อวานไปกรุงเทพ", "กรุงเทพ"),
        ("мы ездили в Москву летом", "когда мы ездили в москву?"),
        ("سافرنا إلى القاهرة أمس", "القاهرة"),
        ("मैंने कल एक कहानी पढ़ी", "कहानी"),
        ("मैंने कल एक कहानी पढ़ी", "मैंने कौन सी कहानी पढ़ी?"),
        ("আমি প্রতিদিন বই পড়ি", "প্রতিদিন"),
        ("நான் நேற்று புத்தகம் படித்தேன்", "புத்தகம்"),
        ("אֲנִי גָּר בִּירוּשָׁלַיִם", "בִּירוּשָׁלַיִם"),
        ("we fixed getUserName today", "user name"),
        ("we fixed getUserName today", "getUserName"),
        ("edit src/wellkept/app.py please", "src/wellkept/app.py"),
        ("edit src/wellkept/app.py please", "app.py"),
        ("now on version 3.11.7 of it", "3.11.7"),
        ("the snake_case_name broke", "snake_case_name"),
        ("the snake_case_name broke", "case"),
        ("un café au lait", "cafe"),
        ("such a nice cake 🎂 for you", "🎂"),
        ("the xylophonist arrived", "lophon"),
        ("the xylophonist arrived", "xylophnist"),
    ],
)
def test_scripts_identifiers_and_parts_are_found(store: SqliteSessionStore, said: str, asked: str) -> None:
    """Each is found among others, whole or by a part, or misspelt by a letter."""
    say(store, "other", ["hello there", "nothing to see", "再见了朋友", "какой хороший день", "some case"][:4])
    say(store, "wanted", [said])

    assert best(store, asked) == said


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("my e-mail is down", "email"),
        ("the email is down", "e-mail"),
        ("the wi-fi is slow", "wifi"),
        ("co-operation is needed", "cooperation"),
        ("die Straße ist gesperrt", "Strasse"),
        ("die Strasse ist gesperrt", "Straße"),
        ("Herr Müller wartet", "Mueller"),
        ("Herr Mueller wartet", "Müller"),
        ("die Größe passt", "Groesse"),
    ],
)
def test_another_spelling_of_a_word_is_found(store: SqliteSessionStore, said: str, asked: str) -> None:
    """A hyphen, an umlaut or an ß that is written otherwise hides nothing."""
    say(store, "a", ["we talked of gardens", said, "how was it?"])

    assert not search(store, asked).abstained
    assert best(store, asked) == said


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("a long story", "store"),
        ("they deserve it", "desert"),
        ("several cameras", "which era?"),
        ("on vacation", "cat lantern"),
        ("maybe not", "in May 2023"),
        ("a bit late", "bite"),
    ],
)
def test_another_word_of_almost_the_same_letters_is_no_match(store: SqliteSessionStore, said: str, asked: str) -> None:
    """A word of the dictionary is spelled as it should be, and a short one is not meant inside of others."""
    say(store, "a", ["we talked of gardens", said])

    assert search(store, asked).messages == ()


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("we decided on blue", "decision"),
        ("ein Hausboot auf dem See", "Boot"),
        ("ein Hausboot auf dem See", "which boot?"),
        ("the server reboots at night", "boot"),
        ("several cameras", "era"),
        ("Lena lives in Ulm", "who lives there"),
        ("I live in Ulm", "who lives there"),
        ("the lives of others", "life"),
    ],
)
def test_another_form_of_a_word_is_found(store: SqliteSessionStore, said: str, asked: str) -> None:
    """Forms that no rule of the stemmer joins, words in compounds, and any part of a word that is typed alone."""
    say(store, "a", ["we talked of gardens", said])

    assert best(store, asked) == said


def test_forms_of_one_word_count_once(store: SqliteSessionStore) -> None:
    """A question that says "days" and "day" asks for nothing twice, and lacks nothing that the message contains."""
    say(store, "a", ["we talked of gardens", "the race took nine days"])

    once, twice = (search(store, query) for query in ("how many days of race", "how many days from day to day of race"))

    assert twice.terms == once.terms == ("days", "race")
    assert twice.messages[0].parts["words"] == once.messages[0].parts["words"]


def test_an_answer_is_found_by_the_question_that_it_answers(store: SqliteSessionStore) -> None:
    """Of answers that say nothing of what is asked, the one to a question of the same form comes first."""
    say(store, "a", ["Bob: How long have you been into art?", "Ann: Seven years now.", "Bob: Good.", "Ann: Yes."])
    say(store, "b", ["Bob: What have you learned from art?", "Ann: Mostly new skills.", "Bob: Good.", "Ann: Yes."])

    answers = [store.message(one.message_id) for one in search(store, "How long has Ann been practicing art?").messages]
    texts = [one.message.text for one in answers if one is not None and one.message.text.startswith("Ann")]

    assert texts[0] == "Ann: Seven years now."


def test_a_phrase_is_exact(store: SqliteSessionStore) -> None:
    """The words in another order do not match."""
    say(store, "a", ["red green blue", "green red blue", "blue red greenish"])

    found = search(store, '"red green"')

    assert [store.message(hit.message_id).message.text for hit in found.messages] == ["red green blue"]
    assert search(store, '"green red red"').messages == ()


def test_not_excludes_and_and_requires(store: SqliteSessionStore) -> None:
    """Operators decide what may be found."""
    say(store, "a", ["tea and cake", "filler one", "filler two"])
    say(store, "b", ["tea and milk"])

    hits = {store.message(hit.message_id).message.text for hit in search(store, "tea NOT cake").messages}

    assert hits == {"tea and milk"}
    assert best(store, "tea AND cake") == "tea and cake"
    assert best(store, "cak*") == "tea and cake"


def test_operators_are_no_words_of_the_query(store: SqliteSessionStore) -> None:
    """A message does not rank higher because it contains the word "and"."""
    say(store, "old", ["copper kettle and lid"], started=NOW - 2 * DAY)
    say(store, "new", ["copper kettle or lid"], started=NOW - DAY)

    assert best(store, "copper AND kettle") == "copper kettle or lid"


def test_a_phrase_is_found_by_all_of_its_rare_words(store: SqliteSessionStore) -> None:
    """The other messages with one of them, or with both apart, are left out."""
    say(store, "a", ["amber lanterns glow", "the lanterns are amber", "amber only"])
    say(store, "b", [f"amber number {number}" for number in range(30)])

    found = search(store, '"amber lanterns"')

    assert [hit.session_id for hit in found.messages] == ["a"]


def test_related_words_count_for_questions_and_not_for_conditions(store: SqliteSessionStore) -> None:
    """A question may be answered in other words; who writes a condition, or one word, means these words."""
    say(store, "one", ["The museum and its exhibition of paintings were lovely."])

    found = {query: search(store, query) for query in ("which museum was lovely?", "museum AND lovely", "museum")}

    assert [bool(one.messages[0].parts["related"]) for one in found.values()] == [True, False, False]


def test_a_name_is_not_swamped_by_what_its_bearer_says(store: SqliteSessionStore) -> None:
    """Asked for a person, what is said of them comes before what they say."""
    say(store, "a", [f"Caroline: something number {number}" for number in range(20)])
    say(store, "b", ["Melanie: I saw Caroline at the lake", "Melanie: nice weather"])

    assert best(store, "Caroline") == "Melanie: I saw Caroline at the lake"


def test_rewound_messages_are_never_found(store: SqliteSessionStore) -> None:
    """What was taken back is gone from every list."""
    _, taken = say(store, "a", ["violin one", "violin two"])

    store.rewind(SessionId("a"), taken)  # type: ignore[arg-type]

    assert taken not in {hit.message_id for hit in search(store, "violin").messages}


def test_filters_exclude_and_are_counted(store: SqliteSessionStore) -> None:
    """Each filter takes its hits away and says how many."""
    say(store, "old", ["violin lesson"], started=NOW - 100 * DAY)
    new = say(store, "new", ["violin concert"], started=NOW - DAY)
    say(store, "sub", ["violin in a subagent"], source="subagent")
    say(store, "said", ["violin played"], role=Role.ASSISTANT)

    def names(**request: object) -> set[str]:
        return {str(hit.session_id) for hit in search(store, "violin", **request).sessions}

    assert names() == {"old", "new", "said"}
    assert names(after=NOW - 10 * DAY) == {"new", "said"}
    assert names(before=NOW - 10 * DAY) == {"old"}
    assert names(sources=("subagent",)) == {"sub"}
    assert names(roles=("assistant",)) == {"said"}
    assert names(session_id="old") == {"old"}
    assert names(exclude_sessions=("old", "said")) == {"new"}
    assert names(exclude_messages=frozenset(new)) == {"old", "said"}
    assert search(store, "violin", exclude_messages=frozenset(new)).excluded["current conversation"] == 1
    assert search(store, "violin").excluded["hidden source"] == 1


def test_another_users_messages_are_neither_found_nor_counted(store: SqliteSessionStore) -> None:
    """A user sees only their own, and learns nothing of others."""
    say(store, "mine", ["violin lesson"])
    say(store.for_user(UserId("bob")), "theirs", ["violin concert"])

    found = store.search(SearchRequest("violin"))

    assert [hit.session_id for hit in found.sessions] == ["mine"]
    assert sum(found.excluded.values()) == 0


def test_scheduled_talk_and_tool_output_rank_below_people(store: SqliteSessionStore) -> None:
    """The same words count less from a schedule or a tool."""
    say(store, "cron", ["violin tuning reminder"], source="cron")
    say(store, "tool", ["violin tuning reminder"], role=Role.TOOL)
    say(store, "own", ["violin tuning reminder"])

    found = search(store, "violin tuning reminder")

    assert found.sessions[0].session_id == "own"


def test_a_date_in_the_question_prefers_its_days(store: SqliteSessionStore) -> None:
    """Of two equal messages, the one sent on the day that the question names is first."""
    say(store, "then", ["dinner with my mother"], started=NOW - 300 * DAY)
    say(store, "now", ["dinner with my mother"], started=NOW - DAY)
    from datetime import UTC, datetime

    asked = datetime.fromtimestamp(NOW - 300 * DAY, UTC).strftime("%d %B %Y")

    assert search(store, f"dinner with mother on {asked}").sessions[0].session_id == "then"
    assert search(store, "dinner with mother").sessions[0].session_id == "now"


def test_what_nobody_said_is_abstained_from(store: SqliteSessionStore) -> None:
    """A question of unknown words, or with one minor word known, has no answer; the nearest are still listed."""
    say(store, "a", ["I like the weather in the mountains", "the recipe needs flour", "see you on time"])

    assert search(store, "zzyzx qwertzuiop").abstained
    near = search(store, "quantum chromodynamics lattice recipe gauge")
    assert near.abstained
    assert near.messages


def test_a_word_deep_in_a_long_message_is_found_there(store: SqliteSessionStore) -> None:
    """Length neither makes the search abstain nor lets a short neighbour stand for the message."""
    say(store, "other", [f"A short remark, number {number}." for number in range(60)])
    ids = say(store, "s", ["Fine.", "def f(x): return {'a': [1, 2]}\n" * 80 + "shelf zq17x", "Done.", "Good."])

    found = search(store, "zq17x")

    assert not found.abstained
    assert found.sessions[0].best_message_id == ids[1]


def test_removed_messages_are_not_found(store: SqliteSessionStore) -> None:
    """After removal neither the words nor a substring finds them."""
    from wellkept.sessions.sqlite import index

    (number,) = say(store, "a", ["the xylophone sings"])
    with store.database.writing() as connection:
        index.SqliteIndex(connection).remove([number])

    assert search(store, "xylophone").messages == ()
    assert search(store, "lophon").messages == ()


def test_the_budget_changes_what_is_read_and_not_how_it_is_ranked(store: SqliteSessionStore) -> None:
    """On a small store the bounded and the exhaustive search agree to the last digit."""
    for number in range(30):
        say(store, f"s{number}", [f"violin {number}", "the recital went well", f"lake {number % 3}"])
    store.file.catch_up()
    for query in ("violin recital", "lake", "when was the recital at the lake?"):
        request = SearchRequest(query, limit=10)
        few = find(store.database.connection, request, now=NOW)
        all_ = find(store.database.connection, request, now=NOW, budget=EXHAUSTIVE)
        assert [hit.score for hit in few.messages] == [hit.score for hit in all_.messages]


PIECES = st.sampled_from(
    ['"', "(", ")", " AND ", " OR ", " NOT ", "*", "violin", "北京", "\x00", "😀", "a_b.c", " ", "'", ":", "^", "-"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=20).map("".join)))
def test_no_query_raises(store: SqliteSessionStore, query: str) -> None:
    """Whatever is typed, the search answers."""
    if store.session(SessionId("a")) is None:
        say(store, "a", ["violin 北京 😀 a_b.c", "it's 10:30 - and so on"])

    search(store, query)


def test_a_stem_that_splits_a_character_harms_nothing(store: SqliteSessionStore) -> None:
    """The stemmer cuts bytes; a word of mixed scripts may lose half a character, the rest is found."""
    say(store, "a", ["violin abcतing a_ing", "abcdefg and so on"])

    assert best(store, "violin abcतing") == "violin abcतing a_ing"
    assert search(store, "abcdxfg").messages


@pytest.mark.parametrize("query", ["x" * 10_000, "violin " * 1_500, "\ud800violin", "", " ", "the of and", "'" * 50])
def test_odd_queries_are_answered(store: SqliteSessionStore, query: str) -> None:
    """Length, surrogates and emptiness are all fine."""
    say(store, "a", ["violin of the lake"])

    search(store, query)


def test_of_equals_the_newest_comes_first_however_late_the_others_were_stored(store: SqliteSessionStore) -> None:
    """An import stores old conversations after new ones."""
    (new,) = say(store, "new", ["the boiler code is on the door"], started=NOW - DAY)
    (old,) = say(store, "old", ["the boiler code is on the door"], started=NOW - 400 * DAY)

    found = search(store, "boiler code")

    assert [hit.message_id for hit in found.messages] == [new, old]
    assert [hit.session_id for hit in found.sessions] == ["new", "old"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("你能告诉我我喜欢什么茶吗？", "我喜欢龙井"),
        ("请问你能不能告诉我什么时候看牙医", "下周三下午三点去看牙医"),
        ("Könntest du mir bitte nochmal sagen, was Mara gebacken hat?", "Mara hat einen Kuchen gebacken"),
    ],
)
def test_polite_words_around_a_question_hide_no_answer(store: SqliteSessionStore, question: str, answer: str) -> None:
    """Nobody said the words that only ask; they must not count as unknown ones, from which the search abstains."""
    say(store, "a", ["我喜欢龙井"])
    say(store, "b", ["下周三下午三点去看牙医"])
    say(store, "c", ["Mara hat einen Kuchen gebacken", "es regnet"])

    found = search(store, question)

    assert not found.abstained
    assert best(store, question) == answer


def test_what_the_assistant_told_is_looked_for_among_its_messages(store: SqliteSessionStore) -> None:
    """The person's own words about the same thing are not what "you" said."""
    say(store, "a", ["the blue harbour hotel has a pool, and breakfast is served until ten"])
    say(store, "b", ["the blue harbour hotel has a view, and breakfast is served until ten"], role=Role.ASSISTANT)

    assert search(store, "which harbour hotel did you recommend?").sessions[0].session_id == "b"
    assert search(store, "which harbour hotel did I book?").sessions[0].session_id == "a"


def test_a_line_of_small_words_is_found_by_its_own_wording(store: SqliteSessionStore) -> None:
    """One word of it is rare enough to be looked for; the row of the others tells which message it was."""
    say(store, "a", ["I wonder if they won", "who?"])
    say(store, "b", ["I wonder how much that was! Do you think they used to pay the players less than the bowlers?"])
    say(store, "c", ["a wonder indeed"])

    assert search(store, "wonder how much that was! Do you").sessions[0].session_id == "b"


@pytest.mark.parametrize(
    "query",
    [
        "Когда мы переносили серверы в Хельсинки?",
        "перенос сервера",
        "сервера AND хельсинки",
        "что говорила Анна о серверах",
        '"перенесли сервер"',
        "перенес*",
    ],
)
def test_russian_is_found_in_any_of_its_forms(store: SqliteSessionStore, query: str) -> None:
    """A question seldom has the endings of the answer."""
    say(store, "a", ["Борис: вчера ходили в кино", "Анна: вчера перенесли сервер в Хельсинки"])
    say(store, "b", ["Борис: купил хлеба и молока", "Анна: отлично"])

    assert "перенесли" in best(store, query)


@pytest.mark.parametrize(
    "query",
    ["harbour", "harbour lantern", "harbour AND walk", '"lantern walk"', "harbour OR fig", "Who saw the harbour?"],
)
def test_few_hits_are_ranked_as_many_are(
    store: SqliteSessionStore, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Messages that are all ranked, without choosing candidates, get the same scores in the same order."""
    say(store, "a", ["Ann: harbour?", "a lantern walk", "yes", "harbour lantern walk", "fig tree", "no"])
    say(store, "b", ["the walk", "to the harbour, a long one"])
    say(store, "c", ["fig", "the lantern at the harbour", "walk walk"], role=Role.ASSISTANT, started=NOW - 40 * DAY)
    say(store, "d", ["harbour"], source="subagent")
    few = search(store, query)
    monkeypatch.setattr(engine, "list_few", lambda *_, **__: None)
    many = search(store, query)

    assert few.messages
    assert few.messages == many.messages
    assert few.sessions == many.sessions
    assert (few.abstained, few.terms, few.excluded) == (many.abstained, many.terms, many.excluded)


def test_a_speaker_is_known_as_soon_as_one_has_spoken(store: SqliteSessionStore) -> None:
    """A store without speakers is not asked again for each word; the first message of one changes that."""
    say(store, "a", ["about Bella and the garden", "something else"])
    search(store, "Bella")
    (said,) = say(store, "b", ["Bella: I planted tulips"])

    assert said in [hit.message_id for hit in search(store, "Bella").messages]

"""Standing facts of past conversations: what is proposed for the pages, once, and in its newest form."""

import json

import pytest

from wellkept.app import open_app
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.memory.page import Add, Target
from wellkept.operations.memory import approve, edit_entry, reject
from wellkept.operations.proposals import SAID_BEFORE, propose_facts, propose_recent_facts

START = 1_790_000_000.0


@pytest.fixture
def caller(home):
    app = open_app()
    yield app.caller()
    app.close()


def talk(caller, name, *texts, at=START, role=Role.USER, source=None):
    store = caller.space.sessions
    store.create(Session(SessionId(name), "claude-code", at))
    rows = [
        NewMessage(Message(role, text), at + number, Origin.usual(role), source=source)
        for number, text in enumerate(texts)
    ]
    return store.append(SessionId(name), rows)


def found(caller, **options):
    return [one.statement.text for one in propose_facts(caller, **options).facts]


@pytest.mark.parametrize(
    "said",
    [
        "I prefer tabs over spaces",
        "Never use emojis in commit messages",
        "Ich bevorzuge kurze Antworten",
        "Prefiero respuestas cortas",
        "Je préfère les réponses courtes",
        "我喜欢简短的回答",
    ],
)
def test_a_preference_or_instruction_is_proposed_in_five_languages(caller, said):
    """It waits for a person, with the session in which it was said."""
    talk(caller, "a", f"{said}.", "Now fix the bug, please.")

    (fact,) = propose_facts(caller).facts

    assert fact.statement.text == said
    assert fact.session_id == "a"
    assert [(one.why, one.texts) for one in caller.space.approvals.waiting()] == [(SAID_BEFORE, [said])]
    assert caller.space.memory.entries(Target.USER) == []


def test_what_means_nothing_later_is_not_proposed(caller):
    """A liking of what was just shown, an answer to the message before, a question, and what an assistant said."""
    talk(caller, "a", "I like the second one.", "No, use 2 spaces.", "Do I prefer tabs?", "I'm a bit tired today.")
    talk(caller, "b", "I prefer tabs over spaces.", role=Role.ASSISTANT)

    assert found(caller) == []


def test_a_fact_is_proposed_once(caller):
    """Not while it waits, not when it is on a page, and not when it was rejected."""
    talk(caller, "a", "I prefer tabs over spaces.", "I love mountain biking.", "I hate long meetings.")
    edit_entry(caller, Add("I love mountain biking"), Target.USER)

    first = propose_facts(caller).facts
    waiting = {one.statement.text: one.pending.id for one in first}
    again = found(caller)
    reject(caller, waiting["I hate long meetings"])
    approve(caller, waiting["I prefer tabs over spaces"])

    assert set(waiting) == {"I prefer tabs over spaces", "I hate long meetings"}
    assert again == []
    assert found(caller) == []


def test_the_most_repeated_come_first_and_the_rest_is_counted(caller):
    """Each once, in its newest wording."""
    talk(caller, "a", "I prefer tabs over spaces.", at=START)
    talk(caller, "b", "I hate long meetings.", at=START + 500)
    talk(caller, "c", "i prefer tabs over spaces", at=START + 900)

    done = propose_facts(caller, limit=1, dry_run=True)

    assert [(one.statement.text, one.times) for one in done.facts] == [("i prefer tabs over spaces", 2)]
    assert done.more == 1
    assert caller.space.approvals.waiting() == []


def test_a_later_statement_takes_the_place_of_an_earlier_one(caller):
    """In the proposals, and of an entry on the page."""
    edit_entry(caller, Add("My name is Ann"), Target.USER)
    later = caller.app.clock.now().timestamp() + 100
    talk(caller, "a", "I live in Leipzig.", at=START)
    talk(caller, "b", "I live in Dresden now.", at=later)
    talk(caller, "c", "My name is Anna.", at=later)

    done = {one.statement.text: one.replaces for one in propose_facts(caller).facts}

    assert done == {"I live in Dresden now": None, "My name is Anna": "My name is Ann"}


def test_an_import_stays_the_source_of_what_it_brought(caller):
    """A person sees where it came from before they agree."""
    talk(caller, "a", "I prefer the mirror at https://packages.example.test.", source="import:jsonl")

    propose_facts(caller)
    (pending,) = caller.space.approvals.waiting()

    assert list(pending.sources.values()) == ["import:jsonl"]


def test_idle_work_proposes_few_and_only_what_is_new(caller):
    """Of the last days, as long as fewer than five wait, and not while reviews are off."""
    now = caller.app.clock.now().timestamp()
    talk(caller, "old", "I prefer tea over coffee.", at=START - 10 * 86_400)
    talk(caller, "new", *(f"I prefer colour{n} over shade{n}." for n in range(9)), at=now - 60)

    propose_recent_facts(caller)
    propose_recent_facts(caller)

    waiting = caller.space.approvals.waiting()
    assert len(waiting) == 5
    assert not any("tea" in one.summary for one in waiting)


def test_another_user_is_not_proposed_anything_of_the_owner(caller):
    """Conversations and pages are read through the caller's space."""
    talk(caller, "a", "I prefer tabs over spaces.")
    other = caller.for_user("ann")

    assert found(other) == []
    assert json.dumps(propose_facts(other).as_json()) == '{"facts": [], "more": 0, "dry_run": false}'


@pytest.mark.parametrize(
    ("fact", "change"),
    [
        ("The nightly job runs at 2:30", "The nightly job moved to 5:15"),
        ("Ma fille suit un cours de poterie le jeudi", "Le cours de poterie de ma fille est passé au mardi"),
        ("我在华为工作", "我现在在腾讯工作"),
    ],
)
def test_a_fact_that_changed_is_proposed_as_it_is_now(caller, fact, change):
    """Also where what says so does not look like a fact."""
    talk(caller, "a", fact)
    talk(caller, "b", change, at=START + 9_000)

    assert found(caller) == [change]


def test_a_change_of_an_entry_is_proposed_in_its_place(caller):
    """Nothing else that only tells of a change is proposed."""
    edit_entry(caller, Add("wir nutzen npm"), Target.USER)
    later = caller.app.clock.now().timestamp() + 9_000
    talk(caller, "a", "Wir nutzen jetzt yarn", "Der Bus ist jetzt weg", at=later)

    (proposed,) = propose_facts(caller).facts

    assert (proposed.statement.text, proposed.replaces) == ("Wir nutzen jetzt yarn", "wir nutzen npm")


def test_a_sentence_about_somebody_named_before_is_no_fact(caller):
    """Nobody could tell later who starts in September."""
    talk(caller, "a", "He starts in September at 9", "她七岁，每周四上课")

    assert found(caller) == []

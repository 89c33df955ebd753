"""Which of two statements takes the place of the other."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.facts.chronology import Statement, find_reason, find_superseded, replaces
from wellkept.facts.comparison import LIKELY, NEVER, SURE, Context, compare, read, repeats

CORPUS = Path(__file__).parents[2] / "corpora" / "facts"
NEXT = Context(is_same_session=True, is_next=True)


def score(earlier: str, later: str, context: Context = NEXT) -> float:
    """Return how surely the later text takes the place of the earlier one."""
    return compare(read(earlier), read(later), context)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The meeting will be in Seattle office, Room 302.", "Meeting is in Portland office, Conference Room 1."),
        ("Order: 500 packages to the Lyon warehouse.", "Keep the location, but change the quantity to 750."),
        ("The design is a green theme.", "Actually, let's go back to the blue theme."),
        ("The rate is $125.", "The rate is now $225."),
        ("Wir nutzen npm", "Wir nutzen jetzt yarn statt npm"),
        ("La réunion est à 4 heures", "La réunion est reportée à 5 heures"),
        ("我住在上海", "我上个月搬到北京"),
        ("I live in Leipzig", "I moved to Dresden last month"),
        ("My password hint is the cat", "no, the dog"),
    ],
)
def test_another_value_of_one_thing_takes_the_place(earlier: str, later: str) -> None:
    """By what both share, by what the later one says about change, or because it comes right after."""
    assert score(earlier, later) >= LIKELY


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I like tea", "I like coffee"),
        ("Purchase order 4521 is approved.", "Just confirming again: purchase order 4521 is approved."),
        ("8 engineers on Project Alpha", "Based on the plan: 8 engineers on Project Alpha"),
        ("The stand-up is at 4", "No, that's all. Thanks for the tips!"),
        ("My name is Gwen", "sorry, wrong window"),
        ("We use RabbitMQ", "imagine we used Kafka"),
        ("We deploy on Fridays", "Could we deploy on Mondays?"),
        ("Please review the branch of Jonas.", "Please review the branch of Chiara."),
        ("Überprüfe den Branch von Jonas.", "Überprüfe den Branch von Chiara."),
        ("Révise la branche de Jonas.", "Révise la branche de Chiara."),
        ("Revisa por favor el código de la rama de Jonas.", "Revisa por favor el código de la rama de Ana."),
        ("审查乔纳斯的分支", "审查安娜的分支"),
        ("last year's conference was in Ghent", "this year the conference is in Turin"),
        ("Hey Sam, I went to Jasper with my family", "Thanks, Sam! It's from our trip."),
    ],
)
def test_what_holds_beside_it_does_not(earlier: str, later: str) -> None:
    """Lists, repetitions, courtesies, suppositions, questions, and what is told of another time."""
    assert score(earlier, later, Context()) < LIKELY


@pytest.mark.parametrize("name", ["dev", "short"])
def test_sure_is_sure(name: str) -> None:
    """Of the pairs that the weights were fitted on nine of ten that are sure are right, and some are found."""
    rows = [json.loads(line) for line in (CORPUS / f"pairs.{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    is_right = [
        row["class"] == "replaced"
        for row in rows
        if score(row["earlier"], row["later"], NEXT if row["gap"] == "minutes" and not row["between"] else Context())
        >= SURE
    ]

    assert len(is_right) > 0.05 * len(rows)
    assert sum(is_right) >= 0.9 * len(is_right)


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_two_texts_can_be_compared(earlier: str, later: str) -> None:
    """A text never takes its own place."""
    assert score(earlier, later) >= NEVER
    assert score(earlier, earlier, Context()) < LIKELY


def superseded(*texts: str) -> dict[int, int]:
    """Return which of several texts of one conversation were superseded."""
    return find_superseded([Statement(text, float(place), "s", place + 1) for place, text in enumerate(texts)])


def test_a_vague_change_takes_the_place_of_none_of_several() -> None:
    """Nobody can tell which of two things went; one after the other is a chain."""
    assert superseded("We use npm for packages", "we use yarn now instead of npm") == {0: 1}
    assert 0 not in superseded("The plumber is Mr Uhl", "The tiles will be blue", "no, white. Blue is dark.")
    assert superseded("The tiles will be blue", "no, white. Blue is dark.") == {0: 1}


def test_a_return_to_an_earlier_value_makes_it_current() -> None:
    """The newest one that took its place counts."""
    texts = ("The rate is $125.", "The rate is now $225.", "The rate is now $125 again.")

    assert superseded(*texts)[1] == 2
    assert 2 not in superseded(*texts)


def test_nobody_corrects_what_another_person_said() -> None:
    """In talk of several people each speaks of their own things."""
    first, second = Statement("I live in Leipzig", 1.0, "s", 1, "Ann"), Statement("I moved to Ulm", 2.0, "s", 2, "Bob")

    assert replaces(first, second)
    assert find_superseded([first, second]) == {}


def list_statements(*texts: str) -> list[Statement]:
    """Return the statements of one conversation."""
    return [Statement(text, float(place), "s", place + 1) for place, text in enumerate(texts)]


def test_a_withdrawal_belongs_to_the_correction_before_it() -> None:
    """It tells no value of its own."""
    statements = list_statements(
        "The rate is $100.", "CORRECTION: the rate is $150.", "This means our previous rate of $100 was incorrect."
    )

    assert find_reason(statements, 0, 2) == 1
    assert find_reason(statements, 0, 1) is None


@pytest.mark.parametrize("earlier", ["The rate is $125.", "The rate is now $125."])
def test_a_correction_with_a_value_has_no_reason_but_itself(earlier: str) -> None:
    """It takes the place of what it corrects, whatever was said before."""
    statements = list_statements("I changed my mind about the flat.", earlier, "That's wrong, the rate is $150.")

    assert find_superseded(statements)[1] == 2
    assert find_reason(statements, 1, 2) is None


def test_an_answer_that_only_confirms_is_known() -> None:
    """It follows the statement that it repeats."""
    assert repeats(read("The project budget is $100,000."), read("Noted. Budget set at $100,000."))
    assert not repeats(
        read("The budget is $100,000."), read("I can compare three suppliers and write to each of them.")
    )


def test_after_a_question_its_answer_is_corrected() -> None:
    """A bare correction replaces the statement that the question in between is about, and no other."""
    texts = ("The laundry code is Q4471", "The bell code is B12", "What is the laundry code?", "No, it is Q4472")
    said = [Statement(text, number, "s", number) for number, text in enumerate(texts, 1)]

    assert find_superseded([said[0], *said[2:]]) == {0: 2}
    assert find_superseded([said[1], Statement("Who is at the door?", 3, "s", 3), said[3]]) == {}

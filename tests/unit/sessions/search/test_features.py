"""How the words of a question stand in a text."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wellkept.sessions.search.analysis import RelatedWords
from wellkept.sessions.search.occurrences import Proximity, Turns
from wellkept.sessions.search.postings import MessageHead
from wellkept.sessions.search.ranking import WEIGHTS, Line
from wellkept.sessions.sqlite import index
from wellkept.sessions.sqlite.postings import SqlitePostings
from wellkept.storage.sqlite import open_state


@pytest.fixture
def postings(tmp_path: Path) -> Iterator[SqlitePostings]:
    database = open_state(tmp_path / "state.db")
    index.create(database.connection)
    yield SqlitePostings(database.connection)
    database.close()


def test_terms_that_stand_together_are_close_in_all_their_forms(postings: SqlitePostings) -> None:
    """`people` is asked for as `person` and stands beside `supportive` all the same."""
    wording = Proximity(postings, "supportive people", ["supportive", "person"])

    near = wording.of("having supportive people around", [2.0, 1.0])
    far = wording.of("supportive, as so many of the people", [2.0, 1.0])

    assert near.closeness == 1.0
    assert 0.0 < far.closeness < near.closeness
    assert near.terms == 0b11


def test_a_quotation_counts_and_scattered_words_do_not(postings: SqlitePostings) -> None:
    """Word for word is all of it; the same words in another order are nothing."""
    wording = Proximity(postings, "life can be tough sometimes", ["life", "tough", "sometimes"])

    assert wording.of("Sam: Yeah. Life can be tough sometimes, but we go on", [1.0] * 3).quoted == 1.0
    assert wording.of("sometimes tough, be that as it can, is life", [1.0] * 3).quoted == 0.0


def test_the_speaker_is_no_word_of_the_text(postings: SqlitePostings) -> None:
    """The name in front of what is said holds no term."""
    assert Proximity(postings, "ann", ["ann"]).of("Ann: hello there", [1.0]).terms == 0


def test_the_stop_words_of_a_question_are_counted_once_each(postings: SqlitePostings) -> None:
    """A text is remembered by its small words as well; what is left of "don't" is no word."""
    wording = Proximity(postings, "you don't get there", ["get"])

    assert wording.of("there you are, and there you stay, t", [1.0]).stop_words == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(question=st.text(max_size=60), text=st.text(max_size=120))
def test_any_question_beside_any_text_is_between_nothing_and_all(
    postings: SqlitePostings, question: str, text: str
) -> None:
    """No text raises, and shares are shares."""
    stands = Proximity(postings, question, ["alpha", "beta"]).of(text, [1.0, 1.0])

    assert stands.closeness >= 0.0
    assert 0.0 <= stands.quoted <= 1.0
    assert stands.terms in range(4)
    assert stands.stop_words >= 0
    assert 0.0 <= stands.related <= 4.0


def test_a_text_says_a_question_in_related_words(postings: SqlitePostings) -> None:
    """An exhibition is close to a museum; a price is not, and the name of a person is related to nothing."""
    museum = Proximity(postings, "Which museum did John visit?", ["museum", "john", "visit"], names=["john"])
    exhibition, price, name = (
        museum.of(text, [1.0] * 3).related
        for text in ("the exhibition of antiques", "the price of the loan", "John, Paul")
    )

    assert exhibition > 3 * price
    assert name == 0.0


def test_the_best_window_of_a_long_text_counts(postings: SqlitePostings) -> None:
    """A sentence says nearly as much in a long answer as by itself."""
    guitar = Proximity(postings, "the guitar lesson", ["guitar", "lesson"])
    sentence = "an acoustic instrument with a good musician to teach you the first chords and songs of it"

    alone, inside = (guitar.of(text, [1.0] * 2).related for text in (sentence, f"{'zz ' * 200}{sentence}{' zz' * 200}"))

    assert inside > 0.8 * alone > 0.0


def test_a_message_gains_from_what_its_neighbours_say_in_related_words() -> None:
    """An answer gains from the message before it or after it, once, and less when it is long."""
    first, second, third, long, apart = (Line(number, 1, length) for number, length in enumerate((9, 9, 9, 400, 9), 1))
    first.related = third.related = 0.8
    second.previous, third.previous, long.previous = 1, 2, 3
    heads = {number: MessageHead("s", "user", 0.0, None) for number in range(1, 6)}

    Turns("which museum did I visit?").mark(
        [first, second, third, long, apart], {}, heads, read=lambda _: {}, alike=lambda _: 0.0
    )

    gain = WEIGHTS.related_near * 0.8
    assert second.related == pytest.approx(gain)
    assert long.related == pytest.approx(gain / 4)
    assert (first.related, third.related, apart.related) == (0.8, 0.8, 0.0)


@pytest.mark.parametrize("question", ["Welches Museum hat Anna besucht?", "安娜参观了哪个博物馆"])
def test_words_of_other_languages_are_related_to_nothing_by_chance(postings: SqlitePostings, question: str) -> None:
    """The table is English: an unrelated text in the language of the question gains nothing."""
    related = Proximity(postings, question, ["x"]).of("Wir haben gestern den Zaun gestrichen 昨天我们刷了篱笆", [1.0])

    assert related.related == 0.0


def test_stop_words_of_another_language_are_not_english_words(postings: SqlitePostings) -> None:
    """German "war" is a form of "be", so that a German question is not about a war."""
    related = Proximity(postings, "Wo war das Haus, das er am Montag hat?", ["haus"]).of(
        "es war, er hat, die man", [1.0]
    )

    assert related.related == 0.0


def test_every_row_of_the_table_is_readable() -> None:
    """Neighbours are stems of the table, and no stem is a stop word."""
    words = RelatedWords(["guitar"])

    assert words.share(["acoust"]) > words.share(["offic"]) >= 0.0
    assert words.share(["the"]) == RelatedWords([]).share(["guitar"]) == 0.0


def marked(query: str, texts: list[str], role: str = "user") -> list[Line]:
    lines = [Line(number, 1, 5, previous=number - 1) for number in range(1, len(texts) + 1)]
    heads = {line.message_id: MessageHead("s", role, 0.0, None) for line in lines}
    Turns(query).mark(lines, dict(enumerate(texts, 1)), heads, read=lambda _numbers: {}, alike=lambda _text: 0.0)
    return lines


def test_among_people_questions_ask_and_the_next_message_answers() -> None:
    """The share of the text that is a question counts; an order of key words is no question."""
    asking, answer = marked("When does Ann paint?", ["Bob: Nice. When do you paint?", "Ann: On Sundays."])
    (other,) = marked("ann paints", ["Bob: When do you paint?"])

    assert 0.5 < asking.asks < 1.0
    assert answer.answers
    assert (answer.asks, asking.answers, other.asks) == (0.0, 0.0, 0.0)


def test_nobody_answers_their_own_question() -> None:
    """People write several messages in a row."""
    _, more = marked("When does Ann paint?", ["Bob: When do you paint?", "Bob: Or do you?"])

    assert more.answers == 0.0


def test_a_question_that_asks_for_the_same_is_alike_and_more_so_if_it_begins_alike(postings: SqlitePostings) -> None:
    """The best of several questions counts."""
    asked = Proximity(postings, "How long has Ann been practicing art?", ["art"], names=["ann"])
    same, other, strange, none = map(
        asked.asks_alike,
        (["Who?", "How long have you been into art?"], ["What art are you into?"], ["How long did you sleep?"], []),
    )

    assert same == pytest.approx(2 * other)
    assert other > 0.2
    assert (strange, none) == (0.0, 0.0)


def test_an_answer_gains_from_a_question_that_asks_for_the_same() -> None:
    """Of two answers without a word of the question, the one to a question like it wins."""
    line, head = Line(8, 1, 5, previous=7), MessageHead("s", "user", 0.0, None)
    gains = {"Bob: How was it?": 0.0, "Bob: When do you paint?": 0.9}
    found = []
    for before, gain in gains.items():
        Turns("When does Ann paint?").mark(
            [line],
            {8: "Ann: On Sundays.", 7: before},
            {8: head},
            read=lambda _: {},
            alike=lambda _, gain=gain: gain,  # type: ignore[misc]
        )
        found.append(line.answers)

    assert 0.0 < found[0] < found[1]


def test_the_question_before_an_answer_is_read_where_it_matches_worse() -> None:
    """Only the best messages were read, and a question often shares no word with what is looked for."""
    line, head = Line(8, 1, 5, previous=7), MessageHead("s", "user", 0.0, None)
    Turns("When does Ann paint?").mark(
        [line],
        {8: "Ann: On Sundays."},
        {8: head},
        read=lambda numbers: dict.fromkeys(numbers, "Bob: How was it?"),
        alike=lambda _text: 0.0,
    )

    assert line.answers


def test_a_question_about_oneself_is_about_what_the_user_said() -> None:
    """With an assistant, "I" is the user; "what did you tell me" is not."""
    (mine,) = marked("What do I paint with?", ["I use gouache"])
    (theirs,) = marked("What do I paint with?", ["Use gouache"], role="assistant")
    (told,) = marked("What did you tell me to paint with?", ["I use gouache"])

    assert (mine.spoken, theirs.spoken, told.spoken) == (True, False, False)

"""The rank is a small function whose parts each do one thing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from wellkept.sessions.search.ranking import (
    WEIGHTS,
    Line,
    RankedTerm,
    Ranking,
    SessionLines,
    abstains,
    idf,
    term_weights,
)

TERMS = [RankedTerm("violin", 5.0), RankedTerm("recital", 4.0), RankedTerm("june", 1.0)]


def ranking(weights=WEIGHTS) -> Ranking:
    return Ranking(TERMS, mean_length=20.0, mean_session=20.0, weights=weights)


def score(line: Line, counts=(1, 1, 1)) -> float:
    session = SessionLines("s", 20, counts, [line])
    return ranking().score_lines(session)[0].score


def test_a_rare_term_says_more_than_a_common_one() -> None:
    """idf falls with the number of messages that hold the term."""
    assert idf(1_000, 1) > idf(1_000, 10) > idf(1_000, 900) > 0.0


def test_a_speakers_name_counts_less_and_an_unknown_term_not_at_all() -> None:
    """People are named everywhere; what no message holds ranks nothing."""
    plain, name, unknown = term_weights(
        [("lake", 1.0, 10, 0), ("caroline", 1.0, 10, 300), ("zzz", 1.0, 0, 0)], documents=600
    )

    assert name.weight < plain.weight
    assert name.is_name
    assert unknown.weight == 0.0


def test_more_of_the_question_ranks_higher() -> None:
    """Two terms beat one, three beat two."""
    one, two, three = (score(Line(1, mask, 20)) for mask in (0b1, 0b11, 0b111))

    assert one < two < three


def test_the_same_words_say_more_in_a_short_message() -> None:
    """Length is held against a match."""
    assert score(Line(1, 0b1, 5)) > score(Line(1, 0b1, 200))


def test_neighbours_help_and_a_message_of_nothing_else_can_be_found_by_them() -> None:
    """A question and its answer stand next to each other."""
    alone, answered = Line(1, 0b1, 20), Line(1, 0b1, 20, before=0b10)
    answer = Line(2, 0, 20, before=0b11)

    assert score(answered) > score(alone)
    assert score(answer) > 0.0
    assert ranking().score_lines(SessionLines("s", 20, (0, 0, 0), [Line(3, 0, 20)])) == []


def test_neighbour_and_session_gains_fall_with_the_length_of_the_message() -> None:
    """A long answer holds enough words of its own."""
    short = ranking().parts(Line(1, 0b1, 20, before=0b10), 8.0)
    long = ranking().parts(Line(1, 0b1, 2_000, before=0b10), 8.0)

    assert long["neighbours"] < short["neighbours"]
    assert long["session"] < short["session"]


def test_the_parts_add_up_to_the_score() -> None:
    """What is shown as the reason is the whole reason."""
    line = Line(1, 0b11, 30, before=0b100, spoken=True, factor=0.5, date=0.3, gap=2.0, small=2)
    session = SessionLines("s", 20, (2, 1, 1), [line])
    rank = ranking()

    (scored,) = rank.score_lines(session)
    parts = rank.parts(line, rank.session_sum(session))

    assert abs(sum(parts.values()) - scored.score) < 1e-9


def test_a_session_with_two_good_messages_beats_one_with_one() -> None:
    """The runner-up counts for its session."""
    rank = ranking()
    one = SessionLines("a", 20, (1, 0, 0), [Line(1, 0b1, 20)])
    two = SessionLines("b", 20, (2, 0, 0), [Line(2, 0b1, 20), Line(3, 0b1, 20)])

    assert rank.session_score(two, rank.score_lines(two))[0] > rank.session_score(one, rank.score_lines(one))[0]


def test_what_makes_messages_likely_counts_once_for_their_session() -> None:
    """Every line of a conversation about related things is related; that does not outweigh the words themselves."""
    rank = ranking()
    related = SessionLines("a", 20, (1, 0, 0), [Line(number, 0b1, 20, related=0.6, spoken=True) for number in (1, 2)])
    bare = SessionLines("a", 20, (1, 0, 0), [Line(1, 0b1, 20, related=0.6, spoken=True), Line(2, 0b1, 20)])

    scores = [rank.session_score(each, rank.score_lines(each))[0] for each in (related, bare)]

    assert scores[0] == pytest.approx(scores[1])


def test_a_few_short_lines_are_one_text_and_a_long_talk_is_not() -> None:
    """Terms spread over a short session say more of it than the same terms spread over a long one."""
    rank = ranking()
    spread = [Line(1, 0b1, 20), Line(2, 0b10, 20)]
    gains = []
    for size in (3, 300):
        held = SessionLines("a", size, (1, 1, 0), spread)
        bare = SessionLines("a", size, (0, 0, 0), spread)
        scores = [rank.session_score(each, rank.score_lines(each))[0] for each in (held, bare)]
        gains.append((scores[0] - scores[1]) / rank.session_sum(held))

    assert gains[0] > 3 * gains[1] > 0.0


def test_a_lone_rare_word_is_little_of_a_long_question() -> None:
    """How much of a question is held is told by idf: rarity raises what a term says, not how much was asked."""
    terms = term_weights([("zither", 1.0, 1, 0), *((name, 1.0, 60, 0) for name in "abcd")], documents=1_000)
    rank = Ranking(terms, mean_length=20.0, mean_session=20.0)
    rare = terms[0].weight / sum(term.weight for term in terms)

    assert terms[0].idf is not None
    lift = rank.base(0b1, 20) / (rank.sum(0b1) * (WEIGHTS.saturation + 1.0)) * (1.0 + WEIGHTS.saturation)
    assert lift < 1.0 + WEIGHTS.coverage * rare**2


def test_stop_words_count_where_a_question_has_hardly_any_other() -> None:
    """One or two words are remembered with the small words beside them; three need none."""
    line = Line(1, 0b1, 20, small=3)
    few = Ranking(TERMS[:2], mean_length=20.0, mean_session=20.0)

    assert few.wording(line) > 0.0
    assert few.wording(replace(line, mask=0)) == 0.0
    assert ranking().wording(line) == 0.0


def test_little_of_the_question_is_below_the_mark() -> None:
    """A message that holds a minor word only is no answer."""
    rank = ranking()

    assert abstains(rank.parts(Line(1, 0b100, 20), 0.0), 0b100, rank, is_asked=False)
    assert not abstains(rank.parts(Line(1, 0b11, 20), 0.0), 0b11, rank, is_asked=False)


def test_a_question_of_unknown_words_needs_a_message_with_more_of_it() -> None:
    """Where the store knows all words, one of them is an answer; a question about something else is none."""
    known, foreign = (Ranking(TERMS, mean_length=20.0, mean_session=20.0, unknown=count) for count in (0.0, 3.0))

    assert not abstains({}, 0b1, known, is_asked=True)
    assert abstains({}, 0b1, foreign, is_asked=True)
    assert abstains({}, 0, known, is_asked=True)


@given(st.integers(0, 7), st.integers(0, 7), st.integers(0, 7), st.integers(0, 7), st.integers(1, 5_000))
def test_no_score_is_negative_and_a_further_term_never_lowers_it(
    mask: int, before: int, after: int, around: int, length: int
) -> None:
    """Whatever a line and its neighbours hold, holding one more term is no worse."""
    session = SessionLines("s", 20, (1, 1, 1))
    less = Line(1, mask, length, before=before, after=after, around=around)
    more = replace(less, mask=mask | 1)
    session.lines = [less, more]

    scores = [item.score for item in ranking().score_lines(session)]

    assert all(value > 0.0 for value in scores)
    if len(scores) == 2:
        assert scores[1] >= scores[0] - 1e-9

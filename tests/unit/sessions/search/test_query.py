"""The one box, read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wellkept.sessions.search.query import MAX_TERMS, All, Any, Kind, Not, Term, find_role, parse

NOW = 1_700_000_000.0


def texts(query: str) -> list[str]:
    return [term.text for term in parse(query, NOW).terms]


def test_a_question_is_its_content_words() -> None:
    """Question words and stop words go; nothing is required."""
    query = parse("When did Caroline go to the LGBTQ support group?", NOW)

    assert [term.text for term in query.terms] == ["caroline", "go", "lgbtq", "support", "group"]
    assert query.condition is None


def test_irregular_and_short_forms_are_looked_up_by_their_base() -> None:
    """ "went" is found as "go", "mom" as "mother"."""
    assert texts("what mom bought") == ["mother", "buy"]


def test_words_that_only_shape_a_question_count_less() -> None:
    """ "what kind of" asks; it is not what is asked for."""
    weights = {term.text: term.weight for term in parse("what kind of violin", NOW).terms}

    assert weights["kind"] < weights["violin"]


@pytest.mark.parametrize("word", ["use", "uses", "made", "making", "went", "conversations", "recommended", "lately"])
def test_every_form_of_such_a_word_counts_less(word: str) -> None:
    """The weight does not depend on the ending."""
    first, last = parse(f"which {word} of the violin", NOW).terms

    assert first.weight < last.weight


def test_a_part_of_a_name_that_is_a_stop_word_is_dropped() -> None:
    """ "YouTube" asks for nobody's "you"."""
    assert texts("my YouTube videos") == ["youtube", "videos", "tube"]


@pytest.mark.parametrize(
    ("question", "role"),
    [
        ("Can you tell me where I live?", "user"),
        ("Could you please list what I ordered?", "user"),
        ("Do you know where I live?", "user"),
        ("Könntest du mir bitte sagen, wo ich wohne?", "user"),
        ("Weißt du, wo ich wohne?", "user"),
        ("Peux-tu me dire où je travaille ?", "user"),
        ("你能告诉我我住在哪里吗", "user"),
        ("Can you recommend a museum?", ""),
        ("Could you remind me of the shop?", ""),
        ("Where do you and I meet?", ""),
        ("Can you remind me what you recommended?", "assistant"),
    ],
)
def test_who_is_asked_for_an_answer_is_not_whose_words_are_meant(question: str, role: str) -> None:
    """ "Can you tell me" asks; "what did you tell me" asks about the assistant."""
    assert find_role(question) == role


def test_words_typed_one_by_one_count_alike() -> None:
    """Without a question there is nothing that words could shape: each of them was chosen."""
    assert {term.weight for term in parse("last take appreciate", NOW).terms} == {1.0}


def test_a_month_that_is_a_stop_word_is_looked_for_where_it_is_a_date() -> None:
    """ "in May" is a date, "may I" is none."""
    assert "may" in texts("When in May is her birthday?")
    assert "may" not in texts("may I have her birthday list?")


def test_a_date_of_numbers_is_no_identifier() -> None:
    """Who was asked on that day need not have written it: its parts are looked for, the whole is not."""
    assert texts("what did I buy on 27.12.2023?") == ["buy", "27", "12", "2023"]


def test_only_stop_words_are_taken_as_they_are() -> None:
    """A query of nothing but stop words still looks for them."""
    assert texts("the of") == ["the", "of"]


@pytest.mark.parametrize(
    ("question", "content"),
    [
        ("wann haben wir das Auto gekauft", {"gekauft"}),
        ("когда мы ездили в Москву", {"езд", "москв"}),
        ("quand est-ce que nous avons acheté la maison", {"acheté", "maison"}),
        ("war stories", {"war", "stories"}),
    ],
)
def test_stop_words_are_those_of_the_language_of_the_question(question: str, content: set[str]) -> None:
    """ "war" is a stop word in a German question and a noun in an English one."""
    assert content <= set(texts(question))
    assert not {"wir", "das", "мы", "nous", "la"} & set(texts(question))


def test_chinese_is_looked_up_by_pairs_and_a_single_character_by_itself() -> None:
    """A question word separates; one character alone is a word."""
    assert texts("什么时候去北京") == ["去北", "北京"]
    assert texts("茶") == ["茶"]


def test_a_phrase_must_hold_and_its_words_rank() -> None:
    """Words beside a phrase rank; they do not exclude."""
    query = parse('"exact phrase" violin', NOW)

    assert {"exact", "phrase", "violin"} <= {term.text for term in query.terms}
    assert isinstance(query.condition, All)
    assert Term("exact phrase", Kind.PHRASE) in query.condition.nodes


def test_operators_and_brackets_are_honoured() -> None:
    """AND, OR, NOT and brackets build one condition."""
    query = parse("(tea OR coffee) AND mug NOT cup", NOW)

    assert isinstance(query.condition, All)
    assert query.condition.nodes[0] == Any((Term("tea"), Term("coffee")))
    assert Not(Term("cup")) in query.condition.nodes[1].nodes  # type: ignore[union-attr]
    assert "cup" not in {term.text for term in query.terms}


def test_a_prefix_is_a_prefix() -> None:
    """A star at the end of a word asks for its beginning."""
    assert parse("deploy*", NOW).terms == (Term("deploy", Kind.PREFIX),)


@pytest.mark.parametrize(
    "broken",
    ['"unbalanced tea', "tea AND", "(tea", "tea)", "AND OR", "NOT tea", "tea OR (AND)", "(" * 5_000 + "tea", '"" tea'],
)
def test_broken_syntax_is_read_as_plain_words(broken: str) -> None:
    """What does not hold as syntax is still looked for."""
    query = parse(broken, NOW)

    assert query.condition is None or "tea" in broken
    if "tea" in broken:
        assert "tea" in {term.text for term in query.terms}


def test_shouting_is_not_syntax() -> None:
    """In capitals throughout, OR is a word."""
    assert parse("TEA OR NOT TEA", NOW).condition is None


@pytest.mark.parametrize(
    "shouted",
    [
        "DO NOT DELETE THE OR TABLE", "TO BE OR NOT TO BE", "WHO AND WHY", "WO IST DAS AUTO OR NOT", "DO NOT PANIC",
        "SERVER DOWN AND NOBODY CARES",
    ],
)  # fmt: skip
def test_a_sentence_in_capitals_has_no_operators(shouted: str) -> None:
    """Function words, and words side by side, show that AND, OR and NOT are words, too."""
    assert parse(shouted, NOW).condition is None


@pytest.mark.parametrize(
    ("query", "excluded"),
    [
        ("404 NOT 500", "500"), ("AWS NOT GCP", "gcp"), ("数据库 NOT 迁移", "迁移"), ("AWS S3 NOT GCP", None),
        ("ERROR 404 NOT 500", "500"), ('"DISK FULL" NOT TMP', "tmp"), ("(AWS OR GCP) NOT S3", "s3"),
        ("KUBE* NOT POD", "pod"), ("ПРИВЕТ NOT МИР", "мир"), ("AWS AND NOT GCP", "gcp"), ("ข้อมูล NOT 500", "500"),
    ],
)  # fmt: skip
def test_operators_work_between_capitals_digits_and_scripts_without_case(query: str, excluded: str | None) -> None:
    """They are recognised by what stands between them; only a row of words in capitals stays a sentence."""
    condition = parse(query, NOW).condition

    assert (f"Not(node=Term(text='{excluded}'" in repr(condition)) == (excluded is not None)
    assert parse('"DISK FULL"', NOW).is_phrase
    assert parse("DEPLOY*", NOW).condition == Term("deploy", Kind.PREFIX)


def test_dates_in_a_question_are_read_and_their_words_count_less() -> None:
    """A mentioned date is a preference for its days."""
    query = parse("who had dinner on May 3, 2023", NOW)

    assert len(query.dates) == 1
    weights = {term.text: term.weight for term in query.terms}
    assert weights["2023"] < weights["dinner"]


def test_a_very_long_query_keeps_a_bounded_number_of_terms() -> None:
    """Ten thousand characters ask for no more than the limit."""
    query = parse(" ".join(f"word{number}" for number in range(2_000)), NOW)

    assert 0 < len(query.terms) <= MAX_TERMS


PIECES = st.sampled_from(
    ['"', "(", ")", " AND ", " OR ", " NOT ", "*", "tea", "北京", "\ud800", "\x00", "😀", "a_b.c", " "]
)


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=30).map("".join)))
def test_no_query_raises(text: str) -> None:
    """Whatever is typed is read."""
    query = parse(text, NOW)

    assert len(query.terms) <= MAX_TERMS

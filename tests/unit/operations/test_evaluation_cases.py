"""The test set of `kept eval`: which questions it makes of a history, and what answers each."""

import pytest

from wellkept.core.ids import MessageId, SessionId
from wellkept.operations.evaluation import History, Kind, Line, build_cases, words_of


def history(*conversations):
    """Each conversation is a list of texts; those that begin with `>` are the assistant's."""
    lines = []
    for number, texts in enumerate(conversations):
        for text in texts:
            identity = MessageId(len(lines) + 1)
            lines.append(
                Line(identity, SessionId(f"c{number}"), not text.startswith(">"), 1000.0 * number, text.lstrip("> "))
            )
    return History(lines)


def cases(kind, *conversations):
    return [case for case in build_cases(history(*conversations), most=50) if case.kind is kind]


def test_a_question_that_is_asked_again_is_answered_by_the_conversation_that_answered_it():
    """The asking conversation is hidden: its own words would be found."""
    (case,) = cases(
        Kind.AGAIN,
        ["Which heater did we buy for the greenhouse?", "> The Bio Green Palma."],
        ["Something else entirely."],
        ["which heater did we buy for the greenhouse", "> Let me see."],
    )

    assert case.query == "which heater did we buy for the greenhouse"
    assert case.conversations == {"c0"}
    assert case.hidden == "c2"


def test_a_question_without_an_answer_or_of_other_words_is_not_asked_again():
    """Nothing follows the first one, and the second pair shares too little."""
    assert not cases(Kind.AGAIN, ["Which heater did we buy?"], ["Which heater did we buy?"])
    assert not cases(
        Kind.AGAIN, ["Which heater did we buy?", "> Palma"], ["Which car did we sell yesterday?", "> A Golf"]
    )


@pytest.mark.parametrize(
    "said",
    [
        "As we discussed last time, what about the greenhouse?",
        "Wie gesagt, was war mit dem greenhouse projekt?",
        "¿Te acuerdas del greenhouse proyecto?",
        "Tu te souviens du greenhouse projet ?",
        "上次我们说的 greenhouse project 怎么样了",
    ],
)
def test_a_reference_back_is_answered_by_the_conversation_that_the_reply_is_about(said):
    """Three words of the reply occur in one earlier conversation only."""
    (case,) = cases(
        Kind.BACK,
        ["The heater from Palma needs a thermostat and propane."],
        ["We painted the fence."],
        [said, "> You wanted the Palma heater with a thermostat and propane."],
    )

    assert (case.query, case.conversations, case.hidden) == (said, {"c0"}, "c2")


def test_a_reference_inside_a_long_conversation_is_no_case():
    """It refers to the conversation itself."""
    talk = [
        "One.",
        "> Two.",
        "Three.",
        "> Four.",
        "As we discussed last time, the greenhouse?",
        "> Palma heater propane",
    ]

    assert not cases(Kind.BACK, ["The heater from Palma needs propane."], talk)


def test_a_statement_becomes_a_question_without_its_rarest_word():
    """A name inside the sentence is asked for before a common word; the message itself is the answer."""
    (case,) = cases(Kind.CLOZE, ["We bought the new greenhouse heater from Palma yesterday."], ["> heater yesterday"])

    assert "palma" not in case.query.lower()
    assert len(words_of(case.query)) == 3
    assert case.query.endswith("?")
    assert case.messages == {1}


def test_another_message_that_tells_the_same_is_an_answer_too():
    """Otherwise finding the repetition would count as a mistake."""
    said = "The garage code for the bicycle shed is 4711 since Monday."
    found = cases(Kind.CLOZE, [said], [f"Again: {said}"], ["The shed needs a new roof soon, I think."])

    assert {frozenset(case.messages) for case in found if "4711" in said and case.message_id in {1, 2}} == {
        frozenset({1, 2})
    }


def test_chinese_statements_lose_a_pair_of_characters():
    """Scripts without spaces have no words that could be left out."""
    (case,) = cases(Kind.CLOZE, ["我们上周在柏林买了一个新的暖气片。"], ["天气很好。"])

    assert case.query.endswith("?")
    assert len(case.query) < len("我们上周在柏林买了一个新的暖气片。")


def test_words_of_one_conversation_have_no_answer_without_it():
    """Most of the three words occur nowhere else, and the conversation is hidden."""
    found = cases(Kind.ABSENT, ["The zeppelin museum in Friedrichshafen opens at noon."], ["We saw a museum."])

    assert [(case.hidden, bool(case.messages)) for case in found] == [("c0", False)]
    assert not cases(Kind.ABSENT, ["The zeppelin museum in Friedrichshafen opens at noon."])


def test_a_grown_history_keeps_most_of_its_cases():
    """Two runs can be compared question by question only if they ask the same."""
    talks = [[f"The word{n} machine number {n * 7919} stands in hall{n} beside lamp{n}."] for n in range(60)]
    before = {case.key for case in build_cases(history(*talks[:50]), most=20)}
    after = {case.key for case in build_cases(history(*talks), most=20)}

    assert len(before & after) >= 0.6 * len(before)


def test_questions_and_quotations_become_no_statement():
    """A question is no statement, and a quotation of a page is not what the person said."""
    assert not cases(Kind.CLOZE, ["Where did we put the greenhouse heater from Palma?"])
    assert not cases(Kind.CLOZE, ["> We bought the new greenhouse heater from Palma."])

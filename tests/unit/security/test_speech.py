"""What a person asserts in a message, in five languages."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.security.assertions import find_unasserted, is_negated, read_speech

OWN = (
    "I deploy from plover.internal.", "My editor is plover. And what is new?", "Please note: the cluster is called plover",
    "My setup: plover, with two disks", 'The project is called "plover".', "Ich arbeite auf plover.", "Merk dir: plover",
    "Je travaille sur plover.", "Retiens : le serveur s'appelle plover", "Mi servidor es plover.", "我用 plover 部署。",
    "记住：服务器叫 plover",
)  # fmt: skip
NOT_OWN = (
    "Never do this: deploy from plover", "Is the server called plover?", "The server is called plover. Is that right?",
    'The page says "deploy from plover every day"', "> deploy from plover", "```\ndeploy from plover\n```",
    "Someone told me that plover is the server", "This mail is fake. The server is plover.", "From the mail: use plover",
    "Laut der Seite heißt der Server plover.", "Das ist falsch: plover", "Stimmt es, dass der Server plover heißt?",
    "Selon la page, le serveur s'appelle plover.", "Est-ce que le serveur s'appelle plover ?",
    "Could it be that plover is the server", "Kann es sein, dass plover der Server ist", "Se peut-il que plover serve",
    "Puede ser que plover sea el servidor.", "会不会服务器叫 plover", "Maybe plover is the server.",
    "In our wiki: deploy from plover", "有人在我们的维基里塞了这句：用 plover 部署", "我们的聊天群里：用 plover 部署",
    "Según la página, el servidor es plover.", "¿El servidor se llama plover?", "服务器叫 plover 吗？", "据说服务器叫 plover。",
)  # fmt: skip


@pytest.mark.parametrize("text", OWN)
def test_what_a_person_says_of_themselves_or_orders_to_remember_is_asserted(text):
    """Beside a question as well, and with a name in quotation marks."""
    assert "plover" in read_speech(text).affirmed


@pytest.mark.parametrize("text", NOT_OWN)
def test_what_a_person_quotes_reports_doubts_or_asks_is_not_asserted(text):
    """It is found in another part, so that what repeats it is known to come from there."""
    speech = read_speech(text)

    assert "plover" not in speech.affirmed
    assert "plover" not in speech.asserted
    assert "plover" in speech.others + speech.open


@pytest.mark.parametrize(
    "text", ["Releases never go out on Fridays.", "Ich esse kein Fleisch.", "Je ne bois pas de café.", "No tomo lactosa.", "我不吃香菜。"]
)  # fmt: skip
def test_a_negation_is_asserted_but_not_affirmed(text):
    """A positive entry is not supported by it."""
    assert is_negated(text)
    assert read_speech(text).asserted == text
    assert read_speech(text).affirmed == ""


def test_a_recalled_message_is_labelled_where_it_states_nothing_itself():
    """Open questions and plain statements need no label."""
    assert find_unasserted("Is the server called plover?") == "message:question"
    assert find_unasserted('The page says "deploy from plover every day"') == "message:quotation"
    assert find_unasserted("How do I deploy?") is None
    assert find_unasserted("I deploy from plover on Fridays.") is None


@given(st.text(max_size=300))
def test_any_message_is_read(text):
    """What is affirmed is asserted too."""
    speech = read_speech(text)

    assert bool(speech.asserted) or not speech.affirmed


@pytest.mark.parametrize("piece", ['"', "'", "“", "> ", "```\n", ": ", "a, ", "? ", "n't "])
def test_reading_takes_time_in_proportion_to_the_text(piece):
    """Half a megabyte of any sign is read at once."""
    began = time.perf_counter()
    read_speech(piece * (500_000 // len(piece)))

    assert time.perf_counter() - began < 2

"""The wording of what is saved: German clauses, bare corrections, pronouns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.agent.without_model.statements import correct_value, make_main_clause, name_subject
from wellkept.languages.language import find_language, list_codes


@pytest.mark.parametrize(
    ("clause", "sentence"),
    [
        ("ich keinen Kaffee trinke", "ich trinke keinen Kaffee"),
        ("mein Hund Bello heißt", "mein Hund heißt Bello"),
        ("Lena am 3. Mai Geburtstag hat", "Lena hat am 3. Mai Geburtstag"),
        ("meine Adresse Am Markt 3 ist", "meine Adresse ist Am Markt 3"),
        ("der Server in Berlin steht", "der Server steht in Berlin"),
        ("ich um 7 aufstehe", "ich stehe um 7 auf"),
        ("das Treffen um 9 ist", "das Treffen ist um 9"),
        ("das in Kiel liegt", "das liegt in Kiel"),
        ("ich in Köln gearbeitet habe", "ich habe in Köln gearbeitet"),
        ("ich Vegetarier bin und keinen Kaffee trinke", "ich bin Vegetarier und trinke keinen Kaffee"),
        ("ich Kaffee und Tee trinke", "ich trinke Kaffee und Tee"),
        ("ich keinen Kaffee trinke, weil er mich nervös macht", "ich trinke keinen Kaffee, weil er mich nervös macht"),
        ("8080", "8080"),
        ("der Port 8080", "der Port 8080"),
    ],
)
def test_a_clause_becomes_a_sentence(clause, sentence):
    """The verb moves to the second place; what is not recognised stays as it was said."""
    assert make_main_clause(clause, find_language("de")) == sentence


@given(st.text(max_size=120))
def test_no_word_is_lost_or_added(text):
    """Only the place of a verb changes; one that is taken apart keeps its letters."""
    assert sorted("".join(make_main_clause(text, find_language("de")).split())) == sorted("".join(text.split()))


@pytest.mark.parametrize(
    ("code", "earlier", "later", "whole"),
    [
        ("en", "My favourite colour is green", "blue", "My favourite colour is blue"),
        ("en", "I drive a red Volvo", "it's a Saab", "I drive a Saab"),
        ("en", "I have two cats", "three", "I have three cats"),
        ("de", "Ich fahre einen roten Volvo", "einen Saab", "Ich fahre einen Saab"),
        ("de", "Meine Lieblingsfarbe ist grün", "blau", "Meine Lieblingsfarbe ist blau"),
        ("fr", "Ma couleur préférée est le vert", "bleu", "Ma couleur préférée est bleu"),
        ("es", "Tengo dos gatos", "tres", "Tengo tres gatos"),
        ("fr", "Je conduis une Volvo rouge", "une Saab", "Je conduis une Saab"),
        ("zh", "我有两只猫", "三只", "我有三只猫"),
        ("en", "my sister Ingrid lives in Tromsø", "she lives in Bergen", "my sister Ingrid lives in Bergen"),
        ("en", "my sister Ingrid lives in Tromsø", "in Bergen", "my sister Ingrid lives in Bergen"),
        ("en", "We meet at 10:30 in room 4", "11:00", "We meet at 11:00 in room 4"),
        ("en", "We meet at 7 pm in the west hall", "at 8 pm", "We meet at 8 pm in the west hall"),
        ("de", "Das Training ist um 19 Uhr in der Halle", "um 20 Uhr", "Das Training ist um 20 Uhr in der Halle"),
        ("de", "Der Schlüssel liegt bei Frau Brandt", "er liegt bei Herrn Wolf", "Der Schlüssel liegt bei Herrn Wolf"),
        ("es", "El perro se llama Canelo", "se llama Caramelo", "El perro se llama Caramelo"),
        ("es", "La reunión es el jueves a las cinco", "es el viernes", "La reunión es el viernes a las cinco"),
        ("zh", "我妹妹住在厦门", "住在福州", "我妹妹住在福州"),
    ],
)
def test_a_bare_value_takes_the_place_of_the_one_before(code, earlier, later, whole):
    """What is proposed is a whole statement."""
    assert correct_value(earlier, later, find_language(code)) == whole


def test_a_statement_of_its_own_corrects_no_value():
    """It stands for itself."""
    assert (
        correct_value("I drive a Volvo", "we were talking about something else entirely", find_language("en")) is None
    )
    assert correct_value("I drive a Volvo", "", find_language("en")) is None
    assert correct_value("Ma voisine s'appelle Odile", "c'est 8313", find_language("fr")) is None
    assert correct_value("meine Tochter hat im Juni Geburtstag", "er liegt bei Herrn Wolf", find_language("de")) is None
    assert correct_value("mi madre es diabética", "se llama Caramelo", find_language("es")) is None


@pytest.mark.parametrize(
    ("earlier", "later", "whole"),
    [
        ("the meeting is at 4?", "It moved to 5", "the meeting moved to 5"),
        ("The meeting is at 4.", "It is nice", None),
        ("I like tea", "It moved to 5", None),
    ],
)
def test_a_pronoun_is_replaced_by_what_it_stands_for(earlier, later, whole):
    """Only where the later sentence says that something changed."""
    assert name_subject(earlier, later) == whole


@given(st.text(max_size=80), st.text(max_size=40), st.sampled_from(list_codes()))
def test_no_text_raises(earlier, later, code):
    """Whatever was said before and after."""
    correct_value(earlier, later, find_language(code))
    name_subject(earlier, later)

"""What is kept of what a person says, in five languages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.agent.without_model.statements import (
    Kind,
    forget_request,
    is_correction,
    parse_order,
    statements,
    strip_greeting,
)
from wellkept.languages.language import find_language, list_codes
from wellkept.memory.page import Target

ROWS = {
    kind: [{**row, "lang": code} for code in list_codes() for row in find_language(code).table[kind]]
    for kind in ("lead", "order", "person", "inferred", "forget")
}


@pytest.mark.parametrize("row", ROWS["order"], ids=lambda row: row["example"])
def test_every_order_rule_matches_its_example(row):
    """A row of the table is an order, and keeps words of the example."""
    statement = parse_order(row["example"])

    assert statement is not None
    assert set(statement.text.split()) <= set(row["example"].rstrip("?").split()) or statement.text in row["example"]


@pytest.mark.parametrize("row", ROWS["inferred"], ids=lambda row: row["example"])
def test_every_inferred_rule_matches_its_example(row):
    """A row of the table is inferred, never saved at once."""
    assert [found.kind for found in statements(row["example"])] == [Kind.INFERRED]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Remember that I deploy on Fridays", "I deploy on Fridays"),
        ("Please remember: the API lives at /v2.", "the API lives at /v2"),
        ("Can you remember that my dog is Rex?", "my dog is Rex"),
        ("Merk dir, dass ich freitags deploye.", "ich deploye freitags"),
        ("Recuerda que vivo en Madrid", "vivo en Madrid"),
        ("N'oublie pas que j'habite à Lyon", "j'habite à Lyon"),
        ("记住:数据库叫orders", "数据库叫orders"),
        ("记住\uff1a我的猫叫小黑\uff01", "我的猫叫小黑"),
        ("请记住\uff0c数据库叫orders\u3002", "数据库叫orders"),
        ("我们周一发布\uff01记住这一点\u3002", "我们周一发布"),
        ("We ship on Mondays. Remember that.", "We ship on Mondays"),
        ("Merk dir bitte, dass Lena am 3. Mai Geburtstag hat.", "Lena hat am 3. Mai Geburtstag"),
        ("Speichere bitte: der Schlüssel liegt unter der Matte", "der Schlüssel liegt unter der Matte"),
        ("Recuerda, por favor, que vivo en Madrid", "vivo en Madrid"),
        ("Apunta esto: la clave está en la nevera", "la clave está en la nevera"),
        ("Note ceci : la clé est sous le tapis", "la clé est sous le tapis"),
        ("N'oubliez pas que j'habite à Lyon", "j'habite à Lyon"),
        ("你能记住我的狗叫豆豆吗?", "我的狗叫豆豆"),
        ("請記住我住在台北", "我住在台北"),
        ("Hello, remember that the API lives at /v2", "the API lives at /v2"),
    ],
)
def test_the_words_are_kept_as_said(said, kept):
    """An order keeps the person's own words, without the order and the full stop."""
    (found,) = statements(said)

    assert (found.kind, found.text) == (Kind.ORDER, kept)


@pytest.mark.parametrize(
    "said",
    [
        "Do you remember when I deploy?",
        "Remember when we met?",
        "你记得我什么时候部署吗?",
        "你记得我什么时候部署\uff1f",
        "我喜欢什么\uff1f",
        "What is my name?",
        "Do I prefer tabs?",
        "Thanks, that is great",
        "hello",
        "no",
        "",
    ],
)
def test_questions_and_small_talk_are_not_kept(said):
    """Asking and chatting state nothing."""
    assert statements(said) == []


@pytest.mark.parametrize("row", ROWS["lead"], ids=lambda row: row["example"])
def test_every_lead_rule_is_left_out_of_its_example(row):
    """A greeting belongs to no fact, and does not hide one."""
    (found,) = statements(row["example"])

    assert found.text == strip_greeting(row["example"])
    assert found.text in row["example"]
    assert found.text != row["example"]


@pytest.mark.parametrize("row", ROWS["forget"], ids=lambda row: row["example"])
def test_every_forget_rule_matches_its_example(row):
    """A row of the table is an order to forget, and nothing to keep."""
    unwanted = forget_request(row["example"])

    assert unwanted
    assert unwanted in row["example"]


@pytest.mark.parametrize(
    "text", ["Don't forget the milk", "N'oublie pas le lait", "Vergiss nicht die Milch", "Forget it"]
)
def test_what_shall_not_be_forgotten_is_no_order_to_forget(text):
    """The opposite is not taken for it, nor a manner of speaking."""
    assert forget_request(text) is None


@pytest.mark.parametrize(
    ("said", "noted"),
    [
        ("Nein, Lena hat am 4. Mai Geburtstag.", "Nein, Lena hat am 4. Mai Geburtstag"),
        ("My wife is Dr. Meyer.", "My wife is Dr. Meyer"),
        ("Hi! I'm Sarah, from Leeds.", "I'm Sarah, from Leeds"),
    ],
)
def test_a_full_stop_inside_a_sentence_does_not_end_it(said, noted):
    """Days and abbreviations have full stops of their own."""
    assert [one.text for one in statements(said)] == [noted]


def test_corrections_are_known():
    """A message that corrects the agent is distinguished from one that continues."""
    assert is_correction("No, use 2 spaces")
    assert is_correction("Nein, wir nutzen Postgres")
    assert not is_correction("Now the next file please")


@pytest.mark.parametrize(
    "text",
    [
        "No, actually my name is Grace", "That's wrong, I live in Hamburg", "Not quite, the port is 5434",
        "Sorry, I meant Tuesday", "Correction: the port is 5434", "Das stimmt nicht, ich wohne in Hamburg",
        "Korrektur: der Port ist 5434", "No, en realidad vivo en Madrid", "De hecho, trabajo en Lima",
        "C'est faux, j'habite à Lyon", "你错了，我住在上海", "更正：端口是 5434",
    ],
)  # fmt: skip
def test_corrections_wait_for_a_yes(text):
    """However a correction begins, also with two such words, its own words are noted."""
    assert [(one.kind, one.text) for one in statements(text)] == [(Kind.INFERRED, text)]


@pytest.mark.parametrize(
    "text",
    [
        "No problem", "no, thanks", "That's not the point", "Sorry for the delay", "Actually?", "Nein danke",
        "Nein, ich weiß nicht", "Non merci", "Pardon, je ne comprends pas", "No, no sé", "Sorry, I don't understand",
        "其实我也不知道", "Actually, I have a question",
    ],
)  # fmt: skip
def test_a_no_alone_is_no_fact(text):
    """What begins like a correction and says nothing is not noted."""
    assert statements(text) == []


@given(st.text(max_size=300))
def test_no_message_raises(text):
    """Whatever a person types is read."""
    for found in statements(text):
        assert found.text.strip()


@pytest.mark.parametrize("row", ROWS["person"], ids=lambda row: row["example"])
def test_every_person_rule_matches_its_example(row):
    """A fact about whoever says it goes to the page about them."""
    order = {"en": "remember: ", "de": "merk dir: ", "es": "recuerda: ", "fr": "retiens: ", "zh": "记住:"}[row["lang"]]
    statement = parse_order(order + row["example"])

    assert statement is not None
    assert (statement.text, statement.target) == (row["example"], Target.USER)


@pytest.mark.parametrize(
    "said",
    [
        "Recuerda que odio el cilantro",
        "Recuerda que uso vim",
        "Recuerda que ya no fumo, que estoy casado",
        "Recuerda que tenemos dos gatos",
        "Merk dir: bin Vegetarier",
        "Retiens: préfère le thé",
        "记住本人对花生过敏",
        "记住\uff1a住在上海",
        "remember: allergic to peanuts",
    ],
)
def test_a_fact_without_a_pronoun_is_about_the_person(said):
    """Many languages say who in the verb alone, and notes leave it out."""
    (found,) = statements(said)

    assert found.target is Target.USER


@pytest.mark.parametrize(
    "said",
    [
        "Recuerda que el informe sale cada mes",
        "Recuerda que Pedro llega tarde",
        "Recuerda que todo está en Berlín",
        "Merk dir, dass der Server in Berlin steht",
        "Souviens-toi que le serveur est à Paris",
        "记住\uff0c服务器在柏林",
        "Remember that standup is Mon 9:00",
        "remember: the prefix is kept",
    ],
)
def test_a_fact_about_the_world_is_not_about_the_person(said):
    """Words that mean a person in another language do not make it one."""
    (found,) = statements(said)

    assert found.target is Target.MEMORY

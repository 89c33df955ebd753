"""What a message is for, in five languages: the same rules over the classes of words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.agent.without_model.intents import Act, classify, is_reminder, is_task, read, split_lead
from wellkept.languages.language import list_codes

SAID = {
    Act.GREETING: ["en:hello", "de:Guten Tag", "es:¡Hola!", "fr:Bonjour", "zh:你好", "en:hi Anna"],
    Act.WELLBEING: ["en:how are you?", "de:wie geht's?", "es:¿qué tal estás?", "fr:comment ça va ?", "zh:最近怎么样？"],
    Act.THANKS: ["en:thanks a lot", "de:vielen Dank", "es:muchas gracias", "fr:merci beaucoup", "zh:谢谢你"],
    Act.FAREWELL: ["en:goodbye", "de:bis morgen", "es:hasta luego", "fr:au revoir", "zh:再见"],
    Act.YES: ["en:yes, please", "de:ja", "es:sí, claro", "fr:oui", "zh:好的"],
    Act.NO: ["en:no thanks", "de:nein danke", "es:mejor no", "fr:non merci", "zh:不用了", "en:forget it"],
    Act.SAVE_THAT: ["en:keep it", "de:merk dir das", "es:guárdalo", "fr:garde-le", "zh:记下来"],
    Act.DONT_SAVE: ["en:don't save that", "de:speicher das nicht", "es:no guardes eso", "fr:n'enregistre pas ça", "zh:别记这个"],
    Act.UNDO: ["en:undo that", "de:mach das rückgängig", "es:deshaz eso", "fr:annule ça", "zh:撤销"],
    Act.FORGET_THAT: ["en:delete that", "de:lösch das", "es:borra eso", "fr:efface ça", "zh:删掉这个"],
    Act.FORGET_ALL: [
        "en:delete everything you know about me", "de:lösch alles, was du über mich weißt", "es:borra todo lo que sabes de mí",
        "fr:efface tout ce que tu sais de moi", "zh:忘记关于我的一切",
    ],
    Act.SELF: ["en:who are you?", "de:wer bist du?", "es:¿quién eres?", "fr:qui es-tu ?", "zh:你是谁？"],
    Act.ABILITY: ["en:what can you do?", "de:was kannst du?", "es:¿qué puedes hacer?", "fr:que peux-tu faire ?", "zh:你会做什么？", "en:help"],
    Act.DATE: ["en:what day is it?", "de:welcher Tag ist heute?", "es:¿qué día es hoy?", "fr:quel jour sommes-nous ?", "zh:今天几号？"],
    Act.CLOCK: ["en:what time is it?", "de:wie spät ist es?", "de:wie spät ist es", "es:¿qué hora es?", "fr:quelle heure est-il ?", "zh:现在几点？"],
    Act.PERSON: [
        "en:what do you know about me?", "de:was weißt du über mich?", "es:¿qué sabes de mí?", "fr:que sais-tu de moi ?",
        "zh:你知道我什么？", "en:What do you know?",
    ],
    Act.HISTORY: [
        "en:what did we talk about yesterday?", "de:worüber haben wir gestern gesprochen?", "es:¿de qué hablamos ayer?",
        "fr:de quoi avons-nous parlé hier ?", "zh:昨天我们聊了什么？", "es:¿de qué hablamos el lunes?",
        "en:what did we talk about on Monday?", "de:worüber haben wir am Montag gesprochen?",
    ],
    Act.FOLLOW_UP: ["en:and when?", "de:und wo?", "es:¿y cuándo?", "fr:et où ?", "zh:那什么时候呢？", "en:what about Paul?", "de:und am Sonntag?"],
    Act.QUESTION: [
        "en:what day is the match?", "de:wann ist das Spiel?", "es:¿cuándo es el partido?", "fr:quand est le match ?",
        "zh:比赛几点开始？", "de:zeig mir alles seit Montag", "en:What do you know about databases?", "de:Was weißt du über Berlin?", "en:What's my name?",
    ],
    Act.TELLING: ["en:the garden needs rain", "de:der Garten braucht Regen", "es:el jardín necesita lluvia", "fr:le jardin a besoin de pluie", "zh:花园缺水"],
    Act.NOTHING: ["en:", "de:🎉", "zh:……"],
}  # fmt: skip


@pytest.mark.parametrize(("act", "said"), [(act, said) for act, texts in SAID.items() for said in texts])
def test_a_message_is_recognised(act, said):
    """Every kind in every language."""
    code, _, text = said.partition(":")

    assert classify(read(text, code)) is act


@pytest.mark.parametrize(
    "said",
    [
        "en:remind me to call Bob", "de:erinnere mich an den Termin", "es:recuérdame llamar a Ana", "fr:rappelle-moi d'appeler Luc",
        "zh:五点提醒我开会", "en:can you set an alarm?",
    ],
)  # fmt: skip
def test_a_reminder_is_recognised(said):
    """The assistant cannot speak first, so it must not pretend to."""
    code, _, text = said.partition(":")

    assert is_reminder(read(text, code))


@pytest.mark.parametrize(
    "said",
    [
        "en:write me a poem", "de:übersetze diesen Satz", "es:reserva una mesa", "fr:peux-tu envoyer un mail ?", "zh:帮我订票",
        "en:can you call my mother?",
    ],
)  # fmt: skip
def test_a_task_is_recognised(said):
    """What needs a model or another program."""
    code, _, text = said.partition(":")

    assert is_task(read(text, code))


@pytest.mark.parametrize(
    "said",
    [
        "en:remind me which wine you suggested", "de:Erinnere mich bitte daran, welchen Kuchen ich gebacken habe",
        "es:recuérdame qué clase reservé", "fr:rappelle-moi quel cours j'ai réservé", "zh:提醒我什么时候看牙医",
    ],
)  # fmt: skip
def test_to_be_reminded_of_what_was_said_is_a_question(said):
    """Nobody has to be woken for it: the answer is in the past."""
    code, _, text = said.partition(":")
    reading = read(text, code)

    assert reading.asks
    assert not is_reminder(reading)
    assert split_lead(text, code) == (None, text)


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("en:Could you please remind me where I live?", "where I live?"),
        ("en:Would you be so kind as to tell me where I live", "where I live"),
        ("de:Könntest du mir bitte mal kurz sagen, wo ich wohne", "wo ich wohne"),
        ("de:Wärst du so nett und sagst mir, wo ich wohne?", "wo ich wohne?"),
        ("fr:Pourriez-vous me rappeler, s'il vous plaît, où j'habite", "où j'habite"),
        ("es:¿Puedes por favor decirme dónde vivo?", "dónde vivo?"),
        ("zh:麻烦你告诉我一下我住在哪里", "我住在哪里"), ("zh:请你提醒我一下我住在哪里", "我住在哪里"),
    ],
)  # fmt: skip
def test_a_polite_request_to_tell_is_the_question_inside_it(said, question):
    """Polite words may stand anywhere in it, so they are not part of the phrases of the tables."""
    code, _, text = said.partition(":")
    reading = read(text, code)

    assert (reading.question, classify(reading)) == (question, Act.QUESTION)
    assert not is_task(reading)
    assert not is_reminder(reading)


@pytest.mark.parametrize(
    "said",
    [
        "en:Could you please translate this into French", "de:Kannst du mir bitte mal einen Witz erzählen",
        "fr:Peux-tu s'il te plaît traduire ça", "es:Puedes por favor traducir esto", "zh:可以请你帮我翻译一下吗",
    ],
)  # fmt: skip
def test_a_polite_task_stays_a_task(said):
    """Nothing is asked in it."""
    code, _, text = said.partition(":")
    reading = read(text, code)

    assert (reading.question, is_task(reading)) == (text, True)


@pytest.mark.parametrize("said", ["es:recuérdame que tengo cita", "fr:rappelle-moi que j'ai rendez-vous"])
def test_to_be_reminded_that_something_will_be_is_a_reminder(said):
    """A conjunction asks nothing, though it is written like a word that does."""
    code, _, text = said.partition(":")

    assert is_reminder(read(text, code))


@pytest.mark.parametrize("text", ["my alarm clock is a Braun", "what is a reminder?", "I write a poem every day"])
def test_a_statement_about_such_things_is_neither(text):
    """Who says it of themselves wants nothing done."""
    assert not is_reminder(read(text, "en"))
    assert not is_task(read(text, "en"))


def test_what_leads_a_message_is_told_from_it():
    """A greeting, a yes or a no before the message proper."""
    assert split_lead("Hello, my name is Ana", "en") == (Act.GREETING, "my name is Ana")
    assert split_lead("nein, blau", "de") == (Act.NO, "blau")
    assert split_lead("My car, the blue one", "en") == (None, "My car, the blue one")


@given(st.text(max_size=300), st.sampled_from(list_codes()))
def test_every_text_has_an_act(text, code):
    """Whatever a person types is for something, or for nothing."""
    assert isinstance(classify(read(text, code)), Act)

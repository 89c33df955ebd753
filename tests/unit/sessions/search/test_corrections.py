"""Which statements take the place of earlier ones."""

import pytest

from wellkept.sessions.search.corrections import Statement, complete, corrects, find_superseded


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I live in Leipzig", "I moved to Dresden last month"),
        ("I live in Leipzig", "I don't live in Leipzig anymore"),
        ("We use npm", "we use yarn now"),
        ("My favourite colour is green", "My favourite colour is blue"),
        ("Mein Geburtstag ist am 4. Mai", "Mein Geburtstag ist am 5. Mai"),
        ("Die Besprechung ist am 4. Mai", "Die Besprechung ist am 5. Mai"),
        ("Ich wohne in Leipzig", "Ich bin letzten Monat nach Dresden gezogen"),
        ("Wir nutzen npm", "Wir nutzen jetzt yarn"),
        ("Vivo en Madrid", "Me he mudado a Sevilla"),
        ("J'habite à Lyon", "J'ai déménagé à Lille"),
        ("我住在上海", "我上个月搬到北京"),
        ("We use npm", "We use Slack now instead of npm"),
        ("We use npm", "We switched from npm to yarn"),
        ("We use npm for packages", "We use Yarn for packages now"),
        ("Wir nutzen npm", "Wir nutzen jetzt Yarn statt npm"),
        ("Usamos npm", "Usamos ahora yarn en vez de npm"),
        ("Nous utilisons npm", "Nous utilisons maintenant yarn au lieu de npm"),
        ("我们用npm", "我们现在用yarn而不是npm"),
        ("We use Teams", "We use Slack now"),
        ("we use teams", "we use slack now"),
        ("Usamos npm", "Ahora usamos yarn"),
        ("Nous utilisons npm", "Maintenant nous utilisons yarn"),
        ("Tomo café por la mañana", "Ya no tomo café"),
        ("Ich trinke morgens Kaffee", "Ich trinke keinen Kaffee mehr"),
        ("我每天早上喝咖啡", "我不喝咖啡了"),
        ("J'habite à Lyon", "Je n'habite plus à Lyon"),
        ("Trabajo en Siemens", "Ahora trabajo en Bosch"),
        ("Je travaille chez Siemens", "Je travaille chez Bosch"),
        ("我在华为工作", "我现在在腾讯工作"),
        ("La reunión es a las 4", "La reunión se aplazó a las 5"),
        ("La réunion est à 4 heures", "La réunion est reportée à 5 heures"),
        ("会议是四点", "会议改到五点了"),
        ("截止日期是5月4日", "截止日期是5月5日"),
        ("My daughter has piano lessons on Thursdays", "The piano lessons of my daughter are on Tuesdays now"),
        ("Ma fille suit un cours de poterie le jeudi", "Le cours de poterie de ma fille est passé au mardi"),
        ("Mi hija tiene clase de guitarra los jueves", "La clase de guitarra de mi hija ahora es los martes"),
        ("她每周四上钢琴课", "钢琴课改到周二了，老师换了时间"),
        ("The daily stand-up is at 9:30 in room Neptun", "The stand-up moved to 10:15"),
        ("Mia geht montags um 16 Uhr zum Schwimmen", "Das Schwimmen ist jetzt mittwochs um 17 Uhr"),
        ("我的自行车是蓝色的", "我的自行车现在是红色的，因为我刷了漆"),
        ("Wir wohnen in Kassel", "Wir sind nach Marburg umgezogen"),
        ("Vivimos en Madrid", "Nos mudamos a Sevilla"),
        ("Nous habitons à Lyon", "Nous avons déménagé à Nantes"),
        ("我们住在北京", "我们搬到上海了"),
        ("I like tea", "I don't like tea anymore"),
        ("I like tea", "I like rooibos instead of tea now"),
        ("I drive a Volvo", "I drive a Saab now"),
    ],
)
def test_a_later_statement_about_the_same_thing_corrects(earlier: str, later: str) -> None:
    """In five languages, by what a person has one of, a word for a change, or another number."""
    assert corrects(Statement(earlier, 1.0), Statement(later, 2.0))


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I like tea", "I like coffee"),
        ("I live in Leipzig", "where do I live now?"),
        ("I live in Leipzig", "I live in Leipzig"),
        ("I work on the parser", "I work on the parser and the lexer now"),
        ("We use npm", "I use vim now"),
        ("The meeting is at 4", "The train leaves at 5"),
        ("My dog is called Rex", "My cat is called Tom"),
        ("No, blue", "no, red"),
        ("We use npm", "We use Slack now"),
        ("We use npm", "we use slack now"),
        ("we use postgres", "we use redis now"),
        ("Wir nutzen npm", "Wir nutzen jetzt Slack"),
        ("Usamos npm", "Usamos Slack ahora"),
        ("Nous utilisons npm", "Nous utilisons maintenant Slack"),
        ("我们用npm", "我们现在用Slack"),
        ("Room 4 is cold", "Room 5 is cold"),
        ("会议是4点", "电影是5点"),
        ("Imogen's piano concert is on Thursday", "Imogen's piano lesson is on Tuesdays now"),
        ("I like tea", "I like rooibos now"),
        ("Ich mag Tee", "Ich mag jetzt Rooibos"),
        ("Me gusta el té", "Ahora me gusta el café"),
        ("J'aime le thé", "J'aime le café maintenant"),
        ("我喜欢茶", "我现在喜欢咖啡"),
        ("I speak German", "I speak Spanish now"),
        ("The library closes at 20:00", "The bath closes at 18:00 now"),
    ],
)
def test_a_statement_about_another_thing_corrects_nothing(earlier: str, later: str) -> None:
    """Likes may be many, and a question states nothing."""
    assert not corrects(Statement(earlier, 1.0), Statement(later, 2.0))


def test_a_vague_change_takes_the_place_of_none_of_several() -> None:
    """Nobody can tell which of two things went; one after the other is a chain; a named one or its kind is clear."""
    texts = ["We use acorn", "We use birch", "we use maple now"]
    kind = ["We use npm", "We use nginx", "we use yarn now"]
    chain = ["We use npm", "we use yarn now", "we use pnpm now"]
    named = ["We use npm", "We use nginx", "we use yarn now instead of npm"]

    def superseded(said: list[str]) -> dict[int, int]:
        return find_superseded([Statement(text, float(place)) for place, text in enumerate(said)])

    assert superseded(texts) == {}
    assert superseded(kind) == {0: 2}
    assert superseded(chain) == {0: 2, 1: 2}
    assert superseded(named)[0] == 2


@pytest.mark.parametrize("later", ["no, blue", "it moved to 5", "actually 5", "nein, blau", "不对,蓝色"])
def test_a_bare_correction_refers_to_the_statement_before_it(later: str) -> None:
    """Only right after it in the same conversation."""
    earlier = Statement("The stand-up is at 4", 1.0, "s", 1)

    assert corrects(earlier, Statement(later, 2.0, "s", 3))
    assert not corrects(earlier, Statement(later, 2.0, "t", 3))
    assert not corrects(earlier, Statement(later, 2.0, "s", 30))


@pytest.mark.parametrize(
    "later",
    [
        "No, that's all. Thanks for the tips!",
        "Nein, danke.",
        "No, gracias",
        "Non, c'est tout",
        "不用了，谢谢",
        "不对，没事",
    ],
)
def test_a_declined_offer_corrects_nothing(later: str) -> None:
    """It answers what the assistant asked."""
    assert not corrects(Statement("The stand-up is at 4", 1.0, "s", 1), Statement(later, 2.0, "s", 3))


def test_a_bare_correction_becomes_a_whole_statement() -> None:
    """The frame is that of the statement before it."""
    assert complete("My favourite colour is green", "no, blue") == "My favourite colour is blue"
    assert complete("I live in Leipzig.", "no, Dresden") == "I live in Dresden."


@pytest.mark.parametrize(
    "later",
    [
        "no, white. Blue makes the room dark and small in winter.",
        "Nein, weiß. Blau schluckt im Winter einfach zu viel Licht.",
        "不对，用白色。蓝色让房间显得又小又暗。",
    ],
)
def test_a_bare_correction_refers_to_the_last_statement_alone(later: str) -> None:
    """A reason may follow it; what was told before that statement stays as it was."""
    texts = ["The plumber is Mr Uhl", "The tiles will be blue", later]

    said = [Statement(text, float(place), "s", 2 * place + 1) for place, text in enumerate(texts)]

    assert find_superseded(said) == {1: 2}


def test_a_correction_after_a_question_is_about_what_was_asked() -> None:
    """The plumber was named in between, and stays as it was."""
    texts = ["The garage code is 8312", "The plumber is Mr Uhl", "What is the garage code?", "no, it is 8313"]

    said = [Statement(text, float(place), "s", 2 * place + 1) for place, text in enumerate(texts)]

    assert find_superseded(said) == {0: 3}

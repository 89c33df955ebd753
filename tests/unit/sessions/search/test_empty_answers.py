"""Answers that only say that nothing was found."""

import pytest

from wellkept.sessions.search.answers import tells_nothing


@pytest.mark.parametrize(
    "text",
    [
        "I could not find that in the repository.",
        "I don't have that information. Let me know where to look for the staging database port.",
        "Sorry, I have no record of which port the staging database uses.",
        "I couldn't find the staging database port anywhere.",
        "I don't know.",
        "There is no information about that in our past conversations.",
        "I'm not sure which port it uses. Could you tell me?",
        "I was unable to find anything about it.",
        "Nothing about that.",
        "No results were found.",
        "Das konnte ich im Repository nicht finden.",
        "Dazu habe ich leider keine Information zum Port der Staging-Datenbank.",
        "Ich weiß nicht, welchen Port die Staging-Datenbank nutzt.",
        "Zum Port der Staging-Datenbank finde ich nichts.",
        "Das weiß ich leider nicht. Kannst du es mir sagen?",
        "我在仓库里没有找到。",
        "我没有关于预发布数据库端口的信息。",
        "抱歉，我不知道预发布数据库的端口。",
        "找不到预发布数据库端口。",
        "No lo encontré en el repositorio.",
        "No sé qué puerto usa. ¿Me lo dices?",
        "Je n'ai pas trouvé cela dans le dépôt.",
        "Je ne sais pas quel port elle utilise.",
        "No tengo información sobre el puerto.",
    ],
)
def test_who_found_nothing_tells_nothing(text):
    """In five languages, also with the words of the question, an excuse or an offer."""
    assert tells_nothing(text)


@pytest.mark.parametrize(
    "text",
    [
        "I found no errors in the test run.",
        "The staging database runs on heron, port 5433.",
        "I could not find that in the repository, but the README says port 5433.",
        "I don't know. The README says 5433.",
        "We do not deploy on Fridays.",
        "I never eat fish.",
        "I don't have a car.",
        "Ich esse kein Fleisch.",
        "Wir haben keine Katze.",
        "Ich habe keine Geschwister.",
        "Ich komme nicht mit.",
        "I am not vegetarian.",
        "I have no children.",
        "Wir nutzen keine Container.",
        "我不吃鱼。",
        "我没有孩子。",
        "No tengo hermanos.",
        "Je n'ai pas de voiture.",
        "Je ne mange pas de poisson.",
        "The repository does not contain a Dockerfile.",
        "No, it uses MySQL.",
        "We know nothing better than Postgres here",
        "数据库不到 5GB。",
        "Tests pass. I can rerun them.",
        "We haven't seen each other since May.",
        "I can't see without glasses.",
        "Ich kann ihn nicht leiden",
        "no data was lost",
        "We have not found the leak yet; the valve is at fault.",
        "Ich bin nicht sicher, es war Port 5433.",
    ],
)
def test_a_negation_may_be_a_fact(text):
    """What is not so, what follows a "but", and every number tell something."""
    assert not tells_nothing(text)


def test_a_long_answer_tells_something():
    """Whatever it says first."""
    assert not tells_nothing("I could not find that. " + "Would you like more? " * 30)

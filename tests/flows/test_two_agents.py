"""Two agents in one process: of two users, and of one user in two conversations."""

import anyio
import pytest

from wellkept.agent.agent import Opening
from wellkept.app import open_app
from wellkept.core.ids import OWNER, UserId
from wellkept.languages.language import find_language
from wellkept.llm.scripted import Says, ScriptedModel, call
from wellkept.memory.page import Add, Author

ANN, BEN = UserId("ann"), UserId("ben")


@pytest.fixture
def app(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home.mkdir()
    (home / "config.yaml").write_text("review: {enabled: false}\n")
    opened = open_app(str(home), environ={"HOME": str(tmp_path)})
    yield opened
    opened.close()


def say(agent, *texts):
    async def all_turns():
        return [await agent.turn(text) for text in texts]

    return anyio.run(all_turns)


def use_model(app, script):
    model = ScriptedModel(script, name="scripted/test")
    app.models.chat = lambda _name=None, **_options: model
    return model


@pytest.mark.parametrize("users", [(OWNER, ANN), (ANN, OWNER), (ANN, BEN)])
@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ("Remember that my dog is called Rex", "What is my dog called?"),
        ("The staging server listens on port 4417", "Which port does the staging server listen on?"),
    ],
)
def test_an_agent_answers_nobody_with_what_another_user_said(app, users, told, asked):
    """Neither the pages nor the conversations of one user are read for another."""
    first, second = (app.space(user).agent(Opening()) for user in users)
    say(first, told)

    theirs = say(second, asked)[0]
    own = say(first, asked)[0]

    assert theirs.text == find_language("en").say("nothing")
    assert any(word in own.text for word in ("Rex", "4417"))


def test_each_user_has_a_prompt_of_their_own_pages(app):
    """The snapshot in the prompt is that of the user whose agent it is."""
    model = use_model(app, lambda _request: "ok")
    app.space(ANN).memory.apply("user", Add("Ann prefers tea"))
    app.space(BEN).memory.apply("user", Add("Ben prefers coffee"))

    say(app.space(ANN).agent(Opening()), "hello")
    say(app.space(BEN).agent(Opening()), "hello")

    ann, ben = (request.system for request in model.requests)
    assert ("tea" in ann, "coffee" in ann) == (True, False)
    assert ("tea" in ben, "coffee" in ben) == (False, True)


@pytest.mark.parametrize("users", [(ANN, BEN), (ANN, ANN)])
def test_the_events_of_an_agent_reach_its_own_sink_only(app, users):
    """A listener of one agent gets no events of another, not even of the same user's other agent."""
    use_model(app, lambda request: f"answer to {request.messages[-1].text}")
    heard = ([], [])
    first, second = (
        app.space(user).agent(Opening(), sink=sink.append) for user, sink in zip(users, heard, strict=True)
    )

    say(first, "one")
    say(second, "two")

    for agent, events, word in ((first, heard[0], "one"), (second, heard[1], "two")):
        assert {event.session_id for event in events} == {agent.session.id}
        assert "".join(getattr(event, "text", "") for event in events) == f"answer to {word}"


def test_a_turn_reports_only_what_it_saved_itself(app):
    """Another conversation of the same user writes while the turn runs: its entry is not among those saved."""
    second = app.owner.agent(Opening())

    def script(request):
        if len(request.messages) > 1:
            return "done"
        app.owner.memory.apply("user", Add("Written elsewhere"), Author(origin="agent", session_id=second.session.id))
        return Says(tool_calls=(call("memory", action="add", target="user", content="Written here"),))

    use_model(app, script)
    first = app.owner.agent(Opening())

    answer = say(first, "remember this")[0]

    assert [entry.text for entry in answer.saved] == ["Written here"]


def test_a_review_reports_only_what_it_saved_itself(app):
    """The review of another conversation writes at the same time: its entry is not part of this review."""
    use_model(app, lambda _request: "ok")
    first, second = app.owner.agent(Opening()), app.owner.agent(Opening())
    heard = []
    first.conversation.review_sink = heard.append

    for agent, text in ((second, "Reviewed elsewhere"), (first, "Reviewed here")):
        author = Author(origin="background_review", session_id=agent.session.id)
        app.owner.memory.apply("user", Add(text), author)

    assert [event.after for event in heard] == ["Reviewed here"]


def test_a_conversation_is_told_what_another_one_changed_on_the_pages(app):
    """The notice names what others wrote, once; what this conversation wrote itself is not news to it."""

    def script(request):
        if request.messages[-1].text == "save it":
            return Says(tool_calls=(call("memory", action="add", target="user", content="Written here"),))
        return "ok"

    model = use_model(app, script)
    first, second = app.owner.agent(Opening()), app.owner.agent(Opening())
    say(first, "hello", "save it")
    author = Author(origin="agent", session_id=second.session.id)
    app.owner.memory.apply("user", Add("Written elsewhere"), author)

    say(first, "and now?", "and then?")

    news, later = (request.messages[-1].text for request in model.requests[-2:])
    assert ("Written elsewhere" in news, "Written here" in news) == (True, False)
    assert later == "and then?"

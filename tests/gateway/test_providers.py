"""Providers of conversations that a server holds: the context they start with, and when their sessions end."""

import anyio
import pytest
from tests.flows import recorder

from wellkept.app import open_app
from wellkept.gateway.metrics import Metrics
from wellkept.gateway.turns import Turns, Wanted

from .conftest import serve
from .test_platforms import BASE, SECRET, Desk, LoopbackOpenAI


@pytest.fixture
def rec(home):
    """The calls of a plugin that is the memory of this home."""
    calls = recorder.install(home)
    (home / "config.yaml").write_text(f"memory:\n  provider: rec\n{BASE}")
    return calls


def test_a_provider_starts_with_the_context_of_its_chat(home, rec):
    """Person, chat, thread and key come from the platform; the title from the session that is continued."""
    with LoopbackOpenAI(lambda _body: "hello") as upstream:
        environ = {**upstream.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model", "DESK_SECRET": SECRET}
        for _ in range(2):
            with serve(home, environ) as served:
                desk = Desk(served, upstream, [])
                if not rec():
                    desk.pair()
                more = {"chat_type": "group", "chat": "c1", "chat_name": "Garden", "user_name": "Ann"}
                said = desk.say(f"good morning {len(rec())}", id=f"m{len(rec())}", **more)
                assert said.status_code == 200, said.text

    first, second = (keywords for _, _, keywords in rec("initialize"))
    told = {"user_name": "Ann", "chat_id": "c1", "chat_name": "Garden", "chat_type": "group"}
    assert told.items() <= first.items()
    assert first["gateway_session_key"] == "agent:main:desk:group:c1:ann"
    assert first["platform"] == "desk"
    assert second["session_id"] == first["session_id"]
    assert second["session_title"].startswith("good morning")


def test_an_idle_agent_is_closed_and_its_session_goes_on(home, rec):
    """The provider is shut down only; one reset ends the session, once, with all of its messages."""

    async def talk(app):
        turns, caller = Turns(Metrics(), idle_seconds=0.0), app.caller()
        async with turns.serve():
            session = (await turns.answer(caller, Wanted("k"), "one", source=None)).session_id
            for text in ("two", "three"):
                await turns.close_idle()
                assert turns.open == 0
                await turns.answer(caller, Wanted("k", resume=session), text, source=None)
            await turns.close_idle()
            assert rec("on_session_end") == []
            assert len(rec("shutdown")) == 3
            assert caller.space.sessions.session(session).end_reason is None
            async with turns.slot(caller, Wanted("k", resume=session)) as slot:
                await anyio.to_thread.run_sync(slot.agent.new, "reset")
            await turns.stop(1.0)
        return session

    with LoopbackOpenAI(lambda _body: "hello") as upstream:
        environ = {**upstream.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model", "DESK_SECRET": SECRET}
        app = open_app(str(home), environ=environ)
        session = anyio.run(talk, app)
        reason = app.caller().space.sessions.session(session).end_reason
        app.close()

    ((_, (messages,), _),) = rec("on_session_end")
    assert [each["content"] for each in messages if each["role"] == "user"] == ["one", "two", "three"]
    assert reason == "reset"

"""Real clients that talk to the gateway as if it were their vendor: one memory behind all of them."""

import json
import re
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from wellkept.core.messages import ToolCall
from wellkept.llm.scripted import Says

from .conftest import KEPT, SECONDS


@contextmanager
def gateway(world):
    """Serve the kept home of the machine; its own model is the loopback one for chat completions."""
    environment = {
        **world.environment,
        "OPENAI_BASE_URL": f"{world.urls['chat']}/v1",
        "KEPT_MODEL__DEFAULT": "openai/loopback-model",
    }
    environment.pop("ANTHROPIC_BASE_URL")
    environment.pop("ANTHROPIC_API_KEY")
    server = subprocess.Popen(
        [KEPT, "serve", "--port", "0", "--json"], env=environment, stdout=subprocess.PIPE, cwd=world.root, text=True
    )
    try:
        yield json.loads(server.stdout.readline())["url"]
    finally:
        server.terminate()
        assert server.wait(SECONDS) is not None


def documented(kind, url):
    """Return the example of the guide for this kind of file, with the address of a server."""
    text = (Path(__file__).parent.parent.parent / "docs" / "gateway.md").read_text()
    guide = text[text.index("## Settings for clients") :]
    return re.search(f"```{kind}\n(.*?)```", guide, re.DOTALL)[1].replace("http://127.0.0.1:8642", url)


def point_clients(world, url):
    """Let the three clients use the gateway in place of their vendors, configured as the guide says."""
    world.environment["ANTHROPIC_BASE_URL"] = url
    token = (Path(world.environment["KEPT_HOME"]) / "serve-token").read_text().strip()
    world.environment |= {"KEPT_TOKEN": token, "ANTHROPIC_API_KEY": token}
    codex = world.person / ".codex" / "config.toml"
    projects = codex.read_text()[codex.read_text().index("[projects.") :]
    codex.write_text(documented("toml", url) + projects)
    opencode = world.person / ".config" / "opencode" / "opencode.json"
    opencode.write_text(json.dumps({**json.loads(documented("json", url)), "autoupdate": False}))


def user_texts(world):
    """Return what people said, by the kept home."""
    return [text for _source, role, text in world.stored() if role == "user"]


@pytest.mark.parametrize("client", ["claude", "codex", "opencode"])
def test_a_client_talks_to_the_agent(world, client):
    """Its question is answered, the model behind the agent gets it with the client's tools, and it is stored once."""
    with gateway(world) as url:
        point_clients(world, url)
        ask = getattr(world, client)
        done = ask("The staging server is called heron") if client != "codex" else ask(
            "The staging server is called heron", trusted=False
        )  # fmt: skip
        assert "noted" in done.stdout
        deadline = time.monotonic() + 20
        while not user_texts(world) and time.monotonic() < deadline:
            time.sleep(0.5)
        said = [text for text in user_texts(world) if "heron" in text]
        assert len(said) == 1, said
        assert any(body.get("tools") for body in world.requests("chat"))


def plan_search(body):
    """Search the memory when asked for the server's name, then answer from what was found."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return "it is heron" if "heron" in json.dumps(last) else "I do not know"
    if last["role"] == "user" and "what is the staging server called" in json.dumps(last):
        return Says("", (ToolCall("", "session_search", json.dumps({"query": "staging server"})),))
    return None


def test_what_one_client_says_another_knows(world):
    """The fact goes from Claude Code to Codex and to opencode; continued conversations are stored once."""
    world.models["chat"].plan = plan_search
    with gateway(world) as url:
        point_clients(world, url)
        world.claude("The staging server is called heron")
        world.claude("Thanks, that is all", "--continue")
        assert "it is heron" in world.codex("what is the staging server called", trusted=False).stdout
        assert "it is heron" in world.opencode("what is the staging server called").stdout
        texts = user_texts(world)
    assert sum("is called heron" in text for text in texts) == 1
    assert sum("that is all" in text for text in texts) == 1
    assert not any("title" in text.lower() for text in texts)

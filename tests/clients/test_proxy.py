"""Real clients behind the proxy: each keeps its own model and key, and all share one memory."""

import json
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from wellkept.core.messages import ToolCall
from wellkept.llm.scripted import Says
from wellkept.testing.loopback import Status

from .conftest import FENCE, KEPT, SECONDS

ENDPOINTS = {"claude": "anthropic", "codex": "responses", "opencode": "chat"}
"""Which model each client talks to."""


@contextmanager
def proxy(world):
    """Serve the proxy, and let the three clients use it in place of their endpoints, as the guide says."""
    environment = {
        **world.environment,
        "KEPT_SERVE__PROXY__UPSTREAMS": json.dumps({**world.urls, "openai": world.urls["responses"]}),
        "KEPT_SERVE__PROXY__WAIT_MILLISECONDS": "10000",  # a machine that runs three agents at once is slow
    }
    server = subprocess.Popen(
        [KEPT, "serve", "--proxy", "--port", "0", "--json"], env=environment, stdout=subprocess.PIPE, cwd=world.root,
        text=True,
    )  # fmt: skip
    try:
        url = json.loads(server.stdout.readline())["url"]
        point_clients(world, url, (Path(world.environment["KEPT_HOME"]) / "serve-token").read_text().strip())
        yield url
    finally:
        server.terminate()
        assert server.wait(SECONDS) == 0


def point_clients(world, url, token):
    guide = (Path(__file__).parent.parent.parent / "docs" / "proxy.md").read_text()
    world.environment["ANTHROPIC_BASE_URL"] = f"{url}/proxy/{token}/anthropic"
    codex = world.person / ".codex" / "config.toml"
    projects = codex.read_text()[codex.read_text().index("[projects.") :]
    provider = (
        re.search(r"```toml\n(.*?)```", guide, re.DOTALL)[1]
        .replace("http://127.0.0.1:8642", url)
        .replace("TOKEN", token)
    )
    codex.write_text(f'model = "loop"\n{provider}{projects}')
    opencode = world.person / ".config" / "opencode" / "opencode.json"
    settings = json.loads(opencode.read_text())
    settings["provider"]["loop"]["options"]["baseURL"] = f"{url}/proxy/{token}/chat/v1"
    opencode.write_text(json.dumps(settings))


def ask(world, client, prompt, **more):
    """Ask a client without hooks."""
    if client == "codex":
        more["trusted"] = False
    return getattr(world, client)(prompt, **more)


def people(world):
    """Return what people said; opencode puts it in quotation marks."""
    return [(source, text.strip('"')) for source, role, text in world.stored() if role == "user"]


@pytest.mark.parametrize("client", ENDPOINTS)
def test_a_client_gets_the_answer_of_its_own_model(world, client):
    """Its key and its model arrive at its endpoint; the prompt is stored once, as the person typed it."""
    kind = ENDPOINTS[client]
    with proxy(world):
        assert f"answer {kind}1 noted" in ask(world, client, "The staging server is called heron").stdout
        received = world.servers[kind].requests[-1]
        assert "sk-loopback" in json.dumps(dict(received.headers)) or client == "opencode"
        assert not [name for name in received.headers if name.startswith("x-kept")]
        said = people(world)
    assert [text for _source, text in said] == ["The staging server is called heron"]
    assert {source for source, _text in said} == {{"claude": "claude-code"}.get(client, client)}
    assert "sk-loopback" not in "".join(
        path.read_text("latin-1") for path in (world.root / "home").rglob("*") if path.is_file()
    )


def answer_from_memory(body):
    """Answer from what the request was given."""
    text = json.dumps(body)
    if "what is the staging server called" not in text:
        return None
    return "it is heron" if any("heron" in one for one in FENCE.findall(text)) else "I do not know"


@pytest.mark.parametrize(("teller", "asker"), [("claude", "codex"), ("codex", "opencode"), ("opencode", "claude")])
def test_what_one_client_says_another_knows(world, teller, asker):
    """The passage reaches the model of the other client; nothing that was added is stored."""
    for model in world.models.values():
        model.plan = answer_from_memory
    with proxy(world):
        ask(world, teller, "The staging server is called heron")
        people(world)
        assert "it is heron" in ask(world, asker, "what is the staging server called").stdout
        texts = [text for _source, text in people(world)]
    assert texts == ["The staging server is called heron", "what is the staging server called"]
    assert not any("memory-context" in text for text in world.texts())


def test_a_continued_conversation_keeps_its_additions(world):
    """Claude Code sends its history again with each turn: what was added to it is in the same place, and it is stored once."""
    for text in ("The staging server is called heron", "The birthday of Ada is in December"):
        world.kept("memory", "add", "--target", "user", text)
    with proxy(world):
        ask(world, "claude", "the backup of the staging server runs at four")
        people(world)
        for place, text in enumerate(("when does the backup of the staging server run", "and who is Ada", "thanks")):
            world.claude(text, *(["--continue"] if place else []))
        talks = [body for body in world.requests("anthropic") if "when does the backup" in json.dumps(body)]
        texts = [text for _source, text in people(world)]
    systems = {
        json.dumps([block["text"] for block in body["system"] if "memory-context" in block["text"]]) for body in talks
    }
    assert len(systems) == 1
    assert "heron" in systems.pop()
    given = [FENCE.findall(json.dumps(body["messages"])) for body in talks]
    assert given[0]
    assert all(one[: len(given[0])] == given[0] for one in given)
    assert sum("when does the backup" in text for text in texts) == 1
    assert sum("thanks" in text for text in texts) == 1


TOOLS = {
    "claude": ToolCall("", "Bash", json.dumps({"command": "echo river-$((6*7))", "description": "echo"})),
    "codex": ToolCall("", "exec_command", json.dumps({"cmd": "echo river-$((6*7))"})),
    "opencode": ToolCall("", "bash", json.dumps({"command": "echo river-$((6*7))", "description": "echo"})),
}


@pytest.mark.parametrize("client", ENDPOINTS)
def test_tools_and_thinking_pass(world, client):
    """A client runs its tool and sends the result on; thinking comes back to the endpoint as it was signed."""

    def plan(body):
        text = json.dumps(body)
        if "river-42" in text:
            return "the tool said river-42"
        if "run the echo please" in text:
            return Says("", (TOOLS[client],), thinking="I should run it" if client == "claude" else "")
        return None

    world.models[ENDPOINTS[client]].plan = plan
    options = {"claude": ("--allowedTools", "Bash"), "codex": ("--sandbox", "danger-full-access")}.get(client, ())
    with proxy(world):
        done = getattr(world, client)(
            "run the echo please", *options, **({"trusted": False} if client == "codex" else {})
        )
        assert "the tool said river-42" in done.stdout
        last = json.dumps(world.requests(ENDPOINTS[client])[-1])
        assert client != "claude" or "c2lnbmVkIGJ5IHRoZSBsb29wYmFjaw==" in last
        assert [text for _source, text in people(world)] == ["run the echo please"]
        rows = world.stored()
    assert sum("river-42" in text for _source, role, text in rows if role == "tool") == 1
    assert [text for _source, role, text in rows if role == "assistant"][-1] == "the tool said river-42"


@pytest.mark.parametrize("client", ENDPOINTS)
def test_errors_arrive(world, client):
    """The client tells the error of its endpoint, and nothing is stored."""
    world.models[ENDPOINTS[client]].plan = lambda _body: Status(400, "the quota of the moon is used up")
    with proxy(world):
        done = ask(world, client, "good morning to you", check=False)
        assert "the quota of the moon is used up" in done.stdout + done.stderr
        assert json.loads(world.kept("sessions", "list", "--json")) == []

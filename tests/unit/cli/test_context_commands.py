"""`kept context` and `kept sessions compress` as a person runs them."""

import json
import os
from pathlib import Path

import pytest

from wellkept.llm.scripted import Says
from wellkept.testing.loopback_servers import LoopbackOpenAI

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
SUMMARY = "## Goal\n- read the logs\n## Progress\n- most are read\n## Next Steps\n- read the rest\n"


@pytest.fixture
def talk(run, tmp_path):
    """A stored conversation of 60 messages."""
    path = tmp_path / "talk.jsonl"
    lines = [
        {"session_id": "long", "role": ("user", "assistant")[n % 2], "content": f"log {n} " + "is fine, go on " * 20, "timestamp": n + 1.0}
        for n in range(60)
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert run("sessions", "import", str(path)).code == 0
    return run


@pytest.fixture
def model(monkeypatch):
    """A model on loopback."""
    with LoopbackOpenAI(lambda _: Says(SUMMARY)) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("KEPT_MODEL__DEFAULT", "openai/loopback-model")
        yield server


def home() -> Path:
    return Path(os.environ["KEPT_HOME"])


def test_list_marks_the_engine_in_use(run):
    """Built-in ones first; a plugin is listed without being imported."""
    folder = home() / "plugins" / "context_engine" / "mine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError")

    found = json.loads(run("context", "list", "--json").out)

    assert [one["name"] for one in found] == ["compressor", "lossless", "mine"]
    assert [one["in_use"] for one in found] == [True, False, False]
    assert "* compressor" in run("context", "list").out


def test_use_writes_the_setting_and_refuses_what_does_not_work(run):
    """An unknown or broken engine is not configured."""
    refused = run("context", "use", "nope")
    used = run("context", "use", "lossless")

    assert refused.code == 2
    assert "there is no context engine 'nope'" in refused.err
    assert used.code == 0
    assert "lossless" in run("config", "show", "context.engine").out


def test_a_configured_engine_that_is_gone_is_said(run):
    """The list tells that the setting names nothing."""
    assert run("config", "set", "context.engine", "gone").code == 0

    assert "does not exist" in run("context", "list").err


def test_status_needs_a_model_and_shows_the_limits(run, model, talk):
    """Limits of the window; with a session, how full it is."""
    limits = json.loads(run("context", "status", "--json").out)
    filled = json.loads(talk("context", "status", "long", "--json").out)

    assert limits["threshold_tokens"] == limits["context_length"] // 2
    assert filled["messages"] == 60
    assert filled["estimated_tokens"] > 3_000
    assert filled["compactions"] == 0


def test_compress_previews_then_compacts_and_nothing_is_lost(model, talk):
    """The preview changes nothing; afterwards the talk continues in a child, and the originals are found."""
    preview = json.loads(talk("sessions", "compress", "long", "--preview", "--json").out)
    unchanged = json.loads(talk("context", "status", "long", "--json").out)
    done = json.loads(talk("sessions", "compress", "long", "--focus", "logs", "--json").out)
    status = json.loads(talk("context", "status", done["session_id"], "--json").out)

    assert len(preview["covered"]) > 20
    assert unchanged["compactions"] == 0
    assert done["changed"]
    assert done["tokens_after"] < done["tokens_before"]
    assert status["compactions"] == 1
    assert "log 7 is fine" in talk("sessions", "search", "log 7").out
    assert "Give most room to this topic: logs" in model.requests[-1].raw.decode()


def test_without_a_model_there_is_no_window(talk, monkeypatch):
    """The refusal says what to do."""
    refused = talk("sessions", "compress", "long")

    assert refused.code == 2
    assert "no model is configured" in refused.err

"""Plugins that misbehave in every way: the turn is answered, the message stored, the exit quick, the plugin named."""

import json
import time

import pytest

from wellkept.llm.scripted import Says
from wellkept.testing.loopback_servers import LoopbackOpenAI

SOURCE = """
import os, sys, threading, time, warnings, logging
TOP
from wellkept.providers.base import MemoryProvider
class Hostile(MemoryProvider):
    name = "hostile"
    def __init__(self): INIT
    def is_available(self): FIRST; return True
    def initialize(self, session_id, **context): START
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
    def system_prompt_block(self): PROMPT; return ""
    def prefetch(self, query, *, session_id=""): RECALL; return "the deploy day is Friday"
    def sync_turn(self, user, assistant, *, session_id=""): pass
"""
SPEAK = (
    'print("LOUD"); sys.stderr.write("LOUD\\n"); os.write(1, b"LOUD\\n"); os.system("echo LOUD"); warnings.warn("LOUD")'
)
THREAD = "threading.Thread(target=time.sleep, args=(600,), daemon=False).start()"
FORK = "os.fork() or time.sleep(900)"
WAYS = {
    "exits on import": ({"TOP": "os._exit(3)"}, "exit code 3"),
    "raises SystemExit in its constructor": ({"INIT": "raise SystemExit(0)"}, "SystemExit"),
    "never finishes its import": ({"TOP": "time.sleep(600)"}, "within 1.5 s"),
    "raises BaseException": ({"RECALL": "raise BaseException('odd')"}, "BaseException"),
    "exits in its first hook": ({"FIRST": "os._exit(3)"}, "exit code 3"),
    "exits while it recalls": ({"RECALL": "os._exit(3)"}, "exit code 3"),
    "leaves threads": ({"START": THREAD, "RECALL": THREAD}, ""),
    "leaves forks that hold every descriptor": ({"TOP": FORK, "START": FORK}, ""),
    "prints and warns": ({"TOP": SPEAK, "INIT": SPEAK, "PROMPT": SPEAK, "RECALL": SPEAK}, ""),
}


@pytest.fixture
def server():
    with LoopbackOpenAI([Says("It is Friday.")]) as server:
        yield server


@pytest.fixture
def hostile(home):
    """Writes the plugin and chooses it."""

    def write(parts, isolate="auto"):
        folder = home / "plugins" / "hostile"
        folder.mkdir(parents=True)
        source = SOURCE
        for name in ("TOP", "INIT", "FIRST", "START", "PROMPT", "RECALL"):
            source = source.replace(name, parts.get(name, "pass"))
        (folder / "__init__.py").write_text(source)
        seconds = 1.5 if "sleep(600)" in parts.get("TOP", "") else 15
        settings = (
            f"memory: {{provider: hostile}}\nproviders: {{isolate: {isolate}, start_timeout_seconds: {seconds}}}\n"
        )
        (home / "config.yaml").write_text(settings)

    return write


@pytest.mark.parametrize("way", WAYS)
def test_a_hostile_plugin_costs_no_turn(kept_process, kept, hostile, server, way):
    """Valid JSON and nothing else on standard output; the status names the plugin and what it did."""
    parts, said = WAYS[way]
    hostile(parts)
    run = (
        kept_process if way.startswith(("leaves", "prints")) else kept
    )  # a process of its own shows its exit and output
    began = time.monotonic()

    done = run(
        "run",
        "--json",
        "-m",
        "openai/loopback-model",
        "When is the deploy day?",
        env=server.environment,
    )

    assert time.monotonic() - began < 25  # without the limits it would be minutes
    assert done.code == 0, done.err
    assert json.loads(done.out)["answer"] == "It is Friday."
    assert "LOUD" not in done.err
    assert "When is the deploy day?" in kept("sessions", "export").out
    (status,) = kept("providers", "status", "--json").json["active"]
    assert status["name"] == "hostile"
    assert said in f"{done.err} {status['problem']} {status['last_error']}"


def test_the_message_is_stored_before_any_plugin_runs(kept_process, kept, hostile, server):
    """Even where the plugin runs inside kept, and its first hook ends the process."""
    hostile({"FIRST": "os._exit(3)"}, isolate="off")

    done = kept_process(
        "run",
        "-m",
        "openai/loopback-model",
        "When is the deploy day?",
        env=server.environment,
    )

    assert done.code == 3
    assert "When is the deploy day?" in kept("sessions", "export").out

"""Real homes of Hermes and OpenClaw, made by the programs themselves against a loopback model, and imported."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from wellkept.llm.scripted import Says, call

SECONDS = 300
PROGRAMS = {name: os.environ.get(name, "") for name in ("KEPT_HERMES", "KEPT_OPENCLAW", "KEPT_NODE")}
"""Paths of the programs, read before the tests clear the environment."""


def find_program(variable, name):
    """Return a program that a variable names, or that is on the path."""
    found = PROGRAMS[variable] or shutil.which(name)
    if not found:
        pytest.skip(f"needs {name}: set {variable} to its path")
    return found


def run_program(world, *command, **environment):
    given = {**world.environment, **environment}
    done = subprocess.run(
        command, cwd=world.project, env=given, check=False, capture_output=True, text=True, timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def plan(body):
    """Call a tool when the person asks for it."""
    last = body["messages"][-1]
    names = {one.get("function", {}).get("name") for one in body.get("tools") or []}
    tool = next((name for name in ("terminal", "exec") if name in names), None)
    if last.get("role") == "user" and "RUNTOOL" in json.dumps(last) and tool:
        return Says("Let me look.", (call(tool, command="echo hello-from-tool"),))
    return None


def stored(world, source):
    report = json.loads(world.kept("import", source, "--yes", "--json", "--no-backup"))
    return report, [(role, text) for name, role, text in world.stored() if name == source]


@pytest.mark.timeout(1200)
def test_hermes(world):
    """Two sessions and a page, each message once."""
    program = find_program("KEPT_HERMES", "hermes")
    world.models["chat"].plan = plan
    home = world.person / ".hermes"
    home.mkdir(parents=True)
    model = {"default": "loop-model", "provider": "custom", "base_url": f"{world.urls['chat']}/v1", "api_key": "none"}
    (home / "config.yaml").write_text(json.dumps({"model": model}))
    (home / "memories").mkdir()
    (home / "memories" / "MEMORY.md").write_text("The printer is called marmot.\n§\nThe router is called otter.")
    for prompt in ("My cat is called Miezi.", "RUNTOOL please"):
        run_program(world, program, "-z", prompt, HERMES_HOME=str(home))
    report, rows = stored(world, "hermes")
    again, _ = stored(world, "hermes")

    assert [text for role, text in rows if role == "user"] == ["My cat is called Miezi.", "RUNTOOL please"]
    assert any("hello-from-tool" in text for role, text in rows if role == "tool")
    assert (report["sessions"]["new"], report["entries"]["added"], report["problems"]) == (2, 2, [])
    assert (again["sessions"]["new"], again["entries"]["added"]) == (0, 0)
    assert "marmot" in world.kept("memory", "show")


@pytest.mark.timeout(1200)
def test_openclaw(world):
    """One session, and a workspace in which only the person's own lines are memory."""
    program = find_program("KEPT_OPENCLAW", "openclaw")
    world.models["chat"].plan = plan
    home = world.person / ".openclaw"
    home.mkdir(parents=True)
    model = {
        "id": "m", "name": "m", "reasoning": False, "input": ["text"], "contextWindow": 128000, "maxTokens": 4000,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    }  # fmt: skip
    provider = {"baseUrl": f"{world.urls['chat']}/v1", "apiKey": "none", "api": "openai-completions", "models": [model]}
    defaults = {"model": {"primary": "loop/m"}, "workspace": str(home / "workspace")}
    config = {"agents": {"defaults": defaults}, "models": {"providers": {"loop": provider}}, "gateway": {"port": 1}}
    (home / "openclaw.json").write_text(json.dumps(config))
    path = f"{Path(PROGRAMS['KEPT_NODE']).parent}:" if PROGRAMS["KEPT_NODE"] else ""
    environment = {"PATH": f"{path}{world.environment['PATH']}"}
    for prompt in ("My bird is called Tweety.", "RUNTOOL please"):
        run_program(world, program, "agent", "--local", "--agent", "main", "--message", prompt, **environment)
    (home / "workspace" / "MEMORY.md").write_text("# Memory\n\n- The printer is called marmot.\n")
    report, rows = stored(world, "openclaw")
    again, _ = stored(world, "openclaw")

    assert [text for role, text in rows if role == "user"] == ["My bird is called Tweety.", "RUNTOOL please"]
    assert (report["sessions"]["new"], report["problems"]) == (1, [])
    assert report["entries"]["added"] == 1, "lines of the templates are no memory"
    assert (again["sessions"]["new"], again["entries"]["added"]) == (0, 0)

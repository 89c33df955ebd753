"""Real clients against loopback models: homes of their own, connected by `kept connect`."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kept.testing.loopback_agents import open_agent_server

FOLDER = os.environ.get("KEPT_CLIENTS", "")
KEPT = str(Path(sys.executable).with_name("kept"))
SECONDS = 180
FENCE = re.compile(r"<memory-context>.*?</memory-context>", re.DOTALL)


def pytest_collection_modifyitems(items):
    skip = pytest.mark.skip(reason="needs the clients from npm: make test-clients")
    for item in items:
        if "tests/clients" in str(item.path) and not FOLDER:
            item.add_marker(skip)


@dataclass
class World:
    """One machine: a person with three clients and a kept home, and the models that they talk to."""

    root: Path
    urls: dict[str, str]
    servers: dict[str, object]
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def person(self) -> Path:
        return self.root / "person"

    def run(self, *command, check=True, **more):
        """Run a program in the project."""
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": SECONDS, **more}
        environment = {**self.environment, "PWD": str(self.project)}
        done = subprocess.run(command, cwd=self.project, env=environment, check=False, **options)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def kept(self, *words):
        return self.run(KEPT, *words).stdout

    def claude(self, prompt, *options, **more):
        return self.run("claude", "-p", prompt, *options, **more)

    def codex(self, prompt, *options, trusted=True, **more):
        trust = ("--dangerously-bypass-hook-trust",) if trusted else ()
        return self.run("codex", "exec", *trust, *options, prompt, **more)

    def opencode(self, prompt, *options, **more):
        return self.run("opencode", "run", *options, prompt, **more)

    def requests(self, kind):
        """Return the bodies of the requests that the model of this kind was sent, without those for titles."""
        bodies = [received.body for received in self.servers[kind].requests]
        return [body for body in bodies if "title generator" not in json.dumps(body)]

    def given(self, kind):
        """Return the fenced texts of the newest request."""
        return FENCE.findall(json.dumps(self.requests(kind)[-1], ensure_ascii=False))

    def stored(self):
        """Return (source, role, text) of every stored message, after the imports that run on their own have ended."""
        for _ in range(40):
            lines = [json.loads(line) for line in self.kept("export").splitlines()]
            sources = {line["session_id"]: line["source"] for line in lines if line.get("type") == "session"}
            rows = [
                (sources.get(line["session_id"], "?"), line["role"], line["content"])
                for line in lines
                if "role" in line and line.get("content")
            ]
            before = getattr(self, "_before", None)
            self._before = rows
            if before == rows:
                return rows
            time.sleep(0.5)
        return rows


def _models(person: Path, project: Path, urls: dict[str, str]) -> None:
    codex, opencode = person / ".codex", person / ".config" / "opencode"
    codex.mkdir(parents=True)
    opencode.mkdir(parents=True)
    (codex / "config.toml").write_text(
        f'model = "loop"\nmodel_provider = "loop"\n[model_providers.loop]\nname = "loop"\n'
        f'base_url = "{urls["responses"]}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
        f'[projects."{project}"]\ntrust_level = "trusted"\n'
    )
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{urls['chat']}/v1", "apiKey": "none"},
        "models": {"m": {"name": "m"}},
    }
    settings = {"model": "loop/m", "small_model": "loop/m", "autoupdate": False, "provider": {"loop": provider}}
    (opencode / "opencode.json").write_text(json.dumps(settings, indent=2))
    (person / ".claude.json").write_text(
        json.dumps(
            {
                "hasCompletedOnboarding": True,
                "theme": "dark",
                "customApiKeyResponses": {"approved": ["sk-loopback"], "rejected": []},
                "projects": {str(project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
            }
        )
    )


class Numbers:
    """Answers every request differently, so that each answer can be counted."""

    def __init__(self, name):
        self.name = name
        self.count = 0

    def __call__(self, body):
        if "title generator" in json.dumps(body):
            return "A title"
        self.count += 1
        return f"answer {self.name}{self.count} noted"


@pytest.fixture
def world(tmp_path):
    """A fresh machine, with nothing connected yet."""
    project, person = tmp_path / "project", tmp_path / "person"
    project.mkdir()
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    servers = {kind: open_agent_server(kind, Numbers(kind)) for kind in ("anthropic", "responses", "chat")}
    for server in servers.values():
        server.__enter__()
    urls = {kind: server.url for kind, server in servers.items()}
    _models(person, project, urls)
    environment = {
        "HOME": str(person),
        "KEPT_HOME": str(tmp_path / "home"),
        "PATH": f"{FOLDER}/node_modules/.bin:{Path(KEPT).parent}:{os.environ['PATH']}",
        "ANTHROPIC_BASE_URL": urls["anthropic"],
        "ANTHROPIC_API_KEY": "sk-loopback",
        "OPENAI_API_KEY": "sk-loopback",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        # a machine that runs three agents and a test at once is slower than a person's
        "KEPT_CONNECT__START_SECONDS": "20",
        "KEPT_CONNECT__PROMPT_SECONDS": "20",
        "KEPT_CONNECT__STOP_SECONDS": "20",
    }
    yield World(tmp_path, urls, servers, environment)
    for server in servers.values():
        server.__exit__(None, None, None)


@pytest.fixture
def connected(world):
    """The three clients, connected."""
    world.kept("connect", "claude-code", "codex", "opencode", "--yes")
    return world

"""Real clients against loopback models: homes of their own, connected by `kept connect`."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from wellkept.testing.loopback_agents import open_agent_server

FOLDER = os.environ.get("KEPT_CLIENTS", "")
KEPT = str(Path(sys.executable).with_name("kept"))
SECONDS = 180
FENCE = re.compile(r"<memory-context>.*?</memory-context>", re.DOTALL)


def pytest_collection_modifyitems(items):
    skip = pytest.mark.skip(reason="needs the clients from npm: make test-clients")
    for item in items:
        if "tests/clients" in str(item.path) and not FOLDER:
            item.add_marker(skip)


def is_for_title(body):
    """Whether a client asks for the title of a session, beside the conversation itself."""
    text = json.dumps(body)
    return "You are a title generator" in text or ("sentence-case title" in text and not body.get("tools"))


@dataclass
class World:
    """One machine: a person with three clients and a kept home, and the models that they talk to."""

    root: Path
    urls: dict[str, str]
    servers: dict[str, object]
    models: dict[str, object]
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
        return [body for body in bodies if not is_for_title(body)]

    def given(self, kind):
        """Return the fenced texts of the newest request."""
        return FENCE.findall(json.dumps(self.requests(kind)[-1], ensure_ascii=False))

    def texts(self):
        """Return the stored texts, without who said them."""
        return [text for _source, _role, text in self.stored()]

    def start(self, *command):
        """Start a program in the project and return at once."""
        environment = {**self.environment, "PWD": str(self.project)}
        nowhere = subprocess.DEVNULL
        return subprocess.Popen(
            command, cwd=self.project, env=environment, stdin=nowhere, stdout=nowhere, stderr=nowhere
        )

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
        self.plan = lambda _body: None
        """A test's own answer to a request, if it has one."""

    def __call__(self, body):
        if is_for_title(body):
            return "A title"
        own = self.plan(body)
        if own is not None:
            return own
        self.count += 1
        return f"answer {self.name}{self.count} noted"


@pytest.fixture
def world(tmp_path):
    """A fresh machine, with nothing connected yet."""
    project, person = tmp_path / "project", tmp_path / "person"
    project.mkdir()
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    models = {kind: Numbers(kind) for kind in ("anthropic", "responses", "chat")}
    servers = {kind: open_agent_server(kind, model) for kind, model in models.items()}
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
    yield World(tmp_path, urls, servers, models, environment)
    for server in servers.values():
        server.__exit__(None, None, None)


@pytest.fixture
def connected(world):
    """The three clients, connected."""
    world.kept("connect", "claude-code", "codex", "opencode", "--yes")
    return world


_MARKUP = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
_QUERIES = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?62;c",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}
"""What programs ask a terminal, and what one answers."""


class Terminal:
    """A program in a pseudo terminal that types what a person would."""

    def __init__(self, command, folder, environment):
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.out = b""

    def read(self, seconds):
        """Read for some seconds, answering what the program asks."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not select.select([self.descriptor], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self.descriptor, 65_536)
            except OSError:
                return
            self.out += data
            for query, answer in _QUERIES.items():
                if query in data:
                    os.write(self.descriptor, answer)

    @property
    def shown(self):
        """Return what was shown, without markup and white space."""
        return re.sub(r"\s+", "", _MARKUP.sub(b"", self.out).decode("utf-8", "replace"))

    def wait(self, text, seconds=90):
        """Read until `text` was shown since the last call."""
        deadline = time.monotonic() + seconds
        while re.sub(r"\s+", "", text) not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} was not shown: {self.shown[-2_000:]}"
            self.read(0.5)
        self.read(1.5)
        self.out = b""

    def type(self, text):
        """Type a text, then the return key on its own, as programs tell pasted text by its speed."""
        os.write(self.descriptor, text.encode())
        self.read(1.0)
        os.write(self.descriptor, b"\r")
        self.read(0.5)

    def close(self, *, kill=True):
        """End the program."""
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL if kill else signal.SIGTERM)
        os.waitpid(self.pid, 0)
        os.close(self.descriptor)


@pytest.fixture
def terminal(connected):
    """Start programs in pseudo terminals, and end them after the test."""
    started = []

    def start(*command):
        environment = {**connected.environment, "PWD": str(connected.project)}
        started.append(Terminal(command, connected.project, environment))
        return started[-1]

    yield start
    for one in started:
        with suppress(OSError):
            one.close()

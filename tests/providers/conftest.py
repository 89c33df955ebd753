"""The back ends of all providers behind one shape, for tests that every provider must pass."""

import importlib.util
import json
import os
from functools import cache
from pathlib import Path

import pytest

from wellkept.providers import active, trial
from wellkept.providers.base import StartContext
from wellkept.providers.loading import load
from wellkept.testing.http_double import Fault

KEYS = {
    "hindsight": "HINDSIGHT_API_KEY",
    "honcho": "HONCHO_API_KEY",
    "mem0": "MEM0_API_KEY",
    "openviking": "OPENVIKING_API_KEY",
    "retaindb": "RETAINDB_API_KEY",
    "supermemory": "SUPERMEMORY_API_KEY",
}
SETTINGS = {
    "hindsight": {"mode": "external"},
    "honcho": {"dialecticCadence": 0, "sessionStrategy": "per-session"},
    "mem0": {"mode": "self-hosted", "infer": False},
}
DOUBLES = {
    "hindsight": "HindsightDouble",
    "honcho": "HonchoDouble",
    "mem0": "Mem0Double",
    "openviking": "OpenVikingDouble",
    "retaindb": "RetainDBDouble",
    "supermemory": "SupermemoryDouble",
}
REMOTE = tuple(KEYS)
SEVEN = (*REMOTE, "byterover")
EIGHT = (*SEVEN, "holographic")


@cache
def load_tests_of(name):
    """Return the module with the double of a provider."""
    path = Path(__file__).with_name(f"test_{name}.py")
    spec = importlib.util.spec_from_file_location(f"double_of_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class HttpBackend:
    """A provider whose back end is an HTTP double."""

    def __init__(self, name, home, monkeypatch):
        module = load_tests_of(name)
        monkeypatch.setenv(KEYS[name], module.KEY)
        self.name, self.home, self.key = name, home, module.KEY
        self.double = getattr(module, DOUBLES[name])()
        self.double.start()
        self.configure()

    def configure(self, **settings):
        values = {"base_url": self.double.url, **SETTINGS.get(self.name, {}), "timeout_seconds": 3.0, **settings}
        (self.home / f"{self.name}.json").write_text(json.dumps(values))

    def kill(self):
        self.double.stop()

    def revive(self):
        self.double.start()

    def hang(self, seconds):
        self.double.outage = Fault(200, b"{}", seconds=seconds) if seconds else None

    def digest(self):
        """Let the back end do what it does in the background."""
        for name in ("derive", "process"):
            getattr(self.double, name, lambda: None)()

    def said(self):
        """Return what people said, in order, each delivery once."""
        double = self.double
        match self.name:
            case "honcho":
                texts = [each["content"] for each in double.messages]
            case "openviking":
                texts = [each["content"] for messages in double.sessions.values() for each in messages]
            case "mem0":
                texts = [each["memory"] for each in double.memories.values()]
            case _:
                texts = double.texts()
        lines = [line for text in texts for line in text.splitlines()]
        return [line.removeprefix("user: ") for line in lines if line.removeprefix("user: ").startswith("turn ")]

    def sent(self):
        return json.dumps([each.body if isinstance(each.body, dict | list) else None for each in self.double.requests])

    def close(self):
        self.double.stop()


class ProgramBackend:
    """ByteRover, whose back end is a program."""

    name = "byterover"

    def __init__(self, home, monkeypatch):
        self.home = home
        self.brv = load_tests_of("byterover").FakeBrv(home / "fake")
        monkeypatch.setenv("FAKE_BRV", str(self.brv.folder))
        monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
        self.brv.set(model="m")
        self.configure()

    def configure(self, **settings):
        values = {"command": str(self.brv.program), "timeout_seconds": 3.0, **settings}
        (self.home / "byterover.json").write_text(json.dumps(values))

    def kill(self):
        self.brv.set(error="connect ECONNREFUSED: the daemon is gone")

    def revive(self):
        self.brv.set(model="m")

    def hang(self, seconds):
        self.brv.set(model="m", seconds=seconds)

    def digest(self):
        pass

    def said(self):
        lines = [line for text in self.brv.texts(self.home) for line in text.splitlines()]
        return [line.removeprefix("user: ") for line in lines if line.removeprefix("user: ").startswith("turn ")]

    def sent(self):
        return json.dumps(self.brv.calls("curate")) + "".join(self.brv.texts(self.home))

    def close(self):
        pass


class LocalBackend:
    """Holographic, which has no back end that could be away."""

    name = "holographic"

    def __init__(self, home):
        self.home = home

    def configure(self, **settings):
        (self.home / "holographic.json").write_text(json.dumps(settings))

    def digest(self):
        pass

    def sent(self):
        from wellkept.providers.holographic import HolographicProvider

        provider = HolographicProvider()
        provider.initialize("s", **StartContext(kept_home=str(self.home)).keywords())
        return provider.handle_tool_call("fact_store", {"action": "list"})

    def close(self):
        pass


@pytest.fixture
def open_backend(tmp_path, monkeypatch):
    """Return a function that starts the back end of a provider, with its settings in the test's folder."""
    opened = []
    home = tmp_path / "home"

    def start(name):
        home.mkdir(exist_ok=True)
        match name:
            case "byterover":
                opened.append(ProgramBackend(home, monkeypatch))
            case "holographic":
                opened.append(LocalBackend(home))
            case _:
                opened.append(HttpBackend(name, home, monkeypatch))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.fixture
def backend(request, open_backend):
    """The back end of the provider that the test is parametrised with."""
    return open_backend(request.param)


def start_provider(backend, **context):
    """Return the backend's provider, started."""
    provider = load(backend.name, backend.home / "plugins", os.environ)
    keywords = {**StartContext(kept_home=str(backend.home)).keywords(), **context}
    provider.initialize("s1", **keywords)
    return provider


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch):
    """Retries come after hundredths of a second, with the same factors."""
    monkeypatch.setattr(active, "_FIRST_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(active, "_LAST_RETRY_SECONDS", 0.5)
    monkeypatch.setattr(active, "_PAUSED_SECONDS", 0.1)
    monkeypatch.setattr(trial, "PAUSE_SECONDS", 0.05)


@pytest.fixture
def start_of():
    """Return the function that starts the provider of a back end."""
    return start_provider

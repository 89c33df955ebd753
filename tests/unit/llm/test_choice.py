"""Which model speaks: settings, keys, local servers, a file, and nothing at all."""

import json
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from wellkept.core.errors import ModelBusy, ModelRefused, UsageError
from wellkept.core.ports import ignore
from wellkept.llm.endpoints import (
    Endpoint,
    LocalServer,
    endpoint_of,
    models_at,
    parse_name,
    probe,
    window_at,
    window_behind,
)
from wellkept.llm.models import Configured, Models, choose, offers
from wellkept.llm.settings import ModelSettings
from wellkept.testing.loopback_servers import LoopbackOpenAI

KEYS = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o", "OPENROUTER_API_KEY": "r"}


def nothing():
    return {}


def never():
    raise AssertionError("local servers must not be asked when something before them is open")


def test_keys_in_order():
    """The first key that is set decides, and local servers are not even asked."""
    left = dict(KEYS)
    seen = []
    for variable in KEYS:
        seen.append(choose(ModelSettings(), left, probe_servers=never).name.partition("/")[0])
        del left[variable]

    assert seen == ["anthropic", "openai", "openrouter"]


def test_a_setting_comes_first():
    """`model.default` wins over every key."""
    assert choose(ModelSettings(default="ollama/x"), KEYS, probe_servers=never).name == "ollama/x"


def test_local_servers_then_a_file_then_nothing(tmp_path: Path):
    """Without a key: the first server that has a model, then the configured file, then no model."""
    gguf = tmp_path / "m.gguf"
    gguf.touch()
    settings = ModelSettings(local_path=str(gguf))

    answers = {"ollama": [], "lmstudio": ["qwen"], "llamacpp": ["x"]}
    assert choose(settings, {}, probe_servers=lambda: answers).name == "lmstudio/qwen"
    assert choose(settings, {}, probe_servers=nothing).name == f"local/{gguf}"
    assert choose(ModelSettings(), {}, probe_servers=nothing).is_extractive


def test_every_offer_says_why(tmp_path: Path):
    """What is closed names what would open it."""
    reasons = {offer.name: offer for offer in offers(ModelSettings(), {"OPENAI_API_KEY": "o"}, probe_servers=nothing)}

    assert "ANTHROPIC_API_KEY is not set" in reasons["anthropic"].reason
    assert reasons["openai/gpt-6-sol"].is_available
    assert "11434" in reasons["ollama"].reason
    assert "model.local_path" in reasons["local"].reason
    assert reasons["extractive"].is_available


def test_an_empty_key_is_no_key():
    """A variable that is set to nothing opens nothing."""
    assert choose(ModelSettings(), {"ANTHROPIC_API_KEY": ""}, probe_servers=nothing).is_extractive


def test_a_compatible_endpoint_is_asked_for_its_model():
    """With a key and another address, the first model that is listed there is used."""
    with LoopbackOpenAI(models=("house-model", "other")) as server:
        assert choose(ModelSettings(), server.environment, probe_servers=never).name == "openai/house-model"
        chosen = choose(ModelSettings(base_url=server.base_url), {}, probe_servers=never)

    assert chosen.name == "openai/house-model"


def test_a_named_server_that_is_silent_is_never_replaced():
    """Neither by another vendor whose key is set, nor by an answer from memory: it is an error with a next step."""
    silent = socket.create_server(("127.0.0.1", 0))  # accepts, and never answers
    settings = ModelSettings(base_url=f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
    keys = {"ANTHROPIC_API_KEY": "some key"}

    chosen = choose(settings, keys, probe_servers=never)
    models = Models(Configured(settings), keys, sink=ignore)
    with pytest.raises(ModelBusy) as failed:
        models.chat()
    silent.close()

    assert chosen.is_unreachable
    assert settings.base_url in failed.value.message
    assert "kept model set" in failed.value.remedy


def test_a_local_server_is_found_on_its_port():
    """A server that lists models is found; a port where nobody listens is not."""
    with LoopbackOpenAI(models=("llama3.2",)) as server:
        port = int(server.url.rpartition(":")[2])
        found = probe([LocalServer("ollama", "Ollama", port), LocalServer("lmstudio", "LM Studio", 9)])

    assert found == {"ollama": ["llama3.2"]}


@pytest.mark.parametrize(("count", "most"), [(40, 6), pytest.param(3, 1.0, marks=pytest.mark.speed)])
def test_a_server_that_hangs_does_not_hold_the_start(count, most):
    """A port that accepts and stays silent costs a fifth of a second, and forty of them not eight seconds."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        started = time.monotonic()
        found = probe([LocalServer(f"s{n}", "S", port) for n in range(count)])
        seconds = time.monotonic() - started

    assert set(found.values()) == {None}
    assert seconds < most


def test_garbage_on_a_port_is_no_server():
    """Another program on the port is not taken for a model server."""
    with LoopbackOpenAI() as server:
        assert models_at(f"{server.url}/elsewhere") is None
        assert window_at("llamacpp", server.base_url, "loopback-model") is None


@pytest.mark.parametrize(
    ("provider", "path", "answer", "window"),
    [
        ("llamacpp", "/props", {"default_generation_settings": {"n_ctx": 16384}}, 16384),
        (
            "ollama",
            "/api/ps",
            {"models": [{"model": "other", "context_length": 1}, {"model": "m", "context_length": 4096}]},
            4096,
        ),
        ("lmstudio", "/api/v0/models", {"data": [{"id": "m", "loaded_context_length": 8192}]}, 8192),
        ("ollama", "/api/ps", {"models": []}, None),
        ("lmstudio", "/api/v0/models", ["what"], None),
    ],
)
def test_a_local_server_is_asked_for_its_window(provider: str, path: str, answer: object, window: int | None):
    """Each kind of server says in its own way how large a window it runs with; nonsense is not an answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(answer).encode()
            self.send_response(200 if self.path == path else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        found = window_at(provider, f"http://127.0.0.1:{server.server_port}/v1", "m")
        server.shutdown()

    assert found == window


@pytest.mark.parametrize("name", ["", "nonsense", "mystery/model", "openai/", "/gpt-4"])
def test_a_wrong_name_is_one_clear_line(name: str):
    """A name that is not a model name says what a name looks like."""
    with pytest.raises(UsageError, match="kept model list"):
        parse_name(name)


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [("openrouter/anthropic/claude-x", "openrouter", "anthropic/claude-x"), ("claude-x", "anthropic", "claude-x"),
     ("gpt-9", "openai", "gpt-9"), ("local//a/b.gguf", "local", "/a/b.gguf"), ("extractive", "extractive", "")],
)  # fmt: skip
def test_names(name: str, provider: str, model: str):
    """The first part is the provider; a bare name of a known family finds its own."""
    assert (parse_name(name).provider, parse_name(name).model) == (provider, model)


def test_a_missing_key_names_its_variable():
    """Without a key the error says which variable to set, before anything is sent."""
    with pytest.raises(ModelRefused, match="ANTHROPIC_API_KEY"):
        endpoint_of("anthropic", {})


def test_servers_on_this_machine_need_no_key():
    """A loopback address is used without a key."""
    assert endpoint_of("openai", {"OPENAI_BASE_URL": "http://localhost:9/v1"}).is_loopback


def test_an_endpoint_never_shows_its_secrets():
    """Neither the key nor credentials in the address appear in what is printed."""
    endpoint = Endpoint("openai", "https://user:hunter2@example.test:8443/v1?token=t0ken", "sk-secret-key")

    assert "sk-secret-key" not in repr(endpoint)
    assert endpoint.shown_url == "https://example.test:8443/v1"


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/props", {"default_generation_settings": {"n_ctx": 16384}}),
        ("/v1/models", {"data": [{"id": "m", "max_model_len": 16384}]}),
    ],
)
def test_a_local_server_behind_a_base_url_is_asked_for_its_window(path: str, answer: object):
    """Its program is unknown, so both places are looked at."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(answer).encode()
            self.send_response(200 if self.path == path else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        found = window_behind(f"http://127.0.0.1:{server.server_port}/v1", "m")
        server.shutdown()

    assert found == 16384

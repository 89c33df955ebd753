"""Model servers on this machine: whether one answers on its usual port, and what it offers."""

import json
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

PROBE_SECONDS = 0.2
WINDOW_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A kind of server and where it usually listens."""

    provider: str
    title: str
    port: int

    @property
    def base_url(self) -> str:
        """Return the address of its OpenAI-compatible API."""
        return f"http://127.0.0.1:{self.port}/v1"


SERVERS = (
    LocalServer("ollama", "Ollama", 11434),
    LocalServer("lmstudio", "LM Studio", 1234),
    LocalServer("llamacpp", "llama.cpp", 8080),
)


def models_at(base_url: str, *, seconds: float = PROBE_SECONDS, key: str = "") -> list[str] | None:
    """Return the names of the models that a server lists, or None when it does not answer as one."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    answer = _json(f"{base_url}/models", seconds=seconds, headers=headers)
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        return None
    return [str(one["id"]) for one in listed if isinstance(one, dict) and "id" in one]


def probe(servers: Iterable[LocalServer] = SERVERS) -> dict[str, list[str] | None]:
    """Ask every server that is there, all at once, what it offers; None for one that is none. Takes 200 ms."""
    asked = [server for server in servers if _listens(server.port)]
    if not asked:
        return {}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(asked), thread_name_prefix="kept-probe") as pool:
        answers = pool.map(models_at, [server.base_url for server in asked])
        return {server.provider: answer for server, answer in zip(asked, answers, strict=True)}


def _listens(port: int) -> bool:
    """Say whether anybody listens there; on this machine the answer is immediate, so HTTP is loaded only if so."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def window_at(provider: str, base_url: str, model: str) -> int | None:
    """Return the window that a local server runs `model` with, asked in the way of its kind; None if unsaid."""
    if provider not in _WINDOWS:
        return None
    path, read = _WINDOWS[provider]
    root = base_url.removesuffix("/").removesuffix("/v1")
    return read(_json(root + path, seconds=WINDOW_SECONDS), model)


def _llamacpp(answer: Any, model: str) -> int | None:  # noqa: ARG001 - one signature for every kind
    return _whole(_at(answer, "default_generation_settings", "n_ctx"))


def _ollama(answer: Any, model: str) -> int | None:
    return _of_model(_at(answer, "models"), "model", model, field="context_length")


def _lmstudio(answer: Any, model: str) -> int | None:
    return _of_model(_at(answer, "data"), "id", model, field="loaded_context_length")


def _of_model(listed: Any, key: str, model: str, *, field: str) -> int | None:
    rows = [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []
    return next((_whole(row.get(field)) for row in rows if row.get(key) == model), None)


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


_WINDOWS: Mapping[str, tuple[str, Callable[[Any, str], int | None]]] = {
    "ollama": ("/api/ps", _ollama),
    "lmstudio": ("/api/v0/models", _lmstudio),
    "llamacpp": ("/props", _llamacpp),
}


def _json(url: str, *, seconds: float, headers: Mapping[str, str] | None = None) -> Any:
    import http.client

    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=seconds)
    try:
        connection.request("GET", parts.path, headers=dict(headers or {}))
        response = connection.getresponse()
        return json.loads(response.read(2_000_000)) if response.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()

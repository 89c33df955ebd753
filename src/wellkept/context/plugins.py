"""The available context engines, and the guard around those of plugins."""

import inspect
import json
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from wellkept.context.boundaries import Window
from wellkept.context.engine import Compaction, ContextEngine, Outcome, Pruned, Setup, Unchanged, Why
from wellkept.context.lossless import Lossless
from wellkept.context.messages import faults, last_user
from wellkept.context.settings import DEFAULT_ENGINE
from wellkept.context.summarising import Compressor
from wellkept.core.errors import GivenUp
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, StoredMessage, Usage
from wellkept.core.plugins import entry_points, import_package, newer_port, packages, read_name
from wellkept.core.ports import Completes
from wellkept.core.provenance import Taint
from wellkept.core.text import JSON
from wellkept.core.threads import start_job
from wellkept.core.tools import ToolContext, ToolSchema
from wellkept.security.secrets import redact, redact_json

log = logging.getLogger(__name__)
T = TypeVar("T")


class GuardedEngine(ContextEngine):
    """A plugin's engine; when a call of it fails, the built-in compressor takes over."""

    def __init__(self, engine: ContextEngine, name: str) -> None:
        self._engine = engine
        self._fallback = Compressor()
        self.title = name
        self.failures = 0
        self._hanging: Callable[[float], bool] | None = None
        """Waits for a call that took too long; the engine is not asked again before that has ended."""

    def prepare(self, setup: Setup) -> None:
        """Prepare the engine and its fallback."""
        self.setup = setup
        self._fallback.prepare(setup)
        read = setup.originals
        safe = setup if read is None else replace(setup, originals=lambda ids: _without_credentials(read(ids)))
        self._notify(lambda: self._engine.prepare(safe))

    def should_compress(self, prompt_tokens: int) -> bool:
        """Whether to compress; near the end of the window the fallback decides."""
        wants = self._notify(lambda: bool(self._engine.should_compress(prompt_tokens)))
        if wants is None or prompt_tokens >= self.limits.urgent:
            return self._fallback.should_compress(prompt_tokens)
        return wants and self.setup.settings.enabled

    def has_content_to_compress(self, rows: Sequence[StoredMessage]) -> bool:
        """Whether the engine finds something to compress."""
        safe = _without_credentials(rows)
        answer = self._notify(lambda: bool(self._engine.has_content_to_compress(safe)))
        return self._fallback.has_content_to_compress(rows) if answer is None else answer

    def writes_summary(
        self, rows: Sequence[StoredMessage], *, current_tokens: int | None = None, force: bool = False
    ) -> bool:
        """Whether messages would leave the context; True when the engine fails."""
        safe = _without_credentials(rows)
        answer = self._notify(
            lambda: bool(self._engine.writes_summary(safe, current_tokens=current_tokens, force=force))
        )
        return answer is not False

    def compress(
        self,
        rows: Sequence[StoredMessage],
        *,
        current_tokens: int | None = None,
        focus_topic: str = "",
        force: bool = False,
        memory_context: str = "",
    ) -> Outcome:
        """Return the engine's outcome when it is valid, or else the compressor's."""
        safe = _without_credentials(rows)

        def compress_and_check() -> Outcome:
            outcome = self._engine.compress(
                safe,
                current_tokens=current_tokens,
                focus_topic=redact(focus_topic),
                force=force,
                memory_context=redact(memory_context),
            )
            if fault := find_fault(safe, outcome):
                raise TypeError(f"invalid result: {fault}")
            return outcome

        return self._call(compress_and_check, default=None) or self._fallback.compress(
            rows, current_tokens=current_tokens, focus_topic=focus_topic, force=force, memory_context=memory_context
        )

    def update_from_response(self, usage: Usage) -> None:
        """Pass the reported usage to both engines."""
        self.last_prompt_tokens = usage.prompt_tokens
        self._fallback.update_from_response(usage)
        self._notify(lambda: self._engine.update_from_response(usage))

    def update_model(self, window: Window, model: Completes | None = None) -> None:
        """Pass the new window to both engines."""
        super().update_model(window, model)
        self._fallback.update_model(window, model)
        self._notify(lambda: self._engine.update_model(window, model))

    def on_session_start(self, session_id: SessionId, *, state: JSON = None) -> None:
        """Begin the conversation in both engines, each with its own state."""
        self.session_id = session_id
        parts = state if isinstance(state, Mapping) else {}
        self._fallback.on_session_start(session_id, state=parts.get("spare"))
        self._notify(lambda: self._engine.on_session_start(session_id, state=parts.get("engine")))

    def on_session_end(self, session_id: SessionId, rows: Sequence[StoredMessage]) -> None:
        """End the conversation in the engine."""
        safe = _without_credentials(rows)
        self._notify(lambda: self._engine.on_session_end(session_id, safe))

    def on_session_reset(self) -> None:
        """Reset both engines."""
        self._fallback.on_session_reset()
        self._notify(self._engine.on_session_reset)

    def get_tool_schemas(self) -> Sequence[ToolSchema]:
        """Return the engine's usable tools, or none when it fails."""
        from wellkept.providers.content import tool_schemas

        return self._notify(lambda: tuple(tool_schemas(self.title, self._engine.get_tool_schemas(), "context"))) or ()

    def handle_tool_call(self, name: str, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        """Return the engine's answer, as an object or as its JSON text, or an error answer."""
        from wellkept.providers.content import failure, tool_answer

        given = cast("Mapping[str, JSON]", redact_json(arguments))

        def find_taint(text: str) -> Taint | None:  # the method of the context has with it what the person said
            return context.find_taint(text)

        safe = replace(context, said=redact(context.said), find_taint=find_taint)

        def answer() -> Mapping[str, JSON]:
            result: object = self._engine.handle_tool_call(name, given, safe)
            return tool_answer(self.title, json.dumps(result) if isinstance(result, Mapping) else result)

        return self._call(answer, default=None) or failure(f"the tool {name!r} of {self.title!r} failed")

    def get_status(self) -> Mapping[str, JSON]:
        """Return the common status, updated with the engine's own."""
        own = self._notify(lambda: _plain(dict(self._engine.get_status())))
        own = own if isinstance(own, Mapping) else {}
        return {**self._fallback.get_status(), **own, "engine": self.title, "failures": self.failures}

    def state(self) -> JSON:
        """Return the state of both engines."""
        return {"engine": self._notify(lambda: _plain(self._engine.state())), "spare": self._fallback.state()}

    def _call(self, call: Callable[[], T], *, default: T | None) -> T | None:
        """Run code of the plugin, and whatever reads its answer; return `default` after any failure."""
        from wellkept.providers.running import plugin_code  # only plugins need it

        try:
            self._refuse_hanging()
            with plugin_code(self.title):
                return call()
        except (GivenUp, KeyboardInterrupt):
            raise
        except BaseException:
            self.failures += 1
            log.warning("context engine %r failed", self.title, exc_info=True)
            return default

    def _refuse_hanging(self) -> None:
        if self._hanging is not None and not self._hanging(0):
            raise TimeoutError("an earlier call still hangs")

    def _notify(self, call: Callable[[], T]) -> T | None:
        """Run a short call of the plugin in a thread, and wait for it for a limited time; None after any failure."""

        def wait() -> T:
            job = start_job(call, name="kept-engine")
            if not job.wait(LOAD_SECONDS):
                self._hanging = job.wait
                raise TimeoutError(f"it took longer than {LOAD_SECONDS:g} s")
            return job.value()

        return self._call(wait, default=None)


def _without_credentials(rows: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Return messages as a plugin gets them."""
    from wellkept.sessions.redaction import Redaction

    redaction = Redaction()
    return [redaction.message(row) for row in rows]


def _plain(value: object) -> JSON:
    """Return what a plugin calls JSON; raises an error if it is not."""
    plain: JSON = json.loads(json.dumps(value))
    return plain


def find_fault(rows: Sequence[StoredMessage], outcome: object) -> str:
    """Return why an engine's outcome is invalid, or an empty text."""
    if not isinstance(outcome, Compaction | Pruned | Unchanged) or not _is_readable(outcome):
        return f"no usable outcome but {type(outcome).__name__}"
    if isinstance(outcome, Unchanged):
        return ""
    if fault := faults(outcome.messages):
        return fault[0]
    if _lost_last_user([row.message for row in rows], outcome.messages):
        return "the last user message is missing"
    if isinstance(outcome, Compaction):
        named = sorted([*outcome.kept_head, *outcome.covered, *outcome.kept_tail])
        if named != sorted(row.id for row in rows):
            return "a message is neither kept nor covered"
    return ""


def _is_readable(outcome: Outcome) -> bool:
    """Whether what a person is told about an outcome has the right types."""
    note: object = outcome.note
    return isinstance(note, str) and not (isinstance(outcome, Unchanged) and not isinstance(outcome.reason, Why))


def _lost_last_user(before: Sequence[Message], after: Sequence[Message]) -> bool:
    index = last_user(before)
    return index is not None and not any(before[index].text in message.text for message in after)


ENTRY_POINTS = "wellkept.context_engines"
FOLDER = Path("plugins") / "context_engine"
"""The folder of a home with one folder per engine."""
BUILT_IN: dict[str, type[ContextEngine]] = {engine.name: engine for engine in (Compressor, Lossless)}


class EngineInfo(Struct, frozen=True):
    """An available engine; listing it imports no plugin code."""

    name: str
    source: str
    """`built-in`, `entry point` or `plugin`."""
    description: str = ""


LOAD_SECONDS = 8.0
"""How long the import and the constructor of an engine may take."""


class Choice(Struct, frozen=True):
    """The engine to use, and a warning when it is not the configured one."""

    engine: ContextEngine
    warning: str = ""


class Registration:
    """The argument of a plugin's `register(ctx)`."""

    def __init__(self) -> None:
        self.engine: ContextEngine | None = None

    def register_context_engine(self, engine: ContextEngine) -> None:
        """Register `engine`; the last registration wins."""
        self.engine = engine


def list_engines(home: Path | None = None, *, disabled: Container[str] = ()) -> list[EngineInfo]:
    """Return the engines that can be configured, each name once, in the order of precedence."""
    engines = {name: EngineInfo(name, "built-in", engine.description) for name, engine in BUILT_IN.items()}
    for path in _plugin_folders(home):
        engines.setdefault(path.name, EngineInfo(path.name, "plugin", str(path)))
    for point in entry_points(ENTRY_POINTS):
        engines.setdefault(point.name, EngineInfo(point.name, "entry point"))
    usable = (info for info in engines.values() if info.source == "built-in" or info.name not in disabled)
    return sorted(usable, key=lambda info: (info.source != "built-in", info.name))


def choose_engine(name: str, *, home: Path | None = None, disabled: Container[str] = ()) -> Choice:
    """Return the engine called `name`, or the compressor with a warning that lists the engines.

    `compressor` and `lossless` always mean the built-in ones. Only the named plugin is imported.
    """
    if name in BUILT_IN:
        return Choice(BUILT_IN[name]())
    if name in disabled:
        return _fall_back(f"the context engine {name!r} is disabled", home)
    loader = _loader(name, home)
    if loader is None:
        return _fall_back(f"there is no context engine {name!r}", home)
    loaded = _try_load(name, loader)
    return _fall_back(loaded, home) if isinstance(loaded, str) else Choice(GuardedEngine(loaded, name))


def _try_load(name: str, loader: Callable[[], object]) -> ContextEngine | str:
    """Return the engine, or why it cannot be used, whatever its import does."""
    job = start_job(partial(_load, name, loader), name="kept-engine-load")
    if not job.wait(LOAD_SECONDS):
        return f"the context engine {name!r} did not load within {LOAD_SECONDS:g} s"
    if job.error is not None:
        log.warning("context engine %r cannot be loaded", name, exc_info=job.error)
        return f"the context engine {name!r} cannot be loaded ({type(job.error).__name__}: {job.error})"
    if not isinstance(job.result, ContextEngine):
        return f"the context engine {name!r} provides no ContextEngine"
    return job.result


def _load(name: str, loader: Callable[[], object]) -> object:
    from wellkept.providers.running import plugin_code

    with plugin_code(name):
        return loader()


def _fall_back(why: str, home: Path | None) -> Choice:
    names = ", ".join(info.name for info in list_engines(home))
    return Choice(
        BUILT_IN[DEFAULT_ENGINE](),
        f"{why}; the built-in {DEFAULT_ENGINE} is used instead. Available: {names}. "
        "Choose one with `kept context use NAME`",
    )


def _loader(name: str, home: Path | None) -> Callable[[], object] | None:
    folders = _plugin_folders(home)
    named = [path for path in folders if path.name == name] or [path for path in folders if read_name(path) == name]
    for path in named:
        return partial(_import_engine, path)
    for point in entry_points(ENTRY_POINTS):
        if point.name == name:
            return lambda: _instantiate(point.load())
    return None


def _import_engine(path: Path) -> object:
    if (port := newer_port(path)) is not None:
        raise RuntimeError(f"it is written for version {port} of the port, newer than this kept's: update kept")
    return _from_module(import_package(path))


def _plugin_folders(home: Path | None) -> list[Path]:
    return [] if home is None else packages(home / FOLDER)


def _instantiate(found: object) -> object:
    """Return the engine of an entry point: from a module, a class, a function, or an instance."""
    if isinstance(found, ModuleType):
        return _from_module(found)
    return found() if callable(found) and not isinstance(found, ContextEngine) else found


def _from_module(module: ModuleType) -> object:
    register = getattr(module, "register", None)
    if callable(register):
        registration = Registration()
        register(registration)
        if registration.engine is not None:
            return registration.engine
    kinds = [
        member
        for member in vars(module).values()
        if inspect.isclass(member)
        and issubclass(member, ContextEngine)
        and member.__module__.startswith(module.__name__)
    ]
    if len(kinds) != 1:
        raise TypeError(f"it must register an engine or contain one ContextEngine subclass, but contains {len(kinds)}")
    return kinds[0]()

"""Lookup: which context engines exist, and the one that a name means."""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from kept.context.compressor import Compressor
from kept.context.engine import ContextEngine
from kept.context.guarded import Guarded
from kept.context.lossless import Lossless
from kept.context.settings import DEFAULT_ENGINE
from kept.core.plugins import entry_points, import_package, packages

log = logging.getLogger(__name__)

ENTRY_POINTS = "kept.context_engines"
FOLDER = Path("plugins") / "context_engine"
"""Where a home keeps engines, one folder each."""
BUILT_IN: dict[str, type[ContextEngine]] = {engine.name: engine for engine in (Compressor, Lossless)}


@dataclass(frozen=True, slots=True)
class Listed:
    """An engine that exists; nothing of it was imported unless it is built in."""

    name: str
    source: str
    """`built-in`, `entry point` or `plugin`."""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The engine to use, and what must be said loudly when it is not the one that was named."""

    engine: ContextEngine
    warning: str = ""


class Registration:
    """What a plugin's `register(ctx)` is given."""

    def __init__(self) -> None:
        self.engine: ContextEngine | None = None

    def register_context_engine(self, engine: ContextEngine) -> None:
        """Offer `engine`; the last one counts."""
        self.engine = engine


def available(home: Path | None = None) -> list[Listed]:
    """Return every engine that a configuration may name, each name once, as it would be found."""
    found = {name: Listed(name, "built-in", engine.description) for name, engine in BUILT_IN.items()}
    for path in _plugin_folders(home):
        found.setdefault(path.name, Listed(path.name, "plugin", str(path)))
    for point in entry_points(ENTRY_POINTS):
        found.setdefault(point.name, Listed(point.name, "entry point"))
    return sorted(found.values(), key=lambda one: (one.source != "built-in", one.name))


def chosen(name: str, *, home: Path | None = None) -> Chosen:
    """Return the engine called `name`, else the compressor with a warning that lists what exists.

    `compressor` and `lossless` always mean ours. Nothing is imported that was not named.
    """
    if name in BUILT_IN:
        return Chosen(BUILT_IN[name]())
    loader = _loader(name, home)
    if loader is None:
        return _fallen_back(f"there is no context engine {name!r}", home)
    try:
        engine = loader()
    except Exception as error:  # plugin boundary: foreign code must not stop the start
        log.warning("context engine %r cannot be loaded", name, exc_info=True)
        return _fallen_back(f"the context engine {name!r} cannot be loaded ({type(error).__name__}: {error})", home)
    if not isinstance(engine, ContextEngine):
        return _fallen_back(f"the context engine {name!r} offers no ContextEngine", home)
    return Chosen(Guarded(engine, name))


def _fallen_back(why: str, home: Path | None) -> Chosen:
    names = ", ".join(one.name for one in available(home))
    return Chosen(
        BUILT_IN[DEFAULT_ENGINE](),
        f"{why}; the built-in {DEFAULT_ENGINE} is used instead. There are: {names}. "
        "Choose one with `kept context use NAME`",
    )


def _loader(name: str, home: Path | None) -> Callable[[], object] | None:
    for path in _plugin_folders(home):
        if path.name == name:
            return lambda: _from_module(import_package(path, f"kept_context_engine_{name}"))
    for point in entry_points(ENTRY_POINTS):
        if point.name == name:
            return lambda: _made(point.load())
    return None


def _plugin_folders(home: Path | None) -> list[Path]:
    return [] if home is None else packages(home / FOLDER)


def _made(found: object) -> object:
    """Return the engine behind an entry point: a module, a class or a function, or the engine itself."""
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
        one
        for one in vars(module).values()
        if inspect.isclass(one) and issubclass(one, ContextEngine) and one.__module__.startswith(module.__name__)
    ]
    if len(kinds) != 1:
        raise TypeError(f"it must register an engine or hold one ContextEngine subclass, and holds {len(kinds)}")
    return kinds[0]()

"""Checking the whole installation: real writes and searches in a temporary home, reading only in the real one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kept.app.caller import Scope
from kept.core.errors import KeptError
from kept.core.events import ignore
from kept.curation.doctor import Check, Health, conversations, installation, pages, passed, writable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kept.app.caller import Caller


def check_everything(caller: Caller, *, offline: bool = False) -> Iterator[Check]:
    """Yield one check after the other; `offline` calls neither the model nor a provider."""
    from kept.app.health import examine, trial
    from kept.config.load import is_exposed

    caller.require(Scope.ADMIN)
    app, home = caller.app, caller.app.home
    with tempfile.TemporaryDirectory(prefix="kept-doctor-") as folder:
        yield from installation(Path(folder), trial)
    yield writable(home.path, home.memories, home.database)
    yield from (Check("configuration", Health.WARNING, warning, "mend or remove it") for warning in app.warnings)
    if is_exposed(home.env_file):
        remedy = f"run: chmod 600 {home.env_file}"
        yield Check("secrets", Health.ERROR, f"{home.env_file} can be read by others", remedy)
    yield from pages(caller.space.memory, home.pending / "memory")
    yield from conversations(examine(app))
    yield _check_vectors(caller, offline=offline)
    yield _check_engine(caller)
    yield from _check_skills(caller)
    yield from _check_providers(caller)
    yield _check_model(caller, offline=offline)


def _check_vectors(caller: Caller, *, offline: bool) -> Check:
    settings = caller.app.settings.sessions.embeddings
    if settings.provider == "off":
        return passed("vectors", "off: search goes by words")
    try:
        semantic = caller.app.meaning
        assert semantic is not None
        name = semantic.model.name
        if not (offline and settings.provider == "openai"):
            semantic.model.embed(["Does it answer?"])
        found = caller.space.sessions.upkeep.coverage()
    except KeptError as error:
        return Check("vectors", Health.WARNING, f"search goes by words alone: {error.message}", error.remedy)
    if found.model != name or found.waiting:
        share = "none yet" if found.model != name else f"{found.share:.0%} of the messages have them"
        return Check("vectors", Health.WARNING, f"{name}: {share}", "run: kept sessions embed")
    return passed("vectors", f"{name}, all {found.covered:,} messages")


def _check_engine(caller: Caller) -> Check:
    from kept.context.engines import choose_engine

    name = caller.app.settings.context.engine
    found = choose_engine(name, home=caller.app.home.path)
    if found.warning:
        return Check("context engine", Health.ERROR, found.warning, "`kept context use NAME` chooses another")
    return passed("context engine", name)


def _check_skills(caller: Caller) -> Iterator[Check]:
    library = caller.space.skill_tools.library
    problems = library.doctor()
    for problem in problems:
        yield Check("skills", Health.WARNING, f"{problem.path}: {problem.problem}", problem.fix)
    if not problems:
        yield passed("skills", f"{len(library.skills())} in order")


def _check_providers(caller: Caller) -> Iterator[Check]:
    from kept.operations.providers import report_providers

    if not caller.app.settings.memory.provider:
        yield passed("providers", "built-in memory only")
        return
    try:
        found = report_providers(caller)
    except KeptError as error:
        yield Check("providers", Health.ERROR, error.message, error.remedy)
        return
    for one in found.chosen:
        name, waiting = f"provider {one.name}", f"{one.queue.waiting} writes wait"
        if one.problem is not None:
            yield Check(name, Health.ERROR, one.problem, "`kept providers setup` mends it, `off` goes without")
        elif one.condition != "ok":
            state = f"{one.condition}, {waiting}; last error: {one.health.last_error}"
            yield Check(name, Health.WARNING, state, "`kept providers status` says more")
        else:
            yield passed(name, f"available, {waiting}")


def _check_model(caller: Caller, *, offline: bool) -> Check:
    models = caller.app.models
    try:
        choice = models.choice()
        if choice.is_extractive:
            return passed("model", "none: answers come from memory; `kept model set NAME` connects one")
        if offline:
            return passed("model", f"{choice.name} (not asked)")
        model = models.chat()
        assert model is not None
        from kept.llm.auxiliary import AuxiliaryModel

        AuxiliaryModel(model, task="doctor", sink=ignore).complete("Answer with ok.", "ok?", max_output_tokens=16)
    except KeptError as error:
        return Check("model", Health.ERROR, error.message, error.remedy)
    return passed("model", f"{choice.name} answers")

"""`kept doctor`: check the whole installation by running the real paths."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kept.cli.terminal import JsonFlag, opened, print_json, say
from kept.core.errors import KeptError

if TYPE_CHECKING:
    from kept.app import App
    from kept.curation.doctor import Check


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("doctor")(doctor)


def doctor(
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the model or a provider.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check everything: real writes and searches in a temporary home, reading only in yours."""
    with opened() as kept:
        checks = []
        for check in _checks(kept, offline=offline):
            checks.append(check)
            if not as_json:
                mark = {"ok": "✓", "warning": "!", "error": "✗"}[check.health]
                say(f"{mark} {check.name}: {check.said}" + (f"\n    next: {check.remedy}" if check.remedy else ""))
    ill = [check for check in checks if check.health == "error"]
    if as_json:
        rows = [check.as_json() for check in checks]
        print_json({"ok": not ill, "checks": rows})
    elif not ill:
        say("Everything is in order.")
    if ill:
        raise typer.Exit(1)


def _checks(kept: "App", *, offline: bool) -> "Iterator[Check]":
    from kept.app.health import examine, trial
    from kept.curation.doctor import Check, Health, conversations, installation, pages, writable

    with tempfile.TemporaryDirectory(prefix="kept-doctor-") as folder:
        yield from installation(Path(folder), trial)
    yield writable(kept.home.path, kept.home.memories, kept.home.database)
    yield from (Check("configuration", Health.WARNING, warning, "mend or remove it") for warning in kept.warnings)
    yield from _secrets(kept)
    yield from pages(kept.memory, kept.home.pending / "memory")
    yield from conversations(examine(kept))
    yield from _vectors(kept, offline=offline)
    yield from _engine(kept)
    yield from _skills(kept)
    yield from _providers(kept)
    yield _model(kept, offline=offline)


def _secrets(kept: "App") -> "Iterator[Check]":
    from kept.config.load import is_exposed
    from kept.curation.doctor import Check, Health

    if is_exposed(kept.home.env_file):
        remedy = f"run: chmod 600 {kept.home.env_file}"
        yield Check("secrets", Health.ERROR, f"{kept.home.env_file} can be read by others", remedy)


def _vectors(kept: "App", *, offline: bool) -> "Iterator[Check]":
    from kept.curation.doctor import Check, Health, passed

    settings = kept.settings.sessions.embeddings
    if settings.provider == "off":
        yield passed("vectors", "off: search goes by words")
        return
    try:
        meaning = kept.meaning
        assert meaning is not None
        name = meaning.model.name
        if not (offline and settings.provider == "openai"):
            meaning.model.embed(["Does it answer?"])
        found = kept.sessions.upkeep.coverage()
    except KeptError as error:
        yield Check("vectors", Health.WARNING, f"search goes by words alone: {error.message}", error.remedy)
        return
    if found.model != name or found.waiting:
        said = "none yet" if found.model != name else f"{found.share:.0%} of the messages have them"
        yield Check("vectors", Health.WARNING, f"{name}: {said}", "run: kept sessions embed")
    else:
        yield passed("vectors", f"{name}, all {found.covered:,} messages")


def _engine(kept: "App") -> "Iterator[Check]":
    from kept.context.engines import choose_engine
    from kept.curation.doctor import Check, Health, passed

    found = choose_engine(kept.settings.context.engine, home=kept.home.path)
    if found.warning:
        yield Check("context engine", Health.ERROR, found.warning, "`kept context use NAME` chooses another")
    else:
        yield passed("context engine", kept.settings.context.engine)


def _skills(kept: "App") -> "Iterator[Check]":
    from kept.curation.doctor import Check, Health, passed

    problems = kept.skill_tools.library.doctor()
    for problem in problems:
        yield Check("skills", Health.WARNING, f"{problem.path}: {problem.problem}", problem.fix)
    if not problems:
        yield passed("skills", f"{len(kept.skill_tools.library.skills())} in order")


def _providers(kept: "App") -> "Iterator[Check]":
    from kept.cli.commands.providers_status import status_of
    from kept.curation.doctor import Check, Health, passed

    if not kept.settings.memory.provider:
        yield passed("providers", "built-in memory only")
        return
    try:
        found = status_of(kept)
    except KeptError as error:
        yield Check("providers", Health.ERROR, error.message, error.remedy)
        return
    for one in found.chosen:
        name, waiting = f"provider {one.name}", f"{one.queue.waiting} writes wait"
        if one.problem is not None:
            yield Check(name, Health.ERROR, one.problem, "`kept providers setup` mends it, `off` goes without")
        elif one.condition != "ok":
            said = f"{one.condition}, {waiting}; last error: {one.health.last_error}"
            yield Check(name, Health.WARNING, said, "`kept providers status` says more")
        else:
            yield passed(name, f"available, {waiting}")


def _model(kept: "App", *, offline: bool) -> "Check":
    from kept.curation.doctor import Check, Health, passed

    try:
        choice = kept.models.choice()
        if choice.is_extractive:
            return passed("model", "none: answers come from memory; `kept model set NAME` connects one")
        if offline:
            return passed("model", f"{choice.name} (not asked)")
        model = kept.models.chat()
        assert model is not None
        from kept.llm.auxiliary import AuxiliaryModel

        AuxiliaryModel(model, task="doctor", sink=lambda _event: None).complete(
            "Answer with ok.", "ok?", max_output_tokens=16
        )
    except KeptError as error:
        return Check("model", Health.ERROR, error.message, error.remedy)
    return passed("model", f"{choice.name} answers")

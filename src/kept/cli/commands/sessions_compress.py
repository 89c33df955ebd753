"""`kept sessions compress`: a stored conversation made smaller, on demand."""

from typing import TYPE_CHECKING, Annotated

import typer

from kept.cli.terminal import JsonFlag, fail, note, opened, print_json, say
from kept.core.text import JSON

if TYPE_CHECKING:
    from kept.context.engine import Preview


def add_to(app: typer.Typer) -> None:
    """Add the command to its group."""
    app.command()(compress)


def compress(
    name: Annotated[str, typer.Argument(help="A session's id, the beginning of it, or its title.")],
    focus: Annotated[str, typer.Option("--focus", help="What the summary should give most room to.")] = "",
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would be summarised.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Summarise the older part of a session; every message stays stored and searchable."""
    if preview:
        _preview(name, as_json=as_json)
    else:
        _compress(name, focus, as_json=as_json)


def _preview(name: str, *, as_json: bool) -> None:
    from kept.cli.commands.context import ready_engine, taken_up

    with opened() as kept:
        engine, _ = ready_engine(kept)
        session_id, rows = taken_up(kept, engine, name)
        found = engine.preview(rows)
    answer: dict[str, JSON] = {"session_id": session_id, "messages": len(rows), "covered": []}
    if found is not None:
        answer |= {
            "covered": [int(row.id) for row in found.covered],
            "kept": found.kept,
            "tokens_before": found.tokens_before,
            "tokens_at_most": found.tokens_at_most,
        }
    if as_json:
        print_json(answer)
    else:
        say(previewed(found, messages=len(rows)))


def previewed(found: "Preview | None", *, messages: int) -> str:
    """Return in words what a compaction would do."""
    if found is None:
        return f"{messages} messages; nothing lies between the protected head and tail"
    shown = ", ".join(f"#{row.id}" for row in found.covered[:8]) + (" …" if len(found.covered) > 8 else "")
    return (
        f"{len(found.covered)} of {messages} messages would be summarised: {shown}\n"
        f"about {found.tokens_before:,} tokens would become at most {found.tokens_at_most:,}"
    )


def _compress(name: str, focus: str, *, as_json: bool) -> None:
    import anyio

    from kept.agent.agent import Opening
    from kept.context.outcome import Unchanged

    with opened() as kept:
        agent = kept.agent(Opening(resume=kept.sessions.resolve(name)))
        if agent.parts.engine is None:
            fail(
                "no model is configured, so there is no window to fit", "choose one with `kept model set NAME`", code=2
            )
        try:
            outcome = anyio.run(agent.compress, focus)
        finally:
            if agent.parts.providers is not None:
                agent.parts.providers.shutdown()
        session_id = agent.session.id
    if isinstance(outcome, Unchanged):
        if as_json:
            print_json({"session_id": session_id, "changed": False, "reason": outcome.reason.value})
        note(f"nothing was changed: {outcome.note or outcome.reason.value.replace('_', ' ')}")
        raise typer.Exit(0 if not outcome.note else 1)
    if as_json:
        answer: dict[str, JSON] = {"session_id": session_id, "changed": True}
        print_json({**answer, "tokens_before": outcome.tokens_before, "tokens_after": outcome.tokens_after})
        return
    say(f"{outcome.tokens_before:,} tokens became {outcome.tokens_after:,}; the talk goes on in {session_id}")

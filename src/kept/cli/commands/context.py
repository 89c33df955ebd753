"""`kept context`: which engine keeps conversations inside the window, and how full one is."""

from typing import TYPE_CHECKING, Annotated

import typer

from kept.cli.terminal import JsonFlag, chosen_home, fail, note, opened, print_json, say
from kept.core.text import JSON

if TYPE_CHECKING:
    from kept.app import App
    from kept.context.engine import ContextEngine
    from kept.core.ids import SessionId
    from kept.core.messages import StoredMessage

app = typer.Typer(no_args_is_help=True, help="How long conversations are kept in the window.", rich_markup_mode=None)


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(app, name="context")


@app.command("list")
def list_(as_json: JsonFlag = False) -> None:
    """List the engines that can be used."""
    from kept.context.engines import list_engines

    with opened() as kept:
        used = kept.settings.context.engine
        found = list_engines(kept.home.path)
    if as_json:
        print_json([{"name": one.name, "source": one.source, "in_use": one.name == used} for one in found])
        return
    for one in found:
        say(f"{'*' if one.name == used else ' '} {one.name:14} {one.source:12} {one.description}".rstrip())
    if used not in {one.name for one in found}:
        note(f"{used!r} is configured but does not exist; choose one with `kept context use NAME`")


@app.command()
def use(
    name: Annotated[str, typer.Argument(help="An engine of `kept context list`.")], as_json: JsonFlag = False
) -> None:
    """Choose the engine; conversations use it from their next start on."""
    from kept.config.file import set_value
    from kept.context.engines import choose_engine

    home = chosen_home()
    found = choose_engine(name, home=home.path)
    if found.warning:
        fail(found.warning.partition(";")[0], "`kept context list` shows the engines", code=2)
    set_value(home, "context.engine", name)
    if as_json:
        print_json({"engine": name})
    else:
        say(f"context.engine = {name!r} in {home.config_file}")


@app.command()
def status(
    session: Annotated[str | None, typer.Argument(help="A session's id or title; without it only the limits.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the limits of the window and, for a session, how full it is and whether compaction waits."""
    with opened() as kept:
        engine, model = ready_engine(kept)
        answer: dict[str, JSON] = {"model": model, "enabled": kept.settings.compression.enabled}
        if session is None:
            answer |= engine.get_status()
        else:
            tip, rows = taken_up(kept, engine, session)
            answer |= {**engine.get_status(), "session_id": tip, "messages": len(rows)}
            answer |= {"estimated_tokens": engine.measure(rows).total, "compactions": _compactions(kept, tip)}
    if as_json:
        print_json(answer)
        return
    for key, value in answer.items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        say(f"{key.replace('_', ' '):20} {shown}")


def ready_engine(kept: "App") -> "tuple[ContextEngine, str]":
    """Return the configured engine for the configured model, and that model's name."""
    from kept.llm.tokens import message_tokens

    model = kept.models.chat()
    if model is None:
        fail("no model is configured, so there is no window to fit", "choose one with `kept model set NAME`", code=2)
    return kept.agents.engine(model, kept.sessions, count=message_tokens), model.name


def taken_up(kept: "App", engine: "ContextEngine", name: str) -> "tuple[SessionId, list[StoredMessage]]":
    """Let `engine` take up a session as it stands, and return its newest id and its context."""
    from dataclasses import replace

    from kept.agent.parts import Gauge
    from kept.context.prune import prune_as_marked
    from kept.context.window import Window
    from kept.llm.tokens import Calibration, text_tokens, tool_tokens

    store = kept.sessions
    tip = store.tip(store.resolve(name))
    root = _chain(kept, tip)[-1]
    ratio = store.noted(root, "calibration")
    gauge = Gauge(Calibration(float(ratio) if isinstance(ratio, int | float) else 1.0))
    engine.prepare(replace(engine.setup, count=gauge.count))
    schemas = [tool.schema for tool in (*kept.tools().values(), *engine.tools())]
    overhead = text_tokens(store.system_prompt(tip) or "") + tool_tokens(schemas)
    engine.update_model(Window(engine.limits.context_length, gauge.calibration.apply(overhead)))
    engine.on_session_start(root, state=store.noted(root, "context"))
    return tip, prune_as_marked(store.context(tip), store.noted(tip, "pruned"))


def _compactions(kept: "App", session_id: "SessionId") -> int:
    """Return how often the conversation was compacted, to child sessions and in place."""
    from kept.context.sections import is_summary
    from kept.core.messages import Origin

    rows = (row for one in _chain(kept, session_id) for row in kept.sessions.messages(one))
    return sum(1 for row in rows if row.origin is Origin.SYNTHETIC and is_summary(row.message))


def _chain(kept: "App", session_id: "SessionId") -> "list[SessionId]":
    """Return the session and those it was compacted from, newest first."""
    from kept.core.messages import Link

    chain = [session_id]
    while (session := kept.sessions.session(chain[-1])) is not None:
        parent = session.parent_session_id
        if session.link is not Link.COMPRESSION or parent is None or parent in chain:
            break
        chain.append(parent)
    return chain

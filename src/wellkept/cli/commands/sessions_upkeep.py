"""`kept sessions prune | stats | reindex | optimize | repair | quarantine | embed`: maintenance of the store."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from wellkept import operations
from wellkept.cli.commands.sessions import local_time
from wellkept.cli.terminal import (
    MOST,
    MOST_DAYS,
    JsonFlag,
    YesFlag,
    complete_hint,
    confirm,
    count_noun,
    expect,
    fail,
    note,
    open_caller,
    print_json,
    refuse,
    say,
    show_json,
)
from wellkept.core.errors import Refused

if TYPE_CHECKING:
    from wellkept.sessions.reports import Repaired, Salvaged

app = typer.Typer()

_PARTS = {
    "tables": "bytes; with indexes in a file, own rows on a server",
    "growth": "month, messages, bytes of text",
    "biggest": "session, title, messages, bytes of text",
}


@app.command()
def prune(
    days: Annotated[
        float | None, typer.Option("--days", min=0, max=MOST_DAYS, help="Only sessions idle for more days than this.")
    ] = None,
    source: Annotated[str | None, typer.Option("--source", help="Only from this source.")] = None,
    max_mb: Annotated[
        float | None,
        typer.Option(
            "--max-mb", min=0, max=MOST, help="Prune the oldest sessions until the text is no larger than this."
        ),
    ] = None,
    empty_trash: Annotated[
        bool, typer.Option("--empty-trash", help="Permanently remove everything in the trash.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Move old sessions to the trash and remove expired trash."""
    with open_caller() as caller:
        plan = operations.upkeep.plan_prune(caller, days=days, source=source, max_megabytes=max_mb)
        chosen = plan.sessions.sessions
        if not as_json:
            for session in plan.sessions.sessions:
                active = local_time(session.last_active or session.started)
                messages = f"{session.message_count:>5} {'message ' if session.message_count == 1 else 'messages'}"
                say(f"{session.id}  {active}  {messages}  {session.title or '(no title)'}")
        if dry_run:
            if as_json:
                print_json(plan.as_json())
            else:
                text = count_noun(plan.sessions.text_bytes, "byte")
                note(f"would be moved to the trash: {count_noun(len(chosen), 'session')}, {text} of text")
            return
        if chosen and not confirm(f"move {count_noun(len(chosen), 'session')} to the trash?", yes=yes):
            fail("nothing was pruned")
        report = operations.upkeep.prune(caller, plan, empty_trash=empty_trash)
    show_json(report, as_json=as_json)
    moved = count_noun(len(chosen), "session")
    say(f"{moved} moved to the trash; {report.removed.sessions:,} permanently removed from it")


@app.command()
def stats(as_json: JsonFlag = False) -> None:
    """Show counts, sizes, growth and the largest sessions."""
    with open_caller() as caller:
        measured = operations.upkeep.measure_store(caller)
    found = measured.as_json()
    if as_json:
        print_json(found)
        return
    for name in ("path", "sessions", "in_trash", "messages", "text_bytes", "file_bytes"):
        value = found[name]
        say(f"{name:<12} {value:,}" if isinstance(value, int) else f"{name:<12} {value}")
    say(f"{'vectors':<12} {_describe(measured.vectors)}")
    for name, columns in _PARTS.items():
        say(f"{name} ({columns})")
        part = found[name]
        rows = part.items() if isinstance(part, dict) else part
        assert not isinstance(rows, (str, int, float, type(None)))
        for row in rows:
            values = row.values() if isinstance(row, dict) else row
            assert not isinstance(values, (str, int, float, type(None)))
            cells = (
                f"{one:,}" if isinstance(one, int) else "(no title)" if one is None else str(one) for one in values
            )
            say(f"  {'  '.join(cells)}")


def _describe(vectors: "operations.vectors.Vectors") -> str:
    coverage = vectors.coverage
    if coverage.model is None:
        return "off" if vectors.provider == "off" else "none yet; `kept sessions embed` computes them"
    return f"{coverage.model}, {coverage.covered:,} messages, {coverage.waiting:,} missing"


@app.command()
def reindex(as_json: JsonFlag = False) -> None:
    """Rebuild the search index while others read and write."""
    with open_caller() as caller:
        done = operations.upkeep.rebuild_index(caller)
    show_json(done, as_json=as_json)
    say(f"{count_noun(done.indexed, 'message')} indexed")


@app.command()
def optimize(
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Also return free space to the file system; blocks other writers.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Merge the index and shorten the log, in small steps."""
    with open_caller() as caller:
        done = operations.upkeep.optimize(caller, vacuum=vacuum).as_json()
    if as_json:
        print_json(done)
    else:
        say(f"{done['bytes_before']:,} bytes before, {done['bytes_after']:,} now")


@app.command()
def repair(as_json: JsonFlag = False) -> None:
    """Check the store and repair it: rebuild the index, or copy the readable rows of a damaged file."""
    with open_caller() as caller:
        report = expect(operations.upkeep.repair_sessions(caller), as_json=False, code=2)
    if as_json:
        print_json(report.as_json())
    else:
        _show_repair(report)
    if any(not finding.is_lost for finding in report.left):
        raise typer.Exit(74)


def _show_repair(report: "Repaired") -> None:
    for finding in report.found:
        say(f"found: {finding.what}")
    for done in report.done:
        say(f"done: {done}")
    if report.salvaged is not None:
        _show_salvaged(report.salvaged)
    for finding in report.left:
        say(f"still wrong: {finding.what}")
    if not report.found:
        say("no problems found")


_MOST_NAMES = 20


def _show_salvaged(salvaged: "Salvaged") -> None:
    if salvaged.missing_pages:
        say(f"  the file was truncated: {count_noun(salvaged.missing_pages, 'page')} missing")
    for table in salvaged.rows:
        _show_table(salvaged, table)
    if salvaged.restored:
        say(f"  {count_noun(len(salvaged.restored), 'session')} restored from indexes")
    if salvaged.quarantined:
        lost_owner = count_noun(len(salvaged.quarantined), "session")
        say(complete_hint(f"  {lost_owner} without a known owner: `kept sessions quarantine` lists them"))


def _show_table(salvaged: "Salvaged", table: str) -> None:
    count, pages = salvaged.rows[table], salvaged.pages.get(table, [])
    named = {"damaged": salvaged.damaged.get(table, []), "lost": salvaged.lost.get(table, [])}
    counts = [f"{len(names):,} {word}" for word, names in named.items() if names]
    counts += [f"{count_noun(len(pages), 'page')} unreadable"] if pages else []
    if count or counts:
        say(f"  {table}: {', '.join([f'{count:,} rows copied', *counts])}")
    for word, names in named.items():
        for name in names[:_MOST_NAMES]:
            say(f"    {word}: {name}")
        if len(names) > _MOST_NAMES:
            say(f"    {word}: {len(names) - _MOST_NAMES:,} more; `--json` names all of them")


@app.command()
def quarantine(
    names: Annotated[
        list[str] | None, typer.Argument(help="Ids of sessions in quarantine; all if none is given.")
    ] = None,
    give_to: Annotated[str | None, typer.Option("--give-to", help="Give them to this user.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List sessions that a repair found without an owner, or give them to a user."""
    with open_caller() as caller:
        if give_to is None:
            found: operations.upkeep.Quarantine | Refused = operations.upkeep.list_quarantine(caller)
        else:
            found = operations.upkeep.give_quarantined(caller, give_to, names or ())
    found = expect(found, as_json=as_json, code=2)
    show_json(found, as_json=as_json)
    for session in found.sessions:
        active = local_time(session.last_active or session.started)
        say(f"{session.id}  {active}  {count_noun(session.message_count, 'message')}")
    if found.given_to is not None:
        say(f"given to {found.given_to}: {count_noun(len(found.sessions), 'session')}")
    elif not found.sessions:
        say("no session is in quarantine")


@app.command()
def embed(
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="Set up a local model first: `small` (installs what is missing), a folder, or a name."
        ),
    ] = None,
    anew: Annotated[bool, typer.Option("--anew", help="Recompute all vectors.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Compute missing vectors, newest first; an interrupted run can be continued."""
    if model is not None:
        _set_up(model, yes=yes, as_json=as_json)
    with open_caller() as caller:  # opened after the set-up, which changes the settings
        try:
            done = operations.vectors.embed_messages(caller, anew=anew)
        except KeyboardInterrupt:
            note("stopped: the vectors that were computed are stored; `kept sessions embed` continues")
            raise
    done = expect(done, as_json=as_json, code=2)
    show_json(done, as_json=as_json)
    say(f"vectors of {done.made:,} messages computed; {_describe(done.vectors)}")


def _set_up(model: str, *, yes: bool, as_json: bool) -> None:
    """Install what a model needs, if the person agrees, and choose it."""
    setup = operations.vectors
    missing = setup.find_missing(model)
    with open_caller() as caller:
        if missing.names:
            size = f"about {missing.megabytes} MB"
            if not yes and not sys.stdin.isatty():
                refuse(setup.explain_missing(missing), as_json=as_json, code=2)
            if not confirm(f"install {', '.join(missing.names)} ({size}) into {sys.prefix}?", yes=yes):
                fail("nothing was installed or changed")
            note(f"installing {', '.join(missing.names)} ({size})")
            refused = setup.install(caller, missing)
            if refused is not None:
                refuse(refused, as_json=as_json, code=2)
        chosen = expect(setup.choose_model(caller, model), as_json=as_json, code=2)
    note(f"sessions.embeddings: provider local, model {chosen.model}")


@app.command()
def compress(
    name: Annotated[str, typer.Argument(help="A session's id, the beginning of it, or its title.")],
    focus: Annotated[str, typer.Option("--focus", help="A topic to emphasise in the summary.")] = "",
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would be summarised.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Summarise the older part of a session; every message stays stored and searchable."""
    if preview:
        _preview(name, as_json=as_json)
        return
    with open_caller() as caller:
        done = expect(operations.conversations.compress_session(caller, name, focus=focus), as_json=False, code=2)
    if as_json:
        print_json(done.as_json())
    if done.why is not None:
        note(f"nothing was changed: {done.why}")
        raise typer.Exit(1 if done.failed else 0)
    if not as_json:
        sizes = f"{done.tokens_before:,} tokens became {done.tokens_after:,}"
        say(f"{sizes}; the conversation continues in {done.session_id}")


def _preview(name: str, *, as_json: bool) -> None:
    with open_caller() as caller:
        preview = expect(operations.conversations.preview_session(caller, name), as_json=False, code=2)
    if as_json:
        print_json(preview.as_json())
    else:
        say(preview.describe())

"""`kept sessions prune`, `stats`, `reindex`, `optimize`, `repair`: the store kept small, fast and whole."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from kept.cli.commands.sessions_embed import vectors_json, vectors_line, waiting_vectors
from kept.cli.commands.transcript import local, session_json
from kept.cli.terminal import MOST, MOST_DAYS, JsonFlag, YesFlag, confirmed, fail, note, opened, print_json, say
from kept.cli.text import counted, printable
from kept.core.errors import KeptError, UsageError
from kept.core.text import JSON

if TYPE_CHECKING:
    from kept.app import App
    from kept.sessions.health import Repaired

_MEGABYTE = 1_000_000
_PARTS = {
    "tables": "and indexes, bytes",
    "growth": "month, messages, bytes of text",
    "biggest": "session, title, messages, bytes of text",
}


def add_to(app: typer.Typer) -> None:
    """Add the commands to their group."""
    for command in (prune, stats, reindex, optimize, repair):
        app.command()(command)


def prune(
    days: Annotated[
        float | None, typer.Option("--days", min=0, max=MOST_DAYS, help="Idle for more than so many days.")
    ] = None,
    source: Annotated[str | None, typer.Option("--source", help="Only from this source.")] = None,
    max_mb: Annotated[
        float | None, typer.Option("--max-mb", min=0, max=MOST, help="The oldest, until the text fits.")
    ] = None,
    empty_trash: Annotated[bool, typer.Option("--empty-trash", help="Remove what is in the trash for good.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Throw old sessions away (they can be restored), and remove what was in the trash for too long."""
    from kept.sessions.keeping import Pruned

    if math.isnan(days or 0.0) or math.isnan(max_mb or 0.0):
        raise UsageError("nan is no number to go by", "write it like --days 90 or --max-mb 500")
    with opened() as kept:
        keeping = kept.sessions.keeping
        chosen = days if days is not None or max_mb is not None or source else kept.settings.sessions.retention_days
        asked = chosen is not None or max_mb is not None or source is not None
        most = None if max_mb is None else int(max_mb * _MEGABYTE)
        plan = keeping.prunable(days=chosen, source=source, most_bytes=most) if asked else Pruned()
        if not as_json:
            for session in plan.sessions:
                active = local(session.last_active or session.started)
                messages = f"{session.message_count:>5} {'message ' if session.message_count == 1 else 'messages'}"
                say(f"{printable(session.id)}  {active}  {messages}  {printable(session.title or '(no title)')}")
        answer: dict[str, JSON] = {
            "sessions": [session_json(session) for session in plan.sessions],
            "text_bytes": plan.text_bytes,
            "dry_run": dry_run,
        }
        if not dry_run:
            question = f"move {counted(len(plan.sessions), 'session')} to the trash?"
            if plan.sessions and not confirmed(question, yes=yes):
                fail("nothing was pruned")
            answer["deleted"] = list(keeping.delete([session.id for session in plan.sessions]))
            removed = keeping.sweep(days=0 if empty_trash else None)
            answer["removed"] = {"sessions": removed.sessions, "messages": removed.messages, "blobs": removed.blobs}
        if as_json:
            print_json(answer)
            return
        if dry_run:
            note(f"would go: {counted(len(plan.sessions), 'session')}, {counted(plan.text_bytes, 'byte')} of text")
        else:
            moved = counted(len(plan.sessions), "session")
            say(f"{moved} moved to the trash; {removed.sessions:,} removed from it for good")


def stats(as_json: JsonFlag = False) -> None:
    """Show counts, sizes by table and index, growth, and the biggest sessions."""
    with opened() as kept:
        found = kept.sessions.keeping.stats()
        found["vectors"] = vectors_json(kept)
    if as_json:
        print_json(found)
        return
    for name in ("path", "sessions", "in_trash", "messages", "text_bytes", "file_bytes"):
        value = found[name]
        say(f"{name:<12} {value:,}" if isinstance(value, int) else f"{name:<12} {value}")
    say(f"{'vectors':<12} {vectors_line(found['vectors'])}")
    for name, columns in _PARTS.items():
        say(f"{name} ({columns})")
        part = found[name]
        rows = part.items() if isinstance(part, dict) else part
        assert not isinstance(rows, (str, int, float, type(None)))
        for row in rows:
            values = row.values() if isinstance(row, dict) else row
            assert not isinstance(values, (str, int, float, type(None)))
            say("  " + "  ".join(_cell(one) for one in values))


def _cell(value: JSON) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return "(no title)" if value is None else printable(str(value))


def reindex(as_json: JsonFlag = False) -> None:
    """Build the search index anew from the stored messages; others may read and write meanwhile."""
    with opened() as kept:
        count = kept.sessions.keeping.reindex()
    if as_json:
        print_json({"indexed": count})
    else:
        say(f"{counted(count, 'message')} indexed")


def optimize(
    vacuum: Annotated[bool, typer.Option("--vacuum", help="Also give free pages back; others wait meanwhile.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Merge the index and shorten the log, in small steps."""
    with opened() as kept:
        done = kept.sessions.keeping.optimize(vacuum=vacuum)
    if as_json:
        print_json(done)
    else:
        say(f"{done['bytes_before']:,} bytes before, {done['bytes_after']:,} now")


def repair(as_json: JsonFlag = False) -> None:
    """Check the store and mend it: the index anew, or a damaged file put aside and its rows brought over."""
    with opened() as kept:
        from kept.app.health import repaired

        report = repaired(kept)
        if report is None:
            fail("there is no session store to repair", "it is made when the first session is stored", code=2)
        if report.done and not report.left:
            report.done += _vectors_made_anew(kept)
    if as_json:
        print_json(report.as_json())
    else:
        _show_repair(report)
    if report.left:
        raise typer.Exit(74)


def _vectors_made_anew(kept: "App") -> list[str]:
    """Make the vectors that a repair had to leave behind; a model that does not answer leaves them for later."""
    waiting = waiting_vectors(kept)
    if not waiting or kept.meaning is None:
        return []
    try:
        return [f"{counted(kept.meaning.embed_all(), 'message')} got vectors"]
    except KeptError as error:
        note(f"{counted(waiting, 'message')} without vectors: {error.message}; run: kept sessions embed")
        return []


def _show_repair(report: "Repaired") -> None:
    for finding in report.found:
        say(f"found: {finding.what}")
    for done in report.done:
        say(f"done: {done}")
    if report.salvaged is not None:
        for table, count in report.salvaged.rows.items():
            lost = report.salvaged.lost.get(table, 0)
            say(f"  {table}: {count:,} rows brought over{f', {lost:,} could not be read' if lost else ''}")
    for finding in report.left:
        say(f"still wrong: {finding.what}")
    if not report.found:
        say("nothing is wrong")

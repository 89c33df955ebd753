"""`kept forget`: remove a conversation, a user or words for good, everywhere, down to the bytes."""

from typing import Annotated

import typer

from kept.app import App
from kept.cli.terminal import JsonFlag, YesFlag, confirmed, fail, note, opened, print_json, say
from kept.cli.text import counted
from kept.core.ids import SessionId, UserId
from kept.core.text import JSON, dumps
from kept.curation.forget import Forgetting, FullForgetPlan, FullForgetReport
from kept.sessions.forget import ForgetPlan
from kept.sessions.ports import Sessions
from kept.storage.files import explain_errors, make_folder, write_atomically


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("forget")(forget)


def forget(
    session: Annotated[str | None, typer.Option("--session", help="A session, with every compaction of it.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="Messages that contain these very words.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Everything of one user.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what would go, ask, remove it, probe that nothing finds it, and leave a report without the content."""
    if sum(one is not None for one in (session, query, user)) != 1:
        fail("say what to forget", "give one of --session ID, --query WORDS, --user NAME", code=2)
    with opened() as kept:
        forgetting = _forgetting(kept, user)
        plan = forgetting.plan(_plan(forgetting.sessions, session=session, query=query))
        copies = _copies(kept)
        if plan.is_empty:
            fail("there is nothing to forget", "look with `kept sessions list` or `kept sessions search`", code=2)
        if not as_json or dry_run:
            _show(plan, copies, as_json=as_json)
        if dry_run:
            return
        if not confirmed("forget this for good?", yes=yes):
            fail("nothing was forgotten")
        report = forgetting.carry_out(plan)
        typed = _forget_typed(kept)
        written: dict[str, JSON] = {**report.as_json(), "input_history": typed, "copies_not_touched": list(copies)}
        _keep_report(kept, written)
    _show_report(report, written, as_json=as_json)


def _forgetting(kept: App, user: str | None) -> Forgetting:
    from kept.providers.outbox import Outbox

    outbox = Outbox(kept.database, clock=kept.clock)
    sessions = kept.sessions if user is None else kept.sessions.for_user(UserId(user))
    return Forgetting(sessions, kept.memory, kept.approvals, outbox, kept.home.memories)


def _forget_typed(kept: App) -> bool:
    """Remove what was typed in chats: the arrow keys would show it again; return whether there was any."""
    history = kept.home.chat_history
    there = history.exists()
    with explain_errors("remove", history):
        history.unlink(missing_ok=True)
    return there


def _show_report(report: FullForgetReport, written: dict[str, JSON], *, as_json: bool) -> None:
    talk = report.sessions
    if as_json:
        print_json(written)
    else:
        say(
            f"forgotten: {counted(talk.sessions, 'session')}, {counted(talk.messages, 'message')}, "
            f"{counted(talk.blobs, 'blob')}, {counted(talk.summaries, 'summary', 'summaries')}, "
            f"{counted(talk.cited_elsewhere, 'citation')}, "
            f"{counted(report.memory_entries, 'memory entry', 'memory entries')}, "
            f"{counted(report.ledger_rows, 'ledger text')}, {counted(report.queued_writes, 'queued write')}"
        )
    if talk.still_found or report.entries_left:
        left = talk.still_found + report.entries_left
        fail(f"{left} messages or entries are still there", "run `kept doctor`, then forget again", code=74)
    if not talk.bytes_gone:
        fail(
            "the content is gone, but a reader keeps its last bytes in the log",
            "they go when kept is next opened with no other reader",
            code=75,
        )


def _plan(sessions: Sessions, *, session: str | None, query: str | None) -> ForgetPlan:
    forgetting = sessions.forgetting
    if session is not None:
        exact = forgetting.plan_sessions([SessionId(session)])  # also in the trash
        return exact if exact.sessions else forgetting.plan_sessions([sessions.resolve(session)])
    return forgetting.plan_query(query) if query is not None else forgetting.plan_everything()


def _copies(kept: App) -> list[str]:
    """Return copies of the database in the home: they are named, never touched."""
    name = kept.home.database.name
    return sorted(
        path.name
        for pattern in (f"{name}.before-*", f"{name}.damaged-*", "backups/*")
        for path in kept.home.path.glob(pattern)
    )


def _show(plan: FullForgetPlan, copies: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({**plan.as_json(), "copies_not_touched": list(copies), "dry_run": True})
        return
    for name, value in plan.as_json().items():
        shown = f"{len(value)}  {' '.join(map(str, value))}".rstrip() if isinstance(value, list) else value
        say(f"{name.replace('_', ' '):<18} {shown}")
    if copies:
        note(f"not touched: {', '.join(copies)}")


def _keep_report(kept: App, written: dict[str, JSON]) -> None:
    folder = kept.home.path / "forgotten"
    make_folder(folder)
    stamp = f"{kept.clock.now():%Y%m%d-%H%M%S-%f}"
    write_atomically(folder / f"{stamp}.json", (dumps(written, indent=2) + "\n").encode())

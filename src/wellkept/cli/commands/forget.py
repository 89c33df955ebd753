"""`kept forget`: show what would be removed permanently, ask, remove it, and report."""

from typing import TYPE_CHECKING, Annotated

import typer

from wellkept import forgetting
from wellkept.app import Caller
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    confirm,
    count_noun,
    expect,
    fail,
    note,
    open_caller,
    print_json,
    refuse,
    say,
)
from wellkept.core.errors import Reason, Refused

if TYPE_CHECKING:
    from wellkept.forgetting.forget import ForgetOutcome, ForgetProposal


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("forget")(forget)


def forget(
    session: Annotated[str | None, typer.Option("--session", help="A session, with all its compactions.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="Everything that contains exactly these words.")] = None,
    source: Annotated[str | None, typer.Option("--source", help="All sessions from one client.")] = None,
    project: Annotated[str | None, typer.Option("--project", help="With --source: only in this project.")] = None,
    origin: Annotated[
        str | None, typer.Option("--origin", help="Everything that came from here: web:HOST, tool:NAME, import:NAME, …")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Everything of one user.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what would be removed, ask, remove it, verify, and write a report without the content.

    --query also covers pages, skills and their versions, facts of providers, logs and copies of the database.
    """
    if sum(option is not None for option in (session, query, source, origin, user)) != 1:
        next_step = "give one of --session ID, --query WORDS, --source CLIENT, --origin SOURCE, --user NAME"
        refuse(Refused(Reason.INVALID, "nothing to forget was named", next_step), as_json=as_json, code=2)
    if project is not None and source is None:
        refuse(Refused(Reason.INVALID, "--project needs --source", "name the client too"), as_json=as_json, code=2)
    with open_caller(user) as caller:
        if session is not None:
            proposal = forgetting.forget.plan_forget_session(caller, session)
        elif query is not None:
            proposal = forgetting.forget.plan_forget_words(caller, query)
        elif source is not None:
            proposal = forgetting.forget.plan_forget_source(caller, source, project=project)
        elif origin is not None:
            proposal = forgetting.forget.plan_forget_origin(caller, origin)
        else:
            proposal = forgetting.forget.plan_forget_user(caller)
        ask_and_forget(caller, proposal, dry_run=dry_run, yes=yes, as_json=as_json)


def ask_and_forget(
    caller: Caller, proposal: "ForgetProposal | Refused", *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Show a proposal, ask, carry it out and show the report."""
    proposal = expect(proposal, as_json=as_json, code=2)
    if not as_json or dry_run:
        _show_proposal(proposal, as_json=as_json)
    if dry_run:
        return
    if not confirm("permanently forget this?", yes=yes):
        fail("nothing was forgotten")
    _show_outcome(forgetting.forget.forget(caller, proposal), as_json=as_json)


def _show_proposal(proposal: "ForgetProposal", *, as_json: bool) -> None:
    if as_json:
        print_json(proposal.as_json())
        return
    plan = proposal.plan
    for name, value in plan.as_json().items():
        if name in {"skills", "files", "providers"}:
            continue
        shown = f"{len(value)}  {' '.join(map(str, value))}".rstrip() if isinstance(value, list) else value
        say(f"{name.replace('_', ' '):<18} {shown}")
    for skill in plan.skills:
        lines, versions = count_noun(skill.lines, "line"), count_noun(skill.versions, "recorded file")
        say(f"skill {skill.name}: {lines} in {count_noun(len(skill.files), 'file')}, {versions}")
    for file in plan.files:
        what = "not touched" if file.place is None else file.place.on_forget.value
        say(f"file {file.name} ({file.size:,} bytes): {'not touched' if what == 'name' else what}")
    for answer in plan.providers:
        known = {True: "contains it", False: "does not contain it", None: answer.outcome}[answer.holds]
        say(f"provider {answer.provider}: {known}")
    if proposal.copies_not_touched:
        note(f"not touched: {', '.join(proposal.copies_not_touched)}")


def _show_outcome(outcome: "ForgetOutcome", *, as_json: bool) -> None:
    if as_json:
        print_json(outcome.as_json())
    else:
        _show_report(outcome)
    if outcome.left:
        next_step = "run `kept doctor`, then forget again"
        fail(f"{outcome.left} messages, entries or rows are still there", next_step, code=74)
    if not outcome.bytes_gone:
        fail(
            "the content is removed, but its last bytes are in the log as long as another process reads it",
            "they are removed when kept is next opened with no other reader",
            code=75,
        )
    if not outcome.is_complete:
        fail("some places still contain the content, or could not be checked", "see the list above", code=1)


def _show_report(outcome: "ForgetOutcome") -> None:
    report, talk = outcome.report, outcome.report.sessions
    say(
        f"forgotten: {count_noun(talk.sessions, 'session')}, {count_noun(talk.messages, 'message')}, "
        f"{count_noun(talk.blobs, 'blob')}, {count_noun(talk.summaries, 'summary', 'summaries')}, "
        f"{count_noun(talk.cited_elsewhere, 'citation')}, "
        f"{count_noun(report.memory_entries, 'memory entry', 'memory entries')}, "
        f"{count_noun(report.ledger_rows, 'ledger text')}, {count_noun(report.queued_writes, 'queued write')}, "
        f"{count_noun(len(report.skills), 'skill')}, {count_noun(len(report.files), 'other file')}"
    )
    for answer in report.providers:
        removed = "" if answer.removed is None else f" ({count_noun(answer.removed, 'item')})"
        say(f"provider {answer.provider}: {answer.outcome}{removed}")
    for file in report.files_left:
        say(f"still in {file.name}: {file.problem or file.remedy}")
    for copy in outcome.copies_not_touched:
        say(f"not touched: {copy}")
    if outcome.is_complete:
        how = "rows" if report.databases_by_row else "rows and bytes"
        say(f"verified: {count_noun(report.files_searched, 'file')} of the home searched, databases by their {how}")
    if report.on_server:
        note(
            "not verified: PostgreSQL keeps the bytes of deleted rows in its files and its log; "
            "`kept storage rewrite` writes the tables anew"
        )

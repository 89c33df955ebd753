"""`kept forget`: remove a conversation, a user or words for good, everywhere, down to the bytes."""

from typing import Annotated

import typer

from kept.app import Caller
from kept.cli.terminal import JsonFlag, YesFlag, confirm, counted, fail, note, open_caller, print_json, refuse, say
from kept.core.errors import Refused
from kept.operations.forget import (
    ForgetOutcome,
    ForgetProposal,
    plan_forget_session,
    plan_forget_user,
    plan_forget_words,
)
from kept.operations.forget import forget as carry_out


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("forget")(forget)


def forget(
    session: Annotated[str | None, typer.Option("--session", help="A session, with every compaction of it.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="Messages that contain these very words.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Everything of one user.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what would go, ask, remove it, probe that nothing finds it, and leave a report without the content."""
    if sum(one is not None for one in (session, query, user)) != 1:
        fail("say what to forget", "give one of --session ID, --query WORDS, --user NAME", code=2)
    with open_caller(user) as caller:
        if session is not None:
            proposal = plan_forget_session(caller, session)
        elif query is not None:
            proposal = plan_forget_words(caller, query)
        else:
            proposal = plan_forget_user(caller)
        ask_and_forget(caller, proposal, dry_run=dry_run, yes=yes, as_json=as_json)


def ask_and_forget(
    caller: Caller, proposal: ForgetProposal | Refused, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Show a proposal, ask, carry it out and show the report."""
    if isinstance(proposal, Refused):
        refuse(proposal, as_json=False, code=2)
    if not as_json or dry_run:
        _show_proposal(proposal, as_json=as_json)
    if dry_run:
        return
    if not confirm("forget this for good?", yes=yes):
        fail("nothing was forgotten")
    _show_outcome(carry_out(caller, proposal), as_json=as_json)


def _show_proposal(proposal: ForgetProposal, *, as_json: bool) -> None:
    if as_json:
        print_json(proposal.as_json())
        return
    for name, value in proposal.plan.as_json().items():
        shown = f"{len(value)}  {' '.join(map(str, value))}".rstrip() if isinstance(value, list) else value
        say(f"{name.replace('_', ' '):<18} {shown}")
    if proposal.copies_not_touched:
        note(f"not touched: {', '.join(proposal.copies_not_touched)}")


def _show_outcome(outcome: ForgetOutcome, *, as_json: bool) -> None:
    if as_json:
        print_json(outcome.as_json())
    else:
        report, talk = outcome.report, outcome.report.sessions
        say(
            f"forgotten: {counted(talk.sessions, 'session')}, {counted(talk.messages, 'message')}, "
            f"{counted(talk.blobs, 'blob')}, {counted(talk.summaries, 'summary', 'summaries')}, "
            f"{counted(talk.cited_elsewhere, 'citation')}, "
            f"{counted(report.memory_entries, 'memory entry', 'memory entries')}, "
            f"{counted(report.ledger_rows, 'ledger text')}, {counted(report.queued_writes, 'queued write')}"
        )
    if outcome.left:
        fail(f"{outcome.left} messages or entries are still there", "run `kept doctor`, then forget again", code=74)
    if not outcome.bytes_gone:
        fail(
            "the content is gone, but another reader still holds its last bytes in the log",
            "they are removed when kept is next opened with no other reader",
            code=75,
        )

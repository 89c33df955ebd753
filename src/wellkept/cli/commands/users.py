"""`kept user`, `kept export` and `kept forget`: the people who share a home, and their data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wellkept import forgetting, operations
from wellkept.app import Caller
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    confirm,
    count_noun,
    fail,
    note,
    open_caller,
    print_json,
    print_json_line,
    refuse,
    say,
    write_lines,
)
from wellkept.core.errors import Reason, Refused
from wellkept.core.ids import OWNER
from wellkept.core.text import JSON, dumps

if TYPE_CHECKING:
    from wellkept.forgetting.forget import ForgetOutcome, ForgetProposal
    from wellkept.operations.users import UserExport


def register(program: typer.Typer) -> None:
    """Add the commands of this module."""
    program.add_typer(user_app, name="user")
    program.command("export")(export)
    program.command("forget")(forget)


user_app = typer.Typer(no_args_is_help=True, help="The people who share this home.", rich_markup_mode=None)
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's id.")]


@user_app.command("list")
def user_list(as_json: JsonFlag = False) -> None:
    """List the users and the number of their sessions."""
    with open_caller() as caller:
        found = operations.users.list_users(caller)
    if as_json:
        print_json([user.as_json() for user in found])
        return
    for user in found:
        say(f"{user.id:<24} {count_noun(user.sessions, 'session')}")


@user_app.command("create")
def user_create(user: UserArgument, as_json: JsonFlag = False) -> None:
    """Create a user with separate pages, skills and conversations."""
    with open_caller() as caller:
        made = operations.users.create_user(caller, user)
    if isinstance(made, Refused):
        refuse(made, as_json=as_json)
    if as_json:
        print_json({"success": True, **made.as_json()})
    else:
        say(f"created {made.id}; use it with: kept --as {made.id} COMMAND")


@user_app.command("export")
def user_export(
    user: UserArgument,
    output: Annotated[Path | None, typer.Option("--output", "--out", "-o", help="Write to this file.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write everything of one user as JSONL; same as `kept export --user`."""
    with open_caller(user) as caller:
        write_export(caller, operations.users.export_user(caller), output, as_json=as_json)


@user_app.command("forget")
def user_forget(
    user: UserArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Permanently remove everything of one user; same as `kept forget --user`."""
    with open_caller(user) as caller:
        ask_and_forget(caller, forgetting.forget.plan_forget_user(caller), dry_run=dry_run, yes=yes, as_json=as_json)


_KINDS = {
    "session": "sessions",
    "message": "messages",
    "page": "pages",
    "edit": "edits",
    "pending": "pending writes",
    "skill": "skills",
}
_GRAPH_KINDS = {"entity": "entities", "relation": "relations"}


def export(
    user: Annotated[str, typer.Option("--user", help="Whose; without it the owner of this home.")] = OWNER,
    output: Annotated[Path | None, typer.Option("--output", "--out", "-o", help="Write to this file.")] = None,
    form: Annotated[
        str, typer.Option("--format", help="jsonl for everything; mcp-memory for the pages as a graph.")
    ] = "jsonl",
    as_json: JsonFlag = False,
) -> None:
    """Write everything of one user as JSONL: conversations, pages, edits, pending writes, and skills.

    Lines other than messages have a type. `kept sessions import` imports the conversations again.
    With --json, print one object; with --json and --output, print the counts.
    With --format mcp-memory: the entries of the pages as entities and relations, for the MCP memory server.
    """
    if form not in {"jsonl", "mcp-memory"}:
        unknown = Refused(Reason.INVALID, f"there is no format {form!r}", "use one of: jsonl, mcp-memory")
        refuse(unknown, as_json=as_json, code=2)
    with open_caller(user if user != OWNER else None) as caller:
        export_one = operations.users.export_user if form == "jsonl" else operations.users.export_graph
        write_export(caller, export_one(caller), output, as_json=as_json)


def write_export(caller: Caller, found: "UserExport", output: Path | None, *, as_json: bool) -> None:
    """Write the lines to a file or print them."""
    if output is not None:
        write_lines(output, (dumps(line) for line in found.lines), caller.app.home.root)
        _show_counts(found, output, as_json=as_json)
    elif as_json:
        print_json({"user": found.user, "lines": list(found.lines)})
    else:
        for line in found.lines:
            print_json_line(line)


def _show_counts(found: "UserExport", output: Path, *, as_json: bool) -> None:
    counts = found.counts
    if as_json:
        if counts["entity"]:
            numbers: dict[str, JSON] = {words: counts[kind] for kind, words in _GRAPH_KINDS.items()}
        else:
            numbers = {f"{kind}s" if kind != "pending" else kind: counts[kind] for kind in _KINDS}
        print_json({"user": found.user, "file": str(output), **numbers})
        return
    kinds = {**_KINDS, **_GRAPH_KINDS}
    told = ", ".join(f"{counts[kind]:,} {words}" for kind, words in kinds.items() if counts[kind])
    note(f"{told} in {output}")


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
    if sum(one is not None for one in (session, query, source, origin, user)) != 1:
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
    if isinstance(proposal, Refused):
        refuse(proposal, as_json=as_json, code=2)
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

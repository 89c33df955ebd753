"""`kept memory`: show and edit the pages, approve pending writes, and the history of both."""

import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from msgspec import structs

from wellkept import operations
from wellkept.app import Caller
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    ask,
    complete_hint,
    confirm,
    count_noun,
    expect,
    fail,
    join_groups,
    moment,
    note,
    on_one_line,
    open_caller,
    print_json,
    read_input,
    refuse,
    say,
    say_exactly,
    show_json,
)
from wellkept.config.settings import nearest
from wellkept.core.clock import from_epoch
from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.core.ids import SourceName
from wellkept.core.regular_files import load_text
from wellkept.core.text import JSON
from wellkept.forgetting import requests as forget_requests
from wellkept.memory.page import ENTRY_DELIMITER, Add, Edit, EditRecord, Remove, Replace, Target, preview
from wellkept.operations import memory

if TYPE_CHECKING:
    from wellkept.memory.approval import Rejected
    from wellkept.memory.history import EntryMetadata, PageView
    from wellkept.memory.rewrite import Proposal
    from wellkept.memory.store import Outcome

app = typer.Typer(no_args_is_help=True, help="The pages of curated memory.", rich_markup_mode=None)


def _complete_rules(incomplete: str) -> list[str]:
    """Return the scanner's rules that start with `incomplete`."""
    from wellkept.security.scan import rule_ids

    return sorted(rule for rule in rule_ids() if rule.startswith(incomplete))


TargetOption = Annotated[Target | None, typer.Option("--target", "-t", help="Which page: memory, user or project.")]
T = TypeVar("T")
_SAMPLES = 5
WhichArgument = Annotated[str, typer.Argument(metavar="ID", help="The id, or `all`.")]
AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow", help="Allow a match of this scanner rule (people only).", autocompletion=_complete_rules),
]

_REMEDIES = {
    Reason.BLOCKED: "state the bare fact; or, for a false alarm, add {allow}",
    Reason.EMPTY: "write the text in quotes",
    Reason.NO_MATCH: "`kept memory show --target {page}` prints the entries: quote a part of one exactly",
}


def register(program: typer.Typer) -> None:
    """Add the group, with the commands of the other modules."""
    from wellkept.cli.commands import providers

    join_groups(app, app, app, providers.shared)
    program.add_typer(app, name="memory")


@app.command()
def show(
    target: TargetOption = None,
    long: Annotated[bool, typer.Option("--long", "-l", help="With dates and origins.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Also show the text of blocked entries.")] = False,
    archive: Annotated[bool, typer.Option("--archive", help="Also what left the pages to make room.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the pages as they are on disk now."""
    with open_caller() as caller:
        shown = memory.show_pages(caller, target, with_metadata=long)
    if as_json:
        print_json(shown.as_json())
    else:
        for view in shown.views:
            show_page(view, shown.masked.get(view.target, ()), raw=raw)
            _show_archive(view.archived if raw else shown.archived.get(view.target, ()), is_listed=archive)
        if shown.waiting:
            note(f"{shown.waiting} waiting for approval: `kept memory pending`")
    unreadable = [view.error for view in shown.views if view.error is not None]
    for other in unreadable[:-1]:
        note(f"kept: {other.message}\n  next: {other.remedy}")
    if unreadable:
        raise unreadable[-1]


def show_page(view: "PageView", masked: Sequence[str], *, raw: bool = False) -> None:
    """Print one page; `masked` are its entries with blocked ones hidden. Prints nothing for an unreadable page."""
    if view.page is None:
        return
    say(f"{view.target.value} [{view.page.usage}]{'' if view.is_enabled else '  (disabled)'}")
    for entry, text in zip(view.page.entries, view.page.entries if raw else masked, strict=True):
        say(f"  § {text}".replace("\n", "\n    "))
        if view.metadata is not None:
            say(f"      {_describe(view.metadata.get(entry))}")


def _show_archive(texts: Sequence[str], *, is_listed: bool) -> None:
    """Print what left a page to make room, or only how much it is."""
    if is_listed:
        for text in texts:
            say(f"  archived § {text}".replace("\n", "\n    "))
    elif texts:
        note(f"  and {len(texts):,} in the archive: `kept memory show --archive`")


def _describe(story: "EntryMetadata | None") -> str:
    if story is None:
        return "not in the ledger"
    created, changed = (f"{from_epoch(time).astimezone():%Y-%m-%d %H:%M}" for time in (story.created, story.changed))
    session = f" in {story.session_id}" if story.session_id else ""
    state = "a person confirmed it" if story.is_verified else "unverified: `kept memory confirm` or `remove` it"
    read = f"{_tell_source(story.source)} ({state})" if story.source is not None else ""
    pinned = ", pinned" if story.is_pinned else ""
    return f"created {created}, changed {changed} by {story.origin}{session}{read}{pinned}"


def _tell_source(source: SourceName | None) -> str:
    if source is None:
        return ""
    from wellkept.core.provenance import describe

    return f", after reading {describe(source)}"


@app.command()
def add(
    text: Annotated[
        list[str], typer.Argument(help="The fact to save, in quotes; - reads it from standard input.", metavar="TEXT")
    ],
    target: TargetOption = None,
    allow: AllowOption = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Add an entry, to the page `memory` by default."""
    if len(text) > 1:
        raise UsageError(
            "the text is not in quotes",
            f"put it in quotes: {shlex.join(['kept', 'memory', 'add', ' '.join(text)])}",
        )
    content = read_input() if text == ["-"] else text[0]
    _apply(Add(content), target, allow=allow, yes=yes, as_json=as_json)


@app.command()
def replace(
    old_text: Annotated[str, typer.Argument(help="A part of the entry to replace.")],
    text: Annotated[str, typer.Argument(help="The new text.")],
    target: TargetOption = None,
    allow: AllowOption = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Replace one entry."""
    _apply(Replace(old_text, text), target, allow=allow, yes=yes, as_json=as_json)


@app.command()
def remove(
    old_text: Annotated[str, typer.Argument(help="A part of the entry to remove.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove one entry; its text stays in the archive."""
    _apply(Remove(old_text), target, allow=None, yes=False, as_json=as_json)


@app.command()
def pin(
    which: Annotated[str, typer.Argument(metavar="TEXT|NUMBER", help="A part of the entry, or its place on the page.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Keep an entry on its page, and so in the prompt, whatever its age."""
    _pin(which, target, is_pinned=True, as_json=as_json)


@app.command()
def unpin(
    which: Annotated[str, typer.Argument(metavar="TEXT|NUMBER", help="A part of the entry, or its place on the page.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Let an entry make room again when its page is full."""
    _pin(which, target, is_pinned=False, as_json=as_json)


def _pin(which: str, target: Target | None, *, is_pinned: bool, as_json: bool) -> None:
    page = target or Target.MEMORY
    with open_caller() as caller:
        outcome = memory.pin_entry(caller, which, page, is_pinned=is_pinned)
        show_outcome(_with_options(outcome, page) if isinstance(outcome, Refused) else outcome, as_json=as_json)


def _apply(edit: Edit, target: Target | None, *, allow: list[str] | None, yes: bool, as_json: bool) -> None:
    from wellkept.memory.store import rules_in

    page = target or Target.MEMORY
    _check_rules(allow or [])
    with open_caller() as caller:
        allowed = frozenset(allow or ())
        is_asked = isinstance(edit, Add) and not yes and not as_json and sys.stdin.isatty()
        if is_asked and isinstance(edit, Add):
            edit = _ask_about_contradicted(caller, edit, page)
        outcome = ask_if_held(
            memory.edit_entry(caller, edit, page, allow=allowed),
            lambda held: memory.edit_entry(caller, edit, page, allow=allowed | rules_in(held)),
            yes=yes,
        )
        show_outcome(_with_options(outcome, page) if isinstance(outcome, Refused) else outcome, as_json=as_json)
    if not isinstance(outcome, Refused) and not is_asked and isinstance(edit, Add):
        for old in outcome.contradicts:
            note(f"kept: this entry may say another value of the same thing: {old}")
            note(f"  next: {shlex.join(['kept', 'memory', 'replace', '--target', page, old, edit.text.strip()])}")


def _ask_about_contradicted(caller: Caller, edit: Add, page: Target) -> Edit:
    """Ask what becomes of the first entry that may say another value of the same thing; return the edit."""
    for old in memory.find_contradicted(caller, edit.text, page)[:1]:
        note(f"The page says already: {old}")
        while True:
            match ask("replace it, keep both, or cancel? (r/k/c)", default="k").strip().casefold()[:1]:
                case "r":
                    return Replace(old, edit.text)
                case "k":
                    return edit
                case "c":
                    note("Nothing was changed.")
                    raise typer.Exit(1)
    return edit


def _with_options(refused: Refused, page: Target) -> Refused:
    """Return the refusal with a remedy in terms of the command line."""
    if refused.reason not in _REMEDIES:
        return refused
    from wellkept.memory.store import rules_in

    allow = " ".join(f"--allow {rule}" for rule in sorted(rules_in(refused)))
    return structs.replace(refused, remedy=_REMEDIES[refused.reason].format(page=page, allow=allow))


def _check_rules(names: list[str]) -> None:
    if not names:
        return
    from wellkept.security.scan import rule_ids

    for name in names:
        if name not in (known := rule_ids()):
            raise UsageError(f"there is no scanner rule {name!r}{nearest(name, known)}", "the refusal names the rules")


@app.command()
def snapshot(target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Print the blocks exactly as a new session would get them."""
    with open_caller() as caller:
        snapshot = memory.render_snapshot(caller, target)
    show_json(snapshot, as_json=as_json)
    blocks = [block for block in snapshot.blocks.values() if block is not None]
    if blocks:
        say_exactly("\n\n".join(blocks))


def ask_if_held(
    outcome: "Outcome | Refused", keep: "Callable[[Refused], Outcome | Refused]", *, yes: bool
) -> "Outcome | Refused":
    """Ask the person at the terminal about a held edit, because they would approve it anyway."""
    if not isinstance(outcome, Refused) or outcome.reason is not Reason.HELD:
        return outcome
    if not yes and not sys.stdin.isatty():
        return structs.replace(outcome, remedy="give --yes to keep it anyway")
    note(outcome.error)
    return keep(outcome) if confirm("Keep it anyway?", yes=yes) else outcome


def show_outcome(outcome: "Outcome | Refused", *, as_json: bool, undo_hint: str = "undo: kept memory undo") -> None:
    """Print an accepted edit with the command that undoes it, or exit with its refusal."""
    if isinstance(outcome, Refused):
        matches = outcome.detail.get("matches")
        for match in matches if isinstance(matches, list) else []:
            note(f"  · {match!s}")
        refuse(outcome, as_json=as_json)
    if as_json:
        print_json(outcome.as_json())
        return
    percent = f"{outcome.used_chars:,}/{outcome.char_limit:,} chars"
    entries = "1 entry" if outcome.entry_count == 1 else f"{outcome.entry_count} entries"
    hint = complete_hint(f"  ({undo_hint})") if outcome.ledger_ids else ""
    say(f"{complete_hint(outcome.message)} {outcome.target.value}: {entries}, {percent}.{hint}")
    if outcome.note and outcome.change.overflow:  # other notes were printed as warnings by the sink
        note(outcome.note)


@app.command()
def pending(target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """List the pending writes."""
    with open_caller() as caller:
        waiting = memory.list_pending(caller, target)
        requests = forget_requests.list_requests(caller) if target is None else []
    if as_json:
        print_json([item.as_json() for item in (*waiting, *requests)])
        return
    for item in waiting:
        day = f"{from_epoch(item.created).astimezone():%Y-%m-%d %H:%M}"
        say(f"{item.id}  {day}  {item.target.value}  {item.origin}: {item.summary}  ({item.why})")
        for source in dict.fromkeys(item.sources.values()):
            say(f"          from {source}")
    for request in requests:
        day = f"{from_epoch(request.created).astimezone():%Y-%m-%d %H:%M}"
        say(f"{request.id}  {day}  {request.origin} asks to {request.summary}")
    count = len(waiting) + len(requests)
    say(f"{count} waiting." + (complete_hint(" `kept memory approve ID` or `reject ID`.") if count else ""))


@app.command()
def propose(
    after: Annotated[str | None, typer.Option("--after", help="Only what was said since then.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="The most proposals.")] = 20,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be proposed.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Propose preferences and instructions from past conversations; each needs your approval."""
    from wellkept.operations import proposals

    with open_caller() as caller:
        since = None if after is None else moment(after, now=caller.app.clock.now().timestamp())
        done = expect(proposals.propose_facts(caller, limit=limit, after=since, dry_run=dry_run), as_json=as_json)
    show_json(done, as_json=as_json)
    for fact in done.facts:
        day = f"{from_epoch(fact.moment).astimezone():%Y-%m-%d}"
        often = f", said in {fact.times} conversations" if fact.times > 1 else ""
        instead = f"  instead of: {fact.replaces}" if fact.replaces else ""
        waiting = f"{fact.pending.id}  " if fact.pending is not None else ""
        say(f"{waiting}{fact.statement.target.value}  {fact.statement.text}{instead}  ({day}{often})")
    more = f", {done.more:,} more with a higher --limit" if done.more else ""
    if dry_run or not done.facts:
        say(f"{len(done.facts)} {'would be ' if dry_run else ''}proposed{more}.")
    else:
        say(complete_hint(f"{len(done.facts)} proposed{more}. `kept memory approve ID`, `approve all` or `reject ID`."))


@app.command()
def check(
    project: Annotated[
        str | None, typer.Option("--project", metavar="FOLDER", help="A folder of the project, instead of this one.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Propose nothing.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare the page of a project with its files and git, and propose to remove entries of which all is gone.

    Nothing of the project is run or changed, and a removal needs your approval.
    """
    from wellkept.operations import projectfacts

    with open_caller() as caller:
        checked = (projectfacts.check_project if dry_run else projectfacts.propose_retirements)(caller, project)
    if as_json:
        print_json(checked.as_json())
        return
    for entry in checked.entries:
        say(f"{entry.verdict or '-':8}  {on_one_line(entry.text)}")
        for finding in entry.findings:
            say(f"          {finding.line}")
    said = sum(bool(entry.findings) for entry in checked.entries)
    say(f"{count_noun(len(checked.entries), 'entry', 'entries')}, {said} with a verdict.")
    for pending in checked.proposed:
        say(complete_hint(f"{pending.id}  proposed for removal: `kept memory approve {pending.id}` or `reject`"))


@app.command("confirm")
def confirm_(
    text: Annotated[str | None, typer.Argument(help="A part of the entry.", metavar="[TEXT]")] = None,
    origin: Annotated[
        str | None, typer.Option("--origin", help="Every entry from this source, as `show --long --json` prints it.")
    ] = None,
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Confirm entries that are marked as unverified: from now on they count as yours."""
    if (text is None) is (origin is None):
        raise UsageError("no entries are named", "give a part of one entry, or --origin SOURCE")
    with open_caller() as caller:
        done = expect(memory.confirm_entries(caller, text, origin=origin, target=target), as_json=as_json)
    show_json(done, as_json=as_json)
    for page, entry in done.entries:
        say(f"Confirmed on {page.value}: {entry}")


@app.command()
def approve(
    pending_id: WhichArgument, target: TargetOption = None, yes: YesFlag = False, as_json: JsonFlag = False
) -> None:
    """Approve a pending write; it is checked again, then applied.

    For a request of an agent to forget something, print what it would remove and ask first; `all` does not include it.
    """
    with open_caller() as caller:
        request = forget_requests.find_request(caller, pending_id)
        if request is not None:
            _approve_request(caller, request, yes=yes, as_json=as_json)
            return
        _decide(caller, pending_id, target, memory.approve, lambda done: show_outcome(done, as_json=as_json))


@app.command()
def reject(pending_id: WhichArgument, target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Reject a pending write; its text goes to the archive."""

    def show(item: "Rejected | Refused") -> None:
        if isinstance(item, Refused):
            show_outcome(item, as_json=as_json)
        elif as_json:
            print_json(item.as_json())
        else:
            say(f"Rejected {item.pending.id}: {item.pending.summary}")

    with open_caller() as caller:
        if forget_requests.find_request(caller, pending_id) is not None:
            request = forget_requests.reject_request(caller, pending_id)
            if as_json:
                print_json({"success": True, "rejected": request.id})
            else:
                say(f"Rejected {request.id}: {request.summary}")
            return
        _decide(caller, pending_id, target, memory.reject, show)


def _approve_request(caller: Caller, request: "forget_requests.ForgetRequest", *, yes: bool, as_json: bool) -> None:
    """Show what a request to forget would remove, with samples, ask, and remove it."""
    from wellkept.cli.commands.forget import ask_and_forget

    caller.require_person(f"`kept memory approve {request.id}`")
    proposal = forget_requests.plan_request(caller, request)
    if not isinstance(proposal, Refused):
        note(f"{request.origin} asks to {request.summary}")
        messages = proposal.plan.sessions.messages[:_SAMPLES]
        excerpts = operations.sessions.read_excerpts(caller, list(messages))
        for text in (*excerpts, *(entry for _, entry in proposal.plan.entries[:_SAMPLES])):
            note(f"  · {on_one_line(text)}")
    ask_and_forget(caller, proposal, dry_run=False, yes=yes, as_json=as_json)
    forget_requests.drop_requests(caller, session=request.session, query=request.query)


def _decide(
    caller: Caller,
    which: str,
    target: Target | None,
    decide: Callable[[Caller, str], T],
    show: Callable[[T | Refused], None],
) -> None:
    """Decide each chosen write and show the outcome; a refused one does not stop the others."""
    chosen = memory.choose_pending(caller, which, target)
    if isinstance(chosen, Refused):
        show(chosen)
        return
    worst = 0
    for pending_id in chosen:
        try:
            show(decide(caller, pending_id))
        except typer.Exit as refused:
            worst = max(worst, refused.exit_code)
    if worst:
        raise typer.Exit(worst)


EditArgument = Annotated[int, typer.Argument(help="The number of the edit, as `kept memory log` prints it.")]
SIGNS = {"add": "+", "remove": "-", "replace": "~", "archive": "·"}


@app.command()
def log(
    target: TargetOption = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only edits after this moment: 2026-11-15, last week.")
    ] = None,
    review: Annotated[str | None, typer.Option("--review", help="Only the edits of one review or batch.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List edits, newest first."""
    with open_caller() as caller:
        after = moment(since, now=caller.app.clock.now().timestamp()) if since else 0.0
        edits = memory.read_log(caller, target=target, since=after, group_id=review)
    show_json(edits, as_json=as_json)
    if not edits.records:
        note("no matching edits" if edits.is_filtered else "no edits yet")
    for row in edits.records:
        mark = "  (undone)" if row.id in edits.undone else f"  (undoes {row.undoes})" if row.undoes else ""
        say(_line(row, text=row.step.after or row.step.before or "") + mark)
    for gap in edits.gaps:
        say(f"gap: {gap}")


def _line(row: EditRecord, *, text: str) -> str:
    when = f"{from_epoch(row.time).astimezone():%Y-%m-%d %H:%M:%S}"
    shown = preview(text)
    head = f"{row.id:>5}  {when}  {row.target.value:<6}"
    return f"{head}  {SIGNS[row.step.action]} {shown}  [{row.origin}{_tell_source(row.source)}]"


@app.command()
def diff(ledger_id: EditArgument, target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Show what one edit changed."""
    with open_caller() as caller:
        row = memory.read_edit(caller, ledger_id, target)
    show_json(row, as_json=as_json)
    when = f"{from_epoch(row.time).astimezone():%Y-%m-%d %H:%M:%S}"
    say(f"edit {row.id} on {row.target.value}, {when}, by {row.origin}{_tell_source(row.source)}")
    for sign, text in (("-", row.step.before), ("+", row.step.after)):
        for line in (text or "").splitlines():
            say(f"{sign} {line}")


@app.command()
def undo(
    ledger_id: Annotated[int | None, typer.Argument(help="The edit; without it the newest one not yet undone.")] = None,
    review: Annotated[str | None, typer.Option("--review", help="All edits of one review or batch.")] = None,
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Undo an edit; repeat it to undo earlier ones; undoing an undo restores it."""
    with open_caller() as caller:
        result = memory.undo(caller, ledger_id=ledger_id, group_id=review, target=target)
        if isinstance(result, Refused):
            show_outcome(result, as_json=as_json)
            return
        if as_json:
            print_json(result.as_json())
            return
        for outcome in result.outcomes:
            show_outcome(outcome, as_json=False, undo_hint=f"redo: {result.redo_command}")


@app.command()
def at(
    time: Annotated[str, typer.Argument(help="A moment: 2026-11-15, 2026-11-15T18:30, yesterday, 3 days ago.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the pages as they were at a moment."""
    with open_caller() as caller:
        past = memory.read_pages_at(caller, moment(time, now=caller.app.clock.now().timestamp()), target)
    show_json(past, as_json=as_json)
    for page, entries in past.pages.items():
        say(page.value)
        for entry in entries:
            say(f"  § {entry}".replace("\n", "\n    "))


@app.command()
def search(
    words: Annotated[list[str], typer.Argument(help="Words that the text must contain.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Search the archive: what was removed, replaced or displaced."""
    with open_caller() as caller:
        hits = memory.search_archive(caller, " ".join(words), target)
    show_json(hits, as_json=as_json)
    records = hits.records
    for row in records:
        say(_line(row, text=row.step.before or ""))
    say(f"{len(records)} found." + (complete_hint(" `kept memory restore ID` puts one back.") if records else ""))


@app.command()
def restore(ledger_id: EditArgument, target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Put an archived text back on its page."""
    with open_caller() as caller:
        show_outcome(memory.restore(caller, ledger_id, target), as_json=as_json)


@app.command()
def repair(target: TargetOption = None, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Repair an unreadable page, one that another program changed, and damaged rows of the ledger."""
    with open_caller() as caller:
        done: dict[str, JSON] = {
            page.value: _repair(caller, page, yes=yes, as_json=as_json) for page in memory.list_pages(caller, target)
        }
        ledger = memory.repair_ledger(caller)
    if ledger.rebuilt or ledger.marked or ledger.put_aside:
        done["ledger"] = ledger.as_json()
    if as_json:
        print_json(done)
        return
    if ledger.put_aside:
        saved = count_noun(ledger.saved, "edit", "edits")
        say(f"ledger: the file was damaged: {saved} saved; the old file is {ledger.put_aside}")
    for ids, what in ((ledger.rebuilt, "rebuilt"), (ledger.marked, "cannot be rebuilt, and marked as damaged")):
        if ids:
            say(f"ledger: {count_noun(len(ids), 'edit', 'edits')} {what}: {', '.join(map(str, ids))}")


def _repair(caller: Caller, page: Target, *, yes: bool, as_json: bool) -> dict[str, JSON]:
    def tell(text: str) -> None:
        if not as_json:
            say(text)

    proposal = memory.propose_repair(caller, page)
    if not proposal.is_needed:
        tell(f"{page.value}: nothing to repair")
        return {"success": True, "needed": False}
    tell(_diff(page, proposal))
    if not confirm(f"Write this {page.value} page?", yes=yes):
        fail("nothing was changed", code=1)
    done = expect(memory.repair_page(caller, page, proposal), as_json=as_json)
    assert done.outcome is not None
    entries = count_noun(done.outcome.entry_count, "entry", "entries")
    tell(f"{page.value}: repaired, {entries}, {len(done.archived)} archived")
    return done.as_json()


def _diff(page: Target, proposal: "Proposal") -> str:
    import difflib

    lines = difflib.unified_diff(
        proposal.current.splitlines(),
        ENTRY_DELIMITER.join(proposal.entries).splitlines(),
        f"{page.value} (now)",
        f"{page.value} (proposed)",
        lineterm="",
    )
    same = (f"{page.value}: not UTF-8; read in another encoding:", *proposal.entries)
    return "\n".join([*(list(lines) or same), *(f"to the archive: {text}" for text in proposal.archived)])


@app.command()
def edit(target: TargetOption = None, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Open a page in $EDITOR; the result is checked before it is saved."""
    from wellkept.cli.terminal import edit_text

    page = target or Target.MEMORY
    with open_caller() as caller:
        before = memory.read_page(caller, page)
        text, file = edit_text(before.text, name=page.value, otherwise="use `kept memory add`, `replace` and `remove`")
        written = partial(memory.replace_page, caller, page, text, before=before)
        outcome = ask_if_held(written(), lambda _held: written(keep_held=True), yes=yes)
    if isinstance(outcome, Refused):
        note(f"your text is in {file}")
    else:
        file.unlink(missing_ok=True)
    show_outcome(outcome, as_json=as_json)


@app.command()
def reset(target: TargetOption = None, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Empty the pages; every entry stays in the archive, and `undo` restores them."""
    with open_caller() as caller:
        count = memory.count_entries(caller, target)
        if not confirm(f"Remove {count_noun(count, 'entry', 'entries')}?", yes=yes):
            fail("nothing was changed", code=1)
        done = expect(memory.reset_pages(caller, target), as_json=as_json)
    show_json(done, as_json=as_json)
    for page, outcome in done.outcomes.items():
        removed = len(outcome.change.steps)
        undo_hint = complete_hint(" (undo: kept memory undo)") if removed else ""
        say(f"{page.value}: {count_noun(removed, 'entry', 'entries')} removed{undo_hint}")


@app.command()
def export(target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Print the pages as JSON, for `kept memory import`."""
    with open_caller() as caller:
        print_json(memory.export_pages(caller, target).as_json())
    _ = as_json  # the export is JSON either way; the flag is accepted because every command takes it


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="An export, a page file, or - for standard input.")],
    target: TargetOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Also keep entries that the scanner holds.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Add the entries of an export or of a page file; what does not fit goes to the archive."""
    try:
        text = read_input() if file == "-" else load_text(Path(file), encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {file!r}: {why}", "give an export or a page file in UTF-8") from error
    with open_caller() as caller:
        imported = memory.import_pages(caller, text, target, keep_held=yes)
    if as_json:
        print_json({page.value: done.as_json() for page, done in imported.items()})
    for page, done in imported.items():
        if not as_json:
            say(f"{page.value}: {len(done.added)} added, {len(done.present)} present, {len(done.archived)} archived")
            for entry, why in done.refused:
                note(f"  refused: {entry!r}: {why}")
    if any(done.refused for done in imported.values()):
        note("  next: --yes keeps held entries; `kept memory add --allow RULE` adds a blocked one")
        raise typer.Exit(1)

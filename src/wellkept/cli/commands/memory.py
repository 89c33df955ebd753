"""`kept memory`: show and edit the pages, approve pending writes."""

import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from msgspec import structs

from wellkept import operations
from wellkept.app import Caller
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    complete_hint,
    confirm,
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
)
from wellkept.config.settings import nearest
from wellkept.core.clock import from_epoch
from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.forgetting import requests as forget_requests
from wellkept.memory.page import Add, Edit, Remove, Replace, Target
from wellkept.operations import pages

if TYPE_CHECKING:
    from wellkept.memory.approval import Rejected
    from wellkept.memory.history import EntryMetadata, PageView
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
    from wellkept.cli.commands import memory_history, providers

    join_groups(app, memory_history.app, memory_history.app, providers.shared)
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
        found = pages.show_pages(caller, target, with_metadata=long)
    if as_json:
        print_json(found.as_json())
    else:
        for view in found.views:
            show_page(view, found.masked.get(view.target, ()), raw=raw)
            _show_archive(view.archived if raw else found.archived.get(view.target, ()), is_listed=archive)
        if found.waiting:
            note(f"{found.waiting} waiting for approval: `kept memory pending`")
    unreadable = [view.error for view in found.views if view.error is not None]
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
    return f"created {created}, changed {changed} by {story.origin}{session}{_tell_source(story)}"


def _tell_source(story: "EntryMetadata") -> str:
    if story.source is None:
        return ""
    from wellkept.core.provenance import describe

    state = "a person confirmed it" if story.is_verified else "unverified: `kept memory confirm` or `remove` it"
    return f", after reading {describe(story.source)} ({state})"


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


def _apply(edit: Edit, target: Target | None, *, allow: list[str] | None, yes: bool, as_json: bool) -> None:
    from wellkept.memory.store import rules_in

    page = target or Target.MEMORY
    _check_rules(allow or [])
    with open_caller() as caller:
        allowed = frozenset(allow or ())
        outcome = ask_if_held(
            pages.edit_entry(caller, edit, page, allow=allowed),
            lambda held: pages.edit_entry(caller, edit, page, allow=allowed | rules_in(held)),
            yes=yes,
        )
        show_outcome(_with_options(outcome, page) if isinstance(outcome, Refused) else outcome, as_json=as_json)


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
        found = pages.render_snapshot(caller, target)
    if as_json:
        print_json(found.as_json())
        return
    blocks = [block for block in found.blocks.values() if block is not None]
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
        waiting = pages.list_pending(caller, target)
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
        done = proposals.propose_facts(caller, limit=limit, after=since, dry_run=dry_run)
    if isinstance(done, Refused):
        refuse(done, as_json=as_json)
    if as_json:
        print_json(done.as_json())
        return
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
        done = pages.confirm_entries(caller, text, origin=origin, target=target)
    if isinstance(done, Refused):
        refuse(done, as_json=as_json)
    if as_json:
        print_json(done.as_json())
        return
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
        _decide(caller, pending_id, target, pages.approve, lambda done: show_outcome(done, as_json=as_json))


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
        _decide(caller, pending_id, target, pages.reject, show)


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
    chosen = pages.choose_pending(caller, which, target)
    if isinstance(chosen, Refused):
        show(chosen)
        return
    worst = 0
    for one in chosen:
        try:
            show(decide(caller, one))
        except typer.Exit as refused:
            worst = max(worst, refused.exit_code)
    if worst:
        raise typer.Exit(worst)

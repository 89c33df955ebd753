"""`kept memory`: see and edit the two pages."""

import dataclasses
import shlex
from functools import cache
from typing import Annotated

import typer

from kept.cli import completion
from kept.cli.commands.memory_frame import TargetOption, asked_if_held, pages, show_outcome
from kept.cli.terminal import JsonFlag, YesFlag, note, opened, print_json, read_input, say
from kept.cli.text import printable
from kept.config.settings import nearest
from kept.core.clock import from_epoch
from kept.core.errors import Reason, Refused, UsageError
from kept.memory.edits import Add, Author, Edit, Remove, Replace, Target
from kept.memory.history import EntryMetadata, History, view_page
from kept.memory.store import MemoryStore
from kept.memory.threats import rules_in
from kept.security.scan import rule_ids

app = typer.Typer(no_args_is_help=True, help="The two pages of curated memory.", rich_markup_mode=None)

AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow", help="Let this scanner rule pass (people only).", autocompletion=completion.rules),
]

_REMEDIES = {
    Reason.BLOCKED: "state the bare fact; or, for a false alarm, add {allow}",
    Reason.EMPTY: "write the text in quotes",
    Reason.NO_MATCH: "`kept memory show --target {page}` prints the entries: quote a part of one exactly",
}


def register(program: typer.Typer) -> None:
    """Add the group, with the commands that stand in modules of their own."""
    _add_the_rest()
    program.add_typer(app, name="memory")


@cache
def _add_the_rest() -> None:
    """Add them once, however many programs are built in one process."""
    from kept.cli.commands import memory_history, memory_pages, memory_pending, providers

    memory_history.add_to(app)
    memory_pages.add_to(app)
    memory_pending.add_to(app)
    providers.add_to(app)


@app.command()
def show(
    target: TargetOption = None,
    long: Annotated[bool, typer.Option("--long", "-l", help="With dates and origins.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Show entries that the scanner blocks, too.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the pages as they are on disk now."""
    with opened() as kept:
        views = [view_page(kept.memory, page, with_metadata=long) for page in pages(target)]
        for view in views:
            if not as_json and view.error is None:  # the other page is shown all the same
                show_page(kept.memory, view.target, long=long, raw=raw)
        waiting = 0 if as_json else len(kept.approvals.waiting())
    if as_json:
        print_json({view.target.value: view.as_json() for view in views})
    unreadable = [view.error for view in views if view.error is not None]
    if waiting:
        note(f"{waiting} waiting for approval: `kept memory pending`")
    for other in unreadable[:-1]:
        note(f"kept: {other.message}\n  next: {other.remedy}")
    if unreadable:
        raise unreadable[-1]


def show_page(store: MemoryStore, page: Target, *, long: bool = False, raw: bool = False) -> None:
    """Print one page as it is on disk, or raise Unreadable."""
    live = store.page(page)
    say(f"{page.value} [{live.usage}]{'' if store.is_enabled(page) else '  (disabled)'}")
    stories = History(store).metadata(page) if long else {}
    shown = live.entries if raw else store.mask(page, live.entries)
    for entry, text in zip(live.entries, shown, strict=True):
        say(f"  § {printable(text)}".replace("\n", "\n    "))
        if long:
            say(f"      {_told(stories.get(entry))}")


def _told(story: EntryMetadata | None) -> str:
    if story is None:
        return "not in the ledger"
    created, changed = (f"{from_epoch(time).astimezone():%Y-%m-%d %H:%M}" for time in (story.created, story.changed))
    session = f" in {story.session_id}" if story.session_id else ""
    return f"created {created}, changed {changed} by {story.origin}{session}"


@app.command()
def add(
    text: Annotated[
        list[str], typer.Argument(help="The fact to keep, in quotes; - reads it from standard input.", metavar="TEXT")
    ],
    target: TargetOption = None,
    allow: AllowOption = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Add an entry (to `memory`, unless --target says otherwise)."""
    if len(text) > 1:
        raise UsageError(
            "the text is in several words",
            f"put it in quotes: {shlex.join(['kept', 'memory', 'add', ' '.join(text)])}",
        )
    content = read_input() if text == ["-"] else text[0]
    _apply(Add(content), target, allow=allow, yes=yes, as_json=as_json)


@app.command()
def replace(
    old_text: Annotated[str, typer.Argument(help="A part of the one entry that is meant.")],
    text: Annotated[str, typer.Argument(help="What it shall say.")],
    target: TargetOption = None,
    allow: AllowOption = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Replace one entry."""
    _apply(Replace(old_text, text), target, allow=allow, yes=yes, as_json=as_json)


@app.command()
def remove(
    old_text: Annotated[str, typer.Argument(help="A part of the one entry that is meant.")],
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove one entry; its text stays in the archive."""
    _apply(Remove(old_text), target, allow=None, yes=False, as_json=as_json)


def _apply(edit: Edit, target: Target | None, *, allow: list[str] | None, yes: bool, as_json: bool) -> None:
    page = target or Target.MEMORY
    _check_rules(allow or [])
    with opened() as kept:
        allowed = frozenset(allow or ())
        outcome = asked_if_held(
            kept.memory.apply(page, edit, Author(allow=allowed)),
            lambda held: kept.memory.apply(page, edit, Author(allow=allowed | rules_in(held))),
            yes=yes,
        )
        show_outcome(_with_options(outcome, page) if isinstance(outcome, Refused) else outcome, as_json=as_json)


def _with_options(refused: Refused, page: Target) -> Refused:
    """Return a refusal whose remedy names what the command line offers besides."""
    if refused.reason not in _REMEDIES:
        return refused
    allow = " ".join(f"--allow {rule}" for rule in sorted(rules_in(refused)))
    return dataclasses.replace(refused, remedy=_REMEDIES[refused.reason].format(page=page, allow=allow))


def _check_rules(names: list[str]) -> None:
    for name in names:
        if name not in (known := rule_ids()):
            raise UsageError(f"there is no scanner rule {name!r}{nearest(name, known)}", "the refusal names the rules")


@app.command()
def snapshot(target: TargetOption = None, as_json: JsonFlag = False) -> None:
    """Print the blocks exactly as a session would freeze them."""
    with opened() as kept:
        kept.memory.load()
        blocks = {page.value: kept.memory.render_snapshot(page) for page in pages(target)}
    if as_json:
        print_json(dict(blocks))
        return
    if any(blocks.values()):
        say("\n\n".join(block for block in blocks.values() if block is not None))

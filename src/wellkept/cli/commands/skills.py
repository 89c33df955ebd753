"""`kept skills`: procedures that were learned or installed; `kept curator`: which of them are archived."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wellkept import operations
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    complete_hint,
    confirm,
    expect,
    fail,
    note,
    on_one_line,
    open_caller,
    print_json,
    read_input,
    refuse,
    say,
    show_json,
)
from wellkept.core.errors import Refused, UsageError
from wellkept.core.regular_files import load_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.app import Caller
    from wellkept.operations.skills import Offers
    from wellkept.skills.changes import Changed
    from wellkept.skills.curator.consolidate import Plan
    from wellkept.skills.hub.hub import Prepared

app = typer.Typer(no_args_is_help=True, help="Procedures that were learned or installed.", rich_markup_mode=None)
NameArgument = Annotated[str, typer.Argument(help="The skill's name.")]


def register(program: typer.Typer) -> None:
    """Add both groups."""
    program.add_typer(app, name="skills")
    program.add_typer(curator_app, name="curator")


def show_change(result: "Changed | Refused", *, as_json: bool) -> None:
    """Print the outcome of a change; exit with 1 when it was refused."""
    result = expect(result, as_json=as_json)
    if as_json:
        print_json(result.as_json())
        return
    say(complete_hint(result.message))
    for warning in result.warnings:
        note(f"kept: {warning}")


@app.command("list")
def list_(
    query: Annotated[str | None, typer.Argument(help="Only skills that match these words, the best first.")] = None,
    category: Annotated[str | None, typer.Option("--category", "-c", help="Only this category.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the skills, by name or by how well they match a query."""
    with open_caller() as caller:
        skills = operations.skills.list_skills(caller, query, category=category)
    show_json(skills, as_json=as_json)
    for skill in skills.skills:
        marks = f"  [{skill.skill.root.kind}]" + ("  [pinned]" if skill.use.pinned else "")
        say(f"{on_one_line(skill.skill.name)}{marks}\n    {on_one_line(skill.skill.description)}")
    if not skills.skills:
        note("no matching skills" if query or category else "no skills yet: `kept skills create NAME` writes one")
    if skills.waiting:
        note(f"{skills.waiting} waiting for approval: `kept skills pending`")


@app.command()
def show(
    name: NameArgument,
    file_path: Annotated[str | None, typer.Argument(help="One of its files.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print a skill or one of its files; viewing it here does not count as a use."""
    with open_caller() as caller:
        shown = operations.skills.show_skill(caller, name, file_path)
    if isinstance(shown, Refused):
        near = shown.detail.get("similar")
        if isinstance(near, list) and not as_json:
            hint = f"; did you mean {near[0]!r}?" if near else ""
            fail(f"{shown.error}{hint}", "`kept skills list` shows the names", code=2)
        refuse(shown, as_json=as_json)
    show_json(shown, as_json=as_json)
    answer = shown.answer
    say(str(answer["content"] if answer["content"] is not None else answer["note"]))
    linked = answer.get("linked_files")
    for group in linked.values() if isinstance(linked, dict) else ():
        note("\n".join(f"  {path}" for path in group))
    warnings = answer.get("warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        note(f"kept: {warning}")


@app.command()
def accept(name: NameArgument, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Let the model use a skill that the guard rates as dangerous, until its files change."""
    with open_caller() as caller:
        shown = expect(operations.skills.show_skill(caller, name), as_json=as_json)
        warnings = shown.answer.get("warnings")
        for warning in warnings if isinstance(warnings, list) else ():
            note(f"  {warning}")
        if not confirm(f"let the model use {name!r} as it is?", yes=yes):
            raise typer.Exit(1)
        accepted = operations.skills.accept_skill(caller, name)
    show_change(accepted, as_json=as_json)


@app.command()
def create(
    name: NameArgument,
    description: Annotated[
        str | None, typer.Option("--description", "-d", help="What it does and when to use it.")
    ] = None,
    category: Annotated[str, typer.Option("--category", "-c", help="An optional group.")] = "",
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the text from this file, - for standard input.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a new skill: from a file, from standard input or in $EDITOR."""
    if file is not None:
        with open_caller() as caller:
            text = _read(file)
            created = operations.skills.create_skill(caller, name, text, category=category, description=description)
        show_change(created, as_json=as_json)
        return
    draft = operations.skills.draft_skill(name, description)
    with _edit(draft, is_draft=True) as text, open_caller() as caller:
        show_change(operations.skills.create_skill(caller, name, text, category=category), as_json=as_json)


@app.command()
def edit(
    name: NameArgument,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the text from this file, - for standard input.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Open a skill in $EDITOR; the result is checked before it is saved."""
    with open_caller() as caller:
        before = operations.skills.read_skill_text(caller, name) if file is None else _read(file)
        before = expect(before, as_json=as_json)
        with nullcontext(before) if file is not None else _edit(before) as text:
            show_change(operations.skills.edit_skill(caller, name, text), as_json=as_json)


def _read(file: Path) -> str:
    """Return the text of a file; `-` means standard input."""
    if str(file) == "-":
        return read_input()
    try:
        return load_text(file)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {str(file)!r}: {error}", "name a UTF-8 text file") from error


@contextmanager
def _edit(text: str, *, is_draft: bool = False) -> Iterator[str]:
    """Yield what the editor made of a text; its file stays, and is named, unless it was written as a skill."""
    from wellkept.cli.terminal import edit_text

    new, file = edit_text(text, name="skill", otherwise="give --file FILE, or --file - for standard input")
    if new == text and is_draft:
        file.unlink()
        fail("the template was left as it was, so no skill was created", "describe the steps in the editor, and save")
    try:
        yield new
    except BaseException:
        note(f"  your text is in {file}")
        raise
    file.unlink()


@app.command()
def delete(
    name: NameArgument,
    purge: Annotated[bool, typer.Option("--purge", help="Permanently remove it, with all its versions.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Move a skill to the archive; `kept skills undo` restores it."""
    with open_caller() as caller:
        if not purge:
            show_change(operations.skills.delete_skill(caller, name), as_json=as_json)
            return
        if not confirm(f"permanently remove {name!r} and all its versions?", yes=yes):
            raise typer.Exit(1)
        show_change(operations.skills.purge_skill(caller, name), as_json=as_json)


@app.command()
def trust(
    folder: Annotated[Path, typer.Argument(help="The project.")] = Path(),
    remove: Annotated[bool, typer.Option("--remove", help="Trust it no longer.")] = False,
) -> None:
    """Use the skills in .agents/skills and .kept/skills of a project."""
    with open_caller() as caller:
        project = operations.skills.trust_project(caller, folder, trusted=not remove)
    say(f"{str(project)!r} is {'no longer trusted' if remove else 'trusted'}")


@app.command()
def log(name: NameArgument, as_json: JsonFlag = False) -> None:
    """List the changes of a skill, newest first."""
    with open_caller() as caller:
        history = expect(operations.skills.read_log(caller, name), as_json=as_json)
    show_json(history, as_json=as_json)
    for version in history.versions:
        undone = f"  (undoes {version.undoes})" if version.undoes else ""
        reason = f"  {version.reason}" if version.reason else ""
        line = f"{version.number:>4}  {version.time[:19]}Z  {version.action:<11} {version.id}  [{version.origin}]"
        source = f"  from {version.source}" if version.source else ""
        say(f"{line}{undone}{reason}{source}")


@app.command()
def diff(
    name: NameArgument,
    number: Annotated[int | None, typer.Argument(help="The change; the newest by default.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a change did."""
    with open_caller() as caller:
        difference = expect(operations.skills.diff_skill(caller, name, number), as_json=as_json)
    show_json(difference, as_json=as_json)
    say(difference.text)


@app.command()
def undo(
    name: NameArgument,
    number: Annotated[int | None, typer.Argument(help="The change; the newest one not yet undone by default.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Undo a change; repeat it to undo earlier ones; undoing an undo restores it."""
    with open_caller() as caller:
        undone = operations.skills.undo_change(caller, name, number)
    show_change(undone, as_json=as_json)


@app.command()
def stats(name: Annotated[str | None, typer.Argument(help="One skill.")] = None, as_json: JsonFlag = False) -> None:
    """Show how often turns with each version of a skill failed."""
    with open_caller() as caller:
        figures = operations.skills.measure_skills(caller, name)
    show_json(figures, as_json=as_json)
    for one in figures.stats:
        use, skill = figures.usage.get(one.skill), one.skill
        say(f"{skill}  used {use.use_count if use else 0} times, patched {use.patch_count if use else 0} times")
        for version in one.versions:
            undo = complete_hint(f"`kept skills undo {skill}`")
            flag = f"  ← worse than before: {undo}" if version.version == one.flagged else ""
            say(f"    {version.version}  {version.uses:>4} turns  {version.rate:>4.0%} failed{flag}")
    if not figures.stats:
        note("no turn with a skill is recorded yet")


@app.command()
def pending(as_json: JsonFlag = False) -> None:
    """List pending changes."""
    with open_caller() as caller:
        waiting = operations.skills.list_pending(caller)
    show_json(waiting, as_json=as_json)
    for change in waiting.changes:
        say(f"{change.id}  {change.created_at[:16]}Z  {change.action} {change.change.name}  [{change.origin}]")
        for finding in (*change.findings, *([f"from {change.source}"] if change.source else [])):
            say(f"          {finding}")
    if not waiting.changes:
        note("no pending changes")


PendingId = Annotated[str, typer.Argument(help="The id that `kept skills pending` shows.")]


@app.command()
def approve(pending_id: PendingId, as_json: JsonFlag = False) -> None:
    """Apply a pending change."""
    with open_caller() as caller:
        approved = operations.skills.approve(caller, pending_id)
    show_change(approved, as_json=as_json)


@app.command()
def reject(pending_id: PendingId, as_json: JsonFlag = False) -> None:
    """Discard a pending change."""
    with open_caller() as caller:
        rejected = expect(operations.skills.reject(caller, pending_id), as_json=as_json)
    show_json(rejected, as_json=as_json)
    say(f"{rejected.change.action} {rejected.change.change.name} discarded")


@app.command()
def doctor(as_json: JsonFlag = False) -> None:
    """List what is wrong with any skill, with the fix; exit 1 when something is not loaded."""
    with open_caller() as caller:
        report = operations.skills.check_skills(caller)
    if as_json:
        print_json(report.as_json())
    else:
        for problem in report.problems:
            kind = "warning" if problem.loaded else "not loaded"
            say(f"{kind}: {problem.path}\n    {problem.problem}\n    fix: {problem.fix}")
        if not report.problems:
            say("every skill is in order")
    if report.has_unloaded:
        raise typer.Exit(1)


SourceArgument = Annotated[
    str, typer.Argument(help="A folder, a zip, a git URL, owner/repo/path, an https:// site, or pip:PACKAGE.")
]


@app.command()
def browse(
    source: Annotated[str | None, typer.Argument(help="The source; those of skills.hub_sources by default.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the skills at a source. Uses the network when the source is remote."""
    with open_caller() as caller:
        found = operations.skills.browse(caller, source)
    _show_offers(found, as_json=as_json)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="Words that name or describe it.")],
    source: Annotated[str | None, typer.Option("--source", "-s", help="Look only here.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Search the sources of skills.hub_sources, or one source. Uses the network when a source is remote."""
    with open_caller() as caller:
        offers = operations.skills.search(caller, query, source)
    _show_offers(offers, as_json=as_json)


def _show_offers(found: "Offers | Refused", *, as_json: bool) -> None:
    found = expect(found, as_json=False)
    if not found.sources:
        note("no source: give one, or list some in skills.hub_sources")
    for source, refused in found.failures:
        note(f"kept: {source}: {refused.error}")
    if as_json:
        print_json(found.as_json())
        return
    for offer in found.offers:
        say(f"{on_one_line(offer.name)}  ({on_one_line(offer.source)})\n    {on_one_line(offer.description)}")


@app.command()
def install(
    source: SourceArgument,
    skill: Annotated[str | None, typer.Option("--skill", help="Which one, when the source has several.")] = None,
    category: Annotated[str, typer.Option("--category", "-c", help="An optional group.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Install a dangerous skill from a local source.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Install a skill after confirmation; it is fetched to quarantine, checked, and what it may do is shown first."""
    with open_caller() as caller:
        prepared = expect(operations.skills.prepare(caller, source, skill=skill), as_json=as_json)
        _install(caller, prepared, category=category, force=force, yes=yes, as_json=as_json)


def _install(caller: "Caller", prepared: "Prepared", *, category: str, force: bool, yes: bool, as_json: bool) -> None:
    """Show what a skill may do, ask, and install it."""
    # one line each, so that a line break in untrusted text cannot imitate a verdict
    package = prepared.package
    note(on_one_line(f"{package.name}: {package.description}"))
    note("  " + on_one_line(f"from {prepared.source} at {prepared.revision[:48]} ({prepared.trust})"))
    note(f"  verdict: {prepared.report.danger}")
    for finding in prepared.report.findings:
        note("    " + on_one_line(str(finding)))
    note("  " + on_one_line(f"files: {', '.join(sorted(package.files))}"))
    note("  " + on_one_line(f"its scripts may: {', '.join(prepared.abilities) or _NOTHING_FOUND}"))
    for warning in package.warnings:
        note("  " + on_one_line(f"note: {warning}"))
    agreed = yes and not prepared.needs_an_answer(force=force)
    blocked = prepared.is_blocked(force=force)
    # with --yes already given, suggesting it would not help
    remedy = "read the findings above; --force accepts this skill, --yes alone does not" if yes else "give --yes"
    if not blocked and not confirm(f"install {prepared.package.name!r}?", yes=agreed, remedy=remedy):
        raise typer.Exit(1)
    show_change(operations.skills.install(caller, prepared, category=category, force=force), as_json=as_json)


_NOTHING_FOUND = "do nothing that the scan detects (network, programs, files, variables, packages, rights)"


@app.command()
def update(
    name: Annotated[str | None, typer.Argument(help="One skill; all installed ones by default.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Discard local changes.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Fetch installed skills again and install new versions. Uses the network when the source is remote."""
    with open_caller() as caller:
        for skill in [name] if name else operations.skills.list_installed(caller):
            prepared = operations.skills.prepare_update(caller, skill, force=force)
            if prepared is None:
                note(f"{skill} is up to date")
            elif isinstance(prepared, Refused):
                if name:
                    refuse(prepared, as_json=as_json)
                note(f"kept: {skill}: {prepared.error}")
            else:
                _install(caller, prepared, category="", force=force, yes=yes, as_json=as_json)


@app.command()
def remove(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Move an installed skill to the archive and forget its source."""
    with open_caller() as caller:
        removed = operations.skills.remove(caller, name)
    show_change(removed, as_json=as_json)


@app.command()
def audit(as_json: JsonFlag = False) -> None:
    """Hash and scan every installed skill again; exit 1 when one differs from its lock."""
    with open_caller() as caller:
        report = operations.skills.audit(caller)
    if as_json:
        print_json(report.as_json())
    else:
        for result in report.results:
            say(f"{result.name}: {'as installed' if result.clean else 'differs'} ({result.verdict})")
            for kind, paths in (("changed", result.changed), ("missing", result.missing), ("added", result.added)):
                if paths:
                    say(f"    {kind}: {', '.join(paths)}")
        if not report.results:
            note("nothing is installed from a source")
    if not report.is_clean:
        raise typer.Exit(1)


curator_app = typer.Typer(no_args_is_help=True, help="Archive unused skills.", rich_markup_mode=None)


@curator_app.command()
def status(as_json: JsonFlag = False) -> None:
    """Show the last run, what a run would do now, and exclusions."""
    with open_caller() as caller:
        status = operations.curator.report_status(caller)
    show_json(status, as_json=as_json)
    say(f"last run: {status.state.last_run_at or 'never'}{' (paused)' if status.state.paused else ''}")
    _say_list("would move", [f"{move.name} → {move.becomes}" for move in status.moves], "nothing")
    _say_list("left alone", [f"{name} ({why})" for name, why in sorted(status.protected.items())])
    _say_list("archived", status.archived)
    _say_list("backups", status.backups)


def _say_list(title: str, items: "Sequence[str]", otherwise: str = "none") -> None:
    say(f"{title}: {', '.join(items) or otherwise}")


@curator_app.command()
def run(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    merge: Annotated[
        bool, typer.Option("--consolidate", help="Let the model propose merges of narrow skills.")
    ] = False,
    plan: Annotated[str | None, typer.Option("--plan", help="Apply a plan of --consolidate.")] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Archive unused skills after a backup; with --consolidate, propose merges and apply them after confirmation."""
    with open_caller() as caller:
        if plan is not None:
            stored = expect(operations.curator.read_plan(caller, plan), as_json=as_json)
            _carry_out(caller, stored, yes=yes, as_json=as_json)
            return
        report = operations.curator.run(caller, dry_run=dry_run)
        if as_json and not merge:
            print_json(report.as_json())
        elif not as_json:
            say(report.as_text())
        if merge:
            _propose(caller, ask=not (dry_run or as_json), yes=yes, as_json=as_json)


def _propose(caller: "Caller", *, ask: bool, yes: bool, as_json: bool) -> None:
    made = expect(operations.curator.propose_merges(caller), as_json=as_json)
    if as_json:
        print_json(made.as_json())
        return
    say(made.as_text())
    if made.merges and ask:
        _carry_out(caller, made, yes=yes, as_json=False)
    elif made.merges:
        note(f"nothing was changed; `kept curator run --plan {made.id}` applies it")


def _carry_out(caller: "Caller", plan: "Plan", *, yes: bool, as_json: bool) -> None:
    if not confirm(f"apply plan {plan.id} ({len(plan.merges)} merges)?", yes=yes):
        raise typer.Exit(1)
    done = expect(operations.curator.carry_out_plan(caller, plan), as_json=as_json)
    if as_json:
        print_json(done.as_json())
        return
    for change in done.changes:
        say(change.message)


@curator_app.command()
def pause(as_json: JsonFlag = False) -> None:
    """Disable automatic runs."""
    _pause(as_json=as_json, paused=True)


@curator_app.command()
def resume(as_json: JsonFlag = False) -> None:
    """Enable automatic runs."""
    _pause(as_json=as_json, paused=False)


def _pause(*, as_json: bool, paused: bool) -> None:
    with open_caller() as caller:
        operations.curator.pause(caller, paused=paused)
    if as_json:
        print_json({"paused": paused})
    else:
        say(f"automatic runs are {'disabled' if paused else 'enabled'}")


@curator_app.command()
def pin(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Exclude a skill from the curator."""
    _pin(name, as_json=as_json, pinned=True)


@curator_app.command()
def unpin(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Include an excluded skill again."""
    _pin(name, as_json=as_json, pinned=False)


def _pin(name: str, *, as_json: bool, pinned: bool) -> None:
    with open_caller() as caller:
        refused = operations.curator.pin_skill(caller, name, pinned=pinned)
    if refused is not None:
        refuse(refused, as_json=as_json)
    if as_json:
        print_json({"name": name, "pinned": pinned})
        return
    say(f"{name} is {'pinned' if pinned else 'no longer pinned'}")


@curator_app.command()
def archive(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Archive one skill now."""
    with open_caller() as caller:
        archived = operations.curator.archive_skill(caller, name)
    show_change(archived, as_json=as_json)


@curator_app.command()
def restore(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Restore one skill from the archive."""
    with open_caller() as caller:
        restored = operations.curator.restore_skill(caller, name)
    show_change(restored, as_json=as_json)


@curator_app.command()
def backup(as_json: JsonFlag = False) -> None:
    """Back up all skills of the home."""
    with open_caller() as caller:
        name = operations.curator.back_up(caller)
    show_json({"backup": name}, as_json=as_json)
    say(name)


@curator_app.command()
def rollback(
    name: Annotated[str | None, typer.Argument(help="The backup; the newest by default.")] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Restore every skill from a backup, byte for byte; the current state is backed up first."""
    with open_caller() as caller:
        if not confirm(f"restore all skills from {name or 'the newest backup'}?", yes=yes):
            raise typer.Exit(1)
        done = operations.curator.roll_back(caller, name)
    show_json(done, as_json=as_json)
    say(f"{done.backup}: {', '.join(done.restored) or 'nothing differed'}")


@curator_app.command()
def report(as_json: JsonFlag = False) -> None:
    """Show the report of the last run."""
    with open_caller() as caller:
        found = expect(operations.curator.read_report(caller), as_json=as_json)
    show_json(found, as_json=as_json)
    say(found.as_text())

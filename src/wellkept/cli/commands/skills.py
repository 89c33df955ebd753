"""`kept skills`: list, show, write and delete skills."""

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
    fail,
    join_groups,
    note,
    on_one_line,
    open_caller,
    print_json,
    read_input,
    refuse,
    say,
)
from wellkept.core.errors import Refused, UsageError
from wellkept.core.regular_files import load_text

if TYPE_CHECKING:
    from wellkept.skills.changes import Changed
    from wellkept.skills.view import View

app = typer.Typer(no_args_is_help=True, help="Procedures that were learned or installed.", rich_markup_mode=None)
NameArgument = Annotated[str, typer.Argument(help="The skill's name.")]


def register(program: typer.Typer) -> None:
    """Add the group, with the commands of the other module."""
    from wellkept.cli.commands import skills_history

    join_groups(app, skills_history.app)
    program.add_typer(app, name="skills")


def show_change(result: "Changed | Refused", *, as_json: bool) -> None:
    """Print the outcome of a change; exit with 1 when it was refused."""
    if isinstance(result, Refused):
        refuse(result, as_json=as_json)
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
        found = operations.skills.list_skills(caller, query, category=category)
    if as_json:
        print_json(found.as_json())
        return
    for one in found.skills:
        marks = f"  [{one.skill.root.kind}]" + ("  [pinned]" if one.use.pinned else "")
        say(f"{on_one_line(one.skill.name)}{marks}\n    {on_one_line(one.skill.description)}")
    if not found.skills:
        note("no matching skills" if query or category else "no skills yet: `kept skills create NAME` writes one")
    if found.waiting:
        note(f"{found.waiting} waiting for approval: `kept skills pending`")


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
    if as_json:
        print_json(shown.as_json())
    else:
        _show_text(shown)


def _show_text(shown: "View") -> None:
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
        shown = operations.skills.show_skill(caller, name)
        if isinstance(shown, Refused):
            refuse(shown, as_json=as_json)
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
        if isinstance(before, Refused):
            refuse(before, as_json=as_json)
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

"""`kept skills`: see, write, search and delete skills."""

from pathlib import Path
from typing import Annotated

import typer

from kept.cli.terminal import JsonFlag, YesFlag, confirm, fail, note, opened, print_json, read_input, refuse, say
from kept.core.errors import Refused, UsageError
from kept.core.text import JSON
from kept.skills.changes import Author, Changed, Create, Delete, Edit
from kept.skills.document import compose
from kept.skills.index import Skill
from kept.skills.paths import MAIN
from kept.skills.usage import Use
from kept.skills.view import view, view_file

app = typer.Typer(no_args_is_help=True, help="Procedures that were learned or installed.", rich_markup_mode=None)
PERSON = Author("person")
NameArgument = Annotated[str, typer.Argument(help="The skill's name.")]


def register(program: typer.Typer) -> None:
    """Add the group, with the commands that stand in modules of their own."""
    from kept.cli.commands import skills_history, skills_hub

    skills_history.add_to(app)
    skills_hub.add_to(app)
    program.add_typer(app, name="skills")


def told(result: Changed | Refused, *, as_json: bool) -> None:
    """Show the outcome of a change."""
    if isinstance(result, Refused):
        refuse(result, as_json=as_json)
    if as_json:
        row: dict[str, JSON] = {"success": True, "name": result.name, "action": result.action, "change": result.number}
        print_json({**row, "version": result.version, "message": result.message})
        return
    say(result.message)
    for warning in result.warnings:
        note(f"kept: {warning}")


@app.command("list")
def list_(
    query: Annotated[str | None, typer.Argument(help="Only skills that fit these words, the best first.")] = None,
    category: Annotated[str | None, typer.Option("--category", "-c", help="Only this category.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the skills, by name or by how well they fit a query."""
    with opened() as kept:
        library = kept.skill_tools.library
        found = [ranked.skill for ranked in library.search(query)] if query else library.skills()
        found = [skill for skill in found if category is None or (skill.category or "general") == category]
        usage = library.usage.read()
        if as_json:
            print_json([_row(skill, usage.get(skill.name, Use())) for skill in found])
            return
        for skill in found:
            use = usage.get(skill.name, Use())
            marks = "".join(f"  [{mark}]" for mark in (str(skill.root.kind), "pinned" if use.pinned else "") if mark)
            say(f"{skill.name}{marks}\n    {skill.description}")
        if not found:
            note("no skill fits" if query or category else "no skills yet: `kept skills create NAME` writes one")
        waiting = len(kept.skill_tools.pending.waiting())
        if waiting:
            note(f"{waiting} waiting for approval: `kept skills pending`")


def _row(skill: Skill, use: Use) -> dict[str, JSON]:
    return {
        "name": skill.name,
        "description": skill.description,
        "category": skill.category or "general",
        "root": str(skill.root.kind),
        "path": str(skill.folder),
        "state": str(use.state),
        "pinned": use.pinned,
        "use_count": use.use_count,
        "last_used_at": use.last_used_at,
    }


@app.command()
def show(
    name: NameArgument,
    file_path: Annotated[str | None, typer.Argument(help="One of its files.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print a skill or one of its files; a person's look is not counted as a use."""
    with opened() as kept:
        library = kept.skill_tools.library
        shown = view_file(library, name, file_path) if file_path else view(library, name)
        if isinstance(shown, Refused):
            near = shown.detail.get("similar")
            if isinstance(near, list) and not as_json:
                hint = f"; did you mean {near[0]!r}?" if near else ""
                fail(f"{shown.error}{hint}", "`kept skills list` shows the names", code=2)
            refuse(shown, as_json=as_json)
        if as_json:
            print_json(shown.answer)
            return
        say(str(shown.answer["content"] if shown.answer["content"] is not None else shown.answer["note"]))
        linked = shown.answer.get("linked_files")
        for group in linked.values() if isinstance(linked, dict) else ():
            note("\n".join(f"  {path}" for path in group))
        warnings = shown.answer.get("warnings")
        for warning in warnings if isinstance(warnings, list) else ():
            note(f"kept: {warning}")


@app.command()
def create(
    name: NameArgument,
    description: Annotated[
        str | None, typer.Option("--description", "-d", help="What it does and when to use it.")
    ] = None,
    category: Annotated[str, typer.Option("--category", "-c", help="An optional group.")] = "",
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Take the text from this file, - for stdin.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a new skill, from a file, from standard input or in $EDITOR."""
    if file is not None:
        text = read_input() if str(file) == "-" else _read(file)
        if description and not text.lstrip("\ufeff").startswith("---"):
            text = compose(name, description, text)
    else:
        draft = compose(
            name, description or "What it does. Use when …", f"# {name}\n\n## Steps\n\n1. \n\n## Check\n\n- "
        )
        text = _edited(draft)
    with opened() as kept:
        told(kept.skill_tools.editor.apply(Create(name, text, category), PERSON), as_json=as_json)


@app.command()
def edit(
    name: NameArgument,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Take the text from this file, - for stdin.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Open a skill in $EDITOR; what comes back is checked before it is kept."""
    with opened() as kept:
        library = kept.skill_tools.library
        skill = library.skill(name)
        folder = skill.folder if skill is not None else library.home_folder(name)
        if folder is None:
            fail(f"there is no skill {name!r}", "`kept skills list` shows the names")
        if file is not None:
            text = read_input() if str(file) == "-" else _read(file)
        else:
            text = _edited(_read(folder / MAIN))
        told(kept.skill_tools.editor.apply(Edit(name, text), PERSON), as_json=as_json)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {str(path)!r}: {error}", "name a UTF-8 text file") from error


def _edited(text: str) -> str:
    from kept.cli.commands.editor import edited

    new, file = edited(text, name="skill", otherwise="give --file FILE, or --file - for standard input")
    file.unlink()
    return new


@app.command()
def delete(
    name: NameArgument,
    purge: Annotated[bool, typer.Option("--purge", help="Remove it for good, with all its versions.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Move a skill to the archive; `kept skills undo` brings it back."""
    with opened() as kept:
        editor = kept.skill_tools.editor
        if not purge:
            told(editor.apply(Delete(name), PERSON), as_json=as_json)
            return
        if not confirm(f"remove {name!r} and every version of it for good?", yes=yes):
            raise typer.Exit(1)
        told(editor.purge(name), as_json=as_json)


@app.command()
def trust(
    folder: Annotated[Path, typer.Argument(help="The project.")] = Path(),
    remove: Annotated[bool, typer.Option("--remove", help="Trust it no longer.")] = False,
) -> None:
    """Use the skills that a project brings in .agents/skills and .kept/skills."""
    from kept.skills.roots import set_trust

    with opened() as kept:
        set_trust(kept.skill_tools.library.path, folder, trusted=not remove)
    say(f"{str(folder.resolve())!r} is {'no longer trusted' if remove else 'trusted'}")

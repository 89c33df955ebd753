"""`kept config`: show, change and check settings."""

from typing import Annotated

import typer

from kept.cli import terminal
from kept.cli.terminal import JsonFlag, chosen_home, fail, open_caller, print_json, printable, read_input, say
from kept.operations.profiles import show_settings

KeyArgument = Annotated[
    str, typer.Argument(help="The setting, with dots: memory.overflow.", autocompletion=terminal.complete_settings)
]

app = typer.Typer(no_args_is_help=True, help="Show and change settings.", rich_markup_mode=None)


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(app, name="config")


@app.command()
def show(
    key: Annotated[
        str | None,
        typer.Argument(help="Only this setting, or this section.", autocompletion=terminal.complete_settings),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print every setting with its value and where it came from."""
    with open_caller() as caller:
        found = show_settings(caller, key)
    if as_json:
        print_json(found.as_json())
        return
    for name, (value, origin) in found.rows.items():
        say(printable(f"{name} = {value!r}  ({origin})"))


@app.command("set", context_settings={"ignore_unknown_options": True})  # a value may begin with a minus
def set_(
    key: KeyArgument,
    value: Annotated[str, typer.Argument(help="The value; JSON where it is not plain text.")],
    as_json: JsonFlag = False,
) -> None:
    """Write one setting to the settings file; comments there stay."""
    from kept.config.file import set_value

    home = chosen_home()
    written = set_value(home, key, value)
    if as_json:
        print_json({"key": key, "value": written, "file": str(home.config_file)})
    else:
        say(f"{key} = {written!r} in {home.config_file}")


@app.command()
def unset(key: KeyArgument, as_json: JsonFlag = False) -> None:
    """Remove one setting from the settings file, so that its default holds again."""
    from kept.config.file import unset_value

    home = chosen_home()
    removed = unset_value(home, key)
    if as_json:
        print_json({"key": key, "removed": removed})
    else:
        say(f"{key} was {'removed' if removed else 'not set'} in {home.config_file}")


@app.command()
def path(as_json: JsonFlag = False) -> None:
    """Print where the settings file is."""
    file = chosen_home().config_file
    if as_json:
        print_json({"file": str(file), "exists": file.exists()})
    else:
        say(str(file))


@app.command("secret")
def secret(
    name: Annotated[str, typer.Argument(help="The variable, e.g. OPENAI_API_KEY.")],
) -> None:
    """Store a secret in `.env` (read from the terminal or from standard input, never from the arguments)."""
    import sys

    from kept.config.load import set_secret

    file = chosen_home().env_file
    value = typer.prompt(name, hide_input=True, err=True) if sys.stdin.isatty() else read_input().rstrip("\r\n")
    if not value.strip():
        fail(f"the value of {name} is empty", "type it, or give it on standard input", code=2)
    set_secret(file, name, value)
    say(f"{name} is stored in {file}")

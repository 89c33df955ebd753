"""`kept config`, `kept profile`, `kept model` and `kept context`: the settings of a home."""

import os
from pathlib import Path
from typing import Annotated

import typer

from wellkept import operations
from wellkept.cli import terminal
from wellkept.cli.main import complete_profiles
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    ask,
    chosen_home,
    complete_hint,
    confirm,
    expect,
    fail,
    note,
    open_caller,
    print_json,
    read_input,
    require_person,
    say,
    show_json,
    why_no_person,
)
from wellkept.config.home import DEFAULT_PROFILE, find_home


def _complete_settings(incomplete: str) -> list[str]:
    """Return the settings that start with `incomplete`."""
    from wellkept.config.settings import known_keys

    return [key for key in known_keys() if key.startswith(incomplete)]


def register(program: typer.Typer) -> None:
    """Add the commands of this module."""
    program.add_typer(config_app, name="config")
    program.add_typer(profile_app, name="profile")
    program.add_typer(model_app, name="model")
    program.add_typer(context_app, name="context")


KeyArgument = Annotated[
    str, typer.Argument(help="The setting, with dots: memory.overflow.", autocompletion=_complete_settings)
]

config_app = typer.Typer(no_args_is_help=True, help="Show and change settings.", rich_markup_mode=None)


@config_app.command("show")
def config_show(
    key: Annotated[
        str | None,
        typer.Argument(help="Only this setting, or this section.", autocompletion=_complete_settings),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print every setting with its value and where it came from."""
    with open_caller() as caller:
        settings = operations.profiles.show_settings(caller, key)
    show_json(settings, as_json=as_json)
    for name, (value, origin) in settings.rows.items():
        say(f"{name} = {value!r}  ({origin})")


@config_app.command("set", context_settings={"ignore_unknown_options": True})  # a value may begin with a minus
def config_set(
    key: KeyArgument,
    value: Annotated[str, typer.Argument(help="The value; JSON where it is not plain text.")],
    as_json: JsonFlag = False,
) -> None:
    """Write one setting to the settings file; comments there stay."""
    from wellkept.config.settings import set_value

    home = chosen_home()
    file, written, why = home.config_file, operations.profiles.hide_password(value), why_no_person(home)
    if key == "storage.url":
        file = operations.storage.write_address(home, value, why_no_person=why)
    else:
        written = operations.profiles.hide_password(set_value(home, key, value, why_no_person=why))
    show_json({"key": key, "value": written, "file": str(file)}, as_json=as_json)
    say(f"{key} = {written!r} in {file}")
    if file != home.config_file:
        note(f"it has a password, so it is stored with the secrets and not in {home.config_file}")


@config_app.command("unset")
def config_unset(key: KeyArgument, as_json: JsonFlag = False) -> None:
    """Remove one setting from the settings file and use its default."""
    from wellkept.config.settings import unset_value

    home = chosen_home()
    why = why_no_person(home)
    if key == "storage.url":
        file = operations.storage.drop_address(home, why_no_person=why)
    else:
        file = home.config_file if unset_value(home, key, why_no_person=why) else None
    show_json({"key": key, "removed": file is not None}, as_json=as_json)
    say(f"{key} was {'not set' if file is None else 'removed'} in {file or home.config_file}")


@config_app.command("path")
def config_path(as_json: JsonFlag = False) -> None:
    """Print where the settings file is."""
    file = chosen_home().config_file
    show_json({"file": str(file), "exists": file.exists()}, as_json=as_json)
    say(str(file))


@config_app.command("secret")
def config_secret(
    name: Annotated[str, typer.Argument(help="The variable, e.g. OPENAI_API_KEY.")],
) -> None:
    """Store a secret in `.env`; it is read from the terminal or standard input, never from the arguments."""
    import sys

    from wellkept.config.settings import set_secret

    home = chosen_home()
    require_person(home, f"`kept config secret {name}`")  # a variable can also name the endpoint that gets the memory
    file = home.env_file
    value = ask(name, hidden=True) if sys.stdin.isatty() else read_input().rstrip("\r\n")
    if not value.strip():
        fail(f"the value of {name} is empty", "type it, or give it on standard input", code=2)
    set_secret(file, name, value)
    say(f"{name} is stored in {file}")


NameArgument = Annotated[str, typer.Argument(help="The name of the profile.", autocompletion=complete_profiles)]

profile_app = typer.Typer(no_args_is_help=True, help="Separate homes, for example for work.", rich_markup_mode=None)


def _root() -> Path:
    return find_home(terminal.invocation.home, DEFAULT_PROFILE, os.environ).root


@profile_app.command("list")
def profile_list(as_json: JsonFlag = False) -> None:
    """List the profiles; the active one is marked."""
    profiles = operations.profiles.list_profiles(_root())
    if as_json:
        print_json([{"name": one.name, "active": one.is_active, "path": str(one.path)} for one in profiles])
        return
    for profile in profiles:
        say(f"{'*' if profile.is_active else ' '} {profile.name}  {profile.path}")


@profile_app.command("create")
def profile_create(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Create an empty profile."""
    _show(operations.profiles.create_profile(_root(), name), as_json=as_json)


@profile_app.command("use")
def profile_use(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Use a profile when none is named with -p."""
    require_person(chosen_home(), f"`kept profile use {name}`")  # its settings may protect less
    _show(operations.profiles.use_profile(_root(), name), as_json=as_json)


@profile_app.command("clone")
def profile_clone(source: NameArgument, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Copy a profile without secrets."""
    _show(operations.profiles.clone_profile(_root(), source, name), as_json=as_json)


@profile_app.command("rename")
def profile_rename(old: NameArgument, new: NameArgument, as_json: JsonFlag = False) -> None:
    """Give a profile another name."""
    require_person(chosen_home(), f"`kept profile rename {old} {new}`")  # another one could then take its name
    _show(operations.profiles.rename_profile(_root(), old, new), as_json=as_json)


@profile_app.command("export")
def profile_export(
    name: NameArgument, file: Annotated[Path, typer.Argument(help="A .zip to write.")], as_json: JsonFlag = False
) -> None:
    """Write a profile to a zip without secrets."""
    _show(operations.profiles.export_profile(_root(), name, file), as_json=as_json)


@profile_app.command("delete")
def profile_delete(name: NameArgument, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Delete a profile with everything in it."""
    home = operations.profiles.find_deletable(_root(), name)
    require_person(home, f"`kept profile delete {name}`")
    if not confirm(f"Delete {home.path} with everything in it?", yes=yes):
        fail("nothing was changed", code=1)
    _show(operations.profiles.delete_profile(_root(), name), as_json=as_json)


@profile_app.command("show")
def profile_show(as_json: JsonFlag = False) -> None:
    """Print the profile in use and its folder."""
    with open_caller() as caller:
        home = caller.app.home
    _show(operations.profiles.Profile(home.profile, home.path, "in use"), as_json=as_json)


def _show(profile: "operations.profiles.Profile", *, as_json: bool) -> None:
    show_json(profile, as_json=as_json)
    say(f"{profile.name}: {profile.state} ({profile.path})")


model_app = typer.Typer(no_args_is_help=True, help="Choose and test models.", rich_markup_mode=None)


@model_app.command("list")
def model_list(as_json: JsonFlag = False) -> None:
    """List model sources: which is used, which could be, and what the others need."""
    with open_caller() as caller:
        models = operations.models.list_models(caller)
    show_json(models, as_json=as_json)
    say(f"in use: {models.choice.name}  ({models.choice.reason})")
    for fallback in models.fallbacks:
        say(f"  then: {fallback}")
    for offer in models.offers:
        say(f"  {'yes' if offer.is_available else ' no'}  {offer.name}  ({offer.reason})")
        for model in offer.models[1:]:
            say(f"         {offer.name.partition('/')[0]}/{model}")
    say(complete_hint("choose one with `kept model set NAME`, test it with `kept model test`"))
    say(f"prices were last checked on {models.prices_checked}; `model.prices` sets your own")


@model_app.command("set")
def model_set(
    name: Annotated[str, typer.Argument(help="PROVIDER/NAME, `extractive` for none, `auto` for the first available.")],
    as_json: JsonFlag = False,
) -> None:
    """Choose the model to talk with, for this home."""
    with open_caller() as caller:
        chosen = operations.models.choose_model(caller, name)
    show_json(chosen, as_json=as_json)
    hint = "`kept model list` shows what it resolves to, `kept model test` tests it"
    say(f"model.default is now {chosen.model}; {hint}")


@model_app.command("test")
def model_try(
    name: Annotated[str | None, typer.Argument(help="The model to test; the chosen one by default.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Send one short message; show how long the answer took and what it used."""
    with open_caller() as caller:
        tried = operations.models.try_model(caller, name)
    show_json(tried, as_json=as_json)
    response, usage = tried.response, tried.response.usage
    money = "price unknown" if tried.cost is None else f"${tried.cost:.6f}"
    answer = response.message.text.strip() or "(nothing)"
    say(f"{response.model} answered in {tried.seconds:.2f} s: {answer}")
    say(f"{usage.prompt_tokens} tokens in, {usage.output_tokens} out, {money}; window {tried.context_length:,} tokens")
    say(tried.prompt_caching)


context_app = typer.Typer(
    no_args_is_help=True, help="How conversations are kept within the model's window.", rich_markup_mode=None
)


@context_app.command("list")
def context_list(as_json: JsonFlag = False) -> None:
    """List the engines that can be used."""
    with open_caller() as caller:
        engines = operations.conversations.list_engines(caller)
    show_json(engines, as_json=as_json)
    for name, source, description in engines.engines:
        say(f"{'*' if name == engines.used else ' '} {name:14} {source:12} {description}".rstrip())
    if engines.used not in {name for name, _, _ in engines.engines}:
        note(f"{engines.used!r} is configured but does not exist; choose one with `kept context use NAME`")


@context_app.command("use")
def context_use(
    name: Annotated[str, typer.Argument(help="An engine of `kept context list`.")], as_json: JsonFlag = False
) -> None:
    """Choose the engine; it takes effect when a conversation is next started."""
    from wellkept.config.settings import set_value
    from wellkept.context.plugins import choose_engine

    home = chosen_home()
    engine = choose_engine(name, home=home.path)
    if engine.warning:
        fail(engine.warning.partition(";")[0], "`kept context list` shows the engines", code=2)
    set_value(home, "context.engine", name, why_no_person=why_no_person(home))
    show_json({"engine": name}, as_json=as_json)
    say(f"context.engine = {name!r} in {home.config_file}")


@context_app.command("status")
def context_status(
    session: Annotated[str | None, typer.Argument(help="A session's id or title; without it only the limits.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the limits of the window; for a session also how full it is and whether compaction is paused."""
    with open_caller() as caller:
        report = expect(operations.conversations.report_window(caller, session), as_json=False, code=2)
    show_json(report, as_json=as_json)
    for key, value in report.as_json().items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        say(f"{key.replace('_', ' '):20} {shown}")

"""`kept providers`: choose an external memory, see how it is, switch it off."""

import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from kept.cli.terminal import JsonFlag, YesFlag, confirm, fail, note, opened, print_json, refuse, say
from kept.core.errors import Refused
from kept.core.text import JSON

if TYPE_CHECKING:
    from kept.app import App
    from kept.providers.base import MemoryProvider
    from kept.providers.config import Field
    from kept.providers.discovery import Found

app = typer.Typer(no_args_is_help=True, help="External memories beside the two pages.", rich_markup_mode=None)

NONE = "builtin"
SetOption = Annotated[list[str] | None, typer.Option("--set", help="An answer as KEY=VALUE; may be repeated.")]
NameArgument = Annotated[str | None, typer.Argument(help="The provider; without it you choose from a list.")]


def register(program: typer.Typer) -> None:
    """Add the group, with the commands that stand in a module of their own."""
    _add_the_rest()
    program.add_typer(app, name="providers")


@cache
def _add_the_rest() -> None:
    """Add them once, however many programs are built in one process."""
    from kept.cli.commands import providers_commands, providers_outbox

    add_to(app)
    providers_outbox.add_to(app)
    providers_commands.add_to(app)


def add_to(group: typer.Typer) -> None:
    """Add the commands that `kept memory` has too."""
    from kept.cli.commands.providers_status import status

    group.command("setup")(setup)
    group.command("status")(status)
    group.command("off")(off)


def setup(
    name: NameArgument = None,
    given: SetOption = None,
    test: Annotated[bool, typer.Option(help="Try it before it is switched on.")] = True,
    yes: YesFlag = False,
) -> None:
    """Choose a provider, answer its questions, try it, and switch it on."""
    from kept.providers.discovery import discover
    from kept.providers.loading import load

    with opened() as kept:
        found = discover(kept.home.plugins)
        chosen = name or _picked(found, kept)
        if chosen in {NONE, "none", "off"}:
            _switch_off(kept)
            return
        if chosen in found:
            _offer_packages(found[chosen], yes=yes)
        provider = load(chosen, kept.home.plugins, kept.environ)
        _configure(kept, provider, _pairs(given or []))
        if test:
            _try(kept, provider)
        _activate(kept, chosen)


def off(as_json: JsonFlag = False) -> None:
    """Use the built-in pages only; what waits in the outbox stays there."""
    with opened() as kept:
        _switch_off(kept, as_json=as_json)


def _picked(found: "Mapping[str, Found]", kept: "App") -> str:
    from kept.providers.discovery import manifest_of

    names = [*sorted(found), NONE]
    if not sys.stdin.isatty():
        fail("name the provider to set up", f"one of: {', '.join(names)}", code=2)
    for number, name in enumerate(names, 1):
        about = "Built-in only" if name == NONE else manifest_of(found[name]).description or found[name].kind
        mark = "*" if name == kept.settings.memory.provider else " "
        note(f"{mark} {number}. {name:14} {about}")
    choice: int = typer.prompt("Which one", type=int, err=True)
    if not 1 <= choice <= len(names):
        fail(f"there is no number {choice}", f"choose from 1 to {len(names)}", code=2)
    return names[choice - 1]


def _pairs(given: list[str]) -> dict[str, JSON]:
    pairs: dict[str, JSON] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            fail(f"{each!r} is no answer", "write it as --set KEY=VALUE", code=2)
        pairs[key.strip()] = value
    return pairs


def _configure(kept: "App", provider: "MemoryProvider", given: dict[str, JSON]) -> None:
    from kept.config.load import set_secret
    from kept.providers.config import declared_fields, resolve_answers, save
    from kept.providers.hooks import call_hook

    if callable(getattr(provider, "post_setup", None)) and not given and sys.stdin.isatty():
        call_hook(provider, "post_setup", (str(kept.home.path), {}), {})
        return
    fields = declared_fields(provider)
    unknown = sorted(set(given) - {field.key for field in fields})
    if unknown:
        fail(f"{provider.name} has no setting {unknown[0]!r}", f"it has: {', '.join(f.key for f in fields)}", code=2)
    if sys.stdin.isatty() and not given:
        given = _asked(fields, kept.environ)
    answers = resolve_answers(fields, given, environ=kept.environ)
    if isinstance(answers, Refused):
        refuse(answers, as_json=False)
    save(
        provider,
        answers,
        home=kept.home.path,
        save_secret=lambda key, value: set_secret(kept.home.env_file, key, value),
    )


def _asked(fields: "list[Field]", environ: Mapping[str, str]) -> dict[str, JSON]:
    answers: dict[str, JSON] = {}
    for field in fields:
        if not field.is_asked(answers):
            continue
        if field.url:
            note(f"  get it at {field.url}")
        if field.env_var and environ.get(field.env_var):
            note(f"  {field.env_var} is set; press Enter to keep it")
        choices = f" [{' | '.join(str(choice) for choice in field.choices)}]" if field.choices else ""
        default = "" if field.default is None else str(field.default)
        answers[field.key] = typer.prompt(
            f"{field.description}{choices}",
            default=default,
            hide_input=field.secret,
            show_default=bool(default),
            err=True,
        )
    return answers


def _try(kept: "App", provider: "MemoryProvider") -> None:
    from kept.providers.base import StartContext
    from kept.providers.config import try_provider

    problem = try_provider(provider, StartContext(kept_home=str(kept.home.path), agent_context="flush"))
    if problem is not None:
        note("kept: the answers are kept, but the provider was not switched on")
        refuse(problem, as_json=False)
    say(f"{provider.name} answers")


def _activate(kept: "App", name: str) -> None:
    from kept.config.file import set_value

    set_value(kept.home, "memory.provider", name)
    say(f"memory.provider = {name!r}: conversations use it from their next start on")


def _switch_off(kept: "App", *, as_json: bool = False) -> None:
    from kept.config.file import unset_value

    was_on = unset_value(kept.home, "memory.provider")
    if as_json:
        print_json({"provider": None, "was_on": was_on})
        return
    say("built-in memory only" if was_on else "no provider was switched on; built-in memory only")


def _offer_packages(found: "Found", *, yes: bool) -> None:
    from kept.providers.discovery import install, manifest_of, missing

    manifest = manifest_of(found)
    for hint in manifest.hints:
        note(f"  {hint}")
    wanted = missing(manifest.requirements)
    if wanted and confirm(f"Install {', '.join(wanted)}?", yes=yes) and not install(wanted):
        fail(f"{', '.join(wanted)} could not be installed", "install them by hand, then run setup again", code=69)

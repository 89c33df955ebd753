"""`kept providers`: choose an external memory, see how it is, switch it off."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from kept.app import Caller
from kept.cli.terminal import (
    JsonFlag,
    YesFlag,
    confirm,
    fail,
    join_groups,
    note,
    open_caller,
    print_json,
    printable,
    refuse,
    say,
)
from kept.core.text import JSON
from kept.operations import providers

if TYPE_CHECKING:
    from kept.providers.base import MemoryProvider
    from kept.providers.config import Field
    from kept.providers.plugins import Found
    from kept.providers.status import ChosenStatus

app = typer.Typer(no_args_is_help=True, help="External memories beside the two pages.", rich_markup_mode=None)
shared = typer.Typer()
"""The commands that `kept memory` has too."""

SetOption = Annotated[list[str] | None, typer.Option("--set", help="An answer as KEY=VALUE; may be repeated.")]
NameArgument = Annotated[str | None, typer.Argument(help="The provider; without it you choose from a list.")]


def register(program: typer.Typer) -> None:
    """Add the group, with the commands that stand in a module of their own."""
    from kept.cli.commands import providers_outbox

    join_groups(app, shared, providers_outbox.app)
    program.add_typer(app, name="providers")


@shared.command()
def setup(
    name: NameArgument = None,
    given: SetOption = None,
    test: Annotated[bool, typer.Option(help="Try it before it is switched on.")] = True,
    yes: YesFlag = False,
) -> None:
    """Choose a provider, answer its questions, try it, and switch it on."""
    with open_caller() as caller:
        found = providers.find_providers(caller)
        chosen = name or _pick(found, caller)
        if chosen in {providers.BUILT_IN, "none", "off"}:
            _switch_off(caller)
            return
        if chosen in found:
            _offer_packages(found[chosen], yes=yes)
        provider = providers.open_provider(caller, chosen)
        _configure(caller, provider, _parse_pairs(given or []))
        if test:
            problem = providers.try_provider(caller, provider)
            if problem is not None:
                note("kept: the answers are kept, but the provider was not switched on")
                refuse(problem, as_json=False)
            say(f"{provider.name} answers")
        providers.switch_on(caller, chosen)
    say(f"memory.provider = {chosen!r}: conversations use it from their next start on")


@shared.command()
def off(as_json: JsonFlag = False) -> None:
    """Use the built-in pages only; what waits in the outbox stays there."""
    with open_caller() as caller:
        _switch_off(caller, as_json=as_json)


def _switch_off(caller: Caller, *, as_json: bool = False) -> None:
    was_on = providers.switch_off(caller)
    if as_json:
        print_json({"provider": None, "was_on": was_on})
        return
    say("built-in memory only" if was_on else "no provider was switched on; built-in memory only")


def _pick(found: "Mapping[str, Found]", caller: Caller) -> str:
    from kept.providers.plugins import manifest_of

    names = [*sorted(found), providers.BUILT_IN]
    if not sys.stdin.isatty():
        fail("name the provider to set up", f"one of: {', '.join(names)}", code=2)
    for number, name in enumerate(names, 1):
        is_built_in = name == providers.BUILT_IN
        about = "Built-in only" if is_built_in else manifest_of(found[name]).description or found[name].kind
        mark = "*" if name == caller.app.settings.memory.provider else " "
        note(printable(f"{mark} {number}. {name:14} {about}"))
    choice: int = typer.prompt("Which one", type=int, err=True)
    if not 1 <= choice <= len(names):
        fail(f"there is no number {choice}", f"choose from 1 to {len(names)}", code=2)
    return names[choice - 1]


def _parse_pairs(given: list[str]) -> dict[str, JSON]:
    pairs: dict[str, JSON] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            fail(f"{each!r} is no answer", "write it as --set KEY=VALUE", code=2)
        pairs[key.strip()] = value
    return pairs


def _configure(caller: Caller, provider: "MemoryProvider", given: dict[str, JSON]) -> None:
    from kept.providers.config import declared_fields

    is_asked = sys.stdin.isatty() and not given
    if is_asked and providers.run_own_setup(caller, provider):
        return
    answers = _ask_fields(declared_fields(provider), caller.app.environ) if is_asked else given
    refused = providers.save_answers(caller, provider, answers)
    if refused is not None:
        is_unknown_setting = refused.error.startswith(f"{provider.name} has no setting")
        refuse(refused, as_json=False, code=2 if is_unknown_setting else 1)


def _ask_fields(fields: "list[Field]", environ: Mapping[str, str]) -> dict[str, JSON]:
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


def _offer_packages(found: "Found", *, yes: bool) -> None:
    from kept.providers.plugins import install, manifest_of, missing

    manifest = manifest_of(found)
    for hint in manifest.hints:
        note(f"  {printable(hint)}")
    wanted = missing(manifest.requirements)
    if wanted and confirm(f"Install {', '.join(wanted)}?", yes=yes) and not install(wanted):
        fail(f"{', '.join(wanted)} could not be installed", "install them by hand, then run setup again", code=69)


@shared.command()
def status(as_json: JsonFlag = False) -> None:
    """Show what is in use, what it needs, how it is, and what waits for it."""
    with open_caller() as caller:
        found = providers.report_status(caller)
    if as_json:
        print_json(found.as_json())
        return
    for page, (on, entries) in found.pages.items():
        say(f"built-in {page}: {entries} {'entry' if entries == 1 else 'entries'}{'' if on else ' (switched off)'}")
    if not found.status.chosen:
        say("provider: none, built-in memory only  (`kept providers setup` adds one)")
    for one in found.status.chosen:
        _show_chosen(one)
    for other in found.status.installed:
        say(printable(f"  installed: {other.name:14} {other.kind}"))


def _show_chosen(one: "ChosenStatus") -> None:
    say(printable(f"provider: {one.name} ({one.kind or 'not installed'}), health: {one.condition}"))
    if one.problem:
        say(printable(f"  not in use: {one.problem}"))
    for variable in one.missing_variables:
        say(f"  missing variable: {variable}  (set it in .env or the environment)")
    for key, value in one.configuration.items():
        say(printable(f"  {key} = {value!r}"))
    for key, value in one.facts.items():
        say(printable(f"  {key}: {value}"))
    if one.health.last_error:
        say(printable(f"  last error: {one.health.last_error}  ({providers.iso_or_none(one.health.last_error_at)})"))
    _show_queue(one)


def _show_queue(one: "ChosenStatus") -> None:
    queue = one.queue
    refused = f", {queue.refused} refused for good (`kept providers outbox` lists them)" if queue.refused else ""
    say(f"  outbox: {queue.waiting} waiting, {queue.delivered} delivered, {queue.dropped} dropped{refused}")
    for item in one.blocked:
        behind = f"; {queue.waiting - 1} wait behind it" if queue.waiting > 1 else ""
        say(f"  BLOCKED since {providers.iso_or_none(item.created)} by write {item.id} ({item.hook}){behind}")
        tried = f"{item.attempts} attempts, the next at {providers.iso_or_none(item.not_before)}"
        say(printable(f"    {tried}; last error: {item.last_error}"))
        say(f"    try now: {providers.retry_command(item)}    give it up: {providers.drop_command(item)}")

"""`kept providers`: external memories, their status and outbox; `kept plugins`: list, show, disable."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wellkept import operations
from wellkept.app import Caller
from wellkept.cli.terminal import (
    MOST_DAYS,
    JsonFlag,
    YesFlag,
    ask,
    ask_number,
    complete_hint,
    confirm,
    expect,
    fail,
    join_groups,
    note,
    open_caller,
    print_json,
    refuse,
    say,
    show_json,
)
from wellkept.core.clock import iso_moment
from wellkept.core.text import JSON
from wellkept.core.values import asdict

if TYPE_CHECKING:
    from wellkept.providers.base import MemoryProvider
    from wellkept.providers.config import Field
    from wellkept.providers.plugins import Found
    from wellkept.providers.status import ChosenStatus

UNAVAILABLE = 69
"""The exit code of an external memory that failed."""

app = typer.Typer(no_args_is_help=True, help="External memories in addition to the two pages.", rich_markup_mode=None)
shared = typer.Typer()
"""The commands that `kept memory` has too."""

SetOption = Annotated[list[str] | None, typer.Option("--set", help="An answer as KEY=VALUE; may be repeated.")]
SecretOption = Annotated[
    list[str] | None,
    typer.Option("--secret", help="A key as KEY=env:VAR, read from the variable VAR and stored in .env."),
]
NameArgument = Annotated[str | None, typer.Argument(help="The provider; without it you choose from a list.")]


def register(program: typer.Typer) -> None:
    """Add the group."""
    join_groups(app, shared)
    program.add_typer(app, name="providers")
    program.add_typer(plugins_app, name="plugins")


@shared.command()
def setup(
    name: NameArgument = None,
    given: SetOption = None,
    secrets: SecretOption = None,
    test: Annotated[bool, typer.Option(help="Test it before it is enabled.")] = True,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Choose a provider, answer its questions, test it, and enable it."""
    answers = _parse_pairs(given or [], "--set KEY=VALUE")
    keys = _parse_pairs(secrets or [], "--secret KEY=env:VAR")
    with open_caller() as caller:
        providers = operations.providers.find_providers(caller)
        chosen = name or _pick(providers, caller)
        if chosen in {operations.providers.BUILT_IN, "none", "off"}:
            _switch_off(caller, as_json=as_json)
            return
        provider = _load(caller, chosen, yes=yes)
        is_asked = sys.stdin.isatty() and not (answers or keys or yes)
        _configure(caller, provider, {**answers, **_read_keys(keys, caller)}, is_asked=is_asked, as_json=as_json)
        if test:
            problem = operations.providers.try_provider(caller, provider)
            if problem is not None:
                note("kept: the answers were saved, but the provider was not enabled")
                refuse(problem, as_json=as_json)
            note(f"{provider.name} answers")
        operations.providers.switch_on(caller, provider.name)
    show_json({"provider": provider.name, "tested": test, "enabled": True}, as_json=as_json)
    say(f"memory.provider = {provider.name!r}: conversations use it from their next start on")


@app.command("test")
def run_test(
    name: Annotated[str, typer.Argument(help="The provider.")],
    as_json: JsonFlag = False,
) -> None:
    """Store a sentence with a provider, recall it, and remove it again."""
    with open_caller() as caller:
        trial = operations.providers.make_round_trip(caller, name)
    if as_json:
        print_json(trial.as_json())
    else:
        for step in trial.steps:
            say(f"{'ok  ' if step.ok else 'FAIL'} {step.step:10} {step.ms:8.0f} ms  {step.detail}".rstrip())
    if not trial.ok:
        raise typer.Exit(UNAVAILABLE)


@shared.command()
def off(as_json: JsonFlag = False) -> None:
    """Use the built-in pages only; queued writes stay in the outbox."""
    with open_caller() as caller:
        _switch_off(caller, as_json=as_json)


def _switch_off(caller: Caller, *, as_json: bool = False) -> None:
    was_on = operations.providers.switch_off(caller)
    if as_json:
        print_json({"provider": None, "was_on": was_on})
        return
    say("built-in memory only" if was_on else "no provider was switched on; built-in memory only")


def _pick(found: "Mapping[str, Found]", caller: Caller) -> str:
    from wellkept.providers.plugins import manifest_of

    names = [*sorted(found), operations.providers.BUILT_IN]
    if not sys.stdin.isatty():
        fail("name the provider to set up", f"one of: {', '.join(names)}", code=2)
    for number, name in enumerate(names, 1):
        is_built_in = name == operations.providers.BUILT_IN
        about = "Built-in only" if is_built_in else manifest_of(found[name]).description or found[name].kind
        mark = "*" if name == caller.app.settings.memory.provider else " "
        note(f"{mark} {number}. {name:14} {about}")
    choice = ask_number("Which one")
    if not 1 <= choice <= len(names):
        fail(f"there is no number {choice}", f"choose from 1 to {len(names)}", code=2)
    return names[choice - 1]


def _read_keys(given: Mapping[str, JSON], caller: Caller) -> dict[str, JSON]:
    """Return the values of the variables that `--secret` names: a key on the command line would stay in its history."""
    found: dict[str, JSON] = {}
    for key, place in given.items():
        source, colon, variable = str(place).partition(":")
        if source != "env" or not colon:
            fail(f"the value of {key} must not be on the command line", f"give --secret {key}=env:VARIABLE", code=2)
        value = caller.app.environ.get(variable, "").strip()
        if not value:
            fail(f"the variable {variable} is not set", f"export {variable}=…, then run setup again", code=2)
        found[key] = value
    return found


def _parse_pairs(given: list[str], form: str) -> dict[str, JSON]:
    pairs: dict[str, JSON] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            fail(f"{key!r} has no value", f"write it as {form}", code=2)
        pairs[key.strip()] = value
    return pairs


def _configure(
    caller: Caller, provider: "MemoryProvider", given: dict[str, JSON], *, is_asked: bool, as_json: bool
) -> None:
    if operations.providers.has_own_setup(provider):
        if is_asked:
            operations.providers.run_own_setup(caller, provider)
            return
        note(
            f"{provider.name} has a set-up dialogue of its own, which was skipped: it needs a terminal, and no answers"
        )
        note(f"  to run it: kept providers setup {provider.name}")
    answers = given
    if is_asked:
        answers = _ask_fields(operations.providers.find_questions(caller, provider), caller.app.environ)
    refused = operations.providers.save_answers(caller, provider, answers)
    if refused is not None:
        is_unknown_setting = refused.error.startswith(f"{provider.name} has no setting")
        refuse(refused, as_json=as_json, code=2 if is_unknown_setting else 1)


def _ask_fields(fields: "list[Field]", environ: Mapping[str, str]) -> dict[str, JSON]:
    from wellkept.providers.config import check_answer

    answers: dict[str, JSON] = {}
    for field in fields:
        if not field.applies(answers):
            continue
        if field.url:
            note(f"  get it at {field.url}")
        if field.env_var and environ.get(field.env_var):
            note(f"  {field.env_var} is set; press Enter to keep it")
        choices = f" [{' | '.join(str(choice) for choice in field.choices)}]" if field.choices else ""
        default = "" if field.default is None else str(field.default)
        answer: JSON = ask(f"{field.description}{choices}", default=default, hidden=field.secret)
        while (refused := check_answer(field, answer)) is not None:
            note(f"  {refused.error}; {refused.remedy}")
            answer = ask(f"{field.description}{choices}", default=default, hidden=field.secret)
        answers[field.key] = answer
    return answers


def _load(caller: Caller, name: str, *, yes: bool) -> "MemoryProvider":
    """Load the provider, and install its packages only if nothing else is missing."""
    from wellkept.providers.hooks import close_provider
    from wellkept.providers.plugins import install

    check = operations.providers.check_provider(caller, name)
    if check.problem:
        note(f"kept: {check.problem}")
    for hint in check.hints:
        note(f"  {hint}")
    wanted = ", ".join(check.missing)
    if not check.missing or not confirm(f"Install {wanted}?", yes=yes):
        return check.provider or operations.providers.open_provider(caller, name)
    if not install(check.missing):
        fail(f"{wanted} could not be installed", "install them by hand, then run setup again", code=UNAVAILABLE)
    if check.provider is not None:
        close_provider(check.provider)
    return operations.providers.open_provider(caller, name)


@shared.command()
def status(as_json: JsonFlag = False) -> None:
    """Show what is in use, its needs, its health and queued writes."""
    with open_caller() as caller:
        report = operations.providers.report_status(caller)
    show_json(report, as_json=as_json)
    for page, (on, entries) in report.pages.items():
        say(f"built-in {page}: {entries} {'entry' if entries == 1 else 'entries'}{'' if on else ' (switched off)'}")
    if not report.status.chosen:
        say(complete_hint("provider: none, built-in memory only  (`kept providers setup` adds one)"))
    for provider in report.status.chosen:
        _show_chosen(provider)
    for other in report.status.installed:
        say(f"  installed: {other.name:14} {other.kind}")


def _show_chosen(one: "ChosenStatus") -> None:
    say(f"provider: {one.name} ({one.kind or 'not installed'}), health: {one.condition}")
    if one.problem:
        say(f"  not in use: {one.problem}")
    for variable in one.missing_variables:
        say(f"  missing variable: {variable}  (set it in .env or the environment)")
    for key, value in one.configuration.items():
        say(f"  {key} = {value!r}")
    for key, value in one.facts.items():
        say(f"  {key}: {value}")
    if one.health.last_error:
        say(f"  last error: {one.health.last_error}  ({iso_moment(one.health.last_error_at)})")
    _show_queue(one)


def _show_queue(one: "ChosenStatus") -> None:
    queue = one.queue
    refused = f", {queue.refused} permanently refused (`kept providers outbox` lists them)" if queue.refused else ""
    say(f"  outbox: {queue.waiting} waiting, {queue.delivered} delivered, {queue.dropped} dropped{refused}")
    if one.swallowed:
        say(f"  {one.swallowed} calls of the last day returned although the plugin logged an error: see the log")
    for item in one.blocked:
        behind = f"; {queue.waiting - 1} wait behind it" if queue.waiting > 1 else ""
        say(f"  BLOCKED since {iso_moment(item.created)} by write {item.id} ({item.hook}){behind}")
        tried = f"{item.attempts} attempts, the next at {iso_moment(item.not_before)}"
        say(f"    {tried}; last error: {item.last_error}")
        retry, drop = operations.providers.retry_command(item), operations.providers.drop_command(item)
        say(f"    try now: {retry}    discard it: {drop}")


ActionArgument = Annotated[Literal["list", "retry", "drop"], typer.Argument(help="list, retry or drop.")]
ProviderOption = Annotated[str | None, typer.Option("--provider", help="Only the writes for this provider.")]
IdOption = Annotated[int | None, typer.Option("--id", help="Only this write.")]


@app.command()
def outbox(
    action: ActionArgument = "list",
    provider: ProviderOption = None,
    item_id: IdOption = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """List queued writes, retry them now, or discard them."""
    with open_caller() as caller:
        match action:
            case "list":
                _show(operations.providers.list_outbox(caller, provider), as_json=as_json)
            case "retry":
                count = operations.providers.retry_outbox(caller, provider=provider, item_id=item_id)
                _show_count(count, "due now; the next conversation delivers them", item_id, as_json=as_json)
            case "drop":
                what = f"write {item_id}" if item_id is not None else f"all writes for {provider or 'every provider'}"
                if confirm(f"Discard {what}? They were not delivered.", yes=yes):
                    count = operations.providers.drop_outbox(caller, provider=provider, item_id=item_id)
                    _show_count(count, "dropped", item_id, as_json=as_json)


def _show(found: "operations.providers.OutboxView", *, as_json: bool) -> None:
    if as_json:
        print_json(found.as_json())
        return
    for lane in found.lanes:
        refused = f", {lane.refused} permanently refused" if lane.refused else ""
        say(f"{lane.provider}: {lane.waiting} waiting, {lane.delivered} delivered, {lane.dropped} dropped{refused}")
    for item in found.items:
        tried = f", {item.attempts} attempts: {item.last_error}" if item.attempts else ""
        where = f" of {item.session_id}" if item.session_id else ""
        mark = "  (permanently refused)" if item.is_refused else ""
        say(f"  {item.id}  {item.provider}  {item.hook}{where}{tried}{mark}")
    if not found.items:
        say("the outbox is empty")
    elif any(item.attempts for item in found.items):
        hint = "  try now: `kept providers outbox retry [--id N]`    discard: `kept providers outbox drop --id N`"
        say(complete_hint(hint))


def _show_count(count: int, what: str, item_id: int | None, *, as_json: bool) -> None:
    if not count and item_id is not None:
        fail(f"there is no queued write {item_id}", "`kept providers outbox` lists them", code=2)
    if as_json:
        print_json({"count": count})
    else:
        say(f"{count} {what}")


@app.command()
def stats(
    days: Annotated[int, typer.Option("--days", min=1, max=MOST_DAYS, help="How far to look back.")] = 30,
    as_json: JsonFlag = False,
) -> None:
    """Show hit rate, latency and cost of each provider."""
    with open_caller() as caller:
        rows = operations.providers.measure_providers(caller, days=days)
    if as_json:
        print_json([{**asdict(row), "hit_rate": row.hits / row.recalls if row.recalls else None} for row in rows])
        return
    if not rows:
        say(f"no provider was called in the last {days} days")
    for row in rows:
        rate = f"{row.hits / row.recalls:.0%}" if row.recalls else "–"
        say(f"{row.provider}: {row.calls} calls, {row.failures} failed")
        say(f"  recall: {row.recalls} times, hit rate {rate}")
        say(f"  latency of recall: p50 {row.recall_p50_ms:.0f} ms, p95 {row.recall_p95_ms:.0f} ms")
        say(f"  cost: about {row.recalled_tokens:,} tokens of recalled text")
        say(f"  bytes: {row.bytes_out:,} out, {row.bytes_in:,} in")


@app.command()
def do(
    name: Annotated[
        str | None, typer.Argument(metavar="COMMAND", help="The command; without it all are listed.")
    ] = None,
    words: Annotated[list[str] | None, typer.Argument(metavar="WORDS", help="The arguments of the command.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a command of the provider in use, or list what it offers."""
    if name is None:
        _list_commands(as_json=as_json)
        return
    with open_caller() as caller:
        answer = expect(operations.providers.run_command(caller, name, words or []), as_json=False)
    if as_json:
        print_json(answer.value)
    else:
        say(answer.text)


def _list_commands(*, as_json: bool) -> None:
    with open_caller() as caller:
        commands = expect(operations.providers.list_commands(caller), as_json=False)
    if as_json:
        print_json(
            [
                {"provider": each.provider.name, "command": each.command.name, "summary": each.command.summary}
                for each in commands
            ]
        )
        return
    for command in commands:
        say(f"{command.full_name:<28} {command.command.summary}")
    if not commands:
        say("the provider in use has no commands")


plugins_app = typer.Typer(no_args_is_help=True, help="Third-party plugins.", rich_markup_mode=None)

PluginArgument = Annotated[str, typer.Argument(help="The plugin, by its folder, its entry point or its own name.")]


@plugins_app.command("list")
def list_plugins(as_json: JsonFlag = False) -> None:
    """List providers, context engines and packages of skills; nothing is imported."""
    with open_caller() as caller:
        plugins = operations.plugins.list_plugins(caller)
    show_json(plugins, as_json=as_json)
    kind = ""
    for plugin in plugins.plugins:
        if plugin.kind != kind:
            kind = plugin.kind
            say(f"{kind}s" if kind != "skills" else kind)
        words = "; ".join(part for part in (plugin.note, plugin.description) if part)
        say(f"  {plugin.name:22} {plugin.state:10} {plugin.origin:12} {words}".rstrip())


@plugins_app.command()
def show(name: PluginArgument, as_json: JsonFlag = False) -> None:
    """Show where a plugin comes from, where it runs, what it may do and what it needs."""
    with open_caller() as caller:
        shown = operations.plugins.show_plugin(caller, name)
    show_json(shown, as_json=as_json)
    plugin = shown.plugin
    version = f" {plugin.version}" if plugin.version else ""
    say(f"{plugin.name}{version}: {plugin.kind}, {plugin.state}")
    rows = [
        ("note", plugin.note),
        ("about", plugin.description),
        ("calls itself", plugin.own_name),
        ("origin", plugin.origin),
        ("path", plugin.path),
        ("runs", shown.runs),
        *(("may", ability) for ability in shown.abilities),
        *(("package missing", each) for each in shown.missing),
        *(("variable", variable) for variable in shown.variables),
        *(("program", hint) for hint in shown.hints),
    ]
    for label, words in rows:
        if words:
            say(f"  {label:16} {words}")


@plugins_app.command()
def disable(name: PluginArgument, as_json: JsonFlag = False) -> None:
    """Never load a plugin until it is enabled again; its data stays."""
    with open_caller() as caller:
        done = expect(operations.plugins.disable_plugin(caller, name), as_json=as_json)
    _show_switch(done, as_json=as_json)


@plugins_app.command()
def enable(name: PluginArgument, as_json: JsonFlag = False) -> None:
    """Allow a disabled plugin again."""
    with open_caller() as caller:
        done = operations.plugins.enable_plugin(caller, name)
    _show_switch(done, as_json=as_json)


def _show_switch(done: "operations.plugins.PluginSwitch", *, as_json: bool) -> None:
    show_json(done, as_json=as_json)
    state = "enabled" if done.enabled else "disabled"
    say(f"{done.name} is {state}" if done.changed else f"{done.name} was already {state}")

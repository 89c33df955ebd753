"""`kept providers outbox | stats | do`: queued writes, what calls add up to, and commands of providers."""

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from kept.cli.terminal import (
    MOST_DAYS,
    JsonFlag,
    YesFlag,
    confirm,
    fail,
    open_caller,
    print_json,
    printable,
    refuse,
    say,
)
from kept.core.errors import Refused
from kept.operations import providers

app = typer.Typer()

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
    """List the writes that wait, make them due now, or give them up."""
    with open_caller() as caller:
        match action:
            case "list":
                _show(providers.list_outbox(caller, provider), as_json=as_json)
            case "retry":
                count = providers.retry_outbox(caller, provider=provider, item_id=item_id)
                _show_count(count, "due now; the next conversation delivers them", item_id, as_json=as_json)
            case "drop":
                what = f"write {item_id}" if item_id is not None else f"all writes for {provider or 'every provider'}"
                if confirm(f"Give up {what}? They were not delivered.", yes=yes):
                    count = providers.drop_outbox(caller, provider=provider, item_id=item_id)
                    _show_count(count, "dropped", item_id, as_json=as_json)


def _show(found: providers.OutboxView, *, as_json: bool) -> None:
    if as_json:
        print_json(found.as_json())
        return
    for lane in found.lanes:
        refused = f", {lane.refused} refused for good" if lane.refused else ""
        say(f"{lane.provider}: {lane.waiting} waiting, {lane.delivered} delivered, {lane.dropped} dropped{refused}")
    for item in found.items:
        tried = f", {item.attempts} attempts: {item.last_error}" if item.attempts else ""
        where = f" of {item.session_id}" if item.session_id else ""
        mark = "  (refused for good)" if item.is_refused else ""
        say(printable(f"  {item.id}  {item.provider}  {item.hook}{where}{tried}{mark}"))
    if not found.items:
        say("nothing waits")
    elif any(item.attempts for item in found.items):
        say("  try now: `kept providers outbox retry [--id N]`    give up: `kept providers outbox drop --id N`")


def _show_count(count: int, what: str, item_id: int | None, *, as_json: bool) -> None:
    if not count and item_id is not None:
        fail(f"no write {item_id} waits", "`kept providers outbox` lists what does", code=2)
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
        found = providers.measure_providers(caller, days=days)
    if as_json:
        print_json([{**asdict(one), "hit_rate": one.hits / one.recalls if one.recalls else None} for one in found])
        return
    if not found:
        say(f"no provider was called in the last {days} days")
    for one in found:
        rate = f"{one.hits / one.recalls:.0%}" if one.recalls else "–"
        say(f"{one.provider}: {one.calls} calls, {one.failures} failed")
        say(f"  recall: {one.recalls} times, hit rate {rate}")
        say(f"  latency of recall: p50 {one.recall_p50_ms:.0f} ms, p95 {one.recall_p95_ms:.0f} ms")
        say(f"  cost: about {one.recalled_tokens:,} tokens of recalled text")
        say(f"  bytes: {one.bytes_out:,} out, {one.bytes_in:,} in")


@app.command()
def do(
    name: Annotated[
        str | None, typer.Argument(metavar="COMMAND", help="Its command; without it they are listed.")
    ] = None,
    words: Annotated[list[str] | None, typer.Argument(metavar="WORDS", help="What the command is given.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a command of the provider in use, or list what it offers."""
    if name is None:
        _list_commands(as_json=as_json)
        return
    with open_caller() as caller:
        answer = providers.run_command(caller, name, words or [])
    if isinstance(answer, Refused):
        refuse(answer, as_json=False)
    if as_json:
        print_json(answer.value)
    else:
        say(printable(answer.text))


def _list_commands(*, as_json: bool) -> None:
    with open_caller() as caller:
        found = providers.list_commands(caller)
    if isinstance(found, Refused):
        refuse(found, as_json=False)
    if as_json:
        print_json(
            [
                {"provider": each.provider.name, "command": each.command.name, "summary": each.command.summary}
                for each in found
            ]
        )
        return
    for each in found:
        say(printable(f"{each.full_name:<28} {each.command.summary}"))
    if not found:
        say("the provider in use brings no commands")

"""`kept providers outbox` and `stats`: what waits to be told to a provider, and what its calls add up to."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kept.cli.terminal import MOST_DAYS, JsonFlag, YesFlag, confirm, fail, opened, print_json, say
from kept.core.clock import from_epoch, iso
from kept.core.ids import OWNER

if TYPE_CHECKING:
    from kept.app import App
    from kept.providers.outbox import Item, Outbox

ActionArgument = Annotated[Literal["list", "retry", "drop"], typer.Argument(help="list, retry or drop.")]
ProviderOption = Annotated[str | None, typer.Option("--provider", help="Only the writes for this provider.")]
IdOption = Annotated[int | None, typer.Option("--id", help="Only this write.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("outbox")(outbox)
    app.command("stats")(stats)


def outbox(
    action: ActionArgument = "list",
    provider: ProviderOption = None,
    item_id: IdOption = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """List the writes that wait, make them due now, or give them up."""
    from kept.providers.audit import Audit

    with opened() as kept:
        queue = _queue(kept)
        match action:
            case "list":
                _list(queue, provider, as_json=as_json)
            case "retry":
                count = queue.retry(provider=provider, item_id=item_id)
                Audit(kept.database, user=OWNER, clock=kept.clock).resume(provider)
                _say_count(count, "due now; the next conversation delivers them", item_id, as_json=as_json)
            case "drop":
                what = f"write {item_id}" if item_id is not None else f"all writes for {provider or 'every provider'}"
                if confirm(f"Give up {what}? They were not delivered.", yes=yes):
                    count = queue.drop(provider=provider, item_id=item_id)
                    _say_count(count, "dropped", item_id, as_json=as_json)


def stats(
    days: Annotated[int, typer.Option("--days", min=1, max=MOST_DAYS, help="How far to look back.")] = 30,
    as_json: JsonFlag = False,
) -> None:
    """Show hit rate, latency and cost of each provider."""
    from kept.providers.audit import Audit

    with opened() as kept:
        found = Audit(kept.database, user=OWNER, clock=kept.clock).stats(days=days)
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


def _queue(kept: "App") -> "Outbox":
    from kept.providers.outbox import Outbox

    return Outbox(kept.database, user=OWNER, clock=kept.clock)


def _list(queue: "Outbox", provider: str | None, *, as_json: bool) -> None:
    items = queue.items(provider)
    if as_json:
        print_json(
            {
                "lanes": [asdict(lane) for lane in queue.lanes() if provider in {None, lane.provider}],
                "items": [
                    {
                        "id": item.id,
                        "provider": item.provider,
                        "session_id": item.session_id,
                        "hook": item.hook,
                        "idempotency_key": item.idempotency_key,
                        "created": iso(from_epoch(item.created)),
                        "attempts": item.attempts,
                        "due": _due(item, queue.now()),
                        "refused": item.is_refused,
                        "last_error": item.last_error,
                    }
                    for item in items
                ],
            }
        )
        return
    for lane in queue.lanes():
        if provider in {None, lane.provider}:
            refused = f", {lane.refused} refused for good" if lane.refused else ""
            say(f"{lane.provider}: {lane.waiting} waiting, {lane.delivered} delivered, {lane.dropped} dropped{refused}")
    for item in items:
        tried = f", {item.attempts} attempts: {item.last_error}" if item.attempts else ""
        where = f" of {item.session_id}" if item.session_id else ""
        mark = "  (refused for good)" if item.is_refused else ""
        say(f"  {item.id}  {item.provider}  {item.hook}{where}{tried}{mark}")
    if not items:
        say("nothing waits")
    elif any(item.attempts for item in items):
        say("  try now: `kept providers outbox retry [--id N]`    give up: `kept providers outbox drop --id N`")


def _due(item: "Item", now: float) -> str | None:
    if item.is_refused:
        return None
    return "now" if item.not_before <= now else iso(from_epoch(item.not_before))


def _say_count(count: int, what: str, item_id: int | None, *, as_json: bool) -> None:
    if not count and item_id is not None:
        fail(f"no write {item_id} waits", "`kept providers outbox` lists what does", code=2)
    if as_json:
        print_json({"count": count})
    else:
        say(f"{count} {what}")

"""`kept providers status`: what is in use, what it needs, how it is, and what waits for it."""

from typing import TYPE_CHECKING

from kept.cli.terminal import JsonFlag, opened, print_json, say
from kept.core.clock import from_epoch, iso
from kept.core.ids import OWNER
from kept.core.text import JSON

if TYPE_CHECKING:
    from kept.app import App
    from kept.providers.outbox import Item
    from kept.providers.status import ChosenStatus, Status


def status(as_json: JsonFlag = False) -> None:
    """Show what is in use, what it needs, how it is, and what waits for it."""
    from kept.memory.edits import Target

    with opened() as kept:
        found = status_of(kept)
        pages = {page: (kept.memory.is_enabled(page), len(kept.memory.page(page).entries)) for page in Target}
    if as_json:
        builtin: JSON = {page.value: {"enabled": on, "entries": entries} for page, (on, entries) in pages.items()}
        print_json({"builtin": builtin, **_as_json(found)})
        return
    for page, (on, entries) in pages.items():
        say(f"built-in {page}: {entries} {'entry' if entries == 1 else 'entries'}{'' if on else ' (switched off)'}")
    _say(found)


def status_of(kept: "App") -> "Status":
    """Return how the providers of this home stand."""
    from kept.providers.audit import Audit
    from kept.providers.manager import chosen_names
    from kept.providers.outbox import Outbox
    from kept.providers.status import status_of as standing

    return standing(
        chosen_names(kept.settings.memory.provider),
        home=kept.home.path,
        plugins=kept.home.plugins,
        environ=kept.environ,
        outbox=Outbox(kept.database, user=OWNER, clock=kept.clock),
        audit=Audit(kept.database, user=OWNER, clock=kept.clock),
    )


def _as_json(found: "Status") -> dict[str, JSON]:
    return {
        "provider": [one.name for one in found.chosen],
        "active": [_chosen_as_json(one) for one in found.chosen],
        "installed": [{"name": one.name, "kind": one.kind, "place": one.place} for one in found.installed],
        "outbox": {lane.provider: lane.waiting for lane in found.lanes},
    }


def _chosen_as_json(one: "ChosenStatus") -> dict[str, JSON]:
    return {
        "name": one.name,
        "kind": one.kind,
        "installed": one.kind is not None,
        "available": one.problem is None,
        "problem": one.problem,
        "configuration": one.configuration,
        "facts": one.facts,
        "missing_variables": list(one.missing_variables),
        "health": one.condition,
        "failures": one.health.failures,
        "last_error": one.health.last_error,
        "last_error_at": _moment(one.health.last_error_at),
        "last_success_at": _moment(one.health.last_success_at),
        "waiting": one.queue.waiting,
        "delivered": one.queue.delivered,
        "dropped": one.queue.dropped,
        "refused": one.queue.refused,
        "blocked": [
            {
                "id": item.id,
                "hook": item.hook,
                "since": _moment(item.created),
                "attempts": item.attempts,
                "next_attempt": _moment(item.not_before),
                "last_error": item.last_error,
                "retry": _retry(item),
                "drop": _drop(item),
            }
            for item in one.blocked
        ],
    }


def _say(found: "Status") -> None:
    if not found.chosen:
        say("provider: none, built-in memory only  (`kept providers setup` adds one)")
    for one in found.chosen:
        _say_chosen(one)
    for other in found.installed:
        say(f"  installed: {other.name:14} {other.kind}")


def _say_chosen(one: "ChosenStatus") -> None:
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
        say(f"  last error: {one.health.last_error}  ({_moment(one.health.last_error_at)})")
    _say_queue(one)


def _say_queue(one: "ChosenStatus") -> None:
    queue = one.queue
    refused = f", {queue.refused} refused for good (`kept providers outbox` lists them)" if queue.refused else ""
    say(f"  outbox: {queue.waiting} waiting, {queue.delivered} delivered, {queue.dropped} dropped{refused}")
    for item in one.blocked:
        behind = f"; {queue.waiting - 1} wait behind it" if queue.waiting > 1 else ""
        say(f"  BLOCKED since {_moment(item.created)} by write {item.id} ({item.hook}){behind}")
        tried = f"{item.attempts} attempts, the next at {_moment(item.not_before)}"
        say(f"    {tried}; last error: {item.last_error}")
        say(f"    try now: {_retry(item)}    give it up: {_drop(item)}")


def _retry(item: "Item") -> str:
    return f"kept providers outbox retry --id {item.id}"


def _drop(item: "Item") -> str:
    return f"kept providers outbox drop --id {item.id}"


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else iso(from_epoch(seconds))

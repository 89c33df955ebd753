"""External memories: set up, test and monitor providers, and manage the outbox."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.app.caller import Caller, Scope
from wellkept.core.clock import iso_moment
from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.core.ids import random_hex
from wellkept.core.values import asdict
from wellkept.memory.page import Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wellkept.core.text import JSON
    from wellkept.providers.audit import ProviderStats
    from wellkept.providers.base import CommandAnswer, MemoryProvider
    from wellkept.providers.config import Field
    from wellkept.providers.outbox import Item, Lane
    from wellkept.providers.plugins import Found, OfferedCommand
    from wellkept.providers.status import ChosenStatus, Status
    from wellkept.providers.trial import Trial

BUILT_IN = "builtin"
"""The name for no external memory."""


def find_providers(caller: Caller) -> dict[str, Found]:
    """Return every provider that is installed, by name."""
    from wellkept.providers.plugins import discover

    return dict(discover(caller.app.home.plugins))


def open_provider(caller: Caller, name: str) -> MemoryProvider:
    """Load one provider; raises if it is unknown or broken."""
    from wellkept.providers.loading import load

    source = caller.app.plugin_source()
    return load(name, source.plugins, source.environ, source.policy)


class PluginCheck(Struct, frozen=True):
    """Whether a provider loads, and what it lacks."""

    provider: MemoryProvider | None
    """The loaded provider; None if it cannot be loaded before its packages are installed."""
    problem: str
    missing: tuple[str, ...]
    hints: tuple[str, ...]


def check_provider(caller: Caller, name: str) -> PluginCheck:
    """Load a provider before anything is installed for it; raises unless only packages are missing."""
    from wellkept.providers.loading import LoadFailed
    from wellkept.providers.plugins import Manifest, find_plugin, manifest_of, missing

    plugin = find_plugin(name, find_providers(caller))
    manifest = Manifest() if plugin is None else manifest_of(plugin)
    wanted = tuple(missing(manifest.requirements))
    try:
        provider = open_provider(caller, name)
    except LoadFailed as failed:
        if not (failed.needs_package and wanted):
            raise
        return PluginCheck(None, failed.message, wanted, manifest.hints)
    return PluginCheck(provider, "", wanted, manifest.hints)


def save_answers(caller: Caller, provider: MemoryProvider, given: Mapping[str, JSON]) -> Refused | None:
    """Check the answers to a provider's questions and store them; secrets go to `.env`."""
    from wellkept.config.settings import set_secret
    from wellkept.providers.config import (
        check_answers,
        declared_fields,
        load_values,
        resolve_answers,
        save,
        with_stored,
    )

    caller.require_person(f"`kept memory setup {provider.name}`")
    caller.require(Scope.ADMIN)
    home, environ = caller.app.home, caller.app.environ
    fields = with_stored(declared_fields(provider), load_values(home.path, provider.name))
    # a secret may also be given by the name of its variable
    names = {field.env_var: field.key for field in fields if field.env_var}
    given = {names.get(key, key): value for key, value in given.items()}
    unknown = sorted(set(given) - {field.key for field in fields})
    if unknown:
        known = ", ".join(field.key for field in fields)
        return Refused(Reason.INVALID, f"{provider.name} has no setting {unknown[0]!r}", f"it has: {known}")
    answers = resolve_answers(fields, given, environ=environ)
    if isinstance(answers, Refused):
        return answers
    refused = check_answers(provider, answers, environ=environ)
    if refused is not None:
        return refused
    save(provider, answers, home=home.path, save_secret=lambda key, value: set_secret(home.env_file, key, value))
    return None


def find_questions(caller: Caller, provider: MemoryProvider) -> list[Field]:
    """Return the questions that a person is asked, with the stored answers as defaults."""
    from wellkept.providers.config import declared_fields, load_values, with_stored

    stored = load_values(caller.app.home.path, provider.name)
    return [field for field in with_stored(declared_fields(provider), stored) if field.asked]


def has_own_setup(provider: MemoryProvider) -> bool:
    """Whether the provider has a set-up dialogue of its own, which needs a terminal."""
    return callable(getattr(provider, "post_setup", None))


def run_own_setup(caller: Caller, provider: MemoryProvider) -> None:
    """Run the provider's own set-up dialogue, with the home and what is configured in it."""
    from wellkept.providers.hooks import call_hook, find_isolated
    from wellkept.providers.plugins import read_yaml

    home = caller.app.home
    config = json.loads(json.dumps(read_yaml(home.config_file), default=str))  # YAML has dates, which JSON has not
    isolated = find_isolated(provider)
    if isolated is not None:
        isolated.run_in_terminal("post_setup", str(home.path), config)
    else:
        call_hook(provider, "post_setup", (str(home.path), config), {})


def try_provider(caller: Caller, provider: MemoryProvider) -> Refused | None:
    """Start the provider once and stop it; return what went wrong."""
    from wellkept.providers.base import StartContext
    from wellkept.providers.config import try_provider as start_and_stop

    context = StartContext(kept_home=str(caller.app.home.path), agent_context="flush", user_id=caller.user)
    return start_and_stop(provider, context)


def make_round_trip(caller: Caller, name: str) -> Trial:
    """Store a sentence with the provider, recall it and remove it again, for a user that exists only for this test."""
    from wellkept.providers.base import StartContext
    from wellkept.providers.trial import run_trial

    caller.require(Scope.WRITE)
    home = caller.app.home
    context = StartContext(kept_home=str(home.path), agent_identity=home.profile, user_id=f"kept-test-{random_hex(4)}")
    return run_trial(open_provider(caller, name), context)


def switch_on(caller: Caller, name: str) -> None:
    """Use a provider from the next conversation on."""
    from wellkept.config.settings import set_value

    caller.require(Scope.ADMIN)
    set_value(caller.app.home, "memory.provider", name, why_no_person=caller.why_no_person)


def switch_off(caller: Caller) -> bool:
    """Use the built-in pages only; return whether a provider was in use. Queued writes stay in the outbox."""
    from wellkept.config.settings import unset_value

    caller.require(Scope.ADMIN)
    return unset_value(caller.app.home, "memory.provider", why_no_person="")  # the built-in pages protect more


class ProvidersStatus(Struct, frozen=True):
    """The state of the built-in pages and of the providers in use."""

    pages: Mapping[Target, tuple[bool, int]]
    """Whether each page is switched on, and how many entries it has."""
    status: Status

    def as_json(self) -> dict[str, JSON]:
        """Return pages, providers and outbox."""
        found = self.status
        return {
            "builtin": {page.value: {"enabled": on, "entries": count} for page, (on, count) in self.pages.items()},
            "provider": [one.name for one in found.chosen],
            "active": [_status_json(one) for one in found.chosen],
            "installed": [{"name": one.name, "kind": one.kind, "place": one.place} for one in found.installed],
            "outbox": {lane.provider: lane.waiting for lane in found.lanes},
        }


def report_status(caller: Caller) -> ProvidersStatus:
    """Return the providers in use with their requirements, health and queued writes."""
    from wellkept.memory.history import targets

    memory = caller.space.memory
    pages = {page: (memory.is_enabled(page), len(memory.page(page).entries)) for page in targets(memory, None)}
    return ProvidersStatus(pages, report_providers(caller))


def report_providers(caller: Caller) -> Status:
    """Return the state of the providers, without the pages."""
    from wellkept.providers.manager import chosen_names
    from wellkept.providers.status import status_of

    app = caller.app
    return status_of(
        chosen_names(app.settings.memory.provider, app.home.plugins),
        app.plugin_source(),
        outbox=caller.space.outbox,
        audit=caller.space.audit,
    )


def _status_json(one: ChosenStatus) -> dict[str, JSON]:
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
        "last_error_at": iso_moment(one.health.last_error_at),
        "last_success_at": iso_moment(one.health.last_success_at),
        "waiting": one.queue.waiting,
        "delivered": one.queue.delivered,
        "dropped": one.queue.dropped,
        "refused": one.queue.refused,
        "swallowed": one.swallowed,
        "blocked": [
            {
                "id": item.id,
                "hook": item.hook,
                "since": iso_moment(item.created),
                "attempts": item.attempts,
                "next_attempt": iso_moment(item.not_before),
                "last_error": item.last_error,
                "retry": retry_command(item),
                "drop": drop_command(item),
            }
            for item in one.blocked
        ],
    }


def retry_command(item: Item) -> str:
    """Return the command that makes a queued write due now."""
    return f"kept providers outbox retry --id {item.id}"


def drop_command(item: Item) -> str:
    """Return the command that drops a queued write."""
    return f"kept providers outbox drop --id {item.id}"


class OutboxView(Struct, frozen=True):
    """The queued writes of a user, by lane."""

    lanes: tuple[Lane, ...]
    items: tuple[Item, ...]
    now: float

    def as_json(self) -> dict[str, JSON]:
        """Return lanes and items."""
        return {
            "lanes": [asdict(lane) for lane in self.lanes],
            "items": [
                {
                    "id": item.id,
                    "provider": item.provider,
                    "session_id": item.session_id,
                    "hook": item.hook,
                    "idempotency_key": item.idempotency_key,
                    "created": iso_moment(item.created),
                    "attempts": item.attempts,
                    "due": self._due(item),
                    "refused": item.is_refused,
                    "last_error": item.last_error,
                }
                for item in self.items
            ],
        }

    def _due(self, item: Item) -> str | None:
        if item.is_refused:
            return None
        return "now" if item.not_before <= self.now else iso_moment(item.not_before)


def list_outbox(caller: Caller, provider: str | None = None) -> OutboxView:
    """Return the queued writes."""
    outbox = caller.space.outbox
    lanes = tuple(lane for lane in outbox.lanes() if provider in {None, lane.provider})
    return OutboxView(lanes, tuple(outbox.items(provider)), outbox.now())


def count_outbox(caller: Caller) -> int:
    """Return how many writes of all users are queued."""
    caller.require(Scope.ADMIN)
    users = {caller.user, *caller.space.sessions.users()}
    return sum(lane.waiting + lane.refused for user in users for lane in caller.app.space(user).outbox.lanes())


def retry_outbox(caller: Caller, *, provider: str | None = None, item_id: int | None = None) -> int:
    """Make queued writes due now and end the cooldown of their provider; return how many."""
    caller.require(Scope.WRITE)
    count = caller.space.outbox.retry(provider=provider, item_id=item_id)
    caller.space.audit.resume(provider)
    return count


def drop_outbox(caller: Caller, *, provider: str | None = None, item_id: int | None = None) -> int:
    """Drop queued writes; return how many."""
    caller.require_person("`kept providers outbox drop`")
    caller.require(Scope.WRITE)
    return caller.space.outbox.drop(provider=provider, item_id=item_id)


def measure_providers(caller: Caller, *, days: int) -> list[ProviderStats]:
    """Return hit rate, latency and cost of each provider."""
    return caller.space.audit.stats(days=days)


def list_commands(caller: Caller) -> list[OfferedCommand] | Refused:
    """Return the commands of the providers in use."""
    from wellkept.providers.manager import chosen_names
    from wellkept.providers.plugins import find_commands

    app = caller.app
    chosen = chosen_names(app.settings.memory.provider, app.home.plugins)
    if not chosen:
        return Refused(Reason.DISABLED, "no provider is switched on", "choose one with `kept providers setup`")
    return find_commands([open_provider(caller, name) for name in chosen])


def run_command(caller: Caller, name: str, words: Sequence[str]) -> CommandAnswer | Refused:
    """Run a command of a provider in use; raises UsageError for an unknown one."""
    from wellkept.providers.base import StartContext
    from wellkept.providers.plugins import run_command as run

    commands = list_commands(caller)
    if isinstance(commands, Refused):
        return commands
    home = caller.app.home
    context = StartContext(kept_home=str(home.path), agent_identity=home.profile, user_id=caller.user)
    return run(_find_command(name, commands), list(words), context)


def _find_command(name: str, found: Sequence[OfferedCommand]) -> OfferedCommand:
    fitting = [each for each in found if name in {each.command.name, each.full_name}]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(
            f"{name!r} is a command of several providers", f"give the full name, such as {fitting[0].full_name}"
        )
    near = get_close_matches(name, [each.command.name for each in found], 1)
    all_names = ", ".join(each.full_name for each in found) or "none"
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {all_names}"
    raise UsageError(f"no provider in use has a command {name!r}", hint)

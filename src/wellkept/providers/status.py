"""The status of one user's providers: what is chosen, what it needs, its health and its queue."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from wellkept.core.errors import KeptError
from wellkept.core.ids import UserId
from wellkept.core.text import JSON
from wellkept.core.threads import start_job
from wellkept.providers.audit import Audit, Health
from wellkept.providers.base import MemoryProvider
from wellkept.providers.config import Field, declared_fields, load_values, own_name
from wellkept.providers.hooks import call_hook, close_provider, describe_error, overrides
from wellkept.providers.loading import PluginSource, load
from wellkept.providers.outbox import Item, Lane, Outbox
from wellkept.providers.plugins import Found, Kind, discover
from wellkept.security.secrets import redact

_CHECK_SECONDS = 5.0
_STATUS_SECONDS = 16.0
"""Longer than the providers' own limits, so that they can say what is wrong."""
_MAX_CHARS = 200
_MAX_FACTS = 20

Condition = Literal["ok", "not called yet", "logs errors", "failing", "paused", "not available"]
_TROUBLE = ("reachable", "connected", "healthy", "ok", "available")
"""Facts with which a plugin says, by False, that its back end cannot be used."""


class ChosenStatus(Struct, frozen=True):
    """The state of a chosen provider."""

    name: str
    kind: Kind | None
    """Where it comes from; None if it does not exist here."""
    condition: Condition
    problem: str | None
    """Why it is not available."""
    configuration: Mapping[str, JSON]
    """Its settings without secrets."""
    missing_variables: tuple[str, ...]
    health: Health
    queue: Lane
    facts: Mapping[str, JSON] = field(default_factory=dict)
    """What it reports about itself."""
    swallowed: int = 0
    """Calls of the last day that returned although the plugin logged an error."""
    blocked: tuple[Item, ...] = ()
    """The write that failed and blocks those behind it, if there is one."""


class Status(Struct, frozen=True):
    """The state of all providers."""

    chosen: tuple[ChosenStatus, ...]
    installed: tuple[Found, ...]
    """Every provider that could be chosen, by name."""
    lanes: tuple[Lane, ...]
    """Every queue, also those of providers that are no longer chosen."""


def status_of(names: Sequence[str], source: PluginSource, *, outbox: Outbox, audit: Audit) -> Status:
    """Return the state of the chosen providers for the user of `outbox`; only these providers are imported."""
    found, lanes = discover(source.plugins), outbox.lanes()
    queues = {lane.provider: lane for lane in lanes}

    def chosen(name: str) -> ChosenStatus:
        head = outbox.head(name)
        inspection = _inspect(name, source, outbox.user)
        health, swallowed = audit.health(name), audit.count_swallowed(name)
        return ChosenStatus(
            name=name,
            kind=found[name].kind if name in found else None,
            condition=_condition(inspection, health, now=outbox.now(), swallowed=swallowed),
            problem=inspection.problem,
            configuration=inspection.configuration,
            missing_variables=inspection.missing_variables,
            health=health,
            queue=queues.get(name, Lane(name)),
            facts=inspection.facts,
            swallowed=swallowed,
            blocked=(head,) if head is not None and head.attempts else (),
        )

    installed = sorted(found.values(), key=lambda each: each.name)
    return Status(tuple(chosen(name) for name in names), tuple(installed), tuple(lanes))


class _Inspection(Struct, frozen=True):
    """What the provider itself and its settings say."""

    problem: str | None
    configuration: Mapping[str, JSON] = field(default_factory=dict)
    facts: Mapping[str, JSON] = field(default_factory=dict)
    missing_variables: tuple[str, ...] = ()


def _inspect(name: str, source: PluginSource, user: UserId) -> _Inspection:
    home, environ = source.home, source.environ
    fields: Sequence[Field] = ()
    values: Mapping[str, JSON] = {}
    facts: Mapping[str, JSON] = {}
    try:
        provider = load(name, source.plugins, environ, source.policy)
        problem = _availability_problem(provider, home)
        fields = declared_fields(provider)
        values = load_values(home, own_name(provider))
        facts = _facts(provider, home, user) if problem is None else {}
        close_provider(provider)
    except KeptError as error:
        problem = error.message
    secret = {field.key for field in fields if field.secret or field.env_var}
    return _Inspection(
        problem,
        {key: value for key, value in values.items() if key not in secret},
        {key: value for key, value in facts.items() if key not in secret},
        tuple(field.env_var for field in fields if field.env_var and field.required and not environ.get(field.env_var)),
    )


def _condition(found: _Inspection, health: Health, *, now: float, swallowed: int) -> Condition:
    """Return the condition in a word; `ok` only after a call that returned without a complaint."""
    if found.problem is not None:
        return "not available"
    if health.paused_until > now:
        return "paused"
    if health.failures or _reports_trouble(found.facts):
        return "failing"
    if swallowed:
        return "logs errors"
    return "ok" if health.last_success_at is not None else "not called yet"


def _reports_trouble(facts: Mapping[str, JSON]) -> bool:
    return any(facts.get(key) is False for key in _TROUBLE) or bool(facts.get("error"))


def _availability_problem(provider: MemoryProvider, home: Path) -> str | None:
    keywords = {"kept_home": str(home)}
    job = start_job(lambda: call_hook(provider, "is_available", (), keywords), name="kept-provider-check")
    if not job.wait(_CHECK_SECONDS):
        return f"it did not say within {_CHECK_SECONDS:g} s whether it is available"
    if job.error is not None:
        return f"is_available raised {describe_error(job.error)}"
    return None if job.result is True else "it is not available: its configuration or its package is missing"


def _facts(provider: MemoryProvider, home: Path, user: UserId) -> dict[str, JSON]:
    """Return what the provider reports about itself, shortened; a failure to report is a fact too."""
    if not overrides(provider, "get_status"):
        return {}
    keywords = {"kept_home": str(home), "hermes_home": str(home), "user_id": user}
    job = start_job(lambda: call_hook(provider, "get_status", (), keywords), name="kept-provider-check")
    if not job.wait(_STATUS_SECONDS):
        return {"status": f"get_status did not answer within {_STATUS_SECONDS:g} s"}
    if job.error is not None:
        return {"status": f"get_status raised {type(job.error).__name__}"}
    facts = job.result
    if not isinstance(facts, Mapping):
        return {} if facts is None else {"status": redact(str(facts)[:_MAX_CHARS])}
    return {str(key)[:_MAX_CHARS]: _shorten(value) for key, value in list(facts.items())[:_MAX_FACTS]}


def list_backup_paths(names: Sequence[str], source: PluginSource) -> dict[str, list[Path]]:
    """Return the files and folders outside the home that each provider names; one that fails names none."""
    found: dict[str, list[Path]] = {}
    for name in names:
        try:
            provider = load(name, source.plugins, source.environ, source.policy)
        except KeptError:
            continue
        if overrides(provider, "backup_paths"):
            job = start_job(partial(call_hook, provider, "backup_paths", (), {}), name="kept-provider-check")
            if job.wait(_CHECK_SECONDS) and job.error is None and isinstance(job.result, Sequence):
                found[name] = [Path(str(path)).expanduser().absolute() for path in job.result]
        close_provider(provider)
    return {name: paths for name, paths in found.items() if paths}


def _shorten(value: object) -> JSON:
    return value if value is None or isinstance(value, bool | int | float) else redact(str(value)[:_MAX_CHARS])

"""The status of providers: what is chosen, what it needs, how it is, and what waits for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kept.core.errors import KeptError
from kept.core.text import JSON
from kept.core.threads import start_job
from kept.providers.audit import Audit, Health
from kept.providers.base import MemoryProvider
from kept.providers.config import Field, declared_fields, load_values
from kept.providers.discovery import Found, Kind, discover
from kept.providers.hooks import call_hook
from kept.providers.loading import load
from kept.providers.outbox import Item, Lane, Outbox
from kept.security.secrets import redact

_CHECK_SECONDS = 5.0
_LONGEST = 200
_MOST_FACTS = 20


Condition = Literal["ok", "failing", "paused", "not available"]


@dataclass(frozen=True, slots=True)
class ChosenStatus:
    """How a chosen provider stands."""

    name: str
    kind: Kind | None
    """Where it comes from; None when it does not exist here."""
    condition: Condition
    problem: str | None
    """Why it is not available."""
    configuration: Mapping[str, JSON]
    """Its settings; secrets are left out."""
    missing_variables: tuple[str, ...]
    health: Health
    queue: Lane
    """What waits for it, for all users together."""
    facts: Mapping[str, JSON] = field(default_factory=dict)
    """What it tells of itself."""
    blocked: tuple[Item, ...] = ()
    """Writes that failed and hold up what is queued behind them, one per lane at most."""


@dataclass(frozen=True, slots=True)
class Status:
    """How the providers of a home stand."""

    chosen: tuple[ChosenStatus, ...]
    installed: tuple[Found, ...]
    """Every provider that could be chosen, by name."""
    lanes: tuple[Lane, ...]
    """Every queue, also that of a provider which is no longer chosen."""


def status_of(
    names: Sequence[str], *, home: Path, plugins: Path, environ: Mapping[str, str], outbox: Outbox, audit: Audit
) -> Status:
    """Return how the chosen providers stand; only those are imported."""
    found, lanes = discover(plugins), outbox.lanes()

    def chosen(name: str) -> ChosenStatus:
        own = [lane for lane in lanes if lane.provider.partition("/")[0] == name]
        heads = [outbox.head(lane.provider) for lane in own]
        asked = _inspect(name, home=home, plugins=plugins, environ=environ)
        health = audit.health(name)
        return ChosenStatus(
            name=name,
            kind=found[name].kind if name in found else None,
            condition=_condition(asked.problem, health, outbox.now()),
            problem=asked.problem,
            configuration=asked.configuration,
            missing_variables=asked.missing_variables,
            health=health,
            queue=_together(name, own),
            facts=asked.facts,
            blocked=tuple(head for head in heads if head is not None and head.attempts),
        )

    installed = sorted(found.values(), key=lambda each: each.name)
    return Status(tuple(chosen(name) for name in names), tuple(installed), tuple(lanes))


@dataclass(frozen=True, slots=True)
class _Inspection:
    """What the provider itself and its settings say."""

    problem: str | None
    configuration: Mapping[str, JSON] = field(default_factory=dict)
    facts: Mapping[str, JSON] = field(default_factory=dict)
    missing_variables: tuple[str, ...] = ()


def _inspect(name: str, *, home: Path, plugins: Path, environ: Mapping[str, str]) -> _Inspection:
    fields: Sequence[Field] = ()
    values: Mapping[str, JSON] = {}
    facts: Mapping[str, JSON] = {}
    try:
        provider = load(name, plugins, environ)
        fields = declared_fields(provider)
        problem = _availability_problem(provider)
        values = load_values(home, name)
        facts = _facts(provider, home) if problem is None else {}
    except KeptError as error:
        problem = error.message
    secret = {field.key for field in fields if field.secret or field.env_var}
    return _Inspection(
        problem,
        {key: value for key, value in values.items() if key not in secret},
        {key: value for key, value in facts.items() if key not in secret},
        tuple(field.env_var for field in fields if field.env_var and field.required and not environ.get(field.env_var)),
    )


def _condition(problem: str | None, health: Health, now: float) -> Condition:
    if problem is not None:
        return "not available"
    if health.paused_until > now:
        return "paused"
    return "failing" if health.failures else "ok"


def _together(name: str, lanes: Sequence[Lane]) -> Lane:
    return Lane(
        provider=name,
        waiting=sum(lane.waiting for lane in lanes),
        oldest=min((lane.oldest for lane in lanes if lane.oldest is not None), default=None),
        delivered=sum(lane.delivered for lane in lanes),
        dropped=sum(lane.dropped for lane in lanes),
        refused=sum(lane.refused for lane in lanes),
    )


def _availability_problem(provider: MemoryProvider) -> str | None:
    job = start_job(provider.is_available, name="kept-provider-check")
    if not job.wait(_CHECK_SECONDS):
        return f"it did not say within {_CHECK_SECONDS:g} s whether it is available"
    if job.error is not None:
        return f"is_available raised {type(job.error).__name__}: {job.error}"
    return None if job.result is True else "it is not available: its configuration or its package is missing"


def _facts(provider: MemoryProvider, home: Path) -> dict[str, JSON]:
    """Return what the provider tells of itself, in short words; one that cannot tell is told of."""
    asked = {"kept_home": str(home), "hermes_home": str(home)}
    job = start_job(lambda: call_hook(provider, "get_status", (), asked), name="kept-provider-check")
    if not job.wait(_CHECK_SECONDS):
        return {"status": f"get_status did not answer within {_CHECK_SECONDS:g} s"}
    if job.error is not None:
        return {"status": f"get_status raised {type(job.error).__name__}"}
    told = job.result
    if not isinstance(told, Mapping):
        return {} if told is None else {"status": redact(str(told)[:_LONGEST])}
    return {str(key)[:_LONGEST]: _short(value) for key, value in list(told.items())[:_MOST_FACTS]}


def _short(value: object) -> JSON:
    return value if value is None or isinstance(value, bool | int | float) else redact(str(value)[:_LONGEST])

"""The status of providers: what is chosen, what it needs, how it is, and what waits for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kept.core.errors import KeptError
from kept.core.jsontypes import JSON
from kept.providers.audit import Audit
from kept.providers.base import MemoryProvider
from kept.providers.breaker import Health
from kept.providers.calling import call_hook
from kept.providers.config import load_values
from kept.providers.crew import Crew
from kept.providers.discovery import Found, discover
from kept.providers.loading import load
from kept.providers.outbox import Item, Lane, Outbox
from kept.providers.setup import Field, declared_fields
from kept.security.secrets import redact

_CHECK_SECONDS = 5.0
_LONGEST = 200
_MOST_FACTS = 20


@dataclass(frozen=True, slots=True)
class ChosenStatus:
    """How a chosen provider stands."""

    name: str
    kind: str | None
    """Where it comes from; None when it does not exist here."""
    available: bool
    problem: str | None
    """Why it is not available."""
    configuration: Mapping[str, JSON]
    """Its settings; secrets are left out."""
    missing_variables: tuple[str, ...]
    health: Health
    paused: bool
    lanes: tuple[Lane, ...]
    """Its queues, one per user."""
    facts: Mapping[str, JSON] = field(default_factory=dict)
    """What it tells of itself."""
    blocked: tuple[Item, ...] = ()
    """Writes that failed and hold up what is queued behind them, one per lane at most."""


def chosen_status(
    name: str, *, home: Path, plugins: Path, environ: Mapping[str, str], outbox: Outbox, audit: Audit
) -> ChosenStatus:
    """Return how one chosen provider stands; imports that one only."""
    found = discover(plugins).get(name)
    fields: Sequence[Field] = ()
    problem: str | None = None
    try:
        provider = load(name, plugins, environ)
        fields = declared_fields(provider)
        problem = _unavailable(provider)
        values = load_values(home, name)
        facts = _facts(provider, home) if problem is None else {}
    except KeptError as error:
        problem, values, facts = error.message, {}, {}
    secret = {field.key for field in fields if field.secret or field.env_var}
    health = audit.health(name)
    lanes = tuple(lane for lane in outbox.lanes() if lane.provider.partition("/")[0] == name)
    heads = [outbox.head(lane.provider) for lane in lanes]
    return ChosenStatus(
        name=name,
        kind=found.kind if found is not None else None,
        available=problem is None,
        problem=problem,
        configuration={key: value for key, value in values.items() if key not in secret},
        missing_variables=tuple(
            field.env_var for field in fields if field.env_var and field.required and not environ.get(field.env_var)
        ),
        health=health,
        paused=health.paused_until > outbox.now(),
        lanes=lanes,
        facts={key: value for key, value in facts.items() if key not in secret},
        blocked=tuple(head for head in heads if head is not None and head.attempts),
    )


def installed(plugins: Path) -> list[Found]:
    """Return every provider that could be chosen, by name."""
    return sorted(discover(plugins).values(), key=lambda found: found.name)


def _unavailable(provider: MemoryProvider) -> str | None:
    job = Crew("kept-provider-check").submit(provider.is_available)
    if not job.wait(_CHECK_SECONDS):
        return f"it did not say within {_CHECK_SECONDS:g} s whether it is available"
    if job.error is not None:
        return f"is_available raised {type(job.error).__name__}: {job.error}"
    return None if job.result is True else "it is not available: its configuration or its package is missing"


def _facts(provider: MemoryProvider, home: Path) -> dict[str, JSON]:
    """Return what the provider tells of itself, in short words; one that cannot tell is told of."""
    asked = {"kept_home": str(home), "hermes_home": str(home)}
    job = Crew("kept-provider-check").submit(lambda: call_hook(provider, "get_status", (), asked))
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

"""The status of providers: what is chosen, what it needs, how it is, and what waits for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kept.core.errors import KeptError
from kept.core.jsontypes import JSON
from kept.providers.audit import Audit
from kept.providers.base import MemoryProvider
from kept.providers.breaker import Health
from kept.providers.config import load_values
from kept.providers.crew import Crew
from kept.providers.discovery import Found, discover, load
from kept.providers.outbox import Lane, Outbox
from kept.providers.setup import Field, declared_fields

_CHECK_SECONDS = 5.0


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


def chosen_status(
    name: str, *, home: Path, plugins: Path, environ: Mapping[str, str], outbox: Outbox, audit: Audit
) -> ChosenStatus:
    """Return how one chosen provider stands; imports that one only."""
    found = discover(plugins).get(name)
    fields: Sequence[Field] = ()
    problem: str | None = None
    try:
        provider = load(name, plugins)
        fields = declared_fields(provider)
        problem = _unavailable(provider)
        values = load_values(home, name)
    except KeptError as error:
        problem, values = error.message, {}
    secret = {field.key for field in fields if field.secret or field.env_var}
    health = audit.health(name)
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
        lanes=tuple(lane for lane in outbox.lanes() if lane.provider.partition("/")[0] == name),
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

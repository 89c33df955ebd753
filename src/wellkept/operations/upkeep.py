"""Maintenance of the session store: prune, statistics, search index, repair."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.app.caller import Caller, Scope
from wellkept.core.errors import KeptError, Reason, Refused, StorageError, UsageError
from wellkept.core.events import Warned
from wellkept.core.ids import SessionId, UserId
from wellkept.core.values import JsonStruct
from wellkept.operations.sessions import session_json
from wellkept.operations.vectors import Vectors, count_vectors, count_waiting_vectors
from wellkept.sessions.reports import Pruned, Removed, Repaired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.core.messages import Session
    from wellkept.core.text import JSON

_MEGABYTE = 1_000_000


class PrunePlan(Struct, frozen=True):
    """The sessions that a prune would move to the trash."""

    sessions: Pruned

    def as_json(self) -> dict[str, JSON]:
        """Return the plan as the answer to a dry run."""
        return {
            "sessions": [session_json(session) for session in self.sessions.sessions],
            "text_bytes": self.sessions.text_bytes,
            "dry_run": True,
        }


class PruneReport(Struct, frozen=True):
    """What a prune moved to the trash, and what it removed from the trash permanently."""

    plan: PrunePlan
    deleted: tuple[SessionId, ...]
    removed: Removed

    def as_json(self) -> dict[str, JSON]:
        """Return the plan with what was done."""
        removed = self.removed
        return {
            **self.plan.as_json(),
            "dry_run": False,
            "deleted": list(self.deleted),
            "removed": {"sessions": removed.sessions, "messages": removed.messages, "blobs": removed.blobs},
        }


def plan_prune(
    caller: Caller, *, days: float | None = None, source: str | None = None, max_megabytes: float | None = None
) -> PrunePlan:
    """Return the idle sessions; without any condition those older than `sessions.retention_days`."""
    if math.isnan(days or 0.0) or math.isnan(max_megabytes or 0.0):
        raise UsageError("nan is not a valid number", "write it like --days 90 or --max-mb 500")
    is_asked = days is not None or max_megabytes is not None or source is not None
    idle = days if is_asked else caller.app.settings.sessions.retention_days
    if not is_asked and idle is None:
        return PrunePlan(Pruned())
    most = None if max_megabytes is None else int(max_megabytes * _MEGABYTE)
    return PrunePlan(caller.space.sessions.upkeep.prunable(days=idle, source=source, most_bytes=most))


def prune(caller: Caller, plan: PrunePlan, *, empty_trash: bool = False) -> PruneReport:
    """Move the planned sessions to the trash, and remove what was in the trash for too long."""
    if empty_trash:
        caller.require_person("`kept sessions prune --empty-trash`")
    caller.require(Scope.WRITE)
    upkeep = caller.space.sessions.upkeep
    deleted = upkeep.delete([session.id for session in plan.sessions.sessions])
    return PruneReport(plan, tuple(deleted), upkeep.sweep(days=0 if empty_trash else None))


def sweep_trash(caller: Caller) -> None:
    """Remove what was in the trash for too long; does nothing if the store cannot be written."""
    try:
        caller.space.sessions.upkeep.sweep()
    except StorageError:
        return


def run_idle_work(caller: Caller) -> None:
    """Do idle-time work: spooled turns, the trash, unused skills, proposals, a backup that is due."""
    from wellkept.backup.backup import take_scheduled_backup
    from wellkept.connect.capture import drain_spool
    from wellkept.operations.conversations import run_due_curator
    from wellkept.operations.projectfacts import propose_recent_retirements
    from wellkept.operations.proposals import propose_recent_facts

    drain_spool(caller)
    sweep_trash(caller)
    run_due_curator(caller)
    propose_recent_facts(caller)
    propose_recent_retirements(caller)
    take_scheduled_backup(caller)


class Statistics(Struct, frozen=True):
    """Counts and sizes of the store, growth by month, the biggest sessions."""

    store: dict[str, JSON]
    vectors: Vectors

    def as_json(self) -> dict[str, JSON]:
        """Return all figures."""
        return {**self.store, "vectors": self.vectors.as_json()}


def measure_store(caller: Caller) -> Statistics:
    """Return the figures of the whole file."""
    caller.require(Scope.ADMIN)
    return Statistics(caller.space.sessions.upkeep.stats(), count_vectors(caller))


class Reindexed(JsonStruct, frozen=True):
    """How many messages are in the new index."""

    indexed: int


def rebuild_index(caller: Caller) -> Reindexed:
    """Rebuild the search index from the stored messages; others may read and write meanwhile."""
    caller.require(Scope.ADMIN)
    return Reindexed(caller.space.sessions.upkeep.reindex())


class Optimized(Struct, frozen=True):
    """The size of the file before and after."""

    figures: dict[str, JSON]

    def as_json(self) -> dict[str, JSON]:
        """Return the sizes."""
        return dict(self.figures)


def optimize(caller: Caller, *, vacuum: bool = False) -> Optimized:
    """Merge the index and shorten the write-ahead log, in small steps."""
    caller.require(Scope.ADMIN)
    return Optimized(caller.space.sessions.upkeep.optimize(vacuum=vacuum))


def repair_sessions(caller: Caller) -> Repaired | Refused:
    """Check the store and repair it: a rebuilt index, or a damaged file set aside and its rows copied over."""
    from wellkept.app.store_care import repair_store

    caller.require(Scope.ADMIN)
    report = repair_store(caller.app)
    if report is None:
        return Refused(
            Reason.NO_MATCH, "there is no session store to repair", "it is created when the first session is stored"
        )
    if report.done and not report.left:
        report.done += _rebuild_vectors(caller)
    return report


class Quarantine(Struct, frozen=True):
    """Sessions without an owner, and the user whom they were given to."""

    sessions: tuple[Session, ...]
    given_to: UserId | None = None

    def as_json(self) -> dict[str, JSON]:
        """Return the sessions, and who got them."""
        return {"sessions": [session_json(session) for session in self.sessions], "given_to": self.given_to}


def list_quarantine(caller: Caller) -> Quarantine:
    """Return the sessions that a repair found without an owner."""
    caller.require(Scope.ADMIN)
    return Quarantine(tuple(caller.space.sessions.upkeep.quarantine()))


def give_quarantined(caller: Caller, user_id: str, names: Sequence[str] = ()) -> Quarantine | Refused:
    """Give sessions in quarantine to a user: those named, or all."""
    from wellkept.operations.users import require_user

    caller.require(Scope.ADMIN)
    require_user(caller, user_id)
    upkeep = caller.space.sessions.upkeep
    there = {session.id: session for session in upkeep.quarantine()}
    unknown = [name for name in names if name not in there]
    if unknown or not there:
        what = f"there is no session {unknown[0]!r} in quarantine" if unknown else "no session is in quarantine"
        return Refused(Reason.NO_MATCH, what, "`kept sessions quarantine` lists them")
    chosen = [session for session in there.values() if not names or session.id in names]
    upkeep.give([session.id for session in chosen], user=UserId(user_id))
    return Quarantine(tuple(chosen), UserId(user_id))


def _rebuild_vectors(caller: Caller) -> list[str]:
    """Recompute vectors that a repair could not copy; if the model does not answer, they stay missing."""
    waiting_vectors = count_waiting_vectors(caller)
    if not waiting_vectors or caller.app.semantic_search is None:
        return []
    try:
        return [f"{caller.app.semantic_search.embed_all():,} messages got vectors"]
    except KeptError as error:
        caller.space.listeners(
            Warned(f"{waiting_vectors:,} messages without vectors: {error.message}", "run: kept sessions embed")
        )
        return []

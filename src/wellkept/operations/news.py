"""What is new since a person's last visit: edits to keep or undo, decisions that wait, and marks of both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from wellkept.app.caller import Caller, Scope
from wellkept.core.clock import iso_moment
from wellkept.core.text import JSON, dumps
from wellkept.core.values import JsonStruct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wellkept.connect.status import ClientStatus
    from wellkept.forgetting.requests import ForgetRequest
    from wellkept.memory.approval import Pending
    from wellkept.memory.page import EditRecord

OWN_ORIGINS = frozenset({"user", "undo", "outside", "approval"})
"""Edits that the person made, which need no review."""
MOST_GROUPS = 20
_READ = "SELECT value FROM state_meta WHERE /*! tenant = :tenant AND user_id = :user AND */ key = ?"
_WRITE = (
    "INSERT INTO state_meta (/*! tenant, user_id, */ key, value) VALUES (/*! :tenant, :user, */ ?, ?)"
    " ON CONFLICT (/*! tenant, user_id, */ key) DO UPDATE SET value = excluded.value"
)
_MOST_KEPT = 1_000
"""How many groups are recorded as kept one by one; `keep_all` empties the list."""
QUIET_DAYS = 3
"""An agent that was captured before and is silent for longer than this is reported."""
_DAY = 86_400.0


class ChangeGroup(JsonStruct, frozen=True):
    """Edits that belong together: one review, one batch, one import."""

    group_id: str
    origin: str
    session_id: str | None
    time: float
    records: tuple[EditRecord, ...] = field(name="edits")
    """Oldest first."""

    @property
    def counts(self) -> dict[str, int]:
        """Return how many entries were added, replaced and removed."""
        actions = [record.step.action for record in self.records]
        return {action: actions.count(action) for action in dict.fromkeys(actions)}

    def as_json(self) -> dict[str, JSON]:
        """Return the group with its edits."""
        return {**super().as_json(), "time": iso_moment(self.time)}


class Changes(JsonStruct, frozen=True):
    """The groups that nobody has reviewed yet, newest first."""

    groups: tuple[ChangeGroup, ...]
    total: int
    """How many there are; only the newest are listed."""
    newest: int
    """The newest edit of the ledger: what `keep_all` keeps."""


class _Seen(Struct, frozen=True):
    """What a person has reviewed: everything up to a row of the ledger, and single groups after it."""

    ledger_id: int = 0
    kept: tuple[str, ...] = ()


def list_changes(caller: Caller, *, limit: int = MOST_GROUPS) -> Changes:
    """Return what others wrote since the person's last review, without undone edits."""
    from wellkept.memory.history import History
    from wellkept.memory.page import undone_ids

    seen = _read_seen(caller)
    rows = History(caller.space.memory).rows()
    gone = undone_ids(rows)
    groups: dict[str, list[EditRecord]] = {}
    for row in rows:
        is_open = row.id > seen.ledger_id and row.id not in gone and row.undoes is None
        if is_open and row.origin not in OWN_ORIGINS and row.group_id not in seen.kept:
            groups.setdefault(row.group_id, []).append(row)
    found = [
        ChangeGroup(group_id, each[0].origin, each[0].session_id, each[-1].time, tuple(each))
        for group_id, each in reversed(groups.items())
    ]
    return Changes(tuple(found[:limit]), len(found), rows[-1].id if rows else 0)


class Kept(JsonStruct, frozen=True):
    """What a person has reviewed and keeps."""

    ledger_id: int = field(name="up_to")
    groups: tuple[str, ...] = ()

    def as_json(self) -> dict[str, JSON]:
        """Return up to which edit everything is kept, and single groups after it."""
        return {"success": True, **super().as_json()}


def keep_group(caller: Caller, group_id: str, *, kept: bool = True) -> Kept:
    """Remove a group from the list of changes, or put it back; the pages do not change."""
    caller.require_person("the web app, on its start page")
    caller.require(Scope.WRITE)
    seen = _read_seen(caller)
    others = tuple(one for one in seen.kept if one != group_id)
    chosen = (*others, group_id)[-_MOST_KEPT:] if kept else others
    return _write_seen(caller, _Seen(seen.ledger_id, chosen))


def keep_all(caller: Caller, up_to: int) -> Kept:
    """Remove everything up to one edit of the ledger from the list; later edits stay in it."""
    caller.require_person("the web app, on its start page")
    caller.require(Scope.WRITE)
    return mark_seen(caller, up_to)


def mark_seen(caller: Caller, up_to: int) -> Kept:
    """Note that a person has seen everything up to one edit, without asking who the caller is."""
    return _write_seen(caller, _Seen(max(up_to, _read_seen(caller).ledger_id)))


def _read_seen(caller: Caller) -> _Seen:
    if not caller.app.has_database:
        return _Seen()
    with caller.database.reading() as unit:
        row = next(iter(unit.execute(_READ, (_key(caller),))), None)
    value: Any = json.loads(str(row[0])) if row is not None else {}
    return _Seen(int(value.get("ledger_id", 0)), tuple(str(one) for one in value.get("kept", ())))


def _write_seen(caller: Caller, seen: _Seen) -> Kept:
    value = dumps({"ledger_id": seen.ledger_id, "kept": list(seen.kept)})
    with caller.database.writing() as unit:
        unit.execute(_WRITE, (_key(caller), value))
    return Kept(seen.ledger_id, seen.kept)


def _key(caller: Caller) -> str:
    return f"changes_seen:{caller.user}"


class Needs(JsonStruct, frozen=True):
    """What needs the person's attention."""

    pending: tuple[Pending, ...]
    skills: int = 0
    """Changes of skills that wait for approval."""
    providers: Mapping[str, str] = field(default_factory=dict)
    """External memories that fail, with the reason."""
    agents: Mapping[str, str] = field(default_factory=dict)
    """Connected agents from which nothing arrives, with the next step."""
    forgets: tuple[ForgetRequest, ...] = ()
    """What agents ask to forget."""

    @property
    def count(self) -> int:
        """Return how many items need attention."""
        return len(self.pending) + self.skills + len(self.providers) + len(self.agents) + len(self.forgets)


def list_needs(caller: Caller, agents: Sequence[ClientStatus] = ()) -> Needs:
    """Return what needs a decision or a repair; `agents` is the state of the connected agents, if known."""
    from wellkept.forgetting.requests import list_requests
    from wellkept.operations import skills

    has_pending = caller.app.server is not None or caller.space.home.pending.is_dir()
    return Needs(
        tuple(caller.space.approvals.waiting()) if has_pending else (),
        len(skills.list_pending(caller).changes) if has_pending else 0,
        _find_failing(caller),
        _find_silent(agents, caller.app.clock.now().timestamp()),
        tuple(list_requests(caller)) if has_pending else (),
    )


def _find_failing(caller: Caller) -> dict[str, str]:
    """Return the external memories whose last calls failed, from the record of calls."""
    from wellkept.providers.manager import chosen_names

    chosen = caller.app.settings.memory.provider
    names = chosen_names(chosen, caller.app.home.plugins) if chosen else ()
    health = {name: caller.space.audit.health(name) for name in names}
    return {name: one.last_error for name, one in health.items() if one.failures and one.last_error}


def _find_silent(agents: Sequence[ClientStatus], now: float) -> dict[str, str]:
    silent = {}
    for agent in agents:
        if not agent.connected:
            continue
        days = (now - agent.last_captured) / _DAY if agent.last_captured else 0.0
        if agent.next_step:
            silent[agent.client] = agent.next_step
        elif days > QUIET_DAYS:
            silent[agent.client] = f"nothing was captured for {days:.0f} days"
    return silent


class Pulse(JsonStruct, frozen=True):
    """Numbers that change when something new is stored; two equal pulses mean that nothing happened."""

    ledger_id: int
    receipt_id: int
    last_active: float
    waiting: int


def read_pulse(caller: Caller) -> Pulse:
    """Return the newest ids of the caller's data, in a few milliseconds; also sees writes of other processes."""
    space = caller.space
    ledger = max((row.id for page in space.memory.targets if (row := space.memory.ledger.newest(page))), default=0)
    waiting = count_waiting(caller)
    if not caller.app.has_database:
        return Pulse(ledger, 0, 0.0, waiting)
    receipts = space.sessions.receipts.recent(limit=1)
    newest = space.sessions.recent(limit=1, archived=True)
    active = (newest[0].last_active or 0.0) if newest else 0.0
    return Pulse(ledger, receipts[0].id if receipts else 0, active, waiting)


def count_waiting(caller: Caller) -> int:
    """Return how many writes are pending; counts file names, because every screen shows the number."""
    from wellkept.forgetting.requests import count_requests

    return caller.space.approvals.count() + caller.space.skill_tools.pending.count() + count_requests(caller)

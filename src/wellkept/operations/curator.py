"""The curator: move unused skills to the archive, merge narrow ones, back up and roll back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.app.caller import Caller, Scope
from wellkept.core.errors import Reason, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wellkept.core.text import JSON
    from wellkept.skills.changes import Changed
    from wellkept.skills.curator.backup import RollbackResult
    from wellkept.skills.curator.consolidate import Plan
    from wellkept.skills.curator.curator import Curator, Move, Report, State


class CuratorStatus(Struct, frozen=True):
    """When the curator ran, what it would do now, and what it leaves alone."""

    state: State
    states: Mapping[str, int]
    """How many skills are in each lifecycle state."""
    moves: tuple[Move, ...]
    protected: Mapping[str, str]
    """The reason for each skill that is left alone."""
    archived: tuple[str, ...]
    backups: tuple[str, ...]

    def as_json(self) -> dict[str, JSON]:
        """Return the status."""
        return {
            "last_run_at": self.state.last_run_at,
            "paused": self.state.paused,
            "states": {**self.states},
            "would_move": [
                {"name": move.name, "becomes": str(move.becomes), "idle_days": move.idle_days} for move in self.moves
            ],
            "protected": {**self.protected},
            "archived": [*self.archived],
            "backups": [*self.backups],
        }


def report_status(caller: Caller) -> CuratorStatus:
    """Return the curator's state and what a run would do now."""
    curator, tools = _curator(caller), caller.space.skill_tools
    return CuratorStatus(
        state=curator.state(),
        states=Counter(str(use.state) for use in tools.library.usage.read().values()),
        moves=tuple(curator.plan()),
        protected=curator.protected_skills(),
        archived=tuple(path.name for path in tools.editor.archive_folders()),
        backups=tuple(curator.backups.names()),
    )


def run(caller: Caller, *, dry_run: bool = False) -> Report:
    """Move the skills that are due, after a backup; a dry run only reports."""
    return _curator(caller).run(dry_run=True) if dry_run else _writable(caller).run()


def propose_merges(caller: Caller) -> Plan | Refused:
    """Ask the model for merges of narrow skills and store the plan; changes no skill."""
    from wellkept.skills.curator.consolidate import propose

    curator, models = _writable(caller), caller.app.models
    model = models.auxiliary("review", models.chat())
    if model is None:
        error = "merging skills needs a model, and none is configured"
        return Refused(Reason.UNAVAILABLE, error, "`kept model set` connects one")
    return propose(caller.space.skill_tools.editor, model, protected=curator.protected_skills())


def read_plan(caller: Caller, plan_id: str) -> Plan | Refused:
    """Return a stored plan of merges."""
    from wellkept.skills.curator.consolidate import read_plan as read

    return read(caller.space.skill_tools.editor, plan_id)


class Merged(Struct, frozen=True):
    """The changes that carrying out a plan made."""

    changes: tuple[Changed, ...]

    def as_json(self) -> dict[str, JSON]:
        """Return one object per change."""
        return {"success": True, "changes": [{"name": change.name, "action": change.action} for change in self.changes]}


def carry_out_plan(caller: Caller, plan: Plan) -> Merged | Refused:
    """Make the merges of a plan that a person agreed to, after a backup."""
    from wellkept.skills.curator.consolidate import apply

    caller.require_person("`kept curator run`")
    done = apply(caller.space.skill_tools.editor, plan, _writable(caller).backups)
    return done if isinstance(done, Refused) else Merged(tuple(done))


def pause(caller: Caller, *, paused: bool = True) -> None:
    """Stop automatic runs, or resume them."""
    if not paused:
        caller.require_person("`kept curator resume`")
    _writable(caller).pause(paused=paused)


def pin_skill(caller: Caller, name: str, *, pinned: bool = True) -> Refused | None:
    """Protect a skill from the curator, or end the protection; refused for an unknown one."""
    caller.require(Scope.WRITE)
    library = caller.space.skill_tools.library
    if library.skill(name) is None:
        return Refused(Reason.NO_MATCH, f"there is no skill {name!r}", "`kept skills list` shows the names")
    library.usage.pin(name, pinned=pinned)
    return None


def archive_skill(caller: Caller, name: str) -> Changed | Refused:
    """Move one skill to the archive now."""
    return _writable(caller).archive(name)


def restore_skill(caller: Caller, name: str) -> Changed | Refused:
    """Restore one skill from the archive."""
    caller.require_person(f"`kept curator restore {name}`")
    return _writable(caller).restore(name)


def back_up(caller: Caller) -> str:
    """Back up the user's skills and return the backup's name; the newest ones stay, so an agent takes none."""
    caller.require_person("`kept curator backup`")
    return _writable(caller).backups.take()


def roll_back(caller: Caller, backup: str | None = None) -> RollbackResult:
    """Restore all skills from a backup, by default the newest; the present state is backed up first.

    If the same rollback was interrupted before, opening the skills has just completed it; rolling back again would
    undo it.
    """
    caller.require_person("`kept curator rollback`")
    curator = _writable(caller)
    finished, caller.space.finished_rollback = caller.space.finished_rollback, None
    return finished if finished is not None and backup in {None, finished.backup} else curator.roll_back(backup)


def read_report(caller: Caller) -> Report | Refused:
    """Return the report of the last run."""
    found = _curator(caller).report()
    return found or Refused(Reason.EMPTY, "the curator has not run yet", "`kept curator run`")


def _curator(caller: Caller) -> Curator:
    from wellkept.skills.curator.curator import Curator

    return Curator(caller.space.skill_tools.editor, caller.app.settings.curator)


def _writable(caller: Caller) -> Curator:
    caller.require(Scope.WRITE)
    return _curator(caller)

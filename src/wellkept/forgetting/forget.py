"""Permanent forgetting as people and commands call it: plan, run, complete after an interruption, write the report."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from wellkept.app.caller import Caller, Scope
from wellkept.core.errors import Busy, KeptError, Reason, Refused, StorageError
from wellkept.core.events import Warned
from wellkept.core.ids import SessionId, SourceName, UserId
from wellkept.core.provenance import covers
from wellkept.core.text import JSON, dumps
from wellkept.forgetting.files import find_other_copies
from wellkept.forgetting.removal import Forgetter, FullForgetPlan, FullForgetReport
from wellkept.memory.page import Target
from wellkept.sessions.reports import ForgetPlan
from wellkept.skills.editor import SkillEditor
from wellkept.skills.forgetting import list_sources
from wellkept.storage.files import make_folder, remove, sync_folder, write_atomically
from wellkept.storage.locks import hold_lock
from wellkept.storage.seal import SealedNote

if TYPE_CHECKING:
    from pathlib import Path

    from wellkept.storage.texts import Texts

log = logging.getLogger(__name__)
_MOST_SHOWN = 12

_NOTHING = Refused(
    Reason.NO_MATCH, "there is nothing to forget", "look with `kept sessions list` or `kept sessions search`"
)


class ForgetProposal(Struct, frozen=True):
    """What would be removed, and the copies that would stay."""

    plan: FullForgetPlan
    copies_not_touched: tuple[str, ...]

    def as_json(self) -> dict[str, JSON]:
        """Return the proposal as the answer to a dry run."""
        return {**self.plan.as_json(), "copies_not_touched": list(self.copies_not_touched), "dry_run": True}


class ForgetOutcome(Struct, frozen=True):
    """What was removed, and everything that was not changed or could not be verified."""

    report: FullForgetReport
    input_history: bool
    copies_not_touched: tuple[str, ...]

    @property
    def left(self) -> int:
        """Return how many messages, entries and rows are still there; anything but 0 needs a second run."""
        report = self.report
        return report.sessions.still_found + report.entries_left + report.rows_left

    @property
    def bytes_gone(self) -> bool:
        """Whether the bytes were also removed from the database's write-ahead log."""
        return self.report.sessions.bytes_gone

    @property
    def is_complete(self) -> bool:
        """Whether no searched place contains the content, and every provider confirmed the same."""
        gone = all(answer.is_gone for answer in self.report.providers)
        return not self.left and self.bytes_gone and gone and not self.report.files_left

    def as_json(self) -> dict[str, JSON]:
        """Return the report without any content."""
        return {
            **self.report.as_json(),
            "input_history": self.input_history,
            "copies_not_touched": list(self.copies_not_touched),
            "complete": self.is_complete,
        }


def plan_forget_session(caller: Caller, name: str) -> ForgetProposal | Refused:
    """Plan to forget a conversation with all its compactions, even if it is in the trash."""
    sessions = caller.space.sessions
    exact = sessions.forgetting.plan_sessions([SessionId(name)])
    plan = exact if exact.sessions else sessions.forgetting.plan_sessions([sessions.resolve(name)])
    return _propose(caller, plan)


def plan_forget_words(caller: Caller, words: str) -> ForgetProposal | Refused:
    """Plan to forget everything that contains these words: messages, entries, facts, passages of skills, copies."""
    return _propose(caller, caller.space.sessions.forgetting.plan_query(words))


def plan_forget_source(caller: Caller, source: str, *, project: str | None = None) -> ForgetProposal | Refused:
    """Plan to forget the conversations that came from one client, in one project or in all."""
    plan = caller.space.sessions.forgetting.plan_source(source, project=project)
    if plan.is_empty:
        where = "" if project is None else f" in the project {project!r}"
        remedy = "`kept sessions list --json` shows the source and the project of each session"
        return Refused(Reason.NO_MATCH, f"there are no sessions from {source!r}{where}", remedy)
    proposal = _propose(caller, plan)
    if isinstance(proposal, Refused):
        return proposal
    return replace(proposal, plan=replace(proposal.plan, source=source, project=project))


def plan_forget_origin(caller: Caller, origin: str) -> ForgetProposal | Refused:
    """Plan to forget everything that came from one source, such as `web:HOST`, `tool:NAME` or `import:NAME`."""
    known = {*caller.space.sessions.forgetting.list_origins(), *_list_memory_origins(caller)}
    names = sorted(name for name in known if covers(origin, name))
    if not names:
        shown = ", ".join(sorted(known)[:_MOST_SHOWN])
        remedy = f"name one of these: {shown}" if known else "all text here comes from you or an agent"
        return Refused(Reason.NO_MATCH, f"nothing came from {origin!r}", remedy)
    return _propose(caller, caller.space.sessions.forgetting.plan_origin(names), origin=origin)


def _list_memory_origins(caller: Caller) -> set[SourceName]:
    """Return every source that entries, archived texts, skills and pending writes of the caller's user came from."""
    rows = caller.space.memory.ledger.rows(everywhere=True)
    waiting = {source for one in caller.space.approvals.waiting() for source in one.sources.values()}
    tools = caller.space.skill_tools
    learnt = {*list_sources(SkillEditor(tools.library)), *(one.source for one in tools.pending.waiting() if one.source)}
    return {row.source for row in rows if row.source is not None} | waiting | {SourceName(one) for one in learnt}


def plan_forget_user(caller: Caller) -> ForgetProposal | Refused:
    """Plan to forget everything of the caller's user."""
    return _propose(caller, caller.space.sessions.forgetting.plan_everything(), everything=True)


def _propose(
    caller: Caller, plan: ForgetPlan, *, everything: bool = False, origin: str | None = None
) -> ForgetProposal | Refused:
    whole = Forgetter(caller).plan(plan, everything=everything, origin=origin)
    has_folder = everything and not caller.is_owner and caller.space.home.own.is_dir()
    if whole.is_empty and not has_folder:
        return _NOTHING
    return ForgetProposal(whole, _find_copies(caller, whole))


def _find_copies(caller: Caller, plan: FullForgetPlan) -> tuple[str, ...]:
    return tuple(find_other_copies(caller, plan))


def forget(caller: Caller, proposal: ForgetProposal) -> ForgetOutcome:
    """Remove everything in the proposal, verify it, and write a report to the home."""
    caller.require_person("`kept forget`")
    caller.require(Scope.WRITE)
    note = _note(caller)
    with hold_lock(_lock_of(note.path)):
        note.write(_order(caller, proposal.plan))
        try:
            return _carry_out(caller, proposal, note)
        except StorageError as error:
            raise error.after_start("the forget") from error


def finish_interrupted(owner: Caller) -> int:
    """Complete every forget of this home whose process was killed; return how many. Running ones are left alone."""
    done = 0
    folder = owner.app.home.unfinished_forgets
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith("."):  # a note that was being written: nothing was removed yet
            continue
        try:
            with hold_lock(_lock_of(path), timeout_seconds=0):
                done += _finish(owner, SealedNote(path, owner.app.database))
        except Busy:
            continue
        except KeptError as error:
            owner.sink(Warned(f"an interrupted forget could not be completed: {error.message}", error.remedy))
            log.warning("an interrupted forget could not be completed", exc_info=True)
    _remove_if_empty(folder)
    return done


def _finish(owner: Caller, note: SealedNote) -> int:
    order = note.read()
    if not isinstance(order, dict):
        note.remove()
        owner.sink(Warned("a forget was interrupted and cannot be completed: its key is gone", "run it again"))
        return 0
    caller = owner.for_user(UserId(str(order["user"])))
    plan = _plan_again(caller, order)
    _carry_out(caller, ForgetProposal(plan, _find_copies(caller, plan)), note)
    return 1


def _order(caller: Caller, plan: FullForgetPlan) -> dict[str, JSON]:
    """Return what a later process needs to repeat the plan; it contains the words and is stored only encrypted."""
    return {
        "user": caller.user,
        "sessions": list(plan.sessions.sessions),
        "words": list(plan.sessions.texts),
        "entries": [[target.value, text] for target, text in (*plan.entries, *plan.gone_entries)],
        "passages": list(plan.passages),
        "everything": plan.everything,
        "source": plan.source,
        "project": plan.project,
        "origin": plan.origin,
    }


def _plan_again(caller: Caller, order: Mapping[str, Any]) -> FullForgetPlan:
    """Return the plan for the rest of an interrupted run; completed steps find nothing to do."""
    forgetting = caller.space.sessions.forgetting
    sessions = [SessionId(one) for one in order["sessions"]]
    origin = order.get("origin")
    if origin:
        plan = forgetting.plan_origin([name for name in forgetting.list_origins() if covers(origin, name)])
    elif order["everything"]:
        plan = forgetting.plan_everything()
    elif order["words"]:
        plan = forgetting.plan_query(order["words"][0])
    else:
        plan = forgetting.plan_sessions(sessions)
    known = [(Target(target), text) for target, text in order["entries"]]
    whole = Forgetter(caller).plan(plan, everything=bool(order["everything"]), known=known, origin=origin)
    # ledger rows, queued writes and facts still refer to sessions that are already removed
    named = replace(plan, sessions=tuple(dict.fromkeys([*plan.sessions, *sessions])))
    return replace(
        whole, sessions=named, passages=tuple(order["passages"]), source=order["source"], project=order["project"]
    )


def _carry_out(caller: Caller, proposal: ForgetProposal, note: SealedNote) -> ForgetOutcome:
    report = Forgetter(caller).carry_out(proposal.plan)
    outcome = ForgetOutcome(report, _remove_input_history(caller), proposal.copies_not_touched)
    reports = caller.space.home.forget_reports
    if proposal.plan.everything and not caller.is_owner:
        caller.space.close()
        shutil.rmtree(caller.space.home.own, ignore_errors=True)
        with suppress(OSError):  # the user may have had no folder
            sync_folder(caller.space.home.own.parent)
        if caller.app.server is not None:
            from wellkept.operations.users import remove_account

            remove_account(caller.app.server, caller.user)
        caller.app.forget_space(caller.user)
        reports = caller.app.home.forget_reports  # the user's folder is gone
    _write_report(caller, _without_words(outcome.as_json(), proposal.plan.texts), reports)
    note.remove()
    _remove_if_empty(note.path.parent)
    return outcome


def _remove_if_empty(folder: Path) -> None:
    """Remove the folder of notes, which every command checks, unless another user's note is in it."""
    with suppress(OSError):
        folder.rmdir()


def _note(caller: Caller) -> SealedNote:
    from wellkept.config.home import user_folder

    return SealedNote(caller.app.home.unfinished_forgets / user_folder(caller.user), caller.database)


def _lock_of(note: Path) -> Path:
    return note.parents[1] / f"{note.name}.lock"


def _remove_input_history(caller: Caller) -> bool:
    """Remove the input history of chats, which the arrow keys would show; return whether there was any."""
    history = caller.space.home.chat_history
    existed = history.exists()
    remove(history)
    return existed


def _without_words(value: JSON, texts: Texts) -> JSON:
    """Return a report without the words, which a path or the name of a skill may hold."""
    if isinstance(value, str):
        return texts.without_words(value)
    if isinstance(value, Mapping):
        return {name: _without_words(one, texts) for name, one in value.items()}
    return [_without_words(one, texts) for one in value] if isinstance(value, Sequence) else value


def _write_report(caller: Caller, report: JSON, folder: Path) -> None:
    make_folder(folder)
    stamp = f"{caller.app.clock.now():%Y%m%d-%H%M%S-%f}"
    write_atomically(folder / f"{stamp}.json", (dumps(report, indent=2) + "\n").encode())

"""Forgetting for good: plan, carry out, verify, and leave a report without the content."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kept.app.caller import Scope
from kept.core.errors import Reason, Refused
from kept.core.ids import SessionId
from kept.core.text import dumps
from kept.storage.files import explain_errors, make_folder, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from kept.app.caller import Caller
    from kept.core.text import JSON
    from kept.curation.forget import Forgetter, FullForgetPlan, FullForgetReport
    from kept.sessions.reports import ForgetPlan

_NOTHING = Refused(
    Reason.NO_MATCH, "there is nothing to forget", "look with `kept sessions list` or `kept sessions search`"
)


@dataclass(frozen=True, slots=True)
class ForgetProposal:
    """What would be removed, and the copies that would stay."""

    plan: FullForgetPlan
    copies_not_touched: tuple[str, ...]
    is_whole_user: bool = False

    def as_json(self) -> dict[str, JSON]:
        """Return the proposal as the answer to a dry run."""
        return {**self.plan.as_json(), "copies_not_touched": list(self.copies_not_touched), "dry_run": True}


@dataclass(frozen=True, slots=True)
class ForgetOutcome:
    """What was removed, with the copies that were not touched."""

    report: FullForgetReport
    input_history: bool
    copies_not_touched: tuple[str, ...]

    @property
    def left(self) -> int:
        """Return how many messages and entries are still there; anything but 0 needs a second run."""
        return self.report.sessions.still_found + self.report.entries_left

    @property
    def bytes_gone(self) -> bool:
        """Whether the bytes have left the database's write-ahead log too."""
        return self.report.sessions.bytes_gone

    def as_json(self) -> dict[str, JSON]:
        """Return the report without any content."""
        return {
            **self.report.as_json(),
            "input_history": self.input_history,
            "copies_not_touched": list(self.copies_not_touched),
        }


def plan_forget_session(caller: Caller, name: str) -> ForgetProposal | Refused:
    """Plan to forget a conversation with every compaction of it, also from the trash."""
    sessions = caller.space.sessions
    exact = sessions.forgetting.plan_sessions([SessionId(name)])
    plan = exact if exact.sessions else sessions.forgetting.plan_sessions([sessions.resolve(name)])
    return _propose(caller, plan)


def plan_forget_words(caller: Caller, words: str) -> ForgetProposal | Refused:
    """Plan to forget the messages and entries that contain these words."""
    return _propose(caller, caller.space.sessions.forgetting.plan_query(words))


def plan_forget_user(caller: Caller) -> ForgetProposal | Refused:
    """Plan to forget everything of the caller's user."""
    return _propose(caller, caller.space.sessions.forgetting.plan_everything(), is_whole_user=True)


def _propose(caller: Caller, plan: ForgetPlan, *, is_whole_user: bool = False) -> ForgetProposal | Refused:
    whole = _forgetting(caller).plan(plan, everything=is_whole_user)
    has_folder = is_whole_user and not caller.is_owner and caller.space.home.own.is_dir()
    if whole.is_empty and not has_folder:
        return _NOTHING
    return ForgetProposal(whole, tuple(_find_copies(caller)), is_whole_user)


def forget(caller: Caller, proposal: ForgetProposal) -> ForgetOutcome:
    """Remove what was proposed, everywhere, and leave a report in the home."""
    caller.require(Scope.WRITE)
    report = _forgetting(caller).carry_out(proposal.plan)
    outcome = ForgetOutcome(report, _remove_input_history(caller), proposal.copies_not_touched)
    reports = caller.space.home.forget_reports
    if proposal.is_whole_user and not caller.is_owner:
        caller.space.close()
        shutil.rmtree(caller.space.home.own, ignore_errors=True)
        caller.app.forget_space(caller.user)
        reports = caller.app.home.forget_reports  # the user has no folder any more
    _write_report(caller, outcome, reports)
    return outcome


def _forgetting(caller: Caller) -> Forgetter:
    from kept.curation.forget import Forgetter

    space = caller.space
    return Forgetter(space.sessions, space.memory, space.approvals, space.outbox, space.home.memories)


def _remove_input_history(caller: Caller) -> bool:
    """Remove what was typed in chats, which the arrow keys would show again; return whether there was any."""
    history = caller.space.home.chat_history
    existed = history.exists()
    with explain_errors("remove", history):
        history.unlink(missing_ok=True)
    return existed


def _find_copies(caller: Caller) -> list[str]:
    """Return the copies of the database in the home; they are reported, never touched."""
    home = caller.app.home
    patterns = (f"{home.database.name}.before-*", f"{home.database.name}.damaged-*", "backups/*")
    return sorted(path.name for pattern in patterns for path in home.path.glob(pattern))


def _write_report(caller: Caller, outcome: ForgetOutcome, folder: Path) -> None:
    make_folder(folder)
    stamp = f"{caller.app.clock.now():%Y%m%d-%H%M%S-%f}"
    write_atomically(folder / f"{stamp}.json", (dumps(outcome.as_json(), indent=2) + "\n").encode())

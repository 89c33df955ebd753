"""Permanent forgetting in all tiers: plan, carry out, verify, and write a report without the content."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kept.app.caller import Scope
from kept.core.errors import Reason, Refused
from kept.core.ids import SessionId
from kept.core.text import JSON, dumps
from kept.memory.approval import Approvals, Pending
from kept.memory.edits import Author, Remove, Target
from kept.memory.store import MemoryStore
from kept.providers.outbox import Outbox
from kept.sessions.ports import Sessions
from kept.sessions.reports import ForgetPlan, ForgetReport
from kept.storage.files import explain_errors, make_folder, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from kept.app.caller import Caller
    from kept.core.text import JSON
    from kept.sessions.reports import ForgetPlan


ORIGIN = "forget"
_ALL_ITEMS = 1_000_000


@dataclass(frozen=True, slots=True)
class FullForgetPlan:
    """What would be removed in every tier; shown to the person before anything is removed."""

    sessions: ForgetPlan
    entries: tuple[tuple[Target, str], ...]
    """Memory entries that the ledger traces to the forgotten sessions, or that contain the words."""
    gone_entries: tuple[tuple[Target, str], ...]
    """Entries of the forgotten sessions that are on no page any more, but still in the ledger."""
    pending: tuple[Pending, ...]
    backups: tuple[Path, ...]
    """Backup copies of pages that contain such an entry."""

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to forget."""
        return self.sessions.is_empty and not self.entries and not self.pending

    def as_json(self) -> dict[str, JSON]:
        """Return the plan without any content."""
        return {
            **self.sessions.as_json(),
            "memory_entries": len(self.entries),
            "pending": len(self.pending),
            "page_backups": [path.name for path in self.backups],
        }


@dataclass(frozen=True, slots=True)
class FullForgetReport:
    """What was removed, in every tier."""

    sessions: ForgetReport
    memory_entries: int
    ledger_rows: int
    pending: int
    page_backups: int
    queued_writes: int
    prompts: int
    entries_left: int
    """Entries that could not be removed from their page; if not 0, forget again."""

    def as_json(self) -> dict[str, JSON]:
        """Return the report without any content."""
        return {
            **self.sessions.as_json(),
            "memory_entries": self.memory_entries,
            "ledger_rows": self.ledger_rows,
            "pending": self.pending,
            "page_backups": self.page_backups,
            "queued_writes": self.queued_writes,
            "prompts": self.prompts,
            "entries_left": self.entries_left,
        }


@dataclass(frozen=True, slots=True)
class Forgetter:
    """Plans and carries out forgetting for one user; every part belongs to that user."""

    sessions: Sessions
    memory: MemoryStore
    approvals: Approvals
    outbox: Outbox
    pages: Path

    def plan(self, plan: ForgetPlan, *, everything: bool = False) -> FullForgetPlan:
        """Extend the session store's plan to the other tiers; `everything` includes all data of the user there."""
        traced = self._all_entries() if everything else self._traced_entries(plan)
        entries = [
            (target, entry)
            for target in Target
            for entry in self.memory.entries(target)
            if everything or (target, entry) in traced or _holds(entry, plan.texts)
        ]
        gone = sorted(traced.difference(entries))
        texts = [text for _, text in (*entries, *gone)]
        pending = self.approvals.waiting() if everything else self._pending(plan, texts)
        return FullForgetPlan(plan, tuple(entries), tuple(gone), tuple(pending), tuple(self._backups(texts)))

    def _all_entries(self) -> set[tuple[Target, str]]:
        rows = self.memory.ledger.rows()
        return {(row.target, text) for row in rows for text in (row.step.before, row.step.after) if text}

    def _traced_entries(self, plan: ForgetPlan) -> set[tuple[Target, str]]:
        going = set(plan.sessions)
        rows = self.memory.ledger.rows()
        return {(row.target, row.step.after) for row in rows if row.session_id in going and row.step.after}

    def _pending(self, plan: ForgetPlan, texts: Sequence[str]) -> list[Pending]:
        words = [*plan.texts, *(text.casefold() for text in texts)]
        return [
            waiting
            for waiting in self.approvals.waiting()
            if waiting.session_id in plan.sessions or _holds(_text(waiting), words)
        ]

    def _backups(self, texts: Sequence[str]) -> list[Path]:
        copies = sorted(self.pages.glob("*.bak.*")) if texts else []
        return [path for path in copies if _holds(_read(path), [text.casefold() for text in texts])]

    def carry_out(self, plan: FullForgetPlan) -> FullForgetReport:
        """Remove everything in the plan; pages and ledger first, so that nothing is mirrored or shown again."""
        left = sum(not self._remove_entry(target, text, plan) for target, text in plan.entries)
        blanked: set[int] = set()
        for session_id in plan.sessions.sessions:
            blanked.update(self.memory.ledger.forget_session(session_id))
        for target, text in plan.gone_entries:
            blanked.update(self.memory.ledger.forget_entry(target, text))
        texts = [text for _, text in plan.entries]
        blanked.update(self.memory.ledger.forget_words([*texts, *plan.sessions.texts]))
        for waiting in plan.pending:
            self.approvals.discard(waiting.id)
        for path in plan.backups:
            path.unlink(missing_ok=True)
        queued = self._unqueue(plan.sessions.sessions, [*texts, *plan.sessions.texts])
        prompts = self.sessions.forgetting.scrub_entries([*texts, *(text for _, text in plan.gone_entries)])
        report = self.sessions.forgetting.carry_out(plan.sessions)
        self.memory.ledger.purge()
        return FullForgetReport(
            sessions=report,
            memory_entries=len(plan.entries) - left,
            ledger_rows=len(blanked),
            pending=len(plan.pending),
            page_backups=len(plan.backups),
            queued_writes=queued,
            prompts=prompts,
            entries_left=left,
        )

    def _remove_entry(self, target: Target, text: str, plan: FullForgetPlan) -> bool:
        # record the removal under the forgotten session, so that forgetting its rows covers this one too
        session_id: SessionId | None = next(iter(plan.sessions.sessions), None)
        self.memory.apply(target, Remove(text), Author(origin=ORIGIN, session_id=session_id))
        return text not in self.memory.entries(target)

    def _unqueue(self, session_ids: Sequence[SessionId], words: Sequence[str]) -> int:
        with self.outbox.unit() as unit:
            count = sum(self.outbox.forget(unit, session_id) for session_id in session_ids)
        folded = [word.casefold() for word in words]
        for item in self.outbox.items(limit=_ALL_ITEMS):
            if _holds(dumps(item.payload), folded):
                count += self.outbox.drop(provider=item.provider, item_id=item.id)
        return count


def _holds(text: str, words: Sequence[str]) -> bool:
    folded = text.casefold()
    return any(word in folded for word in words)


def _text(waiting: Pending) -> str:
    """Return all text of a pending write: what it would add, and what it quotes from the page."""
    return "\n".join(text for edit in waiting.edits for text in astuple(edit))


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


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
    """Remove everything in the proposal and write a report to the home."""
    caller.require(Scope.WRITE)
    report = _forgetting(caller).carry_out(proposal.plan)
    outcome = ForgetOutcome(report, _remove_input_history(caller), proposal.copies_not_touched)
    reports = caller.space.home.forget_reports
    if proposal.is_whole_user and not caller.is_owner:
        caller.space.close()
        shutil.rmtree(caller.space.home.own, ignore_errors=True)
        caller.app.forget_space(caller.user)
        reports = caller.app.home.forget_reports  # the user's folder is gone
    _write_report(caller, outcome, reports)
    return outcome


def _forgetting(caller: Caller) -> Forgetter:

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

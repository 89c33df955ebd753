"""Requests of a person in a conversation without a model, each carried out by an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.core.agency import refuse_decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.agent.dialogue import Forgettable
    from wellkept.app.caller import Caller
    from wellkept.core.errors import Refused
    from wellkept.forgetting.forget import ForgetProposal
    from wellkept.memory.approval import Rejected
    from wellkept.memory.history import Undone
    from wellkept.memory.store import Outcome


class SpokenOrders(Struct, frozen=True):
    """Carries out the requests of one conversation; implements `agent.dialogue.Actions`."""

    caller: Caller

    def approve(self, pending_id: str) -> Outcome | Refused:
        """Save what was proposed."""
        from wellkept.operations.pages import approve

        if self.caller.why_no_person:
            return refuse_decision(self.caller.why_no_person, f"`kept memory approve {pending_id}`").as_refused()
        return approve(self.caller, pending_id)

    def reject(self, pending_id: str) -> Rejected | Refused:
        """Drop what was proposed."""
        from wellkept.operations.pages import reject

        if self.caller.why_no_person:
            return refuse_decision(self.caller.why_no_person, f"`kept memory reject {pending_id}`").as_refused()
        return reject(self.caller, pending_id)

    def undo(self, ledger_id: int) -> Undone | Refused:
        """Undo one change of a page."""
        from wellkept.operations.pages import undo

        return undo(self.caller, ledger_id=ledger_id)

    def plan_forgetting(self, texts: Sequence[str] | None) -> Forgettable | Refused:
        """Return what forgetting these texts, or everything, would remove."""
        self.caller.require_person("`kept forget`")
        from wellkept.core.errors import Refused

        plans = []
        for plan in self._plan(texts):
            if isinstance(plan, Refused):
                return plan
            plans.append(plan)
        return _count(plans)

    def forget(self, texts: Sequence[str] | None) -> Forgettable | Refused:
        """Permanently remove these texts, or everything; plans again, because the dialogue now contains them too."""
        from msgspec.structs import replace

        from wellkept.core.errors import Refused
        from wellkept.forgetting.forget import forget

        plans, is_complete = [], True
        for text in [None] if texts is None else texts:
            (plan,) = self._plan(None if text is None else [text])
            if isinstance(plan, Refused):
                if texts is None or len(texts) == 1:
                    return plan
                continue  # it was removed with another text that contains it
            plans.append(plan)
            is_complete = forget(self.caller, plan).is_complete and is_complete
        return replace(_count(plans), is_complete=is_complete)

    def _plan(self, texts: Sequence[str] | None) -> list[ForgetProposal | Refused]:
        from wellkept.forgetting.forget import plan_forget_user, plan_forget_words

        if texts is None:
            return [plan_forget_user(self.caller)]
        return [plan_forget_words(self.caller, text) for text in texts]


def _count(proposals: Sequence[ForgetProposal]) -> Forgettable:
    from wellkept.agent.dialogue import Forgettable

    plans = [proposal.plan for proposal in proposals]
    return Forgettable(
        entries=len({entry for plan in plans for entry in plan.entries}),
        waiting=len({pending.id for plan in plans for pending in plan.pending}),
        messages=sum(plan.sessions.message_count for plan in plans),
        sessions=sum(len(plan.sessions.sessions) for plan in plans),
    )

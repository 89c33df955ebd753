"""Assemble: head, summary and tail put together into a compaction."""

from collections.abc import Sequence
from dataclasses import dataclass

from kept.context.boundaries import Plan
from kept.context.marker import summary_text
from kept.context.measure import Measured
from kept.context.outcome import Compaction
from kept.context.repair import repaired
from kept.core.messages import Message, Role


@dataclass(frozen=True, slots=True)
class Middle:
    """What stands for the covered messages."""

    body: str
    by_rule: bool = False


def assembled(held: Measured, plan: Plan, middle: Middle) -> Compaction:
    """Return the compaction that `plan` cuts, with `middle` between head and tail."""
    head, tail = _at(held.messages, plan.head), _at(held.messages, plan.tail)
    covered = [held.rows[place] for place in plan.covered]
    text = summary_text(middle.body, covered=covered, by_rule=middle.by_rule)
    summary = Message(summary_role(head[-1] if head else None, tail[0] if tail else None), text)
    messages = repaired([*head, summary, *tail])
    return Compaction(
        messages=messages,
        summary=summary,
        covered=tuple(row.id for row in covered),
        kept_head=tuple(held.rows[place].id for place in plan.head),
        kept_tail=tuple(held.rows[place].id for place in plan.tail),
        tokens_before=held.total_of(repaired(held.messages)),
        tokens_after=held.total_of(messages),
        strictness=plan.strictness,
        by_rule=middle.by_rule,
    )


def summary_role(before: Message | None, after: Message | None) -> Role:
    """Return the role that keeps speakers alternating; where none does, the user's joins its neighbour."""
    user_before = before is not None and before.role is Role.USER
    user_after = after is None or after.role is Role.USER
    return Role.ASSISTANT if user_before and user_after and after is not None else Role.USER


def frame_tokens(held: Measured, plan: Plan, *, by_rule: bool) -> int:
    """Return the tokens that a summary message needs beside its body."""
    covered = [held.rows[place] for place in plan.covered]
    return held.size(Message(Role.USER, summary_text("", covered=covered, by_rule=by_rule)))


def _at(messages: Sequence[Message], places: Sequence[int]) -> list[Message]:
    return [messages[place] for place in places]

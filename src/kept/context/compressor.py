"""The compressor: prune, find the boundaries, summarise the middle, repair."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from kept.context.assemble import Middle, assembled, frame_tokens
from kept.context.boundaries import Plan, head_length, planned, tail_start
from kept.context.deadline import WithDeadline
from kept.context.engine import ContextEngine
from kept.context.groups import last_user
from kept.context.measure import Measured, sent
from kept.context.outcome import Compaction, Outcome, Pruned, Unchanged, Why
from kept.context.prune import pruned
from kept.context.repair import repaired
from kept.context.summary import Errand, Unreachable, Written, written
from kept.core.messages import ImagePart, Message, Role, StoredMessage

PRUNE_TARGET = 0.70
"""Pruning alone is enough below this share of the threshold; more would come back after a few turns."""


class Compressor(ContextEngine):
    """The default engine: one summary message between the protected head and tail."""

    name = "compressor"
    description = "prunes old tool output, then keeps one summary of the middle that cites the originals"

    def compress(
        self,
        rows: Sequence[StoredMessage],
        *,
        current_tokens: int | None = None,
        focus_topic: str = "",
        force: bool = False,
        memory_context: str = "",
    ) -> Outcome:
        """Return the context with its middle pruned or summarised."""
        held = self.measured(rows, current_tokens)
        if not force and (no := self._not_now(held)) is not None:
            return no
        small = self._pruned(held)
        if small is not None and not force and small.tokens_after < self.limits.threshold * PRUNE_TARGET:
            self.pace = self.pace.after_compaction(small.saved / held.total, automatic=True, by_rule=False)
            return small
        plan = planned(held.messages, held.sizes, limits=self.limits)
        if plan is None:
            return self._only_pruned(held, small, force=force)
        cooling = not force and self._is_cooling()
        if cooling and held.total < self.limits.urgent:
            return Unchanged(tuple(held.messages), Why.COOLING_DOWN)
        errand = self._errand(held, focus_topic=focus_topic, memory_context=memory_context)
        if cooling or plan.by_rule:
            errand = replace(errand, model=None)
        return self._summarised(held, plan, errand, force=force)

    def preview(self, rows: Sequence[StoredMessage], current_tokens: int | None = None) -> Plan | None:
        """Return where a compaction would cut now; asks no model and changes nothing."""
        held = self.measured(rows, current_tokens)
        return planned(held.messages, held.sizes, limits=self.limits)

    def _pruned(self, held: Measured) -> Pruned | None:
        head = head_length(held.messages, self.limits.protect_first)
        cut = max(head, tail_start(held.messages, held.sizes, limits=self.limits))
        place = last_user(held.messages)
        if place is not None and place < cut and _has_image(held.messages[place]):
            cut = place
        if cut <= head:
            return None
        through = held.rows[cut - 1].id
        messages = sent(pruned(held.rows, head=head, through=through))
        after = held.total_of(messages)
        return Pruned(messages, through, head, held.total, after) if after < held.total else None

    def _only_pruned(self, held: Measured, small: Pruned | None, *, force: bool) -> Outcome:
        if small is None:
            note = self._at_minimum(held.total) if held.total >= self.limits.threshold else ""
            self._count_poor(0.0, force=force)
            return Unchanged(tuple(held.messages), Why.NOTHING_TO_COMPRESS, note)
        self._count_poor(small.saved / held.total, force=force)
        return small

    def _summarised(self, held: Measured, plan: Plan, errand: Errand, *, force: bool) -> Outcome:
        covered = [held.rows[place] for place in plan.covered]
        frame = frame_tokens(held, plan, by_rule=True)
        match written(covered, max(1, plan.summary_budget - frame), errand):
            case Unreachable(error):
                self.pace = self.pace.after_outage(self.setup.clock.now().timestamp())
                first = self.pace.failures == 1
                note = f"the context was not compacted: {error}; nothing was changed" if first else ""
                return Unchanged(tuple(held.messages), Why.MODEL_UNREACHABLE, note)
            case Written() as text:
                done = assembled(held, plan, Middle(text.body, text.by_rule))
                return self._settled(held, done, text, force=force)

    def _settled(self, held: Measured, done: Compaction, text: Written, *, force: bool) -> Outcome:
        if done.tokens_after >= held.total_of(repaired(held.messages)):
            self._count_poor(0.0, force=force)
            return Unchanged(tuple(held.messages), Why.NOT_SHORTER)
        share = done.saved / held.total
        self.pace = self.pace.after_compaction(share, automatic=not force, by_rule=bool(text.note))
        notes = [text.note] if self.pace.by_rule == 1 else []
        if done.tokens_after >= self.limits.threshold:
            notes.append(self._at_minimum(done.tokens_after))
        if self.pace.ineffective == 2:
            notes.append("compacting saves too little and pauses until the conversation is smaller")
        return replace(done, note="; ".join(note for note in notes if note))

    def _count_poor(self, share: float, *, force: bool) -> None:
        self.pace = self.pace.after_compaction(share, automatic=not force, by_rule=False)

    def _at_minimum(self, tokens: int) -> str:
        if self.pace.ineffective:
            return ""
        return (
            f"the context cannot get below {tokens:,} tokens (threshold {self.limits.threshold:,}): "
            f"the system prompt and tools take {self.limits.overhead:,}"
        )

    def _is_cooling(self) -> bool:
        return self.pace.is_cooling(self.setup.clock.now().timestamp())

    def _errand(self, held: Measured, *, focus_topic: str, memory_context: str) -> Errand:
        model = self.setup.model
        return Errand(
            count=_text_count(held),
            redact=self.setup.redact,
            today=f"{self.setup.clock.now():%A, %B %d, %Y}",
            model=WithDeadline(model, self.setup.deadline_seconds) if model is not None else None,
            focus_topic=focus_topic,
            memory_context=memory_context,
            must_end=held.total >= self.limits.urgent,
        )


def _text_count(held: Measured) -> Callable[[str], int]:
    return lambda text: held.size(Message(Role.USER, text))


def _has_image(message: Message) -> bool:
    return not isinstance(message.content, str) and any(
        isinstance(part, ImagePart) for part in message.content
    )

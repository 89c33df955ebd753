"""Engines that put one summary between head and tail, among them the default compressor."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from wellkept.context.boundaries import Measured, Plan, head_length, plan_cut, tail_start
from wellkept.context.engine import Compaction, ContextEngine, Outcome, Pruned, Unchanged, Why
from wellkept.context.messages import last_user, prune, repair, request_messages
from wellkept.context.summary import Brief, Unreachable, WithDeadline, Writing, Written, summary_text, write_summary
from wellkept.core.messages import ImagePart, Message, Role, StoredMessage


class Middle(Struct, frozen=True):
    """The text that replaces the covered messages."""

    body: str
    by_rule: bool = False


def assemble(measured: Measured, plan: Plan, middle: Middle) -> Compaction:
    """Build the compaction of `plan`, with `middle` between head and tail."""
    head, tail = _at(measured.messages, plan.head), _at(measured.messages, plan.tail)
    covered = [measured.rows[index] for index in plan.covered]
    text = summary_text(middle.body, covered=covered, by_rule=middle.by_rule)
    summary = Message(summary_role(head[-1] if head else None, tail[0] if tail else None), text)
    messages = repair([*head, summary, *tail])
    return Compaction(
        messages=messages,
        summary=summary,
        covered=tuple(row.id for row in covered),
        kept_head=tuple(measured.rows[index].id for index in plan.head),
        kept_tail=tuple(measured.rows[index].id for index in plan.tail),
        tokens_before=measured.total_of(repair(measured.messages)),
        tokens_after=measured.total_of(messages),
        strictness=plan.strictness,
        by_rule=middle.by_rule,
    )


def summary_role(before: Message | None, after: Message | None) -> Role:
    """Return the role that keeps roles alternating; when none does, USER, which is merged with its neighbour."""
    user_before = before is not None and before.role is Role.USER
    user_after = after is None or after.role is Role.USER
    return Role.ASSISTANT if user_before and user_after and after is not None else Role.USER


def frame_tokens(measured: Measured, plan: Plan, *, by_rule: bool) -> int:
    """Return the tokens of a summary message without its body."""
    covered = [measured.rows[index] for index in plan.covered]
    return measured.size(Message(Role.USER, summary_text("", covered=covered, by_rule=by_rule)))


def _at(messages: Sequence[Message], indexes: Sequence[int]) -> list[Message]:
    return [messages[index] for index in indexes]


PRUNE_TARGET = 0.70
"""Pruning alone is enough below this share of the threshold; above it the context would soon be full again."""


class SummarisingEngine(ContextEngine):
    """The flow of both built-in engines; a base class, so that backoff and passes are written once."""

    prunes: ClassVar[bool] = True
    """Whether pruning is tried before summarising."""

    @abstractmethod
    def write(self, rows: Sequence[StoredMessage], budget: int, brief: Brief) -> Writing:
        """Return the text that replaces `rows`, within `budget` tokens."""

    def compress(
        self,
        rows: Sequence[StoredMessage],
        *,
        current_tokens: int | None = None,
        focus_topic: str = "",
        force: bool = False,
        memory_context: str = "",
    ) -> Outcome:
        """Prune or summarise the middle of the context."""
        measured = self.measure(rows, current_tokens)
        decision = self._decide(measured, force=force)
        match decision:
            case Plan() as plan:
                brief = self._brief(measured, focus_topic=focus_topic, memory_context=memory_context)
                if plan.by_rule or (not force and self._is_cooling()):
                    brief = replace(brief, model=None)
                return self._summarise(measured, plan, brief, force=force)
            case Pruned():
                self._count(decision.saved / decision.tokens_before, force=force)
            case Unchanged(reason=Why.NOTHING_TO_COMPRESS):
                self._count(0.0, force=force)
            case _:
                pass
        return decision

    def writes_summary(
        self, rows: Sequence[StoredMessage], *, current_tokens: int | None = None, force: bool = False
    ) -> bool:
        """Whether messages would leave the context: pruning is not enough and no cooldown applies."""
        return isinstance(self._decide(self.measure(rows, current_tokens), force=force), Plan)

    def _decide(self, measured: Measured, *, force: bool) -> Plan | Outcome:
        """Return where to cut, or the outcome when no summary is needed; changes nothing."""
        if not force and (no := self._why_not_now(measured)) is not None:
            return no
        small = self._prune(measured) if self.prunes else None
        if small is not None and not force and small.tokens_after < self.limits.threshold * PRUNE_TARGET:
            return small
        plan = plan_cut(measured.messages, measured.sizes, limits=self.limits)
        if plan is None:
            note = self._at_minimum(measured.total) if measured.total >= self.limits.threshold else ""
            return small or Unchanged(tuple(measured.messages), Why.NOTHING_TO_COMPRESS, note)
        if not force and self._is_cooling() and measured.total < self.limits.urgent:
            return Unchanged(tuple(measured.messages), Why.COOLING_DOWN)
        return plan

    def _is_cooling(self) -> bool:
        return self.backoff.is_cooling(self.setup.clock.now().timestamp())

    def _prune(self, measured: Measured) -> Pruned | None:
        head = head_length(measured.messages, self.limits.protect_first)
        cut = max(head, tail_start(measured.messages, measured.sizes, limits=self.limits))
        index = last_user(measured.messages)
        if index is not None and index < cut and _has_image(measured.messages[index]):
            cut = index
        if cut <= head:
            return None
        through = measured.rows[cut - 1].id
        messages = request_messages(prune(measured.rows, head=head, through=through))
        before, after = measured.total_of(repair(measured.messages)), measured.total_of(messages)
        return Pruned(messages, through, head, before, after) if after < before else None

    def _summarise(self, measured: Measured, plan: Plan, brief: Brief, *, force: bool) -> Outcome:
        covered = [measured.rows[index] for index in plan.covered]
        frame = frame_tokens(measured, plan, by_rule=True)
        match self.write(covered, max(1, plan.summary_budget - frame), brief):
            case Unreachable(error):
                self.backoff = self.backoff.after_outage(self.setup.clock.now().timestamp())
                first = self.backoff.failures == 1
                note = f"the context was not compacted: {error}; nothing was changed" if first else ""
                return Unchanged(tuple(measured.messages), Why.MODEL_UNREACHABLE, note)
            case Written() as text:
                compaction = assemble(measured, plan, Middle(text.body, text.by_rule))
                return self._finish(measured, compaction, text, force=force)

    def _finish(self, measured: Measured, compaction: Compaction, text: Written, *, force: bool) -> Outcome:
        if compaction.saved <= 0:
            self._count(0.0, force=force)
            return Unchanged(tuple(measured.messages), Why.NOT_SHORTER)
        notes = []
        if compaction.tokens_after >= self.limits.threshold:
            notes.append(self._at_minimum(compaction.tokens_after))
        # a summary by rule during a cooldown neither ends it nor resets the count of failures
        waiting = text.by_rule and self._is_cooling()
        self._count(compaction.saved / compaction.tokens_before, force=force, by_rule=bool(text.note) or waiting)
        if self.backoff.by_rule == 1:
            notes.append(text.note)
        if self.backoff.ineffective == 2:
            notes.append("compaction saves too little and is paused until the conversation is smaller")
        return replace(compaction, note="; ".join(note for note in notes if note))

    def _count(self, share: float, *, force: bool, by_rule: bool = False) -> None:
        self.backoff = self.backoff.after_compaction(share, automatic=not force, by_rule=by_rule)

    def _at_minimum(self, tokens: int) -> str:
        if self.backoff.ineffective:
            return ""
        return (
            f"the context cannot get below {tokens:,} tokens (threshold {self.limits.threshold:,}): "
            f"the system prompt and tools take {self.limits.overhead:,}"
        )

    def _brief(self, measured: Measured, *, focus_topic: str, memory_context: str) -> Brief:
        model = self.setup.model
        if model is not None:
            model = WithDeadline(model, self.setup.deadline_seconds, given_up=self.setup.given_up)
        return Brief(
            count=lambda text: measured.size(Message(Role.USER, text)),
            redact=self.setup.redact,
            today=f"{self.setup.clock.now():%A, %B %d, %Y}",
            model=model,
            focus_topic=focus_topic,
            memory_context=memory_context,
            must_end=measured.total >= self.limits.urgent,
        )


def _has_image(message: Message) -> bool:
    content = message.content
    return not isinstance(content, str) and any(isinstance(part, ImagePart) for part in content)


class Compressor(SummarisingEngine):
    """The default engine: one summary message between the protected head and tail."""

    name = "compressor"
    description = "prunes old tool output, then keeps one summary of the middle that cites the originals"

    def write(self, rows: Sequence[StoredMessage], budget: int, brief: Brief) -> Writing:
        """Return the sections of the summary, which update an earlier summary."""
        return write_summary(rows, budget, brief)

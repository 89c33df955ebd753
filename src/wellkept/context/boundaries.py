"""Where a compaction cuts: the limits of the window, the sizes of messages, and which stay as head and tail."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from wellkept.context.messages import as_sent, groups, last_user
from wellkept.context.settings import CompressionSettings
from wellkept.context.summary import is_summary
from wellkept.core.messages import Message, Role, StoredMessage
from wellkept.core.text import JSON
from wellkept.core.values import JsonStruct

SUMMARY_SHARE = 0.05
SUMMARY_CEILING = 12_000
"""A summary takes at most this share of the window, and never more than this many tokens."""
URGENT_SHARE = 0.85
"""From this share of the window on, a compaction cannot be postponed."""


class Window(Struct, frozen=True):
    """The size of a model's context, and how much of it is taken."""

    context_length: int
    overhead_tokens: int = 0
    """Tokens of the system prompt and the tool schemas, which compaction cannot reduce."""


class Limits(Struct, frozen=True):
    """The limits of a compaction, in tokens and messages."""

    context_length: int
    overhead: int
    threshold: int
    tail: int
    summary_cap: int
    protect_first: int
    protect_last: int

    @property
    def urgent(self) -> int:
        """The size from which on waiting risks an overflow."""
        return int(self.context_length * URGENT_SHARE)


def limits(window: Window, settings: CompressionSettings) -> Limits:
    """Return the limits of `window`. With 200,000 tokens: threshold 100,000, tail 20,000, summary 10,000."""
    threshold = int(window.context_length * settings.threshold)
    return Limits(
        context_length=window.context_length,
        overhead=window.overhead_tokens,
        threshold=threshold,
        tail=int(threshold * settings.target_ratio),
        summary_cap=min(int(window.context_length * SUMMARY_SHARE), SUMMARY_CEILING),
        protect_first=settings.protect_first_n,
        protect_last=settings.protect_last_n,
    )


COOL_DOWNS = (60.0, 300.0, 900.0)
INEFFECTIVE_SHARE = 0.10
MAX_INEFFECTIVE = 2
"""After this many compactions in a row that saved less than that share, automatic ones are paused."""


class Backoff(JsonStruct, frozen=True):
    """The results of the last compactions, which decide whether automatic ones must wait."""

    failures: int = 0
    """Consecutive compactions that failed because the summary model was unreachable."""
    cool_until: float = 0.0
    """End of the cooldown in epoch seconds; until then automatic compactions do not call the model."""
    ineffective: int = 0
    """Consecutive automatic compactions that saved less than a tenth."""
    by_rule: int = 0
    """Consecutive summaries that were written by rule."""

    @property
    def is_stopped(self) -> bool:
        """Whether automatic compaction is paused because it saved too little."""
        return self.ineffective >= MAX_INEFFECTIVE

    def is_cooling(self, now: float) -> bool:
        """Whether the cooldown lasts at `now`."""
        return now < self.cool_until

    def after_outage(self, now: float) -> "Backoff":
        """Return the backoff after a failure of the model: a cooldown of 60, 300, then 900 seconds."""
        wait = COOL_DOWNS[min(self.failures, len(COOL_DOWNS) - 1)]
        return replace(self, failures=self.failures + 1, cool_until=now + wait)

    def after_compaction(self, saved_share: float, *, automatic: bool, by_rule: bool) -> "Backoff":
        """Return the backoff after a compaction."""
        poor = automatic and saved_share < INEFFECTIVE_SHARE
        return replace(
            self,
            failures=self.failures if by_rule else 0,
            cool_until=self.cool_until if by_rule else 0.0,
            ineffective=self.ineffective + 1 if poor else 0,
            by_rule=self.by_rule + 1 if by_rule else 0,
        )

    def after_reading(self, prompt_tokens: int, threshold: int) -> "Backoff":
        """Return the backoff after an endpoint reported the size of a prompt.

        A pause ends when the size is clearly below the threshold; just below it, the next turn would
        pause again.
        """
        has_fallen = 0 < prompt_tokens < threshold * (1 - INEFFECTIVE_SHARE)
        return replace(self, ineffective=0) if self.is_stopped and has_fallen else self


def load_backoff(value: JSON) -> Backoff:
    """Return the backoff that `as_json` wrote; invalid values count as zero."""
    if not isinstance(value, Mapping):
        return Backoff()

    def number(key: str) -> float:
        found = value.get(key)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else 0.0

    return Backoff(int(number("failures")), number("cool_until"), int(number("ineffective")), int(number("by_rule")))


MOST_MESSAGES = 5_000
LEAST_MESSAGES = 4


def needs_hygiene(
    message_count: int, *, tokens: int, context_length: int, enabled: bool = True, reported_tokens: int | None = None
) -> bool:
    """Whether to compact before a turn: at 0.85 of the window or 5,000 messages, with at least four messages.

    The size that the endpoint reported for the last turn takes precedence over the estimate `tokens`.
    """
    if not enabled or message_count < LEAST_MESSAGES:
        return False
    return (reported_tokens or tokens) >= context_length * URGENT_SHARE or message_count >= MOST_MESSAGES


Count = Callable[[Message], int]

MAX_CORRECTION = 4.0
"""A larger ratio of report to estimate is ignored as wrong."""


class Measured(Struct, frozen=True):
    """Rows with their token sizes, scaled to what the endpoint reported."""

    rows: Sequence[StoredMessage]
    messages: Sequence[Message]
    sizes: Sequence[int]
    overhead: int
    correction: float
    count: Count

    @property
    def total(self) -> int:
        """Return the tokens of the whole request."""
        return self.overhead + sum(self.sizes)

    def size(self, message: Message) -> int:
        """Return the tokens of a message that is not among the rows."""
        return int(self.count(message) * self.correction + 0.999)

    def total_of(self, messages: Sequence[Message]) -> int:
        """Return the tokens of a request with these messages in place of the rows."""
        size_of = {id(message): size for message, size in zip(self.messages, self.sizes, strict=True)}
        return self.overhead + sum(size_of.get(id(message)) or self.size(message) for message in messages)


def measure(rows: Sequence[StoredMessage], count: Count, *, limits: Limits, current_tokens: int | None) -> Measured:
    """Measure `rows`; when the reported size exceeds the estimate, every size is scaled up."""
    messages = as_sent(rows)
    sizes = [count(message) for message in messages]
    guess = limits.overhead + sum(sizes)
    correction = 1.0
    if current_tokens is not None and guess:
        # a report may be older than the newest messages and then too small, so never scale down
        correction = min(MAX_CORRECTION, max(1.0, current_tokens / guess))
    if correction > 1.0:
        sizes = [int(size * correction + 0.999) for size in sizes]
    return Measured(rows, messages, sizes, int(limits.overhead * correction), correction, count)


CONTENT_SHARE = 0.20
"""The size of a summary relative to the messages that it replaces."""
LEAST_SUMMARY = 2_000
TINY_SUMMARY = 120
"""The least summary budget of the strictest pass."""
SHORT_SUMMARY = 400
"""The summary budget of the strictest pass when there is room; a smaller summary is useless."""
PASSES = 3
"""Each pass keeps less than the one before; the last one works without a model."""
SHRUNK_SHARE = 0.60
"""A shrinking tail fills at most this share of its room; a full one would compact again next turn."""


class Plan(Struct, frozen=True):
    """Where a compaction cuts; numbers are positions in the given messages."""

    head: tuple[int, ...]
    covered: tuple[int, ...]
    tail: tuple[int, ...]
    summary_budget: int
    predicted: int
    """Upper bound for the tokens of the next request."""
    strictness: int = 1

    @property
    def by_rule(self) -> bool:
        """Whether this is the pass without a model."""
        return self.strictness >= PASSES


def plan_cut(messages: Sequence[Message], sizes: Sequence[int], *, limits: Limits) -> Plan | None:
    """Return the mildest of three passes that ends below the threshold, or else the strictest.

    Return None when nothing lies between head and tail. Below the threshold (a forced compaction),
    the tail keeps its share of the current size.
    """
    total = limits.overhead + sum(sizes)
    if total < limits.threshold:
        limits = replace(limits, tail=limits.tail * sum(sizes) // limits.threshold)
    best: Plan | None = None
    for strictness in range(1, PASSES + 1 if total >= limits.threshold else PASSES):
        plan = _plan_pass(messages, sizes, limits=_tighten(limits, strictness), strictness=strictness)
        if plan is None and total < limits.threshold and any(map(is_summary, messages)):
            return None  # already compacted on request; do not shrink the tail further
        if plan is None:
            continue
        best = plan if best is None or plan.predicted <= best.predicted else best
        if plan.predicted < limits.threshold:
            return plan
    return best


def head_length(messages: Sequence[Message], protect_first: int) -> int:
    """Return the length of the head; it never splits a group or contains a summary."""
    spoken = (index for index, message in enumerate(messages) if message.role is not Role.SYSTEM)
    systems = next(spoken, len(messages))
    # the system prompt is not among the messages, but counts as the first protected one
    wanted = systems + max(0, protect_first - max(1, systems))
    end = 0
    for group in groups(messages):
        if group.stop > wanted or is_summary(messages[group.start]):
            break
        end = group.stop
    return max(end, systems)


def tail_start(messages: Sequence[Message], sizes: Sequence[int], *, limits: Limits) -> int:
    """Return where the tail begins: within its budget, but at least the protected messages."""
    start, held = len(messages), 0
    for group in reversed(groups(messages)):
        cost = sum(sizes[group.start : group.stop])
        enough = len(messages) - start >= limits.protect_last
        if is_summary(messages[group.start]) or (enough and held + cost > limits.tail):
            break
        start, held = group.start, held + cost
    return start


def summary_budget(content_tokens: int, cap: int) -> int:
    """Return a fifth of the content, at least 2,000 tokens or the cap, at most the cap."""
    return max(1, min(cap, max(int(content_tokens * CONTENT_SHARE), min(LEAST_SUMMARY, cap))))


def _tighten(limits: Limits, strictness: int) -> Limits:
    match strictness:
        case 1:
            return limits
        case 2:
            return replace(
                limits,
                tail=limits.tail // 2,
                summary_cap=limits.summary_cap // 2,
                protect_last=min(4, limits.protect_last),
            )
        case _:
            return replace(
                limits,
                tail=limits.tail // 8,
                summary_cap=max(TINY_SUMMARY, limits.summary_cap // 4, min(SHORT_SUMMARY, limits.summary_cap)),
                protect_last=1,
                protect_first=0,
            )


def _plan_pass(messages: Sequence[Message], sizes: Sequence[int], *, limits: Limits, strictness: int) -> Plan | None:
    head = head_length(messages, limits.protect_first)
    start = max(head, tail_start(messages, sizes, limits=limits))
    user = last_user(messages)
    pinned = user if user is not None and user >= head else None
    fixed = limits.overhead + sum(sizes[:head]) + limits.summary_cap
    floor = len(messages) if strictness == PASSES else groups(messages)[-1].start if messages else 0
    start = _shrink_tail(messages, sizes, start=start, pinned=pinned, room=limits.threshold - fixed, floor=floor)
    start = _extend_tail(messages, sizes, head=head, start=start, pinned=pinned, limits=limits)
    tail = tuple(range(start, len(messages)))
    if pinned is not None and pinned < start:
        tail = (pinned, *tail)
    covered = tuple(index for index in range(head, start) if index != pinned)
    if not any(not is_summary(messages[index]) for index in covered):
        return None
    kept = sum(sizes[:head]) + sum(sizes[index] for index in tail)
    budget = summary_budget(sum(sizes[index] for index in covered), limits.summary_cap)
    if strictness == PASSES:
        budget = max(TINY_SUMMARY, min(budget, limits.threshold - limits.overhead - kept - 1))
    return Plan(tuple(range(head)), covered, tail, budget, limits.overhead + kept + budget, strictness)


def _shrink_tail(
    messages: Sequence[Message], sizes: Sequence[int], *, start: int, pinned: int | None, room: int, floor: int
) -> int:
    """Drop the oldest groups of the tail until it fits `room`; return its new start, at most `floor`.

    A tail that does not fit shrinks further than necessary, so that the next turns do not compact
    again. The last user message is always kept and therefore not subtracted.
    """
    held = sum(sizes[start:]) + (sizes[pinned] if pinned is not None and pinned < start else 0)
    if held < room:
        return start
    room = int(room * SHRUNK_SHARE)
    for group in groups(messages):
        if group.start < start:
            continue
        if held < room or group.start >= floor:
            break
        start = group.stop
        if pinned not in group:
            held -= sum(sizes[group.start : group.stop])
    return start


def _extend_tail(
    messages: Sequence[Message], sizes: Sequence[int], *, head: int, start: int, pinned: int | None, limits: Limits
) -> int:
    """Extend the tail by one answer when the summary would otherwise break the alternation of roles."""
    first = min(start, pinned) if pinned is not None else start
    if first != start or first >= len(messages) or messages[first].role is not Role.USER:
        return start
    if head and messages[head - 1].role is Role.USER:
        return start
    before = [group for group in groups(messages[:first]) if group.start >= head]
    if not before or messages[before[-1].start].role is not Role.ASSISTANT:
        return start
    answer = before[-1]
    cost = sum(sizes[answer.start : answer.stop])
    total = limits.overhead + sum(sizes[:head]) + limits.summary_cap + sum(sizes[start:]) + cost
    fits = cost <= max(limits.tail, 1) // 2 and total < limits.threshold
    return answer.start if fits and not is_summary(messages[answer.start]) else start

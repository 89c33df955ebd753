"""Boundaries of a compaction: message sizes, and which messages stay as head and tail."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from wellkept.context.repair import as_sent, groups, last_user
from wellkept.context.sections import is_summary
from wellkept.context.window import Limits
from wellkept.core.messages import Message, Role, StoredMessage

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
        known = {id(one): size for one, size in zip(self.messages, self.sizes, strict=True)}
        return self.overhead + sum(known.get(id(one)) or self.size(one) for one in messages)


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
    spoken = (place for place, one in enumerate(messages) if one.role is not Role.SYSTEM)
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
    covered = tuple(place for place in range(head, start) if place != pinned)
    if not any(not is_summary(messages[place]) for place in covered):
        return None
    kept = sum(sizes[:head]) + sum(sizes[place] for place in tail)
    budget = summary_budget(sum(sizes[place] for place in covered), limits.summary_cap)
    if strictness == PASSES:
        budget = max(TINY_SUMMARY, min(budget, limits.threshold - limits.overhead - kept - 1))
    return Plan(tuple(range(head)), covered, tail, budget, limits.overhead + kept + budget, strictness)


def _shrink_tail(
    messages: Sequence[Message],
    sizes: Sequence[int],
    *,
    start: int,
    pinned: int | None,
    room: int,
    floor: int,
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
    messages: Sequence[Message],
    sizes: Sequence[int],
    *,
    head: int,
    start: int,
    pinned: int | None,
    limits: Limits,
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

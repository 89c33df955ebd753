"""The prompt cache of Anthropic's API, by its published rules.

A request may carry four markers. Each writes the prefix that ends there; a read finds the longest
earlier written prefix that ends at a marker or at most 20 blocks before one. An entry lives five
minutes and every read renews it. Prefixes under 1,024 tokens are not cached.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from wellkept.core.messages import Message, Role, Usage

LOOK_BACK = 20
LIFE_SECONDS = 300.0
LEAST_TOKENS = 1_024


@dataclass
class Prefix:
    """The running hashes and sizes of a request's blocks."""

    messages: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """The last block of each message."""
    hashes: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


class Cache:
    """What the endpoint holds, and what each request costs."""

    def __init__(self) -> None:
        self._entries: dict[int, float] = {}
        self._prefix = Prefix()
        self._alive: dict[int, Message] = {}

    def request(
        self, system: str, fixed_tokens: int, messages: Sequence[Message], *, sizes: Sequence[int], now: float
    ) -> Usage:
        """Return the usage that the endpoint would report for this request."""
        prefix = self._extended(system, fixed_tokens, messages, sizes)
        markers = [0, *(prefix.ends[place] for place in range(max(0, len(messages) - 3), len(messages)))]
        read_block = self._longest(prefix, markers, now)
        read = prefix.tokens[read_block] if read_block is not None else 0
        total = prefix.tokens[-1]
        for marker in markers:
            if prefix.tokens[marker] >= LEAST_TOKENS:
                self._entries[prefix.hashes[marker]] = now
        if read_block is not None:
            self._entries[prefix.hashes[read_block]] = now
        return Usage(input_tokens=0, cache_read_tokens=read, cache_write_tokens=total - read)

    def _longest(self, prefix: Prefix, markers: Sequence[int], now: float) -> int | None:
        for marker in sorted(set(markers), reverse=True):
            for block in range(marker, max(-1, marker - LOOK_BACK - 1), -1):
                written = self._entries.get(prefix.hashes[block])
                if written is not None and now - written <= LIFE_SECONDS:
                    return block
        return None

    def _extended(self, system: str, fixed: int, messages: Sequence[Message], sizes: Sequence[int]) -> Prefix:
        ids = [hash(system), *map(id, messages)]
        old = self._prefix
        same = 0
        if ids[: len(old.messages)] == old.messages:
            same = len(old.messages)
        elif ids[0] == (old.messages[0] if old.messages else None):
            same = next(place for place, (a, b) in enumerate(zip(ids, [*old.messages, None], strict=False)) if a != b)
        fresh = Prefix(old.messages[:same], old.ends[: max(0, same - 1)])
        blocks = (fresh.ends[-1] + 1 if fresh.ends else 1) if same else 0
        fresh.hashes, fresh.tokens = old.hashes[:blocks], old.tokens[:blocks]
        if not same:
            fresh.messages, fresh.hashes, fresh.tokens = [ids[0]], [hash(system)], [fixed]
            same = 1
        for message, size, one in zip(messages[same - 1 :], sizes[same - 1 :], ids[same:], strict=True):
            self._alive[one] = message  # an id is only unique while its message lives
            parts = _blocks(message)
            for place, part in enumerate(parts):
                fresh.hashes.append(hash((fresh.hashes[-1], part)))
                fresh.tokens.append(fresh.tokens[-1] + (size if place == len(parts) - 1 else 0))
            fresh.messages.append(one)
            fresh.ends.append(len(fresh.hashes) - 1)
        self._prefix = fresh
        return fresh


def _blocks(message: Message) -> list[str]:
    if message.role is Role.TOOL:
        return [f"result {message.tool_call_id} {message.text}"]
    texts = [message.content] if isinstance(message.content, str) else [str(part) for part in message.content]
    calls = [f"{call.id} {call.name} {call.arguments}" for call in message.tool_calls]
    return [f"{message.role} {text}" for text in texts if text] + calls or [str(message.role)]

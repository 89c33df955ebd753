"""Counted model calls, as rows and as totals."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kept.core.messages import Usage


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The calls of one session, day, model and task; the session is empty once it was forgotten."""

    day: str
    model: str
    task: str
    session_id: str
    calls: int
    usage: Usage
    cost: float | None


@dataclass(frozen=True, slots=True)
class Total:
    """A sum of calls; `cost` is None while no price is known for any of them."""

    key: str
    calls: int
    usage: Usage
    cost: float | None

    @property
    def cache_share(self) -> float:
        """Return the part of the sent tokens that came from the cache."""
        return self.usage.cache_read_tokens / self.usage.prompt_tokens if self.usage.prompt_tokens else 0.0


def totals(rows: Iterable[UsageRow], key: Callable[[UsageRow], str]) -> list[Total]:
    """Return one sum per key, in the order in which the keys appear."""
    sums: dict[str, Total] = {}
    for row in rows:
        name = key(row)
        before = sums.get(name, Total(name, 0, Usage(), None))
        cost = before.cost if row.cost is None else (before.cost or 0.0) + row.cost
        sums[name] = Total(name, before.calls + row.calls, before.usage + row.usage, cost)
    return list(sums.values())

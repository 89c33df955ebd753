"""The surroundings of a manager: whom its providers work for, and what it may use."""

from dataclasses import dataclass

from kept.core.ports import Clock, EventSink
from kept.providers.base import LedgerReader, StartContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a manager works in."""

    context: StartContext
    clock: Clock
    sink: EventSink
    ledger: LedgerReader | None = None
    """The ledger whose writes are mirrored; None mirrors nothing."""
    several: bool = False
    """Whether more than one external provider was asked for, by a list in the configuration."""
    reserved_tools: frozenset[str] = frozenset()
    """Names of tools that no provider may take."""

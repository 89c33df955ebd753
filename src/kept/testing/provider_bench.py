"""A bench for providers: a home with its database, and managers that run on it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kept.core.clock import SystemClock
from kept.core.events import Event
from kept.core.ids import OWNER, UserId
from kept.providers.audit import Audit
from kept.providers.base import LedgerRow, MemoryProvider, StartContext
from kept.providers.manager import ProviderManager
from kept.providers.outbox import Outbox
from kept.providers.registry import ManagerContext
from kept.providers.settings import ProviderSettings
from kept.providers.writes import FinishedTurn
from kept.storage.sqlite import open_state


class ListedLedger:
    """A ledger of curated memory that is a list."""

    def __init__(self, rows: Sequence[LedgerRow] = ()) -> None:
        self.rows = list(rows)

    def since(self, ledger_id: int) -> Sequence[LedgerRow]:
        """Return the rows after `ledger_id`."""
        return [row for row in self.rows if row.ledger_id > ledger_id]


class Bench:
    """Opens the state database of a home and creates managers on it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.database = open_state(home / "state.db")
        self.outbox = self.outbox_of(OWNER)
        self.audit = self.audit_of(OWNER)
        self.events: list[Event] = []
        self._managers: list[ProviderManager] = []

    def outbox_of(self, user: UserId) -> Outbox:
        """Return the outbox of a user."""
        return Outbox(self.database, user=user, clock=SystemClock())

    def audit_of(self, user: UserId) -> Audit:
        """Return the record of a user's provider calls; managers write to records of their own."""
        return Audit(self.database, user=user, clock=SystemClock())

    def context(self, *, user: UserId = OWNER, **changes: Any) -> ManagerContext:
        """Return the context of a manager on this bench."""
        start = StartContext(kept_home=str(self.home), user_id=user)
        usual = ManagerContext(start=start, clock=SystemClock(), sink=self.events.append)
        return replace(usual, **changes)

    def manager(
        self,
        *providers: MemoryProvider,
        context: ManagerContext | None = None,
        session_id: str = "s1",
        **settings: Any,
    ) -> ProviderManager:
        """Return a started manager with `providers`."""
        manager = ProviderManager(
            self.database, context=context or self.context(), settings=ProviderSettings(**settings)
        )
        self._managers.append(manager)
        for provider in providers:
            manager.register(provider)
        manager.start(session_id)
        return manager

    def settle(self, manager: ProviderManager, turn: FinishedTurn) -> None:
        """End a turn as the agent does."""
        with self.database.writing() as unit:
            manager.writes.queue_turn(unit, turn)
        manager.writes.after_turn(turn)

    def close(self) -> None:
        """Close every manager and the database."""
        for manager in self._managers:
            manager.close()
        self.database.close()


def eventually(fact: Callable[[], object], *, seconds: float = 10.0) -> None:
    """Wait until `fact()` is true."""
    deadline = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > deadline:
            raise AssertionError("it did not become true")
        time.sleep(0.01)

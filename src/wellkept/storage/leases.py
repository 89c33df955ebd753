"""Leases: work that one process at a time may do, which ends with its time or with the process that holds it."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from wellkept.core.errors import Busy, KeptError, StorageError
from wellkept.core.ids import random_hex, sha256
from wellkept.storage.files import is_alive
from wellkept.storage.locks import remove_lock_file, take_lock_file

if TYPE_CHECKING:
    from wellkept.core.ports import Database, UnitOfWork
    from wellkept.storage.connections import Statements

log = logging.getLogger(__name__)

TURN_SECONDS = 15.0
"""How long a host that died keeps its conversations; a living one renews its lease three times as often.

A host that renews it too late keeps its conversation unless another host has taken it."""


def new_holder(name: str = "") -> str:
    """Return a unique name for a holder, with the machine and the process it runs in, and its own name there."""
    return f"{_machine()}:{os.getpid()}:{name or random_hex(4)}"


def is_held(holder: str, until: float, *, now: float, seconds: float) -> bool:
    """Whether a stored lease still keeps others away, for leases that last `seconds`.

    It does not when its time is over, when its process was one of this machine and has ended, or when it would last
    much longer than any lease: then a clock was wrong when it was taken, and it could keep everybody away for years.
    A holder that loses its lease in this way notices when it renews it, which it does before every write.
    """
    # twice the time, so that a clock that is set back by some seconds ends no lease
    return now < until <= now + 2 * seconds and not _has_ended(holder)


def _has_ended(holder: str) -> bool:
    machine, _, pid = holder.rpartition(":")[0].rpartition(":")
    return pid.isdigit() and machine == _machine() and not is_alive(int(pid))


def _machine() -> str:
    import socket  # 3 ms of every start, and few commands take a lease

    return socket.gethostname()


class Lease(Protocol):
    """The right to answer in a conversation, which one process at a time has."""

    fence: int
    """A number that grows each time another holder takes the lease; 0 if it has none."""

    def take(self) -> bool:
        """Take or renew the lease without waiting; False while another holder has it."""
        ...

    def release(self) -> None:
        """Let others take the lease at once."""
        ...

    def guard(self) -> AbstractContextManager[None]:
        """Refuse writes inside the block once the lease is lost."""
        ...

    def keep(self) -> AbstractContextManager[None]:
        """Keep the lease until the end of the block; then release it."""
        ...


class FileLease:
    """A lease among the processes of one machine: a lock on a file, which ends with the process that holds it."""

    fence = 0

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.lock"
        self._descriptor: int | None = None
        self._is_released = False
        self._mutex = threading.Lock()

    def take(self) -> bool:
        """Take the lease, once; it needs no renewal. Where no file can be made, nobody is kept away."""
        with self._mutex:
            if self._descriptor is None and not self._is_released:
                try:
                    self._descriptor = take_lock_file(self._path)
                except StorageError as error:
                    log.warning("no lease for a conversation: %s", error.message)
                    return True
            return self._descriptor is not None

    def release(self) -> None:
        """Let others take the lease, for good."""
        with self._mutex:
            self._is_released = True
            if self._descriptor is not None:
                remove_lock_file(self._path, self._descriptor)
            self._descriptor = None

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Do nothing: this lease cannot be lost."""
        yield

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Hold the lease until the end of the block."""
        try:
            yield
        finally:
            self.release()


class FencedLease:
    """A lease among hosts that share a server; a holder that lost it cannot write any more, whenever it wakes up.

    `fence` grows each time another holder takes the lease. Inside `guard` each write transaction of the user first
    checks that the lease still has this holder and this number, and keeps it so until its commit.
    """

    def __init__(self, database: "Database", name: str, *, holder: str, seconds: float) -> None:
        self._database = database
        self._name = name
        self._holder = holder
        self._seconds = seconds
        self.fence = 0

    def take(self) -> bool:
        """Take or renew the lease; False while another holder has it, and for good if it was lost since."""
        with self._database.writing() as unit:
            found = list(unit.execute(_statements().take, {**self._bindings, "seconds": self._seconds}))
        if found and not self.fence:
            self.fence = int(str(found[0][0]))
        return bool(found)

    def release(self) -> None:
        with self._database.writing() as unit:
            unit.execute(_statements().release, self._bindings)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Refuse writes inside the block, and in tasks that it starts, once the lease is lost."""
        outer = _GUARDS.get()
        _GUARDS.set((*outer, self))
        try:
            yield
        finally:
            _GUARDS.set(outer)  # not `reset`: a stream that is left may be closed by another task

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Renew the lease in a thread, every third of its time, until the end of the block; then release it."""
        from wellkept.core.threads import start_thread

        done = threading.Event()

        def renew() -> None:
            while not done.wait(self._seconds / 3):
                with suppress(KeptError):  # the next write reports the error
                    if not self.take():
                        return

        thread = start_thread(renew, name="kept-lease")
        try:
            with self.guard():
                yield
        finally:
            done.set()
            thread.join()
            with suppress(KeptError):  # the lease then expires
                self.release()

    def check(self, unit: "UnitOfWork") -> None:
        """Raise Busy in a write transaction that no longer has the lease."""
        if not list(unit.execute(_statements().held, self._bindings)):
            raise Busy("another host has taken over this conversation", "send the message again")

    def is_of(self, database: object) -> bool:
        """Whether the lease was taken in that database, for the same user."""
        return self._database == database

    @property
    def _bindings(self) -> dict[str, object]:
        return {"name": self._name, "holder": self._holder, "fence": self.fence}


_GUARDS: ContextVar[tuple[FencedLease, ...]] = ContextVar("guards", default=())


def check_guard(unit: "UnitOfWork", database: object) -> None:
    """Raise Busy if this thread works under a lease of `database` that it has lost."""
    for lease in _GUARDS.get():
        if lease.fence and lease.is_of(database):
            lease.check(unit)


def _statements() -> "Statements":
    from wellkept.storage.connections import statements  # loads SQLite's driver

    return statements("wellkept.storage", "leases.sql")

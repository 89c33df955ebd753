"""Turns: one open agent per user and conversation, one turn of each at a time, and their events as a stream."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.agent.offload import offload
from wellkept.agent.toolbox import deny
from wellkept.core.errors import Busy, KeptError, StorageError
from wellkept.core.ids import random_hex
from wellkept.gateway.state import conversation_keys
from wellkept.gateway.streams import EventQueue, run_guarded
from wellkept.operations import conversations
from wellkept.storage.leases import TURN_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from anyio.abc import TaskGroup
    from anyio.streams.memory import MemoryObjectReceiveStream

    from wellkept.agent.agent import Agent
    from wellkept.agent.turn import Answer
    from wellkept.app import Caller, Scope
    from wellkept.core.events import Event
    from wellkept.core.ids import SessionId, UserId
    from wellkept.core.provenance import Stated
    from wellkept.gateway.metrics import Metrics
    from wellkept.gateway.state.conversation_keys import TurnLease
    from wellkept.operations.models import OfferedModel
    from wellkept.providers.base import ChatContext

log = logging.getLogger(__name__)

MOST_OPEN = 500
"""How many conversations stay open; the least recently used is closed first."""
LEAD_SECONDS = 120.0
"""How long a turn waits for one of the same conversation in another process."""
LOOK_SECONDS = 0.25
INTERRUPT_SECONDS = 3.0
"""How long an interrupted turn may take to store what it has when the server stops."""


class Stopping(StorageError):
    """The server is stopping and starts no new turn."""


class Relay:
    """The sink of an agent that stays open: passes events to the reader of the running turn."""

    def __init__(self) -> None:
        self.target: Callable[[Event], None] | None = None

    def __call__(self, event: Event, /) -> None:
        """Pass an event on; without a running turn it is dropped."""
        target = self.target
        if target is not None:
            target(event)


class Slot(Struct):
    """One open conversation."""

    agent: Agent
    relay: Relay
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    used: float = 0.0
    running: bool = False
    fence: int = 0
    """The number of the lease under which it was opened; a different one means that another host has answered since."""
    scopes: frozenset[Scope] = frozenset()
    """What the caller who opened it may do; a request with other rights opens it again."""


class Wanted(Struct, frozen=True):
    """Which conversation a turn belongs to, and how it is opened."""

    key: str
    """Unique for the user; the same key is the same open agent."""
    resume: SessionId | None = None
    platform: str = "api"
    model_name: OfferedModel | None = None
    system_message: str | None = None
    incognito: bool = False
    chat: ChatContext | None = None


class RunningTurn(Struct):
    """A turn whose events are read while it runs; `result` holds the answer or the error at the end."""

    events: MemoryObjectReceiveStream[Event]
    slot: Slot
    answer: Answer | None = None
    error: KeptError | None = None

    def result(self) -> Answer:
        """Return the answer, or raise the error of the turn."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class Turns:
    """The open conversations of all users."""

    def __init__(self, metrics: Metrics, *, idle_seconds: float) -> None:
        self._metrics = metrics
        self._slots: OrderedDict[tuple[UserId, str], Slot] = OrderedDict()
        self._opening: dict[tuple[UserId, str], anyio.Lock] = {}
        self._held: dict[tuple[UserId, str], tuple[anyio.Lock, int]] = {}
        self._name = random_hex(4)
        self._idle_seconds = idle_seconds
        self._background: TaskGroup | None = None
        self._is_stopping = False
        self.running = 0
        self.last_turn = time.monotonic()

    @property
    def open(self) -> int:
        """Return how many conversations are open."""
        return len(self._slots)

    @property
    def is_stopping(self) -> bool:
        """Whether the server is stopping; streams that wait for changes end then."""
        return self._is_stopping

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Run the background work of all turns: titles, reviews, closing idle conversations."""
        async with anyio.create_task_group() as group:
            self._background = group
            yield
            group.cancel_scope.cancel()

    async def stop(self, seconds: float) -> None:
        """Start no new turns, wait for running ones, interrupt the rest, and close every conversation."""
        self._is_stopping = True
        with anyio.move_on_after(seconds):
            await self._wait_for_turns()
        for slot in self._slots.values():
            if slot.running:
                slot.agent.interrupt()
        with anyio.move_on_after(INTERRUPT_SECONDS):
            await self._wait_for_turns()
        ended: set[SessionId] = set()
        for name, slot in reversed(list(self._slots.items())):  # the slot used last has the whole session
            session_id = slot.agent.session.id
            await self._close(name, ends=session_id not in ended)
            ended.add(session_id)

    async def _wait_for_turns(self) -> None:
        for slot in list(self._slots.values()):
            async with slot.lock:
                continue

    async def close_idle(self) -> None:
        """Close the agents of conversations that have been idle for too long; the conversations do not end."""
        horizon = time.monotonic() - self._idle_seconds
        idle = [name for name, slot in self._slots.items() if slot.used < horizon and not slot.running]
        for name in idle:
            await self._close(name)

    async def forget(self, user: UserId, key: str) -> None:
        """Close one conversation, so that the next turn opens it again from the store."""
        slot = self._slots.get((user, key))
        if slot is not None and not slot.running:
            await self._close((user, key))

    def interrupt(self, user: UserId, key: str) -> bool:
        """Stop the running turn of a conversation; False if none runs."""
        slot = self._slots.get((user, key))
        if slot is None or not slot.running:
            return False
        slot.agent.interrupt()
        return True

    async def _close(self, name: tuple[UserId, str], *, ends: bool = False) -> None:
        """Close an agent; its conversation ends only with the server, and goes on in another agent otherwise."""
        slot = self._slots.pop(name, None)
        if slot is not None:
            try:
                await offload(slot.agent.close, ends=ends)
            except KeptError:
                log.warning("a conversation could not be closed properly", exc_info=True)

    @asynccontextmanager
    async def hold(self, caller: Caller, key: str) -> AsyncIterator[None]:
        """Make other requests of a conversation wait on this host."""
        name = (caller.user, key)
        lock, waiting = self._held.get(name, (anyio.Lock(), 0))
        self._held[name] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._held[name]
            if waiting > 1:
                self._held[name] = (lock, waiting - 1)
            else:
                del self._held[name]

    @asynccontextmanager
    async def hold_lease(self, caller: Caller, key: str) -> AsyncIterator[int]:
        """Make other hosts wait while a history is compared and its turn runs; call it inside `hold`.

        Yields a number that changes when another host has answered in between.
        """
        lease = conversation_keys.open_turn(caller, key, self._name)
        deadline = time.monotonic() + LEAD_SECONDS
        while not await offload(lease.take):
            if time.monotonic() > deadline:
                raise Busy("another process is still answering in this conversation", "try again in a moment")
            await anyio.sleep(LOOK_SECONDS)
        stop = anyio.Event()
        if self._background is not None:
            self._background.start_soon(run_guarded, "renewing a lease", partial(_renew, lease, stop))
        try:
            with lease.guard():
                yield lease.fence
        finally:
            stop.set()
            with anyio.CancelScope(shield=True):
                await run_guarded("releasing a lease", partial(offload, lease.release))

    @asynccontextmanager
    async def slot(self, caller: Caller, wanted: Wanted, *, fence: int | None = None) -> AsyncIterator[Slot]:
        """Wait until no other turn of the conversation runs, here or on another host, and yield its open agent.

        `fence` is the number that `hold_lease` yielded, if the caller already holds the lease.
        """
        if self._is_stopping:
            raise Stopping("the server is stopping", "try again in a moment")
        if fence is not None:
            async with self._slot(caller, wanted, fence) as slot:
                yield slot
            return
        async with (
            self.hold(caller, wanted.key),
            self.hold_lease(caller, wanted.key) as own,
            self._slot(caller, wanted, own) as slot,
        ):
            yield slot

    @asynccontextmanager
    async def _slot(self, caller: Caller, wanted: Wanted, fence: int) -> AsyncIterator[Slot]:
        name = (caller.user, wanted.key)
        opening = self._opening.setdefault(name, anyio.Lock())
        async with opening:
            slot = self._slots.get(name)
            is_other = slot is not None and (
                wanted.resume is not None and wanted.resume not in slot.agent.conversation.lineage
            )
            if slot is None or is_other or slot.fence != fence or slot.scopes != caller.scopes:
                await self._close(name)
                relay = Relay()
                agent = await offload(open_agent, caller, wanted, relay)
                slot = Slot(agent, relay, scopes=caller.scopes)
                slot.fence = fence
                self._slots[name] = slot
            self._slots.move_to_end(name)
            slot.used = time.monotonic()
        self._opening.pop(name, None)
        async with slot.lock:
            slot.running = True
            self.running += 1
            try:
                yield slot
            finally:
                self.running -= 1
                slot.running = False
                slot.used = self.last_turn = time.monotonic()
        await self._limit()

    async def _limit(self) -> None:
        while len(self._slots) > MOST_OPEN:
            name = next((each for each, slot in self._slots.items() if not slot.running), None)
            if name is None:
                return
            await self._close(name)

    @asynccontextmanager
    async def stream(self, slot: Slot, run: Callable[[Agent], Awaitable[Answer]]) -> AsyncIterator[RunningTurn]:
        """Run a turn and yield it with its events; leaving the block early interrupts the turn."""
        queue = EventQueue()
        turn = RunningTurn(queue.receive, slot)

        async def work() -> None:
            began, outcome = time.monotonic(), "failed"
            try:
                # if the client disconnects, the turn is interrupted and stores what it has; it is never cancelled
                with anyio.CancelScope(shield=True):
                    turn.answer = found = await run(slot.agent)
                outcome = "interrupted" if found.interrupted else "done"
            except KeptError as error:
                turn.error = error
            finally:
                self._metrics.count_turn(time.monotonic() - began, outcome)
                queue.close()

        slot.relay.target = queue.put
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(work)
                try:
                    yield turn
                finally:
                    if turn.answer is None and turn.error is None:
                        slot.agent.interrupt()
        finally:
            slot.relay.target = None
        if turn.answer is not None and not turn.answer.interrupted:
            self._finish_later(slot.agent)

    async def answer(self, caller: Caller, wanted: Wanted, text: str, *, source: Stated) -> Answer:
        """Run a turn for a client that waits for the whole answer."""
        async with (
            self.slot(caller, wanted) as slot,
            self.stream(slot, lambda agent: agent.turn(text, source=source)) as turn,
        ):
            async for _event in turn.events:
                continue
        return turn.result()

    def _finish_later(self, agent: Agent) -> None:
        """Title and review the conversation in the background, as a chat does."""
        if self._background is None or not (any(agent.review_due()) or agent.title_due()):
            return

        self._background.start_soon(run_guarded, "the work after a turn", agent.after_turn)


async def _renew(lease: TurnLease, stop: anyio.Event) -> None:
    """Renew a lease three times per lease period, until it is released or lost."""
    while True:
        with anyio.move_on_after(TURN_SECONDS / 3):
            await stop.wait()
        if stop.is_set() or not await offload(lease.take):
            return


def open_agent(caller: Caller, wanted: Wanted, relay: Relay) -> Agent:
    """Open the agent of a conversation; nobody is present to approve tool calls."""
    agent = conversations.open_conversation(
        replace(caller, sink=relay),
        resume=wanted.resume,
        incognito=wanted.incognito,
        approve=deny,
        model_name=wanted.model_name,
        platform=wanted.platform,
        system_message=wanted.system_message,
        chat=wanted.chat,
    )
    agent.conversation.has_hygiene = True
    return agent

"""Chat platforms: the port that each of them implements, and the switchboard between their chats and the agent."""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio

from kept.agent.offload import offload
from kept.core.errors import KeptError
from kept.core.events import TextStreamed
from kept.core.messages import Role
from kept.gateway.streams import run_guarded
from kept.gateway.turns import Stopping, Wanted
from kept.operations import conversation_keys, pairing, platform_messages
from kept.operations.platform_messages import Entry, PlatformMessage, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import TaskGroup

    from kept.agent.agent import Agent
    from kept.app import App, Caller
    from kept.core.ids import SessionId
    from kept.gateway.turns import RunningTurn, Slot, Turns

log = logging.getLogger(__name__)

COMMANDS = {
    "new": "begin a new conversation",
    "reset": "same as /new",
    "undo": "undo the last exchange",
    "stop": "stop the running answer",
    "help": "this list",
}
_PAUSES = (1.0, 5.0, 30.0, 120.0, 600.0)
"""Seconds between the attempts to send an answer."""
_CLEAN_SECONDS = 600.0
_PAIRING = (
    "I do not know you yet. Ask the owner of this memory to run:\n\n"
    "kept serve pair {code}\n\nThe code is valid for an hour."
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a chat is told in answer to one of its messages."""

    message: PlatformMessage
    text: str
    session_id: SessionId | None = None
    is_error: bool = False
    is_paired: bool = True
    """False for the answer to a stranger, which holds the code."""


class Undelivered(KeptError):
    """The platform did not take a reply; with `is_temporary` it may take it later."""

    http_status = 502

    def __init__(self, message: str, *, is_temporary: bool, after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.is_temporary = is_temporary
        self.after_seconds = after_seconds


class Platform(Protocol):
    """One configured chat platform. What belongs to one turn, such as an album, it hands over as one message."""

    @property
    def name(self) -> str:
        """Return the name in the settings; it is part of the keys of its chats."""
        ...

    @property
    def shares_groups(self) -> bool:
        """Return whether the people of a group share one conversation and one memory."""
        ...

    @property
    def sends(self) -> bool:
        """Return whether replies are sent; otherwise whoever delivers a message waits for the reply."""
        ...

    @property
    def draft_seconds(self) -> float | None:
        """Return how often a growing answer is shown; None for never."""
        ...

    def connect(
        self, receive: Callable[[PlatformMessage], Awaitable[Reply | None]]
    ) -> AbstractAsyncContextManager[None]:
        """Be connected inside the block. A platform that must be asked hands its messages to `receive`.

        A message is stored when `receive` returns, so that the platform can be told that it arrived.
        """
        ...

    async def send(self, reply: Reply) -> None:
        """Send a whole reply; raises Undelivered."""
        ...

    async def show_draft(self, reply: Reply) -> None:
        """Show how far the answer is; raises Undelivered. `send` with the same message replaces it."""
        ...


@dataclass(slots=True)
class _Job:
    """A message whose answer is being made."""

    done: anyio.Event = field(default_factory=anyio.Event)
    reply: Reply | None = None
    error: KeptError | None = None


class Switchboard:
    """Takes messages of all platforms, has them answered in order, and sees that each reply arrives once."""

    def __init__(self, app: App, turns: Turns, platforms: Mapping[str, Platform]) -> None:
        self._app = app
        self._turns = turns
        self.platforms = platforms
        self._jobs: dict[tuple[str, str], _Job] = {}
        self._group: TaskGroup | None = None

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Be connected to all platforms inside the block, and first take up what a crash left behind."""
        if not self.platforms:
            yield
            return
        async with anyio.create_task_group() as group, AsyncExitStack() as stack:
            self._group = group
            for entry in await offload(platform_messages.list_unfinished, self._app.caller()):
                if entry.name[0] in self.platforms:
                    self._begin(self.platforms[entry.name[0]], entry)
            for platform in self.platforms.values():
                await stack.enter_async_context(platform.connect(self._receiver(platform)))
            group.start_soon(self._clean)
            yield
            group.cancel_scope.cancel()

    async def stop(self, seconds: float) -> None:
        """Let the replies of ended turns be sent; what remains is sent after the next start."""
        with anyio.move_on_after(seconds):
            for job in list(self._jobs.values()):
                await job.done.wait()

    def _receiver(self, platform: Platform) -> Callable[[PlatformMessage], Awaitable[Reply | None]]:
        async def receive(message: PlatformMessage) -> Reply | None:
            return await self.receive(platform, message)

        return receive

    async def _clean(self) -> None:
        while True:
            remove = partial(offload, platform_messages.remove_finished, self._app.caller())
            await run_guarded("removing old messages of platforms", remove)
            await anyio.sleep(_CLEAN_SECONDS)

    async def receive(self, platform: Platform, message: PlatformMessage) -> Reply | None:
        """Take a message. Returns its reply if the platform waits for it, else None as soon as it is stored."""
        chat = message.chat
        user = await offload(pairing.find_user, self._app.caller(), platform.name, chat.user)
        if user is None:
            return await self._pair(platform, message)
        is_shared = chat.chat_type != "dm" and (platform.shares_groups or bool(chat.thread))
        message = replace(message, chat=replace(chat, is_shared=is_shared))
        if is_shared:  # a conversation of several people must not know what only one of them told
            group = f"{platform.name}:{chat.chat_type}:{chat.chat}"
            user = await offload(pairing.ensure_user, self._app.caller(), group)
        caller = self._app.caller(user)
        if read_command(message.text) == "stop":
            return await self._stop_turn(platform, caller, message)
        entry, is_new = await offload(platform_messages.accept_message, caller, message)
        if is_new:
            self._begin(platform, entry)
        return await self._wait(entry) if not platform.sends else None

    async def _pair(self, platform: Platform, message: PlatformMessage) -> Reply | None:
        """Tell a stranger the code; nothing of the message is stored."""
        caller, chat = self._app.caller(), message.chat
        code = await offload(pairing.issue_code, caller, platform.name, chat.user, message.name)
        text = _PAIRING.format(code=code) if code is not None else ""
        reply = Reply(message, text, is_paired=False)
        if platform.sends and text:
            self._start(self._try_to_send, platform, reply)
        return reply if not platform.sends else None

    async def _stop_turn(self, platform: Platform, caller: Caller, message: PlatformMessage) -> Reply | None:
        is_stopped = self._turns.interrupt(caller.user, conversation_keys.build_key(message.chat))
        reply = Reply(message, "Stopped." if is_stopped else "Nothing is running.")
        if platform.sends:
            self._start(self._try_to_send, platform, reply)
        return reply if not platform.sends else None

    async def _try_to_send(self, platform: Platform, reply: Reply) -> None:
        try:
            await platform.send(reply)
        except Undelivered as error:
            log.warning("%s: %s", platform.name, error)

    async def _wait(self, entry: Entry) -> Reply:
        """Return the reply to a message; one that was answered before gets the same again."""
        job = self._jobs.get(entry.name)
        if job is None:
            return Reply(entry.message, entry.answer, entry.session_id)
        await job.done.wait()
        if job.error is not None:
            raise job.error
        assert job.reply is not None
        return job.reply

    # one message

    def _begin(self, platform: Platform, entry: Entry) -> None:
        job = self._jobs[entry.name] = _Job()
        self._start(self._work, platform, entry, job)

    def _start(self, work: Callable[..., Coroutine[None, None, None]], *arguments: object) -> None:
        assert self._group is not None, "messages are taken inside `serve` only"
        self._group.start_soon(run_guarded, "the work on a message of a platform", partial(work, *arguments))

    async def _work(self, platform: Platform, entry: Entry, job: _Job) -> None:
        """Work on a message, and tell whoever waits for it, also when it fails."""
        try:
            await self._answer_and_send(platform, entry, job)
        finally:
            job.done.set()
            self._jobs.pop(entry.name, None)

    async def _answer_and_send(self, platform: Platform, entry: Entry, job: _Job) -> None:
        """Answer a message and send the reply; an answer that was stored before a crash is only sent."""
        caller = self._app.caller(entry.user)
        try:
            if entry.state is not State.ANSWERED:
                entry = await self._answer(platform, caller, entry)
            job.reply = Reply(entry.message, entry.answer, entry.session_id)
        except Stopping as error:  # the message is stored, and is answered after the next start
            job.error = error
        except KeptError as error:
            log.warning("a message of %s could not be answered", platform.name, exc_info=True)
            job.error = error
            job.reply = Reply(entry.message, error.message, entry.session_id, is_error=True)
        try:
            if job.reply is not None:
                await self._finish(platform, caller, entry, job.reply, is_failed=job.error is not None)
        except KeptError:
            log.warning("the reply to a message of %s could not be settled", platform.name, exc_info=True)

    async def _finish(self, platform: Platform, caller: Caller, entry: Entry, reply: Reply, *, is_failed: bool) -> None:
        if platform.sends:
            key = conversation_keys.build_key(entry.message.chat)
            async with self._turns.hold(caller, f"send:{key}"):  # the replies of a chat arrive in order
                state = await self._deliver(platform, reply)
            await offload(platform_messages.set_state, caller, entry, state)
        elif is_failed:
            await offload(platform_messages.remove_message, caller, entry)
        else:
            await offload(platform_messages.set_state, caller, entry, State.SENT)

    async def _deliver(self, platform: Platform, reply: Reply) -> State:
        for pause in (*_PAUSES, None):
            try:
                await platform.send(reply)
            except Undelivered as error:
                log.warning("%s: %s", platform.name, error)
                if pause is None or not error.is_temporary:
                    break
                await anyio.sleep(max(pause, error.after_seconds))
            else:
                return State.SENT
        return State.FAILED

    async def _answer(self, platform: Platform, caller: Caller, entry: Entry) -> Entry:
        """Run the command or the turn of a message, and store its answer."""
        key = conversation_keys.build_key(entry.message.chat)
        async with self._turns.hold(caller, key):
            found = await offload(conversation_keys.find_session, caller, key)
            wanted = Wanted(key, resume=None if found is None else found.session_id, platform=platform.name)
            async with self._turns.slot(caller, wanted) as slot:
                command = read_command(entry.message.text)
                if command is not None:
                    text = await offload(run_command, slot.agent, command)
                else:
                    if found is not None and self._is_due(found.last_used):
                        await offload(slot.agent.new, "reset")
                    text = await self._talk(platform, caller, entry, slot)
                session_id = slot.agent.session.id
            await offload(conversation_keys.set_session, caller, key, session_id)
        return await offload(
            platform_messages.set_state, caller, entry, State.ANSWERED, answer=text, session_id=session_id
        )

    def _is_due(self, last_used: float) -> bool:
        now = self._app.clock.now().astimezone()
        return conversation_keys.is_due_for_reset(self._app.settings.serve, last_used, now)

    async def _talk(self, platform: Platform, caller: Caller, entry: Entry, slot: Slot) -> str:
        text = name_speaker(entry.message)
        if entry.state is State.RUNNING:
            answered = await offload(take_up, slot.agent, text)
            if answered is not None:
                return answered
        # known before the turn begins: after a crash the message is looked for in this session
        key, session_id = conversation_keys.build_key(entry.message.chat), slot.agent.session.id
        await offload(conversation_keys.set_session, caller, key, session_id)
        await offload(platform_messages.set_state, caller, entry, State.RUNNING, session_id=session_id)
        async with self._turns.stream(slot, lambda agent: agent.turn(text)) as turn:
            await self._show_drafts(platform, entry, turn)
        return turn.result().text

    async def _show_drafts(self, platform: Platform, entry: Entry, turn: RunningTurn) -> None:
        text, shown, every = "", 0.0, platform.draft_seconds
        async for event in turn.events:
            if every is None or not isinstance(event, TextStreamed):
                continue
            text += event.text
            if time.monotonic() - shown >= every:
                shown = time.monotonic()
                try:
                    await platform.show_draft(Reply(entry.message, text))
                except Undelivered as error:
                    log.info("%s: %s", platform.name, error)
                    every = None  # the whole answer comes at the end


def read_command(text: str) -> str | None:
    """Return the command of a message; None for any other text. Platforms may add the name of the bot: /new@bot."""
    word = text.strip().lower()
    if not word.startswith("/"):
        return None
    name = word[1:].partition("@")[0]
    return name if name in COMMANDS else None


def run_command(agent: Agent, command: str) -> str:
    """Run a command in an open conversation, and return what to tell the person."""
    match command:
        case "new" | "reset":
            agent.new("new" if command == "new" else "reset")
            return "A new conversation."
        case "undo":
            said = agent.undo()
            return f"Taken back: {said}" if said is not None else "There is nothing to take back."
        case _:
            return "\n".join(f"/{name}: {words}" for name, words in COMMANDS.items())


def name_speaker(message: PlatformMessage) -> str:
    """Return the text of a message; where several people share a conversation, with the name of the speaker."""
    if not message.chat.is_shared:
        return message.text
    return f"[{(message.name or message.chat.user).replace(']', ')')}] {message.text}"


def take_up(agent: Agent, text: str) -> str | None:
    """Return the stored answer to a message whose turn began before a crash.

    Without one, what was stored of the turn is taken back, so that the message is not in the conversation twice.
    """
    rows = agent.conversation.record.rows
    place = next((i for i in range(len(rows) - 1, -1, -1) if rows[i].message.role is Role.USER), None)
    if place is None or rows[place].message.text != text:
        return None
    if len(rows) > place + 1 and rows[-1].message.role is Role.ASSISTANT and rows[-1].message.text:
        return rows[-1].message.text
    agent.undo()
    return None

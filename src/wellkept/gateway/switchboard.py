"""The switchboard between the chats of all platforms and the agent: each message is answered once, in order."""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, assert_never

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.agent.offload import offload
from wellkept.core.errors import Busy, KeptError, NotAllowed, UsageError
from wellkept.core.events import TextStreamed, ToolStarted
from wellkept.core.ids import OWNER
from wellkept.gateway.platforms import (
    Draft,
    Moved,
    Reply,
    Shown,
    Stopped,
    Undelivered,
    describe_chat,
    describe_edit,
    find_message_source,
    join_files,
    name_speaker,
)
from wellkept.gateway.slash import read_command, run_command
from wellkept.gateway.state import conversation_keys, pairing, platform_messages
from wellkept.gateway.state.platform_messages import Entry, PlatformMessage, State
from wellkept.gateway.streams import run_guarded
from wellkept.gateway.turns import Stopping, Wanted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from anyio.abc import TaskGroup

    from wellkept.app import App, Caller
    from wellkept.core.ids import UserId
    from wellkept.gateway.platforms import Incoming, Platform, Receive
    from wellkept.gateway.state.conversation_keys import Chat
    from wellkept.gateway.turns import Slot, Turns

log = logging.getLogger(__name__)

ALBUM_SECONDS = 1.0
"""How long to wait for another part of an album after the last one."""
_LOOK_SECONDS, _MOST_WAIT_SECONDS = 0.02, 10.0
"""How often, and how long, a repeated delivery looks for the answer to the first one."""
_PAUSES = (1.0, 5.0, 30.0, 120.0, 600.0)
"""Seconds between the attempts to send an answer."""
_MOST_WAITS = 20
"""How often a platform may ask to wait before an attempt counts."""
_CLEAN_SECONDS = 600.0
_PAIRING = (
    "I do not know you yet. Ask the owner of this memory to run:\n\n"
    "kept serve pair {code}\n\nThe code is valid for an hour."
)


class _Job(Struct):
    """A message that is being answered."""

    platform: Platform
    entry: Entry
    part: anyio.Event = field(default_factory=anyio.Event)
    """Set when another part of an album arrived."""
    done: anyio.Event = field(default_factory=anyio.Event)
    reply: Reply | None = None
    error: KeptError | None = None

    async def wait_for_parts(self) -> None:
        """Wait until no further part of an album has arrived for a while."""
        is_waiting = self.entry.message.is_album
        while is_waiting:
            self.part = anyio.Event()
            with anyio.move_on_after(ALBUM_SECONDS) as pause:
                await self.part.wait()
            is_waiting = not pause.cancelled_caught


class Switchboard:
    """Receives messages of all platforms, has them answered in order, and delivers each reply once."""

    def __init__(self, app: App, turns: Turns, platforms: Mapping[str, Platform], tell: Callable[[str], None]) -> None:
        self._app = app
        self._turns = turns
        self.platforms = platforms
        self._tell = tell
        self._jobs: dict[tuple[str, str], _Job] = {}
        self._waiting: dict[tuple[UserId, str], list[tuple[int, int, _Job]]] = {}
        self._running: dict[tuple[UserId, str], str] = {}
        self._arrivals = itertools.count()
        self._group: TaskGroup | None = None

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Process what a crash left behind, then stay connected to all platforms inside the block."""
        if not self.platforms:
            yield
            return
        async with anyio.create_task_group() as group, AsyncExitStack() as stack:
            self._group = group
            left = await offload(platform_messages.list_unfinished, self._app.caller())
            for platform in self.platforms.values():
                await stack.enter_async_context(platform.connect(self.receiver(platform), self._tell))
            for entry in left:
                if entry.name[0] in self.platforms:
                    self._begin(self.platforms[entry.name[0]], entry)
            group.start_soon(self._clean)
            yield
            group.cancel_scope.cancel()

    async def stop(self, seconds: float) -> None:
        """Wait for the replies of ended turns to be sent; the rest is sent after the next start."""
        with anyio.move_on_after(seconds):
            for job in list(self._jobs.values()):
                await job.done.wait()

    def receiver(self, platform: Platform) -> Receive:
        """Return the function that handles what this platform reports."""

        async def receive(incoming: Incoming) -> Reply | None:
            return await self.receive(platform, incoming)

        return receive

    async def _clean(self) -> None:
        while True:
            remove = partial(offload, platform_messages.remove_finished, self._app.caller())
            await run_guarded("removing old messages of platforms", remove)
            await anyio.sleep(_CLEAN_SECONDS)

    # incoming

    async def receive(self, platform: Platform, incoming: Incoming) -> Reply | None:
        """Handle what a platform reports.

        Returns the reply to a message if the platform waits for it, else None as soon as the message is stored.
        """
        match incoming:
            case PlatformMessage():
                return await self._receive_message(platform, incoming)
            case Stopped():
                user = await offload(pairing.find_user, self._app.caller(), platform.name, incoming.chat.user)
                key = conversation_keys.build_key(incoming.chat)
                if user is not None and self._running.get((user, key)) == incoming.delivery:
                    self._turns.interrupt(user, key)
            case Moved(before, after):
                await offload(conversation_keys.move_chat, self._app.caller(), platform.name, before, after)
            case _:
                assert_never(incoming)
        return None

    async def _receive_message(self, platform: Platform, message: PlatformMessage) -> Reply | None:
        user = await offload(pairing.find_user, self._app.caller(), platform.name, message.chat.user)
        if user is None:
            return None if message.edits else await self._pair(platform, message)
        message, caller = await self._place(platform, message, user)
        if message.edits:
            edit = await offload(platform_messages.accept_edit, caller, message)
            if edit is not None:
                self._begin(platform, edit)
            return None
        command = read_command(message.text)
        if command is not None and command.name == "stop":
            is_stopped = self._turns.interrupt(caller.user, conversation_keys.build_key(message.chat))
            return self._answer_at_once(platform, Reply(message, "Stopped." if is_stopped else "Nothing is running."))
        entry, is_new = await offload(platform_messages.accept_message, caller, message)
        if is_new:
            self._begin(platform, entry)
        elif entry.name in self._jobs:
            self._jobs[entry.name].part.set()
        return await self._wait(caller, entry) if not platform.sends else None

    async def _place(
        self, platform: Platform, message: PlatformMessage, user: UserId
    ) -> tuple[PlatformMessage, Caller]:
        """Return the message with its resolved chat, and the caller whose memory it uses."""
        chat, admin = message.chat, self._app.caller()
        if chat.chat_type == "dm":
            return message, self._caller(user, chat)
        first = await offload(conversation_keys.find_origin, admin, platform.name, chat.chat)
        is_shared = platform.shares_groups or bool(chat.thread)
        chat = replace(chat, is_shared=is_shared, first=first)
        if is_shared:  # a shared conversation must not have access to one person's memory
            user = await offload(pairing.ensure_user, admin, f"{platform.name}:{chat.chat_type}:{chat.origin}")
        return replace(message, chat=chat), self._caller(user, chat)

    def _caller(self, user: UserId, chat: Chat) -> Caller:
        """Return the caller of a paired person; only the owner takes decisions, and not in a group."""
        caller = self._app.person(user)
        return caller if user == OWNER and chat.chat_type == "dm" else caller.without_decisions()

    async def _pair(self, platform: Platform, message: PlatformMessage) -> Reply | None:
        """Send the code to a stranger; the message is not stored."""
        caller, chat = self._app.caller(), message.chat
        code = await offload(pairing.issue_code, caller, platform.name, chat.user, message.name)
        text = _PAIRING.format(code=code) if code is not None else ""
        return self._answer_at_once(platform, Reply(message, text, is_paired=False))

    def _answer_at_once(self, platform: Platform, reply: Reply) -> Reply | None:
        if not platform.sends:
            return reply
        if reply.text:
            self._start(self._try_to_send, platform, reply)
        return None

    async def _try_to_send(self, platform: Platform, reply: Reply) -> None:
        try:
            await platform.send(reply)
        except Undelivered as error:
            log.warning("%s: %s", platform.name, error)

    async def _wait(self, caller: Caller, entry: Entry) -> Reply:
        """Return the reply to a message; an answered message gets the same reply again."""
        began = time.monotonic()
        while (job := self._jobs.get(entry.name)) is None:
            if entry.state not in {State.RECEIVED, State.RUNNING}:
                return Reply(entry.message, entry.answer, entry.session_id)
            if time.monotonic() - began > _MOST_WAIT_SECONDS:
                raise Busy("the message is stored, and nobody answers it now", "it is answered after the next start")
            # the request that stored it has not begun to answer, or has ended since this entry was read
            await anyio.sleep(_LOOK_SECONDS)
            message = entry.message
            latest = await offload(platform_messages.find_entry, caller, message.chat.platform, message.delivery)
            entry = entry if latest is None else replace(latest, message=message)
        await job.done.wait()
        if job.error is not None:
            raise job.error
        assert job.reply is not None
        return job.reply

    # one message

    def _begin(self, platform: Platform, entry: Entry) -> None:
        job = self._jobs[entry.name] = _Job(platform, entry)
        key = (entry.user, conversation_keys.build_key(entry.message.chat))
        # queued messages are answered in the order of their chat, even if they arrived in another one
        heapq.heappush(self._waiting.setdefault(key, []), (entry.message.number, next(self._arrivals), job))
        self._start(self._work, key)

    def _start(self, work: Callable[..., Coroutine[None, None, None]], *arguments: object) -> None:
        assert self._group is not None, "messages are taken inside `serve` only"
        self._group.start_soon(run_guarded, "the work on a message of a platform", partial(work, *arguments))

    async def _work(self, key: tuple[UserId, str]) -> None:
        """Process the first queued message of a chat, and notify whoever waits for it, even if it fails."""
        caller, job = self._caller(key[0], self._waiting[key][0][2].entry.message.chat), None
        try:
            async with self._turns.hold(caller, key[1]):
                _, _, job = heapq.heappop(self._waiting[key])
                if not self._waiting[key]:
                    del self._waiting[key]
                await self._answer_job(caller, key, job)
            await self._send_job(caller, key[1], job)
        finally:
            if job is not None:
                job.done.set()
                self._jobs.pop(job.entry.name, None)

    async def _answer_job(self, caller: Caller, key: tuple[UserId, str], job: _Job) -> None:
        """Answer a message; an answer that was stored before a crash is kept."""
        self._running[key] = job.entry.message.delivery
        try:
            if job.entry.state is not State.ANSWERED:
                async with self._turns.hold_lease(caller, key[1]) as fence:
                    await self._answer(caller, job, fence)
            job.reply = self._reply(caller, job, job.entry.answer)
        except Stopping as error:  # the message is stored, and is answered after the next start
            job.error = error
        except KeptError as error:
            log.warning("a message of %s could not be answered", job.platform.name, exc_info=True)
            job.error = error
            text = f"{error.message}\n{error.remedy}" if error.remedy else error.message
            job.reply = replace(self._reply(caller, job, text), is_error=True)
        finally:
            self._running.pop(key, None)

    def _reply(self, caller: Caller, job: _Job, text: str) -> Reply:
        """Return a reply to a message; what was shown of it is stored with the message."""

        async def store(parts: tuple[str, ...]) -> None:
            job.entry = replace(job.entry, shown=parts)
            await offload(platform_messages.save_entry, caller, job.entry)

        shown = Shown(job.entry.shown, store)
        return Reply(job.entry.message, text, job.entry.session_id, shown=shown)

    async def _send_job(self, caller: Caller, key: str, job: _Job) -> None:
        if job.reply is None:
            return
        state = State.SENT
        try:
            if job.platform.sends and not job.entry.message.edits:
                async with self._turns.hold(caller, f"send:{key}"):  # the replies of a chat arrive in order
                    state = await self._deliver(job.platform, job.reply)
            elif job.error is not None:
                await offload(platform_messages.remove_message, caller, job.entry)
                return
            await offload(platform_messages.save_entry, caller, replace(job.entry, state=state))
        except KeptError:
            log.warning("the reply to a message of %s could not be recorded", job.platform.name, exc_info=True)

    async def _deliver(self, platform: Platform, reply: Reply) -> State:
        waits, pauses = 0, list(_PAUSES)
        while True:
            try:
                await platform.send(reply)
            except Undelivered as error:
                log.warning("%s: %s", platform.name, error)
                is_asked = error.after_seconds > 0 and waits < _MOST_WAITS
                if not error.is_temporary or not (is_asked or pauses):
                    return State.FAILED
                waits += 1
                await anyio.sleep(error.after_seconds if is_asked else pauses.pop(0))
            else:
                return State.SENT

    async def _answer(self, caller: Caller, job: _Job, fence: int) -> None:
        """Run the command or the turn of a message, and store its answer."""
        await job.wait_for_parts()
        job.entry = await offload(platform_messages.begin_message, caller, job.entry)
        key = conversation_keys.build_key(job.entry.message.chat)
        session = await offload(conversation_keys.find_session, caller, key)
        resume, chat = None if session is None else session.session_id, describe_chat(job.entry.message, key)
        wanted = Wanted(key, resume=resume, platform=job.platform.name, chat=chat)
        async with self._turns.slot(caller, wanted, fence=fence) as slot:
            is_due = session is not None and self._is_due(session.last_used)
            text = await self._respond(caller, job, slot, is_due=is_due)
            session_id = slot.agent.session.id
        await offload(conversation_keys.set_session, caller, key, session_id)
        job.entry = replace(job.entry, state=State.ANSWERED, answer=text, session_id=session_id)
        await offload(platform_messages.save_entry, caller, job.entry)

    async def _respond(self, caller: Caller, job: _Job, slot: Slot, *, is_due: bool) -> str:
        """Return the answer to a message, which may be a command, an edit, or a message for the model."""
        message = job.entry.message
        if message.edits:
            text = describe_edit(message)
            await offload(partial(slot.agent.add_message, source=find_message_source(message)), text)
            return ""
        command = read_command(message.text)
        try:
            done = None if command is None else await run_command(caller, slot.agent, command)
        except (UsageError, NotAllowed) as error:
            return f"{error.message}\n{error.remedy}"
        if isinstance(done, str):
            return done
        if is_due:
            await offload(slot.agent.new, "reset")
        return await self._talk(caller, job, slot, "" if done is None else done.text)

    def _is_due(self, last_used: float) -> bool:
        now = self._app.clock.now().astimezone()
        return conversation_keys.is_due_for_reset(self._app.settings.serve, last_used, now)

    async def _talk(self, caller: Caller, job: _Job, slot: Slot, loaded: str) -> str:
        if job.entry.state is State.RUNNING:  # since before a crash
            text = name_speaker(job.entry.message)
            answered = await slot.agent.take_up(text, job.entry.received)
            if answered is not None:
                return answered
        contents = await job.platform.read_files(job.entry.message)
        message = join_files(job.entry.message, contents)
        text, images = name_speaker(message), [content.image for content in contents if content.image is not None]
        source = find_message_source(message, contents)
        # recorded before the turn begins: after a crash the message is looked up in this session
        key, session_id = conversation_keys.build_key(message.chat), slot.agent.session.id
        await offload(conversation_keys.set_session, caller, key, session_id)
        job.entry = replace(job.entry, message=message, state=State.RUNNING, session_id=session_id)
        await offload(platform_messages.save_entry, caller, job.entry)
        async with self._turns.stream(
            slot, lambda agent: agent.turn(text, images, loaded=loaded, source=source)
        ) as turn:
            draft = Draft(job.platform, self._reply(caller, job, ""))
            async with anyio.create_task_group() as group:
                if job.platform.draft_seconds is not None:
                    group.start_soon(draft.keep_showing, job.platform.draft_seconds)
                async for event in turn.events:
                    if isinstance(event, TextStreamed):
                        draft.text += event.text
                    elif isinstance(event, ToolStarted):  # the answer is what the model says after its last call
                        draft.text = ""
                draft.done.set()
        answer = turn.result()
        return answer.text or ("Stopped." if answer.interrupted else "(no answer)")

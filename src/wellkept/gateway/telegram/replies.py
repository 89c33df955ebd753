"""Replies in Telegram: complete answers in parts, growing ones as drafts or edits, and the files of messages."""

from __future__ import annotations

import base64
import time
import zlib
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, field

from wellkept.core.messages import ImagePart
from wellkept.gateway.platforms import FileContent, Moved, Undelivered
from wellkept.gateway.telegram.api import MOST_FILE_BYTES, ApiError, Pace, Unreachable
from wellkept.gateway.telegram.texts import MOST_UNITS, has_table, split_text, to_html

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from wellkept.core.text import JSON
    from wellkept.gateway.platforms import Reply
    from wellkept.gateway.state.platform_messages import File, PlatformMessage
    from wellkept.gateway.telegram.api import BotApi

_MOST_PARTS = 8
"""A longer answer is sent as a file: nobody reads that many messages, and a group may get 20 in a minute."""
_REST = "\n\n[the whole answer is in the file]"
_DRAFT = "draft "
"""The prefix of the id of a message with a growing answer; the complete one replaces it."""
_MOST_CALLS = 5
"""How often a call is repeated because Telegram asked to wait or the chat moved."""
_LONGEST_WAIT = 60.0
"""A longer wait is left to the queue of replies, which survives a restart."""
_EDIT_SECONDS = 3.0
"""How often a growing answer in a group is edited: Telegram allows 20 messages in a minute."""
_DRAFT_SECONDS = 20.0
"""A draft disappears after 30 seconds; an unchanged one is sent again before that."""
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_MOST_IMAGE_BYTES = 5_000_000
"""Models refuse larger images."""
_MOST_TEXT_BYTES = 1_000_000
_TEXT_TYPES = frozenset(
    {"application/json", "application/x-yaml", "application/xml", "application/toml", "application/x-sh"}
)
_TEXT_NAMES = (
    ".txt", ".md", ".csv", ".tsv", ".json", ".jsonl", ".yaml", ".yml", ".toml", ".xml", ".html", ".log", ".ini", ".py",
    ".js", ".ts", ".go", ".rs", ".java", ".c", ".h", ".cpp", ".sh", ".sql", ".css", ".diff", ".patch", ".tex", ".org",
)  # fmt: skip


class _Drafted(Struct):
    """What was shown of a growing answer."""

    delivery: str
    text: str = ""
    at: float = 0.0


class Replies(Struct):
    """Writes into the chats of one bot."""

    name: str
    api: BotApi
    report_move: Callable[[Moved], Awaitable[object]]
    pace: Pace = field(default_factory=Pace)
    _drafts: dict[int, _Drafted] = field(default_factory=dict)
    _moved: dict[str, str] = field(default_factory=dict)
    _has_drafts: bool = True
    """False after a server rejected drafts as unknown."""
    _has_rich: bool = True

    # whole answers

    async def send(self, reply: Reply) -> None:
        """Send the parts of a reply that were not sent yet; raises Undelivered."""
        self._drafts.pop(_draft_id(reply.message), None)
        try:
            parts = split_text(reply.text) or ["(an empty answer)"]
            if len(parts) > _MOST_PARTS:
                await self._send_file(reply)
                return
            for place, part in enumerate(parts):
                await self._send_part(reply, place, part)
        except (ApiError, Unreachable) as error:
            raise _describe_failure(error) from None

    async def _send_part(self, reply: Reply, place: int, part: str) -> None:
        there = reply.shown.parts[place] if place < len(reply.shown.parts) else ""
        drafted = there.removeprefix(_DRAFT)
        if there and drafted == there:
            return
        if there and await self._edit(reply, drafted, part):
            await reply.shown.set_part(place, drafted)
        else:
            await reply.shown.set_part(place, await self._try_forms(reply, part))

    async def _try_forms(self, reply: Reply, part: str, **more: JSON) -> str:
        """Send a text in the best form that Telegram accepts, at last as plain text; return the id of the message."""
        if has_table(part) and self._has_rich and not more:
            try:
                return _message_id(await self._call(reply, "sendRichMessage", rich_message={"markdown": part}))
            except ApiError as error:
                if error.code not in {400, 404}:
                    raise
                self._has_rich = not error.is_unknown_method
        method = "editMessageText" if more else "sendMessage"
        try:
            return _message_id(await self._call(reply, method, text=to_html(part), parse_mode="HTML", **more))
        except ApiError as error:
            if not error.is_parse_error:
                raise
        return _message_id(await self._call(reply, method, text=part, **more))

    async def _edit(self, reply: Reply, message_id: str, part: str) -> bool:
        """Change a message; False if it was deleted meanwhile."""
        try:
            await self._try_forms(reply, part, message_id=int(message_id))
        except ApiError as error:
            if error.is_gone:
                return False
            if not error.is_same_text:
                raise
        return True

    async def _send_file(self, reply: Reply) -> None:
        """Send a very long answer as a file, with its beginning as a message."""
        beginning = split_text(reply.text, MOST_UNITS - len(_REST))[0] + _REST
        await self._send_part(reply, 0, beginning)
        if len(reply.shown.parts) > 1:
            return
        chat = self._moved.get(reply.message.chat.chat, reply.message.chat.chat)
        await self.pace.wait(chat)
        content = ("answer.md", reply.text.encode("utf-8", "replace"), "text/markdown")
        target = self._target(reply, chat)
        await reply.shown.set_part(1, _message_id(await self.api.upload("sendDocument", "document", content, target)))

    async def _call(self, reply: Reply, method: str, **parameters: JSON) -> JSON:
        """Call a method for the chat of a reply, within its limits, and follow it if it moved."""
        for _ in range(_MOST_CALLS):
            chat = self._moved.get(reply.message.chat.chat, reply.message.chat.chat)
            await self.pace.wait(chat)
            target = self._target(reply, chat)
            if method == "editMessageText":  # an edited message stays where it is
                target = {"chat_id": target["chat_id"]}
            try:
                return await self.api.call(method, {**_PLAIN.get(method, {}), **target, **parameters})
            except ApiError as error:
                if not await self._obey(chat, error):
                    raise
        raise Undelivered(f"{self.name}: Telegram asked to wait too often", is_temporary=True, after_seconds=30.0)

    async def _obey(self, chat: str, error: ApiError) -> bool:
        """Wait or follow a moved chat, as an error requests; False if another call would not help."""
        if error.migrate_to:
            self._moved[chat] = error.migrate_to
            await self.report_move(Moved(chat, error.migrate_to))
            return True
        if error.retry_after:
            self.pace.block(chat, error.retry_after)
            if error.retry_after > _LONGEST_WAIT:
                raise Undelivered(error.message, is_temporary=True, after_seconds=error.retry_after)
            return True
        return False

    def _target(self, reply: Reply, chat: str) -> dict[str, JSON]:
        message = reply.message
        target: dict[str, JSON] = {"chat_id": int(chat)}
        if message.chat.thread:
            target["message_thread_id"] = int(message.chat.thread)
        if message.chat.chat_type != "dm" and not reply.shown.parts:
            target["reply_parameters"] = {"message_id": message.number, "allow_sending_without_reply": True}
        return target

    # growing answers

    async def show_draft(self, reply: Reply) -> None:
        """Show the answer so far; skipped if it would exceed Telegram's limits. Raises Undelivered."""
        drafted = self._drafts.setdefault(_draft_id(reply.message), _Drafted(reply.message.delivery))
        try:
            if self._has_drafts and reply.message.chat.chat_type == "dm":
                await self._show_in_private(reply, drafted)
            else:
                await self._show_by_edits(reply, drafted)
        except (ApiError, Unreachable) as error:
            raise _describe_failure(error) from None

    async def _show_in_private(self, reply: Reply, drafted: _Drafted) -> None:
        chat, now = reply.message.chat.chat, time.monotonic()
        text = (split_text(reply.text) or [""])[-1]
        is_known = drafted.at > 0 and text == drafted.text and now - drafted.at < _DRAFT_SECONDS
        if is_known or not self.pace.take_spare(chat):
            return
        drafted.text, drafted.at = text, now
        given: dict[str, JSON] = {"draft_id": _draft_id(reply.message), "can_stop": True, **self._target(reply, chat)}
        try:
            await self.api.call("sendMessageDraft", {**given, "text": to_html(text), "parse_mode": "HTML"})
        except ApiError as error:
            if error.retry_after:
                self.pace.block(chat, error.retry_after)
            elif error.is_parse_error:
                await self.api.call("sendMessageDraft", {**given, "text": text})
            elif error.is_unknown_method:
                self._has_drafts = False
            else:
                raise

    async def _show_by_edits(self, reply: Reply, drafted: _Drafted) -> None:
        """Show an answer as one message that is edited; before there is text, show the typing indicator."""
        chat, now = self._moved.get(reply.message.chat.chat, reply.message.chat.chat), time.monotonic()
        text = (split_text(reply.text) or [""])[0]  # the first part is the message that the draft becomes
        is_due = bool(text) and text != drafted.text and now - drafted.at >= _EDIT_SECONDS
        try:
            if not is_due or not self.pace.take_spare(chat):
                target = self._target(reply, chat)
                target.pop("reply_parameters", None)
                await self.api.call("sendChatAction", {**target, "action": "typing"})
                return
            drafted.text, drafted.at = text, now
            if reply.shown.parts:
                message_id = int(reply.shown.parts[0].removeprefix(_DRAFT))
                await self.api.call("editMessageText", {"chat_id": int(chat), "message_id": message_id, "text": text})
            else:
                target = {**_PLAIN["sendMessage"], **self._target(reply, chat)}
                sent = _message_id(await self.api.call("sendMessage", {**target, "text": text}))
                await reply.shown.set_part(0, f"{_DRAFT}{sent}")
        except ApiError as error:
            if not await self._obey(chat, error) and not error.is_same_text:
                raise

    def find_drafted(self, draft_id: int) -> str | None:
        """Return the message that a draft answers."""
        drafted = self._drafts.get(draft_id)
        return None if drafted is None else drafted.delivery

    # files

    async def read_files(self, message: PlatformMessage) -> Sequence[FileContent]:
        """Return the contents of the files of a message; for an unreadable file, the reason."""
        return [await self._read_file(file) for file in message.files]

    async def _read_file(self, file: File) -> FileContent:
        most = _choose_limit(file)
        if most == 0:
            return FileContent(file, trouble="its content cannot be read here")
        if file.size is not None and file.size > most:
            return FileContent(file, trouble=f"larger than {most // 1_000_000} MB, so that it was not read")
        try:
            content = await self._fetch(file, most)
        except (ApiError, Unreachable):
            return FileContent(file, trouble="it could not be fetched from Telegram")
        if content is None:
            return FileContent(file, trouble=f"larger than {most // 1_000_000} MB, so that it was not read")
        if file.media_type in _IMAGES:
            return FileContent(file, image=ImagePart(file.media_type, base64.b64encode(content).decode()))
        return _read_text(file, content)

    async def _fetch(self, file: File, most: int) -> bytes | None:
        try:
            return await self.api.fetch(file.id, most)
        except (ApiError, Unreachable):
            await anyio.sleep(1.0)
            return await self.api.fetch(file.id, most)


_PLAIN: dict[str, dict[str, JSON]] = {
    # with previews, Telegram's servers would visit every link in an answer
    "sendMessage": {"link_preview_options": {"is_disabled": True}},
    "editMessageText": {"link_preview_options": {"is_disabled": True}},
}


def _choose_limit(file: File) -> int:
    """Return how many bytes of a file are read; 0 for a kind that no model can read."""
    if file.media_type in _IMAGES:
        return min(_MOST_IMAGE_BYTES, MOST_FILE_BYTES)
    is_text = file.media_type.startswith("text/") or file.media_type in _TEXT_TYPES
    return _MOST_TEXT_BYTES if is_text or file.name.lower().endswith(_TEXT_NAMES) else 0


def _read_text(file: File, content: bytes) -> FileContent:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return FileContent(file, trouble="it is not UTF-8 text")
    return FileContent(file, text=text.replace("\x00", ""))


def _draft_id(message: PlatformMessage) -> int:
    """Return the number of the draft that answers a message; Telegram wants one that is not 0."""
    return (zlib.crc32(message.delivery.encode()) & 0x7FFFFFFF) or 1


def _message_id(result: JSON) -> str:
    message_id = result.get("message_id") if isinstance(result, dict) else None
    return str(message_id) if isinstance(message_id, int) else "0"


def _describe_failure(error: ApiError | Unreachable) -> Undelivered:
    if isinstance(error, Unreachable):
        return Undelivered(error.message, is_temporary=True)
    is_temporary = error.code >= 500 or error.code == 429
    return Undelivered(error.message, is_temporary=is_temporary, after_seconds=error.retry_after)

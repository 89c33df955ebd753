"""Updates of the Bot API, parsed from JSON of any shape."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from wellkept.core.errors import UsageError
from wellkept.core.provenance import ATTACHED
from wellkept.core.values import hide
from wellkept.gateway.platforms import FORWARDED, Moved
from wellkept.gateway.slash import COMMANDS, read_command
from wellkept.gateway.state.conversation_keys import Chat
from wellkept.gateway.state.platform_messages import File, PlatformMessage

if TYPE_CHECKING:
    from wellkept.gateway.platforms import Incoming

ALLOWED = ("message", "edited_message", "stopped_message_generation")
"""The kinds of updates to request."""
Fields: TypeAlias = Mapping[str, object]
_NAMED_FILES = {
    "document": "document", "audio": "audio file", "video": "video", "animation": "animation",
    "voice": "voice message", "video_note": "video message",
}  # fmt: skip
_MOST_TEXT = 100_000
_MOST_QUOTE = 2_000
_MOST_NAME = 100


class NotAnUpdate(UsageError):
    """The JSON is not an update of the Bot API."""

    http_status = 400


class Bot(Struct, frozen=True):
    """The bot's id and name."""

    id: int
    username: str


class StoppedDraft(Struct, frozen=True):
    """A person pressed Stop under a growing answer."""

    chat: Chat
    draft_id: int


class Update(Struct, frozen=True):
    """One update; `incoming` is None for one that is not for us."""

    id: int
    incoming: Incoming | StoppedDraft | None = None


class Reader(Struct, frozen=True):
    """Reads updates for one bot."""

    platform: str
    bot: Bot
    answers_all: bool = False
    """Whether group messages that do not address the bot count."""
    _albums: deque[str] = field(default_factory=lambda: deque(maxlen=100))
    """The newest albums that address the bot: only one part of an album has a caption that can mention it."""

    __repr__ = hide("_albums")

    def read(self, value: object) -> Update:
        """Return an update; raises NotAnUpdate."""
        if not isinstance(value, Mapping):
            raise NotAnUpdate("an update is an object", "send updates of the Bot API only")
        number = _require_int(value, "update_id")
        if "message" in value:
            return Update(number, self._read_message(_require(value, "message")))
        if "edited_message" in value:
            return Update(number, self._read_edit(_require(value, "edited_message")))
        if "stopped_message_generation" in value:
            return Update(number, self._read_stop(_require(value, "stopped_message_generation")))
        return Update(number)

    def _read_message(self, message: Fields) -> Incoming | None:
        chat_id, number = str(_require_int(_require(message, "chat"), "id")), _require_int(message, "message_id")
        moved = message.get("migrate_to_chat_id")
        if isinstance(moved, int) and not isinstance(moved, bool):
            return Moved(chat_id, str(moved))
        chat, person = self._read_chat(message), _read_person(message)
        if chat is None or person is None:
            return None
        album = _text(message, "media_group_id")
        delivery = f"{chat_id}:album:{album[:_MOST_NAME]}" if album else f"{chat_id}:{number}"
        if delivery not in self._albums and not self._is_for_us(message, chat):
            return None
        if album:
            self._albums.append(delivery)
        text, files = self._read_text(message), _read_files(message, number)
        if not text and not files:
            return None
        title = " ".join(_text(_require(message, "chat"), "title")[:_MOST_NAME].split())
        return PlatformMessage(
            delivery, text, chat, person, files=files, number=number, is_album=bool(album), chat_name=title
        )

    def _read_edit(self, message: Fields) -> Incoming | None:
        whole = self._read_message({**message, "migrate_to_chat_id": None})
        if not isinstance(whole, PlatformMessage):
            return None
        stamp = message.get("edit_date")
        edit = f"{whole.delivery}:edit:{stamp if isinstance(stamp, int) else 0}"
        return PlatformMessage(edit, whole.text, whole.chat, whole.name, number=whole.number, edits=whole.delivery)

    def _read_stop(self, stopped: Fields) -> StoppedDraft:
        chat_id = str(_require_int(_require(stopped, "chat"), "id"))
        thread = _read_thread(stopped, is_topic=True)
        return StoppedDraft(Chat(self.platform, "dm", chat_id, thread, chat_id), _require_int(stopped, "draft_id"))

    def _read_chat(self, message: Fields) -> Chat | None:
        """Return the chat of a message; None for channels, where nobody talks with a bot."""
        chat = _require(message, "chat")
        chat_id, kind = str(_require_int(chat, "id")), _text(chat, "type")
        if kind == "private":
            return Chat(self.platform, "dm", chat_id, _read_thread(message, is_topic=True), chat_id)
        if kind not in {"group", "supergroup"}:
            return None
        # a group and the supergroup that it becomes are the same chat; replies have threads too, which are not topics
        thread = _read_thread(message, is_topic=message.get("is_topic_message") is True)
        return Chat(self.platform, "group", chat_id, thread, _read_person_id(message))

    def _is_for_us(self, message: Fields, chat: Chat) -> bool:
        """Whether a message addresses the bot: in a group by its name, a reply to it, or a command."""
        if chat.chat_type == "dm" or self.answers_all:
            return True
        replied = message.get("reply_to_message")
        if isinstance(replied, Mapping) and _id_of(replied.get("from")) == self.bot.id:
            return True
        text = _text(message, "text") or _text(message, "caption")
        is_typed = bool(_text(message, "text")) and not _is_passed_on(message)
        command = read_command(text) if is_typed else None
        if command is not None:
            named = text.split(maxsplit=1)[0].partition("@")[2].lower()
            return named == self.bot.username.lower() if named else command.name in COMMANDS
        entities = message.get("entities", message.get("caption_entities"))
        found = entities if isinstance(entities, Sequence) and not isinstance(entities, str) else ()
        return any(self._is_mention(one, text) for one in found if isinstance(one, Mapping))

    def _is_mention(self, entity: Fields, text: str) -> bool:
        if entity.get("type") == "text_mention":
            return _id_of(entity.get("user")) == self.bot.id
        start, length = entity.get("offset"), entity.get("length")
        if entity.get("type") != "mention" or not isinstance(start, int) or not isinstance(length, int):
            return False
        units = text.encode("utf-16-le", "surrogatepass")  # places of entities are in UTF-16 units
        named = units[2 * max(0, start) : 2 * max(0, start + length)].decode("utf-16-le", "replace")
        return named.lower() == f"@{self.bot.username}".lower()

    def _read_text(self, message: Fields) -> str:
        """Return the text of a message, with what it quotes or forwards."""
        text = (_read_own(message) or _describe(message))[:_MOST_TEXT]
        name = f"@{self.bot.username}"
        if text.lower().startswith(f"{name} ".lower()):
            text = text[len(name) :].strip()
        if _is_passed_on(message) and text:
            text = f"{FORWARDED}{text}"  # first, so that no forwarded text is a command
        elif text.startswith("/"):
            if _text(message, "text"):
                return text
            text = f"[caption] {text}"  # what the person writes below a file is no command
        return f"{text}{self._read_quote(message)}" if text else ""

    def _read_quote(self, message: Fields) -> str:
        """Return what a message replies to; the bot's own words are already in the conversation."""
        quote, replied = message.get("quote"), message.get("reply_to_message")
        if isinstance(quote, Mapping) and _text(quote, "text"):
            return f'{ATTACHED}in reply to "{_text(quote, "text")[:_MOST_QUOTE]}"]'
        if not isinstance(replied, Mapping) or _id_of(replied.get("from")) == self.bot.id:
            return ""
        said = _text(replied, "text") or _text(replied, "caption")
        if not said:
            return ""
        return f'{ATTACHED}in reply to {_read_person(replied) or "somebody"}: "{said[:_MOST_QUOTE]}"]'


def _is_passed_on(message: Fields) -> bool:
    """Whether somebody else wrote the text of a message: it was forwarded, or composed by an inline bot."""
    # servers before version 7 of the Bot API send `forward_date` without `forward_origin`
    return "via_bot" in message or any(key.startswith("forward_") for key in message)


def _read_own(message: Fields) -> str:
    """Return the text or the caption of a message, with `>` before the lines of its block quotations."""
    name = "text" if _text(message, "text") else "caption"
    text, entities = _text(message, name), message.get("entities" if name == "text" else "caption_entities")
    found = entities if isinstance(entities, Sequence) and not isinstance(entities, str) else ()
    units = text.encode("utf-16-le", "surrogatepass")  # places of entities are in UTF-16 units
    for quotation in sorted(filter(_is_quotation, found), key=lambda one: -int(one["offset"])):
        start, end = 2 * quotation["offset"], 2 * (quotation["offset"] + quotation["length"])
        quoted = units[start:end].decode("utf-16-le", "replace").strip("\n")
        lines = "".join(f"\n> {line}" for line in quoted.splitlines())
        units = units[:start] + f"{lines}\n".encode("utf-16-le", "surrogatepass") + units[end:]
    return units.decode("utf-16-le", "replace").strip() if units else text


def _is_quotation(entity: object) -> bool:
    if not isinstance(entity, Mapping) or entity.get("type") not in {"blockquote", "expandable_blockquote", "pre"}:
        return False
    places = entity.get("offset"), entity.get("length")
    return all(isinstance(place, int) and not isinstance(place, bool) and 0 <= place <= _MOST_TEXT for place in places)


def _read_person_id(message: Fields) -> str:
    """Return the id of the speaker; anonymous administrators count as one person."""
    sender = _id_of(message.get("sender_chat"))
    if sender is not None:
        return f"chat{sender}"
    sender_id = _id_of(message.get("from"))
    return "" if sender_id is None else str(sender_id)


def _read_person(message: Fields) -> str | None:
    """Return the name of the speaker; None for a service message or another bot."""
    sender, person = message.get("sender_chat"), message.get("from")
    if isinstance(sender, Mapping) and _id_of(sender) is not None:
        return " ".join((_text(sender, "title") or "administrator")[:_MOST_NAME].split())
    if not isinstance(person, Mapping) or _id_of(person) is None or person.get("is_bot") is True:
        return None
    name = " ".join(part for part in (_text(person, "first_name"), _text(person, "last_name")) if part)
    return " ".join((name or _text(person, "username") or str(_id_of(person)))[:_MOST_NAME].split())


def _read_thread(message: Fields, *, is_topic: bool) -> str:
    thread = message.get("message_thread_id")
    is_number = isinstance(thread, int) and not isinstance(thread, bool)
    return str(thread) if is_topic and is_number else ""


def _read_files(message: Fields, number: int) -> tuple[File, ...]:
    """Return the files of a message; for a photo, the largest size that can be fetched."""
    photo = message.get("photo")
    if isinstance(photo, Sequence) and not isinstance(photo, str):
        sizes = [size for size in photo if isinstance(size, Mapping) and _text(size, "file_id")]
        fitting = [size for size in sizes if (_size(size) or 0) <= _MOST_PHOTO_BYTES] or sizes[:1]
        return (_read_file(fitting[-1], "photo", number, "image/jpeg"),) if fitting else ()
    for name, kind in _NAMED_FILES.items():
        field = message.get(name)
        if isinstance(field, Mapping) and _text(field, "file_id"):
            return (_read_file(field, kind, number),)
    return ()


_MOST_PHOTO_BYTES = 5_000_000
"""Models refuse larger images."""


def _read_file(found: Fields, kind: str, number: int, media_type: str = "") -> File:
    name, given = _text(found, "file_name")[:_MOST_NAME], _text(found, "mime_type")[:_MOST_NAME]
    return File(_text(found, "file_id")[:500], kind, name, given or media_type, _size(found), number)


def _size(found: Fields) -> int | None:
    size = found.get("file_size")
    return size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None


def _describe(message: Fields) -> str:
    """Describe a message without text; empty for service messages about the chat."""
    match message:
        case {"sticker": dict(sticker)}:
            return f"[sticker {_text(sticker, 'emoji')}]".replace(" ]", "]")
        case {"location": {"latitude": int() | float() as north, "longitude": int() | float() as east}}:
            return f"[location {north:.5f}, {east:.5f}]"
        case {"contact": dict(contact)}:
            return f"{ATTACHED}contact {_text(contact, 'first_name')} {_text(contact, 'phone_number')}]"
        case {"poll": dict(poll)}:
            return f"{ATTACHED}poll: {_text(poll, 'question')}]"
        case {"dice": {"value": int() as value}}:
            return f"[dice: {value}]"
        case _:
            return ""


def _require(value: Fields, name: str) -> Fields:
    field = value.get(name)
    if not isinstance(field, Mapping):
        raise NotAnUpdate(f"{name} is not an object", "send updates of the Bot API only")
    return field


def _require_int(value: Fields, name: str) -> int:
    field = value.get(name)
    if not isinstance(field, int) or isinstance(field, bool) or abs(field) >= 1 << 63:
        raise NotAnUpdate(f"{name} is not a number", "send updates of the Bot API only")
    return field


def _id_of(value: object) -> int | None:
    number = value.get("id") if isinstance(value, Mapping) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _text(value: Fields, name: str) -> str:
    """Return a text field; empty for anything else. Lone surrogates, which cannot be stored, are replaced."""
    field = value.get(name)
    return field.encode("utf-8", "replace").decode() if isinstance(field, str) else ""

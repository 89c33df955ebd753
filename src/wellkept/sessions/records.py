"""Rows of the store and the values they stand for; base64 blobs; fingerprints that recognise a message."""

import binascii
import json
import marshal
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeGuard
from zlib import crc32

from msgspec import Struct

from wellkept.core.ids import SessionId, SourceName, blake2b, sha256
from wellkept.core.ids import checksum as checksum_of
from wellkept.core.messages import (
    ImagePart,
    Link,
    Message,
    NewMessage,
    Origin,
    Part,
    Role,
    Session,
    State,
    StoredMessage,
    TextPart,
    ToolCall,
)
from wellkept.core.text import JSON, dumps

Row: TypeAlias = tuple[Any, ...]

COVERED = 15
"""How many columns of a row the checksum always covers: the id and everything up to `interrupted`."""
_TEXT_OR_NONE = (5, 6, 7, 8, 9, 10, 12, 13)
_SESSION, _ROLE, _CONTENT, _TIME, _ORIGIN, _CALLS, _CALL, _REASONING, PARTS, _TOKENS, _SENT = (
    1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12,
)  # fmt: skip
_INTERRUPTED, _STATE, _SOURCE = 14, 15, 16
LoadBlob: TypeAlias = Callable[[str], str | None]
LoadSource: TypeAlias = Callable[[int], SourceName]
LEAST_CHARS = 2_048
"""Shorter runs stay in the text: a hash and a row would take as much space."""
_RUN = re.compile(rf"[A-Za-z0-9+/_-]{{{LEAST_CHARS},}}={{0,2}}")
SALVAGED = "salvaged"
"""The source of a session whose row was lost; a repair made it anew from its messages."""
_FOREIGN_ROLES = {"human": Role.USER, "ai": Role.ASSISTANT, "function": Role.TOOL}
_ACTIVE = State.ACTIVE.value
Print: TypeAlias = bytes
"""A short hash of role and content; 96 bits are enough for one session."""


def checksum(values: Row) -> int:
    """Return the checksum of a row's id and columns; the state, which changes often, is not covered.

    A source is covered where there is one, so that rows from before there were sources keep their checksums.
    """
    source = values[_SOURCE]
    return checksum_of(values[:COVERED] if source is None else (*values[:COVERED], source))


def is_damaged(values: Row) -> bool:
    """Whether a row (id, columns of MessageRow, checksum) is not as it was written.

    A row without a checksum, which another program wrote, is damaged if it cannot be parsed.
    """
    if values[-1] is None:
        return not _is_well_formed(values)
    source = values[_SOURCE]
    covered = values[:COVERED] if source is None else (*values[:COVERED], source)
    try:
        expected = crc32(marshal.dumps(covered, 2))  # as `checksum_of` does, without its call: an answer reads dozens
    except ValueError:
        expected = checksum_of(covered)
    return values[-1] != expected or values[_STATE] not in _STATE_WORDS


def _is_well_formed(values: Row) -> bool:
    return (
        type(values[_CONTENT]) is str
        and type(values[_SESSION]) is str
        and type(values[_ROLE]) is str
        and isinstance(values[_TIME], float | int)
        and all(values[index] is None or type(values[index]) is str for index in _TEXT_OR_NONE)
        and values[_ORIGIN] in _ORIGIN_WORDS
        and values[_STATE] in _STATE_WORDS
        and (not values[_CALLS] or are_calls(parse(values[_CALLS])))
        and (values[PARTS] is None or is_shape(parse(values[PARTS])))
        and (values[_SOURCE] is None or isinstance(values[_SOURCE], int))
    )


_STATE_WORDS = frozenset(state.value for state in State)
_ORIGIN_WORDS = frozenset(origin.value for origin in Origin) | {None}
_ROLE_WORDS = frozenset(role.value for role in Role)


def readable(values: Row) -> Row:
    """Return a damaged row with every column in its type, as far as it can be read; without the sent text."""
    row = [text_or_none(value) if index in _TEXT_OR_NONE else value for index, value in enumerate(values)]
    row[_SESSION] = text_of(values[_SESSION])
    row[_CONTENT] = text_of(values[_CONTENT])
    if row[_CALLS] and not are_calls(parse(row[_CALLS])):
        row[_CONTENT] = f"{row[_CONTENT]}\n{row[_CALLS]}".lstrip()
        row[_CALLS] = None
    if row[PARTS] is not None and not is_shape(parse(row[PARTS])):
        row[PARTS] = None
    if str(row[_REASONING]).startswith("["):
        row[_REASONING] = None  # an endpoint refuses signed blocks that were changed
    if values[_ROLE] not in _ROLE_WORDS:
        row[_ROLE] = (Role.ASSISTANT if row[_CALLS] else Role.TOOL if row[_CALL] else Role.USER).value
    row[_TIME] = number_of(values[_TIME])
    row[_ORIGIN] = row[_ORIGIN] if row[_ORIGIN] in _ORIGIN_WORDS else None
    row[_TOKENS] = values[_TOKENS] if isinstance(values[_TOKENS], int) else None
    row[_SENT] = None
    row[_INTERRUPTED] = int(values[_INTERRUPTED] == 1)
    row[_STATE] = values[_STATE] if values[_STATE] in _STATE_WORDS else State.ACTIVE.value
    # any number that no source has: what is damaged is not trusted
    row[_SOURCE] = values[_SOURCE] if values[_SOURCE] is None or isinstance(values[_SOURCE], int) else -1
    return tuple(row)


def text_of(value: object) -> str:
    """Return a column that should hold text, as far as it can be read."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "" if value is None else str(value)


def text_or_none(value: object) -> str | None:
    """Return a column that should hold text or nothing."""
    return value if value is None or type(value) is str else text_of(value)


def number_of(value: object) -> float:
    """Return a column that should hold a number, 0 if it does not."""
    return float(value) if isinstance(value, float | int) else 0.0


def parse(text: object) -> Any:
    """Return the value of a JSON text, None if it is not JSON."""
    try:
        return json.loads(text_of(text))
    except (ValueError, RecursionError):
        return None


def are_calls(value: object) -> TypeGuard[list[Mapping[str, str]]]:
    """Whether this is the stored form of tool calls."""
    return isinstance(value, list) and all(
        isinstance(call, dict) and all(isinstance(call.get(name), str) for name in ("id", "name", "arguments"))
        for call in value
    )


def is_shape(value: object) -> bool:
    """Whether this is the stored form of the parts of a content."""
    return isinstance(value, list) and all(isinstance(piece, dict) and _is_piece(piece) for piece in value)


def _is_piece(piece: Mapping[str, Any]) -> bool:
    match piece:
        case {"type": "image", "media_type": str(), "blob": str()}:
            return True
        case {"type": "string" | "text" as kind, "blobs": list(blobs)}:
            return all(isinstance(digest, str) for digest in blobs) and (
                kind == "string" or type(piece.get("chars")) is int
            )
    return False


def mark(content: str | tuple[Part, ...]) -> str | tuple[Part, ...]:
    """Return a content that says that it is damaged."""
    if isinstance(content, str):
        return f"[damaged: {content}]"
    text = "\n".join(part.text for part in content if isinstance(part, TextPart))
    return (TextPart(f"[damaged: {text}]"), *(part for part in content if isinstance(part, ImagePart)))


class Blob(Struct, frozen=True):
    """A base64 run under the hash of its text; `data` is decoded if encoding it again gives the same text."""

    hash: str
    data: bytes | str


def blob_of(text: str) -> Blob:
    """Return `text` as a blob."""
    digest = _hash(text)
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        return Blob(digest, text)
    return Blob(digest, data if _encode(data) == text else text)


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _encode(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def blob_text(digest: str, data: object) -> str | None:
    """Return the original text of a blob; None if it is not the text of that hash."""
    text = _blob_text(data)
    return text if _hash(text) == digest else None


def hash_blob(data: object) -> str:
    """Return the hash under which a blob with this content is stored."""
    return _hash(_blob_text(data))


def _blob_text(data: object) -> str:
    return _encode(data) if isinstance(data, bytes) else str(data)


def cut_blobs(text: str) -> tuple[str, list[Blob]]:
    """Return `text` with every long base64 run replaced by a mark with its hash, and the runs."""
    if len(text) < LEAST_CHARS:
        return text, []
    blobs: list[Blob] = []

    def swap(match: re.Match[str]) -> str:
        run = match.group()
        if not _is_binary(run):
            return run
        blob = blob_of(run)
        blobs.append(blob)
        return _mark(blob.hash)

    return _RUN.sub(swap, text), blobs


def join_blobs(text: str, hashes: Sequence[str], load: Callable[[str], str | None]) -> str:
    """Return `text` with its marks replaced by the blobs; a mark of an unknown blob stays."""
    for digest in hashes:
        whole = load(digest)
        if whole is not None:
            text = text.replace(_mark(digest), whole, 1)
    return text


def _mark(digest: str) -> str:
    return f"[blob:{digest}]"


def _is_binary(run: str) -> bool:
    # encoded bytes mix cases and digits everywhere; a long word, path or row of dashes does not
    sample = run[:256]
    return (
        any(character.islower() for character in sample)
        and any(character.isupper() for character in sample)
        and any(character.isdigit() for character in sample)
    )


class MessageRow(NamedTuple):
    """The columns of a message as it is written; reading puts the id before them and the checksum behind."""

    session_id: str
    role: str
    content: str
    timestamp: float
    origin: str | None
    """None if it is the usual origin of the role, to save space."""
    tool_name: str | None
    tool_calls: str | None
    tool_call_id: str | None
    reasoning: str | None
    parts: str | None
    token_count: int | None
    api_content: str | None
    external_id: str | None
    interrupted: int
    state: str
    source: int | None = None
    """The number of where the text came from; None if it is its author's own."""


class SessionRow(NamedTuple):
    """The columns of a session."""

    id: str
    source: str
    started: float
    user_id: str
    profile: str | None
    project: str | None
    model: str | None
    title: str | None
    parent_session_id: str | None
    link: str | None
    ended: float | None
    end_reason: str | None
    archived: int
    last_active: float
    message_count: int
    metadata: str | None


def storable(text: str) -> str:
    """Return `text` without lone surrogates, which no database takes; pairs become their character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def message_row(session_id: SessionId, new: NewMessage) -> tuple[MessageRow, list[Blob]]:
    """Return the row of a new message, and the blobs that `cut_blobs` took out of it."""
    message = new.message
    content, parts, blobs = _flatten(message.content)
    api_content = new.api_content if new.api_content != message.content else None
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    row = MessageRow(  # by position, which takes half of the time of names
        session_id,
        _WORDS[message.role],
        content,
        float(new.timestamp),
        None if _USUAL_ORIGIN[message.role] is new.origin else new.origin.value,
        None if message.tool_name is None else storable(message.tool_name),
        storable(dumps(calls)) if calls else None,
        None if message.tool_call_id is None else storable(message.tool_call_id),
        None if message.reasoning is None else storable(message.reasoning),
        parts,
        new.token_count,
        None if api_content is None else storable(api_content),
        None if new.external_id is None else storable(new.external_id),
        int(new.interrupted),
        _ACTIVE,
        None if new.source is None else source_id(new.source),
    )
    return row, blobs


@lru_cache(maxsize=256)
def source_id(name: SourceName) -> int:
    """Return the number under which a source is stored: a hash of its name, in six bytes."""
    return int.from_bytes(blake2b(storable(name).encode(), digest_size=6).digest()) >> 1


def _clean(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _flatten(content: str | tuple[Part, ...]) -> tuple[str, str | None, list[Blob]]:
    """Return the text to index, the JSON that restores the structure, and the blobs."""
    if isinstance(content, str):
        if len(content) < LEAST_CHARS:
            return storable(content), None, []
        text, blobs = cut_blobs(storable(content))
        shape: list[JSON] = [{"type": "string", "blobs": [blob.hash for blob in blobs]}]
        return text, dumps(shape) if blobs else None, blobs
    texts: list[str] = []
    all_blobs: list[Blob] = []
    shape = []
    for part in content:
        match part:
            case TextPart(text):
                short, blobs = cut_blobs(storable(text))
                shape.append({"type": "text", "chars": len(short), "blobs": [blob.hash for blob in blobs]})
                texts.append(short)
                all_blobs += blobs
            case ImagePart(media_type, data):
                blob = blob_of(storable(data))
                shape.append({"type": "image", "media_type": storable(media_type), "blob": blob.hash})
                all_blobs.append(blob)
    return "\n".join(texts), dumps(shape), all_blobs


def message_from(values: Row, load: LoadBlob, load_source: LoadSource) -> StoredMessage:
    """Return the message of a row: the id, the columns of MessageRow, the checksum.

    A damaged row gives what can be read of it, marked as damaged.
    """
    if damaged := is_damaged(values):
        values = readable(values)
    (
        number, session_id, role_word, content, timestamp, origin, tool_name, tool_calls, tool_call_id,
        reasoning, parts, token_count, api_content, external_id, interrupted, state, source, _,
    ) = values  # fmt: skip
    if parts is None:
        whole: str | tuple[Part, ...] = content or ""
    else:
        whole, is_complete = _content(content or "", parts, load)
        damaged = damaged or not is_complete
    # other programs that write to the file may use other names of roles
    role = _ROLES.get(role_word) or _FOREIGN_ROLES.get(role_word, Role.SYSTEM)
    return StoredMessage(
        number,
        session_id,
        Message(
            role,
            mark(whole) if damaged else whole,
            tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in json.loads(tool_calls))
            if tool_calls
            else (),
            tool_call_id,
            tool_name,
            reasoning,
        ),
        timestamp if type(timestamp) is float else float(timestamp),
        _ORIGINS[origin] if origin else _USUAL_ORIGIN[role],
        _STATES[state],
        api_content,
        token_count,
        external_id,
        bool(interrupted),
        damaged,
        None if source is None else load_source(source),
    )


# a lookup takes a fifth of the time of a call of the enumeration
_ROLES = {role.value: role for role in Role}
_WORDS = {role: role.value for role in Role}
"""Plain strings, as SQLite and the checksum want them; reading `value` of a member is a call."""
_STATES = {state.value: state for state in State}
_ORIGINS = {origin.value: origin for origin in Origin}
_USUAL_ORIGIN = {role: Origin.usual(role) for role in Role}


def _content(content: str, parts: str, load: LoadBlob) -> tuple[str | tuple[Part, ...], bool]:
    """Return the content, and whether all of its blobs are there and whole."""
    shape: Sequence[Mapping[str, Any]] = json.loads(parts)
    missing: list[str] = []

    def find(digest: str) -> str | None:
        whole = load(digest)
        if whole is None:
            missing.append(digest)
        return whole

    if shape and shape[0]["type"] == "string":
        return join_blobs(content, shape[0]["blobs"], find), not missing
    restored: list[Part] = []
    at = 0
    for piece in shape:
        if piece["type"] == "image":
            data = find(piece["blob"])
            # an endpoint refuses the whole request for an image that it cannot decode
            lost = TextPart(f"[an image of type {piece['media_type']}]")
            restored.append(lost if data is None else ImagePart(piece["media_type"], data))
            continue
        text = content[at : at + piece["chars"]]
        at += piece["chars"] + 1
        restored.append(TextPart(join_blobs(text, piece["blobs"], find)))
    return tuple(restored), not missing


def list_blobs(parts: str | None) -> set[str]:
    """Return the hashes of the blobs that the stored structure of a message names."""
    shape: Sequence[Mapping[str, Any]] = json.loads(parts) if parts else ()
    return {digest for piece in shape for digest in ([piece["blob"]] if piece["type"] == "image" else piece["blobs"])}


def session_row(session: Session) -> SessionRow:
    """Return the row of a session."""
    return SessionRow(
        id=storable(session.id),
        source=storable(session.source),
        started=session.started,
        user_id=storable(session.user_id),
        profile=_clean(session.profile),
        project=_clean(session.project),
        model=_clean(session.model),
        title=_clean(session.title),
        parent_session_id=_clean(session.parent_session_id),
        link=session.link.value if session.link else None,
        ended=session.ended,
        end_reason=_clean(session.end_reason),
        archived=int(session.archived),
        last_active=session.last_active if session.last_active is not None else session.started,
        message_count=session.message_count,
        metadata=storable(dumps(session.metadata)) if session.metadata else None,
    )


def session_from(values: Row) -> Session:
    """Return the session of a row with the columns of SessionRow; damaged columns give what can be read of them."""
    (
        name, source, started, user_id, profile, project, model, title, parent, link, ended, end_reason, archived,
        last_active, message_count, metadata,
    ) = values  # fmt: skip
    text, number = text_or_none, number_of
    described = parse(metadata) if metadata else {}
    parent = text(parent)
    return Session(
        SessionId(text_of(name)),
        text_of(source),
        number(started),
        text_of(user_id),
        text(profile),
        text(project),
        text(model),
        text(title),
        None if parent is None else SessionId(parent),
        _LINKS.get(link or ""),
        None if ended is None else number(ended),
        text(end_reason),
        bool(archived),
        None if last_active is None else number(last_active),
        int(number(message_count)),
        described if isinstance(described, dict) else {},
    )


_LINKS = {link.value: link for link in Link}


def fingerprint(role: str, content: str, parts: str | None, tool_calls: str | None) -> Print:
    """Return a hash of a message's role and content."""
    whole = "\0".join((role, content, parts or "", tool_calls or ""))
    return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=12).digest()

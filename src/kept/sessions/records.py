"""Rows of the store, to and from the values that the rest of the program speaks in."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from kept.core.ids import MessageId, SessionId
from kept.core.jsontypes import JSON, dumps
from kept.core.messages import (
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
from kept.sessions.blobs import Blob, blob_of, cut, joined

Row: TypeAlias = tuple[Any, ...]
LoadBlob: TypeAlias = Callable[[str], str | None]

MESSAGE_COLUMNS = (
    "id, session_id, role, content, timestamp, state, origin, tool_name, tool_calls, tool_call_id, "
    "reasoning, parts, token_count, api_content, external_id, interrupted"
)
SESSION_COLUMNS = (
    "id, source, started, user_id, profile, project, model, title, parent_session_id, link, ended, "
    "end_reason, archived, last_active, message_count, metadata"
)


def storable(text: str) -> str:
    """Return `text` without lone surrogates, which no database takes; pairs become their character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def message_row(session_id: SessionId, new: NewMessage) -> tuple[Row, list[Blob]]:
    """Return the values to insert, in the order of MESSAGE_COLUMNS without the id, and the blobs cut out."""
    message = new.message
    content, parts, blobs = _flattened(message.content)
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    api_content = new.api_content if new.api_content != message.content else None
    row = (
        session_id,
        message.role.value,
        content,
        new.timestamp,
        State.ACTIVE.value,
        _origin(message.role, new.origin),
        _clean(message.tool_name),
        storable(dumps(calls)) if calls else None,
        _clean(message.tool_call_id),
        _clean(message.reasoning),
        parts,
        new.token_count,
        _clean(api_content),
        _clean(new.external_id),
        int(new.interrupted),
    )
    return row, blobs


def _origin(role: Role, origin: Origin) -> str | None:
    # what the role says already takes no room in the row
    return None if Origin.usual(role) is origin else origin.value


def _clean(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _flattened(content: str | tuple[Part, ...]) -> tuple[str, str | None, list[Blob]]:
    """Return the text to index, the JSON that restores the structure, and the blobs."""
    if isinstance(content, str):
        text, blobs = cut(storable(content))
        shape: list[JSON] = [{"type": "string", "blobs": [blob.hash for blob in blobs]}]
        return text, dumps(shape) if blobs else None, blobs
    texts: list[str] = []
    found: list[Blob] = []
    shape = []
    for part in content:
        match part:
            case TextPart(text):
                short, blobs = cut(storable(text))
                shape.append({"type": "text", "chars": len(short), "blobs": [blob.hash for blob in blobs]})
                texts.append(short)
                found += blobs
            case ImagePart(media_type, data):
                blob = blob_of(storable(data))
                shape.append({"type": "image", "media_type": storable(media_type), "blob": blob.hash})
                found.append(blob)
    return "\n".join(texts), dumps(shape), found


def message_from(row: Row, load: LoadBlob) -> StoredMessage:
    """Return the message of a row that was selected as MESSAGE_COLUMNS."""
    role = _role(row[2])
    return StoredMessage(
        id=MessageId(row[0]),
        session_id=SessionId(row[1]),
        message=Message(
            role=role,
            content=_content(row[3] or "", row[11], load),
            tool_calls=_tool_calls(row[8]),
            tool_call_id=row[9],
            tool_name=row[7],
            reasoning=row[10],
        ),
        timestamp=float(row[4]),
        origin=Origin(row[6]) if row[6] else Origin.usual(role),
        state=State(row[5]),
        token_count=row[12],
        api_content=row[13],
        external_id=row[14],
        interrupted=bool(row[15]),
    )


def _role(word: str) -> Role:
    # another program that writes to the file may have words of its own (`function`, `human`)
    try:
        return Role(word)
    except ValueError:
        return {"human": Role.USER, "ai": Role.ASSISTANT, "function": Role.TOOL}.get(word, Role.SYSTEM)


def _tool_calls(text: str | None) -> tuple[ToolCall, ...]:
    if not text:
        return ()
    return tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in json.loads(text))


def _content(content: str, parts: str | None, load: LoadBlob) -> str | tuple[Part, ...]:
    if parts is None:
        return content
    shape: Sequence[Mapping[str, Any]] = json.loads(parts)
    if shape and shape[0]["type"] == "string":
        return joined(content, shape[0]["blobs"], load)
    restored: list[Part] = []
    at = 0
    for piece in shape:
        if piece["type"] == "image":
            restored.append(ImagePart(piece["media_type"], load(piece["blob"]) or ""))
            continue
        text = content[at : at + piece["chars"]]
        at += piece["chars"] + 1
        restored.append(TextPart(joined(text, piece["blobs"], load)))
    return tuple(restored)


def session_row(session: Session) -> Row:
    """Return the values to insert, in the order of SESSION_COLUMNS."""
    return (
        storable(session.id),
        storable(session.source),
        session.started,
        storable(session.user_id),
        _clean(session.profile),
        _clean(session.project),
        _clean(session.model),
        _clean(session.title),
        _clean(session.parent_session_id),
        session.link.value if session.link else None,
        session.ended,
        _clean(session.end_reason),
        int(session.archived),
        session.last_active if session.last_active is not None else session.started,
        session.message_count,
        storable(dumps(session.metadata)) if session.metadata else None,
    )


def session_from(row: Row) -> Session:
    """Return the session of a row that was selected as SESSION_COLUMNS."""
    return Session(
        id=SessionId(row[0]),
        source=row[1],
        started=float(row[2]),
        user_id=row[3],
        profile=row[4],
        project=row[5],
        model=row[6],
        title=row[7],
        parent_session_id=SessionId(row[8]) if row[8] is not None else None,
        link=Link(row[9]) if row[9] else None,
        ended=row[10],
        end_reason=row[11],
        archived=bool(row[12]),
        last_active=row[13],
        message_count=row[14],
        metadata=json.loads(row[15]) if row[15] else {},
    )

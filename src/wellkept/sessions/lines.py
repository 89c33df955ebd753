"""One line of a JSONL transcript: what export writes, and what import accepts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.clock import from_program
from wellkept.core.ids import SessionId, SourceName
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
from wellkept.core.provenance import accept_claim
from wellkept.core.text import JSON
from wellkept.security.fence import shown_thinking
from wellkept.sessions.records import storable
from wellkept.sessions.shapes import expand

DEFAULT_SOURCE = "import:jsonl"
_SESSION_FIELDS = frozenset(
    ("source", "user_id", "profile", "project", "model", "title", "parent_session_id", "link", "ended", "end_reason")
)
_OF_TOOLS = frozenset(("tool_calls", "tool_call_id", "tool_name", "reasoning"))
_OPTIONAL = frozenset(
    ("origin", "api_content", "token_count", "external_id", "interrupted", "provenance", "state", "id")
)
_ROLES = {role.value: role for role in Role}
_USUAL_ORIGIN = {role: Origin.usual(role) for role in Role}


class BadLine(ValueError):
    """A line that cannot be used; its text says why."""


class NoConversation(BadLine):
    """A line of a user's export that is not part of a conversation."""


class SessionLine(Struct, frozen=True):
    """The line that begins a session."""

    session: Session
    system_prompt: str | None = None
    carried: tuple[int, ...] = ()
    context_from: int = 0
    notes: Mapping[str, JSON] = field(default_factory=dict)


class MessageLine(Struct, frozen=True):
    """One message, with the fields of its session that the line names."""

    session: Session
    new: NewMessage
    state: State = State.ACTIVE
    exported_id: int | None = None


Line: TypeAlias = SessionLine | MessageLine
BESIDE = ("page", "edit", "pending", "skill")
"""The types of lines in a user's export that are not conversations."""


def parse(raw: bytes, *, source: str = DEFAULT_SOURCE, imported: SourceName | None = None) -> Line:
    """Return the line, or raise BadLine with what is wrong."""
    return read_line(_load(raw), source=source, imported=imported)


def parse_all(
    raw: bytes, *, source: str = DEFAULT_SOURCE, now: float, imported: SourceName | None = None
) -> Iterator[Line | BadLine]:
    """Yield the lines of one object: more than one for a conversation in the shape of an API.

    `imported` replaces a source that claims more trust than the file deserves; None if this home wrote the file.
    """
    for value in expand(_load(raw), now=now):
        try:
            yield read_line(value, source=source, imported=imported)
        except BadLine as bad:
            yield bad


_OWN_CHATS = frozenset(("cli", "chat"))
"""The sources of conversations in this terminal, which `kept chat -c` continues."""


def distrust(line: Line, *, source: str, now: float) -> Line:
    """Return a line of a file that this home did not write, without what would act unseen when it is continued.

    The prompt, the notes and the text that was sent in place of a message are read by a model only. Nothing in the
    file is newer than now, and no conversation in it is one of this terminal.
    """
    session = line.session
    moments = {name: min(moment, now) for name in ("started", "ended", "last_active")
               if (moment := getattr(session, name)) is not None}  # fmt: skip
    if session.source in _OWN_CHATS or any(getattr(session, name) != moment for name, moment in moments.items()):
        session = replace(session, source=source if session.source in _OWN_CHATS else session.source, **moments)
    if isinstance(line, SessionLine):
        return replace(line, session=session, system_prompt=None, notes={})
    new, state = line.new, line.state
    if new.api_content is not None or new.timestamp > now:
        new = replace(new, api_content=None, timestamp=min(new.timestamp, now))
    if new.message.role is Role.SYSTEM and state is State.ACTIVE:
        state = State.COMPACTED  # it is shown and found, and no model takes it for a message of the person
    return replace(line, session=session, new=new, state=state)


def _load(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise BadLine("not UTF-8") from None
    except (ValueError, RecursionError) as error:
        why = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise BadLine(f"not JSON: {why}") from None
    if not isinstance(value, dict):
        raise BadLine("not a JSON object")
    return value


def read_line(value: Mapping[str, Any], *, source: str = DEFAULT_SOURCE, imported: SourceName | None = None) -> Line:
    """Parse an object as a line, or raise BadLine with what is wrong."""
    if value.get("type") == "session":
        return _session_line(value, source)
    if value.get("type") in BESIDE:
        raise NoConversation(f"a line of type {value['type']}")
    return _message_line(value, source, imported)


def _session_line(value: Mapping[str, Any], source: str) -> SessionLine:
    started = _moment(value, "started")
    if started is None:
        started = _moment(value, "timestamp")
    if started is None:
        raise BadLine("started is missing")
    carried = value.get("carried") or []
    notes = value.get("notes") or {}
    if not isinstance(carried, list) or not all(isinstance(number, int) for number in carried):
        raise BadLine("carried must be a list of message ids")
    if not isinstance(notes, dict):
        raise BadLine("notes must be an object")
    return SessionLine(
        _session(value, started, source),
        system_prompt=_text(value, "system_prompt"),
        carried=tuple(carried),
        context_from=_count(value, "context_from") or 0,
        notes=notes,
    )


def _session(value: Mapping[str, Any], started: float, source: str) -> Session:
    parent = _text(value, "parent_session_id")
    metadata = value.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise BadLine("metadata must be an object")
    return Session(
        id=_session_id(value),
        source=_text(value, "source") or source,
        started=started,
        user_id=_text(value, "user_id") or "owner",
        profile=_text(value, "profile"),
        project=_text(value, "project"),
        model=_text(value, "model"),
        title=_text(value, "title"),
        parent_session_id=SessionId(parent) if parent else None,
        link=_link(value, has_parent=parent is not None),
        ended=_moment(value, "ended"),
        end_reason=_text(value, "end_reason"),
        archived=value.get("archived") is True,
        last_active=_moment(value, "last_active"),
        metadata=metadata,
    )


def _session_id(value: Mapping[str, Any]) -> SessionId:
    session_id = value.get("session_id")
    if isinstance(session_id, int) and not isinstance(session_id, bool):
        session_id = str(session_id)
    if not isinstance(session_id, str) or not session_id:
        raise BadLine("session_id is missing" if session_id is None else "session_id must be a text that is not empty")
    return SessionId(storable(session_id))


def _link(value: Mapping[str, Any], *, has_parent: bool) -> Link | None:
    word = _text(value, "link")
    if word is None:
        return Link.IMPORT if has_parent else None
    try:
        return Link(word)
    except ValueError:
        raise BadLine(f"link is {word[:40]!r}: use one of {', '.join(Link)}") from None


def _message_line(value: Mapping[str, Any], source: str, imported: SourceName | None) -> MessageLine:
    timestamp = _moment(value, "timestamp")
    if timestamp is None:
        raise BadLine("timestamp is missing")
    role = _role(value)
    if _OF_TOOLS.isdisjoint(value):
        message = Message(role, _content(value, is_optional=False))
    else:
        calls = _calls(value)
        message = Message(
            role=role,
            content=_content(value, is_optional=bool(calls)),
            tool_calls=calls,
            tool_call_id=_text(value, "tool_call_id"),
            tool_name=_text(value, "tool_name"),
            reasoning=_text(value, "reasoning"),
        )
    if _OPTIONAL.isdisjoint(value):  # most lines of other programs have none of these fields
        new = NewMessage(message, timestamp, _USUAL_ORIGIN[role], source=imported)
        return MessageLine(_describe_session(value, timestamp, source), new)
    new = NewMessage(
        message,
        timestamp,
        _word(value, "origin", Origin) or _USUAL_ORIGIN[role],
        api_content=_text(value, "api_content"),
        token_count=_count(value, "token_count"),
        external_id=_external_id(value),
        interrupted=value.get("interrupted") is True,
        source=accept_claim(SourceName(provenance) if (provenance := _text(value, "provenance")) else None, imported),
    )
    session = _describe_session(value, timestamp, source)
    state = _word(value, "state", State) or State.ACTIVE
    if state is State.REWOUND:
        raise BadLine("the message was undone (state is rewound)")
    return MessageLine(session, new, state, _count(value, "id"))


def _describe_session(value: Mapping[str, Any], timestamp: float, source: str) -> Session:
    """Return the session that a message line describes; used if no session line came before."""
    if _SESSION_FIELDS.isdisjoint(value):
        return Session(_session_id(value), source, timestamp)
    return _session({**value, "last_active": None, "metadata": None, "archived": None}, timestamp, source)


def _role(value: Mapping[str, Any]) -> Role:
    word = value.get("role")
    if type(word) is str and (known := _ROLES.get(word)) is not None:
        return known
    role = _text(value, "role")
    if role is None:
        raise BadLine("role is missing")
    try:
        return Role(role.lower())
    except ValueError:
        raise BadLine(f"role is {role[:40]!r}: use one of {', '.join(Role)}") from None


def _word(value: Mapping[str, Any], name: str, words: Any) -> Any:
    text = _text(value, name)
    if text is None:
        return None
    try:
        return words(text)
    except ValueError:
        raise BadLine(f"{name} is {text[:40]!r}: use one of {', '.join(words)}") from None


def _content(value: Mapping[str, Any], *, is_optional: bool) -> str | tuple[Part, ...]:
    content = value.get("content")
    if isinstance(content, str):
        return content
    if content is None and is_optional:
        return ""
    if isinstance(content, list) and content:
        return tuple(_part(part) for part in content)
    raise BadLine("content is missing" if content is None else "content must be a text or a list of parts")


def _part(part: Any) -> Part:
    match part:
        case str():
            return TextPart(part)
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "image", "media_type": str(media_type), "data": str(data)}:
            return ImagePart(media_type, data)
    raise BadLine("a part of content is neither text nor image")


def _calls(value: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    calls = value.get("tool_calls")
    if calls is None:
        return ()
    if not isinstance(calls, list):
        raise BadLine("tool_calls must be a list")
    return tuple(_call(call) for call in calls)


def _call(call: Any) -> ToolCall:
    match call:
        case {"name": str(name), "arguments": arguments}:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            return ToolCall(str(call.get("id") or ""), name, text)
    raise BadLine("a tool call needs name and arguments")


def _external_id(value: Mapping[str, Any]) -> str | None:
    external = value.get("external_id")
    is_number = isinstance(external, int) and not isinstance(external, bool)
    return str(external) if is_number else _text(value, "external_id")


def _text(value: Mapping[str, Any], name: str) -> str | None:
    text = value.get(name)
    if text is None or text == "":
        return None
    if not isinstance(text, str):
        raise BadLine(f"{name} must be a text")
    return storable(text)


def _count(value: Mapping[str, Any], name: str) -> int | None:
    number = value.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
        raise BadLine(f"{name} must be a whole number")
    return number


def _moment(value: Mapping[str, Any], name: str) -> float | None:
    raw = value.get(name)
    if raw is None:
        return None
    moment = from_program(raw)
    if moment is None:
        raise BadLine(f"{name} is neither epoch seconds nor ISO 8601")
    return moment


def session_line(line: SessionLine) -> dict[str, JSON]:
    """Return a session as export writes it, without empty fields."""
    session = line.session
    value: dict[str, JSON] = {
        "type": "session",
        "session_id": session.id,
        "source": session.source,
        "user_id": session.user_id,
        "profile": session.profile,
        "project": session.project,
        "model": session.model,
        "title": session.title,
        "parent_session_id": session.parent_session_id,
        "link": session.link.value if session.link else None,
        "started": session.started,
        "ended": session.ended,
        "end_reason": session.end_reason,
        "archived": session.archived or None,
        "last_active": session.last_active,
        "metadata": dict(session.metadata) or None,
        "system_prompt": line.system_prompt,
        "carried": list(line.carried) or None,
        "context_from": line.context_from or None,
        "notes": dict(line.notes) or None,
    }
    return {name: field for name, field in value.items() if field is not None}


def message_line(stored: StoredMessage, *, raw: bool) -> dict[str, JSON]:
    """Return a message as export writes it; `raw` adds text that was sent to the model only."""
    message = stored.message
    is_default = stored.origin is Origin.usual(message.role)
    value: dict[str, JSON] = {
        "session_id": stored.session_id,
        "id": stored.id,
        "role": message.role.value,
        "content": message.content if isinstance(message.content, str) else _export_parts(message.content),
        "timestamp": stored.timestamp,
        "state": stored.state.value if stored.state is not State.ACTIVE else None,
        "origin": None if is_default else stored.origin.value,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls
        ] or None,
        "tool_call_id": message.tool_call_id,
        "tool_name": message.tool_name,
        "reasoning": message.reasoning if raw else shown_thinking(message.reasoning),
        "token_count": stored.token_count,
        "external_id": stored.external_id,
        "interrupted": stored.interrupted or None,
        "damaged": stored.is_damaged or None,
        "provenance": stored.source,
        "api_content": stored.api_content if raw else None,
    }  # fmt: skip
    return {name: field for name, field in value.items() if field is not None}


def _export_parts(parts: Sequence[Part]) -> list[JSON]:
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, TextPart)
        else {"type": "image", "media_type": part.media_type, "data": part.data}
        for part in parts
    ]

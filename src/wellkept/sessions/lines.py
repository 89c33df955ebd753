"""One line of a JSONL transcript: what export writes, and what import accepts.

Messages as the APIs of OpenAI and Anthropic write them are expanded to such lines first.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
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
BESIDE = ("page", "edit", "pending", "skill")
"""The types of lines in a user's export that are not conversations."""
_OWN_CHATS = frozenset(("cli", "chat"))
"""The sources of conversations in this terminal, which `kept chat -c` continues."""
_NAMES_OF_ID = ("session_id", "conversation_id", "thread_id", "uuid", "id")
_NAMES_OF_TIME = ("timestamp", "created_at", "create_time", "created", "started")
_CONVERSATION = ("source", "user_id", "profile", "project", "model", "title")
"""The fields of a conversation that each of its messages repeats."""
_ROLES_OF_APIS = {"developer": "system", "human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}
_OF_APIS = frozenset(("type", "tool_calls", "function_call"))
"""Fields that show that a message with a plain text has the shape of an API."""
_TEXTS = frozenset(("text", "input_text", "output_text", "refusal", "summary_text"))
_IMAGES = frozenset(("image", "image_url", "input_image"))
_FILES = frozenset(("document", "file", "input_file"))
_THOUGHTS = frozenset(("thinking", "reasoning", "redacted_thinking"))
_CALLS = frozenset(("tool_use", "server_tool_use"))
_RESULTS = frozenset(("tool_result", "web_search_tool_result"))


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
    if not isinstance(carried, list) or not all(isinstance(message_id, int) for message_id in carried):
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
        calls = value.get("tool_calls")
        if calls is not None and not isinstance(calls, list):
            raise BadLine("tool_calls must be a list")
        message = Message(
            role=role,
            content=_content(value, is_optional=bool(calls)),
            tool_calls=tuple(map(_call, calls or ())),
            tool_call_id=_text(value, "tool_call_id"),
            tool_name=_text(value, "tool_name"),
            reasoning=_text(value, "reasoning"),
        )
    if _OPTIONAL.isdisjoint(value):  # most lines of other programs have none of these fields
        new = NewMessage(message, timestamp, _USUAL_ORIGIN[role], source=imported)
        return MessageLine(_describe_session(value, timestamp, source), new)
    external = value.get("external_id")
    new = NewMessage(
        message,
        timestamp,
        _word(value, "origin", Origin) or _USUAL_ORIGIN[role],
        api_content=_text(value, "api_content"),
        token_count=_count(value, "token_count"),
        external_id=str(external)
        if isinstance(external, int) and not isinstance(external, bool)
        else _text(value, "external_id"),
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


def _call(call: Any) -> ToolCall:
    match call:
        case {"name": str(name), "arguments": arguments}:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            return ToolCall(str(call.get("id") or ""), name, text)
    raise BadLine("a tool call needs name and arguments")


def _text(value: Mapping[str, Any], name: str) -> str | None:
    text = value.get(name)
    if text is None or text == "":
        return None
    if not isinstance(text, str):
        raise BadLine(f"{name} must be a text")
    return storable(text)


def _count(value: Mapping[str, Any], name: str) -> int | None:
    count = value.get(name)
    if count is None:
        return None
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**63:
        raise BadLine(f"{name} must be a whole number")
    return count


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
    content: JSON = (
        message.content
        if isinstance(message.content, str)
        else [
            {"type": "text", "text": part.text}
            if isinstance(part, TextPart)
            else {"type": "image", "media_type": part.media_type, "data": part.data}
            for part in message.content
        ]
    )
    value: dict[str, JSON] = {
        "session_id": stored.session_id,
        "id": stored.id,
        "role": message.role.value,
        "content": content,
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


def expand(value: Mapping[str, Any], *, now: float) -> Iterator[dict[str, Any]]:
    """Yield the messages of one object, each as a line would hold it.

    A whole conversation under `messages` gives one per message; a message with results of tools gives one per result.
    A message without a time gets that of the conversation, else `now`.
    """
    listed = value.get("messages", value.get("input"))
    if isinstance(listed, list) and "role" not in value:
        yield from _expand_conversation(value, listed, now)
    elif value.get("type") == "session" or not _is_foreign(value):
        yield dict(value)
    else:
        yield from _expand_message(value)


def _expand_conversation(value: Mapping[str, Any], listed: list[Any], now: float) -> Iterator[dict[str, Any]]:
    session = next((value[name] for name in _NAMES_OF_ID if value.get(name)), None)
    started = next((value[name] for name in _NAMES_OF_TIME if value.get(name)), now)
    shared = {name: value[name] for name in _CONVERSATION if isinstance(value.get(name), str)}
    # the same id when the conversation is imported again after it has grown
    first = json.dumps(listed[:2], sort_keys=True, default=str).encode("utf-8", "surrogatepass")
    unnamed = f"import-{hashlib.blake2b(first, digest_size=8).hexdigest()}"
    shared["session_id"] = unnamed if session is None else session
    if isinstance(value.get("system"), str):
        listed = [{"role": "system", "content": value["system"]}, *listed]
    for index, message in enumerate(listed):
        if not isinstance(message, dict):
            yield {"role": None, **shared}
            continue
        moment = next((message[name] for name in _NAMES_OF_TIME if message.get(name)), started)
        own = {"external_id": message.get("external_id") or message.get("id") or f"{shared['session_id']}:{index}"}
        yield from _expand_message(
            {**shared, **message, **own, "session_id": shared["session_id"], "timestamp": moment}
        )


def _is_foreign(value: Mapping[str, Any]) -> bool:
    """Whether a message has a field that only the APIs use."""
    content = value.get("content")
    if isinstance(content, str) and _OF_APIS.isdisjoint(value) and value.get("role") not in _ROLES_OF_APIS:
        return False
    kinds = (
        {str(part.get("type")) for part in content if isinstance(part, dict)} if isinstance(content, list) else set()
    )
    calls = value.get("tool_calls")
    return (
        value.get("type") in {"message", "function_call", "function_call_output"}
        or value.get("role") in _ROLES_OF_APIS
        or bool(kinds - {"text", "image"})
        or any(isinstance(part, dict) and "source" in part for part in (content if isinstance(content, list) else ()))
        or any(isinstance(call, dict) and "function" in call for call in (calls if isinstance(calls, list) else ()))
        or isinstance(value.get("function_call"), dict)
    )


def _expand_message(value: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a message of either API; results of tools, which Anthropic sends as the user's, are the tools'."""
    if value.get("type") == "function_call":
        call = {
            "id": value.get("call_id") or value.get("id"),
            "name": value.get("name"),
            "arguments": value.get("arguments"),
        }
        yield _without(value, role="assistant", content="", tool_calls=[call])
        return
    if value.get("type") == "function_call_output":
        text = value.get("output")
        output = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
        yield _without(value, role="tool", content=output, tool_call_id=value.get("call_id"))
        return
    blocks = _blocks(value.get("content"))
    results = [block for block in blocks if block.get("type") in _RESULTS]
    for index, block in enumerate(results):
        external = value.get("external_id")
        own = {} if external is None else {"external_id": f"{external}:result{index}"}
        content = _convert_blocks(_blocks(block.get("content")))
        yield _without(value, role="tool", content=content, tool_call_id=block.get("tool_use_id"), **own)
    rest = [block for block in blocks if block.get("type") not in _RESULTS]
    if rest or not results:
        yield _convert(value, rest)


def _convert(value: Mapping[str, Any], blocks: list[dict[str, Any]]) -> dict[str, Any]:
    role = value.get("role")
    calls = [_convert_call(call) for call in value.get("tool_calls") or () if isinstance(call, dict)]
    if isinstance(value.get("function_call"), dict):
        calls.append(_convert_call({"function": value["function_call"]}))
    calls += [{"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input") or {}}
              for block in blocks if block.get("type") in _CALLS]  # fmt: skip
    thoughts = [
        str(block.get("thinking") or block.get("text") or "") for block in blocks if block.get("type") in _THOUGHTS
    ]
    texts = [block for block in blocks if block.get("type") not in _CALLS | _THOUGHTS]
    reasoning = "\n".join(text for text in thoughts if text) or value.get("reasoning") or value.get("reasoning_content")
    fields: dict[str, Any] = {
        "role": _ROLES_OF_APIS.get(role, role) if isinstance(role, str) else role,
        "content": _convert_blocks(texts),
        "tool_calls": calls or None,
        "reasoning": reasoning if isinstance(reasoning, str) else None,
        "tool_name": value.get("tool_name") or (value.get("name") if role in {"tool", "function"} else None),
    }
    return _without(value, **fields)


def _without(value: Mapping[str, Any], **own: Any) -> dict[str, Any]:
    """Return a message with the fields of a line; the type would make another line of it."""
    fields = {name: field for name, field in value.items() if name not in {"type", "id", "name", "function_call"}}
    if isinstance(value.get("id"), str) and fields.get("external_id") is None:
        fields["external_id"] = value["id"]
    elif isinstance(value.get("id"), int):
        fields["id"] = value["id"]
    return {**fields, **own}


def _convert_call(call: Mapping[str, Any]) -> dict[str, Any]:
    named = call.get("function")
    inner = named if isinstance(named, dict) else call
    return {
        "id": call.get("id"),
        "name": inner.get("name"),
        "arguments": inner.get("arguments", inner.get("input", "{}")),
    }


def _blocks(content: Any) -> list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    listed = content if isinstance(content, list) else [content]
    return [
        {"type": "text", "text": block} if isinstance(block, str) else block
        for block in listed
        if isinstance(block, str | dict)
    ]


def _convert_blocks(blocks: list[dict[str, Any]]) -> str | list[dict[str, str]]:
    """Return the content as a line has it: one text, or texts and images."""
    parts = [part for block in blocks if (part := _convert_block(block)) is not None]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _convert_block(block: Mapping[str, Any]) -> dict[str, str] | None:
    kind = block.get("type")
    if kind in _TEXTS or kind is None:
        text = block.get("text", block.get("refusal"))
        return {"type": "text", "text": text} if isinstance(text, str) else None
    if kind in _IMAGES:
        return _image(block)
    if kind in _FILES:
        inner = block.get("file")
        named = inner if isinstance(inner, dict) else block
        name = named.get("title") or named.get("filename") or named.get("file_id") or named.get("name") or ""
        return {"type": "text", "text": f"[file {name}]".replace(" ]", "]")}
    return {"type": "text", "text": f"[{kind}]"}


def _image(block: Mapping[str, Any]) -> dict[str, str]:
    """Return an image with its bytes, which are stored once by their hash; one elsewhere is named by its address."""
    if isinstance(block.get("data"), str) and isinstance(block.get("media_type"), str):
        return {"type": "image", "media_type": block["media_type"], "data": block["data"]}
    source = block.get("source") or block.get("image_url") or block.get("url") or {}
    source = source if isinstance(source, dict) else {"url": source}
    if isinstance(source.get("data"), str):
        return {"type": "image", "media_type": str(source.get("media_type") or "image/png"), "data": source["data"]}
    url = str(source.get("url") or source.get("file_id") or block.get("file_id") or "")
    head, comma, data = url.partition(",")
    if head.startswith("data:") and comma and head.endswith(";base64"):
        return {"type": "image", "media_type": head[5:].partition(";")[0] or "image/png", "data": data}
    return {"type": "text", "text": f"[image {url}]".replace(" ]", "]")}

"""Messages as the APIs of OpenAI and Anthropic write them, turned into the objects that `lines` accepts."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

_NAMES_OF_ID = ("session_id", "conversation_id", "thread_id", "uuid", "id")
_NAMES_OF_TIME = ("timestamp", "created_at", "create_time", "created", "started")
_CONVERSATION = ("source", "user_id", "profile", "project", "model", "title")
"""The fields of a conversation that each of its messages repeats."""
_ROLES = {"developer": "system", "human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}
_OF_APIS = frozenset(("type", "tool_calls", "function_call"))
"""Fields that show that a message with a plain text has the shape of an API."""
_TEXTS = frozenset(("text", "input_text", "output_text", "refusal", "summary_text"))
_IMAGES = frozenset(("image", "image_url", "input_image"))
_FILES = frozenset(("document", "file", "input_file"))
_THOUGHTS = frozenset(("thinking", "reasoning", "redacted_thinking"))
_CALLS = frozenset(("tool_use", "server_tool_use"))
_RESULTS = frozenset(("tool_result", "web_search_tool_result"))


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
    shared["session_id"] = session if session is not None else _name_conversation(listed)
    if isinstance(value.get("system"), str):
        listed = [{"role": "system", "content": value["system"]}, *listed]
    for place, message in enumerate(listed):
        if not isinstance(message, dict):
            yield {"role": None, **shared}
            continue
        moment = next((message[name] for name in _NAMES_OF_TIME if message.get(name)), started)
        own = {"external_id": message.get("external_id") or message.get("id") or f"{shared['session_id']}:{place}"}
        yield from _expand_message(
            {**shared, **message, **own, "session_id": shared["session_id"], "timestamp": moment}
        )


def _name_conversation(listed: list[Any]) -> str:
    """Return an id that stays the same when the conversation is imported again after it has grown."""
    first = json.dumps(listed[:2], sort_keys=True, default=str)
    return f"import-{hashlib.blake2b(first.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


def _is_foreign(value: Mapping[str, Any]) -> bool:
    """Whether a message has a field that only the APIs use."""
    content = value.get("content")
    if isinstance(content, str) and _OF_APIS.isdisjoint(value) and value.get("role") not in _ROLES:
        return False
    kinds = (
        {str(part.get("type")) for part in content if isinstance(part, dict)} if isinstance(content, list) else set()
    )
    calls = value.get("tool_calls")
    return (
        value.get("type") in {"message", "function_call", "function_call_output"}
        or value.get("role") in _ROLES
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
    for place, block in enumerate(results):
        external = value.get("external_id")
        own = {} if external is None else {"external_id": f"{external}:result{place}"}
        content = _parts(_blocks(block.get("content")))
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
    said = [block for block in blocks if block.get("type") not in _CALLS | _THOUGHTS]
    reasoning = "\n".join(text for text in thoughts if text) or value.get("reasoning") or value.get("reasoning_content")
    own: dict[str, Any] = {
        "role": _ROLES.get(role, role) if isinstance(role, str) else role,
        "content": _parts(said),
        "tool_calls": calls or None,
        "reasoning": reasoning if isinstance(reasoning, str) else None,
        "tool_name": value.get("tool_name") or (value.get("name") if role in {"tool", "function"} else None),
    }
    return _without(value, **own)


def _without(value: Mapping[str, Any], **own: Any) -> dict[str, Any]:
    """Return a message with the fields of a line; the type would make another line of it."""
    kept = {name: field for name, field in value.items() if name not in {"type", "id", "name", "function_call"}}
    if isinstance(value.get("id"), str) and kept.get("external_id") is None:
        kept["external_id"] = value["id"]
    elif isinstance(value.get("id"), int):
        kept["id"] = value["id"]
    return {**kept, **own}


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
        {"type": "text", "text": one} if isinstance(one, str) else one for one in listed if isinstance(one, str | dict)
    ]


def _parts(blocks: list[dict[str, Any]]) -> str | list[dict[str, str]]:
    """Return the content as a line has it: one text, or texts and images."""
    parts = [part for block in blocks if (part := _part(block)) is not None]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _part(block: Mapping[str, Any]) -> dict[str, str] | None:
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

"""What people, models and tools said: texts without machine parts, and the messages of one conversation in order."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from wellkept.core.messages import Message, Origin, Role, ToolCall
from wellkept.core.text import JSON, dumps
from wellkept.formats.json_files import describe_binary
from wellkept.formats.port import Item, Left, Said, unknown
from wellkept.security.fence import looks_fenced, sanitize_context

MOST_CHARS = 100_000
"""The longest message of a person or a model that is stored whole."""
MOST_TOOL_CHARS = 20_000
"""The longest tool result, argument or thought that is stored whole; transcripts consist mostly of tool output."""
_TAIL_SHARE = 4
SHORTENED = "characters left out …]"
"""Ends the mark of what a shortened text lacks."""

_IMAGES = frozenset(("image", "input_image", "image_url", "localImage", "local_image"))
_FILES = frozenset(("document", "file", "input_file"))

MACHINE_BLOCKS = frozenset(
    (
        "system-reminder",
        "ide_opened_file",
        "ide_selection",
        "ide_diagnostics",
        "user-prompt-submit-hook",
        "task-notification",
        "local-command-caveat",
        "local-command-stdout",
        "local-command-stderr",
        "bash-stdout",
        "bash-stderr",
        "teammate-message",
        "new-diagnostics",
        "post-tool-use-hook",
        "session-start-hook",
        # codex
        "environment_context",
        "user_instructions",
        "skills_instructions",
        "turn_aborted",
        "skill",
        "recommended_plugins",
        "subagent_notification",
        "hook_prompt",
        "codex_internal_context",
        "user_shell_command",
        "user_action",
        "collaboration_mode",
        "permissions",
        # gemini
        "session_context",
        "hook_context",
        # what other memories add
        "claude-mem-context",
        "supermemory-context",
        "hindsight_memories",
        "hindsight-memories",
        "relevant-memories",
        "relevant_memories",
        "recalled-memories",
        "mem0-memories",
    )
)
"""Blocks that clients, hooks and other memories put into the text of a user message."""

_OPENING = re.compile(r"<([A-Za-z][\w-]{1,40})(?:\s[^<>]{0,400})?>")
_PRIVATE = re.compile(r"<\s*(/?)\s*private\s*>", re.IGNORECASE)


def remove_machine_blocks(text: str) -> str:
    """Return `text` without blocks that machines added, our own fence included.

    A block that is never closed is removed if the text begins with it; elsewhere it is a tag that somebody mentions.
    """
    if looks_fenced(text):
        text = sanitize_context(text)
    if "<" not in text:
        return text
    kept: list[str] = []
    place = 0
    unclosed: set[str] = set()
    for opening in _OPENING.finditer(text):
        name = opening[1].lower()
        if opening.start() < place or name not in MACHINE_BLOCKS or name in unclosed:
            continue
        closing = f"</{opening[1]}>"
        end = text.find(closing, opening.end())
        if end < 0:
            unclosed.add(name)  # one search per name keeps this linear
            if text[: opening.start()].strip():
                continue
            return ""
        kept.append(text[place : opening.start()])
        place = end + len(closing)
    return "".join((*kept, text[place:])) if kept else text


class PrivateSpans:
    """Leaves out `<private>…</private>`, also where a span begins in one text and ends in a later one."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.is_open = is_open
        """Whether the last text ended inside a span."""

    def remove(self, text: str) -> str:
        """Return the part of the next text that is outside of spans."""
        if not self.is_open and _PRIVATE.search(text) is None:
            return text
        kept: list[str] = []
        place = 0
        for tag in _PRIVATE.finditer(text):
            if not self.is_open:
                kept.append(text[place : tag.start()])
            self.is_open = not tag[1]
            place = tag.end()
        if not self.is_open:
            kept.append(text[place:])
        return "".join(kept)


class PrivateTurns:
    """Leaves out private spans of what a person says, and the answers to prompts that were private as a whole."""

    def __init__(self, *, is_open: bool = False, is_hidden: bool = False) -> None:
        self._spans = PrivateSpans(is_open=is_open)
        self.is_hidden = is_hidden
        """Whether the last prompt was private as a whole."""

    @property
    def is_open(self) -> bool:
        """Whether the last prompt ended inside a span."""
        return self._spans.is_open

    def take(self, message: Message) -> Message | None:
        """Return the part of the next message that may be stored, None if nothing may."""
        if message.role is not Role.USER:
            return None if self.is_open or self.is_hidden else message
        text = self._spans.remove(message.text).strip()
        self.is_hidden = not text
        return replace(message, content=text) if text else None


def remove_private(text: str) -> str:
    """Return one text without private spans; one that is not closed ends with the text."""
    return PrivateSpans().remove(text)


def shorten(text: str, most: int) -> str:
    """Return `text`, or its beginning and end with the number of characters left out between them."""
    if len(text) <= most:
        return text
    tail = most // _TAIL_SHARE
    head = most - tail
    return f"{text[:head]}\n[… {len(text) - most:,} {SHORTENED}\n{text[-tail:]}"


def clean_answer(text: str) -> str:
    """Return the text of a model as it is stored."""
    if looks_fenced(text):
        text = sanitize_context(text)
    return shorten(remove_private(text).strip(), MOST_CHARS)


def clean_result(text: str) -> str:
    """Return a tool's output as it is stored."""
    return shorten(remove_machine_blocks(remove_private(text)).strip(), MOST_TOOL_CHARS)


def clean_arguments(arguments: Any) -> str:
    """Return the arguments of a tool call as JSON text, with long and private values shortened."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return shorten(remove_private(arguments), MOST_TOOL_CHARS)
    try:
        return dumps(_shorten_values(arguments))
    except (ValueError, RecursionError):
        return "{}"


def _shorten_values(value: Any) -> JSON:
    if isinstance(value, str):
        return shorten(remove_private(value), MOST_TOOL_CHARS // 2)
    if isinstance(value, dict):
        return {str(key): _shorten_values(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shorten_values(each) for each in value]
    return value if isinstance(value, bool | int | float) else None


OUR_RESULT = "[an answer of kept; not stored again]"
OUR_TOOLS = frozenset(
    ("memory", "memory_read", "session_search", "skills_list", "skill_view", "skill_manage", "remember_turn", "forget")
)


def is_our_tool(name: str | None) -> bool:
    """Whether a tool is one of kept's own, whose results are memory that must not be stored again."""
    if name is None:
        return False
    words = re.split(r"__|\.|/|:", name)
    is_prefixed = len(words) > 1 and any("kept" in word for word in words[:-1]) and words[-1] in OUR_TOOLS
    return is_prefixed or (name.startswith("kept_") and name.removeprefix("kept_") in OUR_TOOLS)


def join_texts(texts: Iterable[str]) -> str:
    """Return the texts that are not blank, each on lines of its own."""
    return "\n".join(text for text in texts if text.strip())


def starts_with_any(text: str, beginnings: Sequence[str]) -> bool:
    """Whether `text` starts with one of the beginnings."""
    return text.lstrip().startswith(tuple(beginnings))


def as_text(value: Any) -> str | None:
    """Return a text that is not empty, None for anything else."""
    return value if isinstance(value, str) and value else None


def as_objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; nothing for anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def as_count(counts: Mapping[str, Any], name: str) -> int:
    """Return a count by its name, 0 if it is missing or not a positive whole number."""
    value = counts.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def as_blocks(content: Any) -> list[dict[str, Any]]:
    """Return content as blocks: a text is one, and whatever else is no block becomes one of an unknown kind."""
    listed = content if isinstance(content, list) else [content]
    return [
        one
        if isinstance(one, dict)
        else {"type": "text", "text": one}
        if isinstance(one, str)
        else {"type": type(one).__name__}
        for one in listed
        if one is not None
    ]


def describe_block(block: Mapping[str, Any]) -> str:
    """Return the text of a block, or a placeholder with type, size and hash for an image or a file."""
    kind = block.get("type")
    if isinstance(block.get("text"), str) and kind not in _IMAGES | _FILES:
        return str(block["text"])
    if kind in _IMAGES:
        return f"[image {_describe_source(block)}]"
    if kind in _FILES:
        name = block.get("title") or block.get("filename") or block.get("name")
        return f"[file {name if isinstance(name, str) else ''} {_describe_source(block)}]".replace("  ", " ")
    return ""


def _describe_source(block: Mapping[str, Any]) -> str:
    source = block.get("source") or block.get("image_url") or block.get("url") or block.get("path") or {}
    if isinstance(source, dict):
        media = str(source.get("media_type") or source.get("detail") or "")
        data = source.get("data") or source.get("url") or ""
    else:
        media, data = "", source
    text = str(data)
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        media = media or head[5:].partition(";")[0]
    if not text.startswith("[binary"):
        is_place = "/" in text[:64] and len(text) < 500 and not media
        text = text if is_place else describe_binary(text.encode("utf-8", "replace"))
    return f"{media} {text}".strip()


def result_text(content: Any) -> str:
    """Return a tool's result as text: a string, blocks, or JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [describe_block(block) if isinstance(block, dict) else str(block) for block in content]
        return "\n".join(text for text in texts if text)
    return "" if content is None else dumps(content)


_CALLS_REMEMBERED = 64
"""Calls whose results may still come; a call and its result are close together."""


class Speech:
    """What is known while the messages of one conversation are read in order."""

    def __init__(self, conversation: str, state: Mapping[str, Any] | None = None, *, is_delegate: bool = False) -> None:
        state = state or {}
        self.conversation = conversation
        self.moment = float(state.get("moment") or 0.0)
        """The time of the last message that had one; messages without a time inherit it."""
        self._is_delegate = is_delegate
        """Whether another agent wrote the prompts."""
        self._thoughts: list[str] = []
        self._calls: list[tuple[str, str]] = [(str(one), str(name)) for one, name in state.get("calls") or ()]
        self._private = PrivateSpans(is_open=bool(state.get("private")))
        self._is_hidden = bool(state.get("hidden"))
        """Whether the last prompt was private as a whole; its answer is then left out as well."""

    def state(self) -> dict[str, JSON]:
        """Return what a speech needs to know to continue."""
        found: dict[str, JSON] = {
            "moment": self.moment,
            "calls": [[one, name] for one, name in self._calls[-_CALLS_REMEMBERED:]],
            "private": self._private.is_open,
            "hidden": self._is_hidden,
        }
        return {key: value for key, value in found.items() if value}

    def at(self, moment: float | None) -> float:
        """Return the time of a message: its own, or that of the message before it."""
        self.moment = moment or self.moment
        return self.moment

    def prompt(self, external_id: str, text: str, moment: float | None, *, turn: str | None = None) -> Iterator[Item]:
        """Yield what a person said, or why it is left out."""
        when = self.at(moment)
        self._thoughts.clear()
        words = remove_machine_blocks(text).strip()
        if not words:
            yield Left("machine text" if text.strip() else "empty")
            return
        if not self._is_delegate:
            words = self._private.remove(words).strip()
            self._is_hidden = not words
        if not words:
            yield Left("private")
            return
        origin = Origin.SYNTHETIC if self._is_delegate else Origin.PERSON
        message = Message(Role.USER, shorten(words, MOST_CHARS))
        yield Said(self.conversation, external_id, message, when, origin, turn=turn)

    def think(self, text: str) -> None:
        """Keep a thought for the next answer."""
        if text.strip():
            self._thoughts.append(text.strip())

    def answer(
        self,
        external_id: str,
        text: str,
        moment: float | None,
        *,
        calls: Sequence[tuple[str, str, Any]] = (),
        tokens: int | None = None,
    ) -> Iterator[Item]:
        """Yield what the model said, with its thoughts and its tool calls as id, name and arguments."""
        when = self.at(moment)
        thoughts, self._thoughts = self._thoughts, []
        if self._private.is_open or self._is_hidden:
            yield Left("private")
            return
        words = clean_answer(text)
        if not words and not calls:
            yield Left("empty")
            return
        self._calls += [(one, name) for one, name, _ in calls]
        del self._calls[:-_CALLS_REMEMBERED]
        message = Message(
            Role.ASSISTANT,
            words,
            tool_calls=tuple(ToolCall(one, name, clean_arguments(arguments)) for one, name, arguments in calls),
            reasoning=shorten(clean_answer(join_texts(thoughts)), MOST_TOOL_CHARS) or None,
        )
        yield Said(self.conversation, external_id, message, when, Origin.MODEL, token_count=tokens)

    def result(
        self, external_id: str, text: str, moment: float | None, *, call: str | None = None, name: str | None = None
    ) -> Iterator[Item]:
        """Yield the result of a call: the named one, else the oldest open one of that name, else the oldest."""
        when = self.at(moment)
        if self._private.is_open or self._is_hidden:
            yield Left("private")
            return
        found = next(
            (one for one in self._calls if (call is not None and one[0] == call) or (call is None and one[1] == name)),
            self._calls[0] if call is None and self._calls else None,
        )
        if found is not None:
            self._calls.remove(found)
        tool = name or (found[1] if found else None)
        words = OUR_RESULT if is_our_tool(tool) else clean_result(text)
        call_id = call or (found[0] if found else "")
        yield Said(
            self.conversation,
            external_id,
            Message(Role.TOOL, words, tool_call_id=call_id, tool_name=tool),
            when,
            Origin.TOOL,
        )


_THOUGHTS = frozenset(("thinking", "redacted_thinking"))
_SPOKEN = frozenset(("text", "image", "document", "file"))
_CALLS = frozenset(("tool_use", "server_tool_use"))
_KNOWN = _THOUGHTS | _SPOKEN | _CALLS | {"tool_result"}


def speak_prompt(
    speech: Speech,
    name: str,
    blocks: Sequence[dict[str, Any]],
    moment: float | None,
    *,
    find_words: Callable[[str], str] = str,
) -> Iterator[Item]:
    """Yield the tool results of a user message, then what the person typed as `find_words` finds it in the text."""
    yield from name_unknown(blocks)
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for block in results:
        call = as_text(block.get("tool_use_id"))
        content = block.get("content")
        text = result_text(content) or (dumps(content) if content else "")  # some programs put their own objects there
        yield from speech.result(f"{name}:{call}", text, moment, call=call, name=as_text(block.get("name")))
    text = join_texts(describe_block(block) for block in blocks if block.get("type") in _SPOKEN)
    words = find_words(text)
    if words.strip():
        yield from speech.prompt(name, words, moment, turn=name)
    elif text.strip():
        yield Left("machine text")
    elif not results:
        yield Left("empty")


def speak_answer(
    speech: Speech, name: str, blocks: Sequence[dict[str, Any]], moment: float | None, *, tokens: int | None = None
) -> Iterator[Item]:
    """Yield what the model said, with its thoughts and calls."""
    yield from name_unknown(blocks)
    for block in blocks:
        if block.get("type") in _THOUGHTS:
            speech.think(as_text(block.get("thinking")) or "")
    text = join_texts(describe_block(block) for block in blocks if block.get("type") in _SPOKEN)
    calls = [
        (str(block.get("id") or f"{name}:{place}"), str(block.get("name") or "tool"), block.get("input") or {})
        for place, block in enumerate(blocks)
        if block.get("type") in _CALLS
    ]
    yield from speech.answer(name, text, moment, calls=calls, tokens=tokens)


def name_unknown(blocks: Sequence[dict[str, Any]], also_known: frozenset[str] = frozenset()) -> Iterator[Left]:
    """Yield the blocks of a kind that no known version has; one with a text is read as text, whatever its kind."""
    for block in blocks:
        kind = block.get("type")
        if kind not in _KNOWN and kind not in also_known and not isinstance(block.get("text"), str):
            yield unknown(block, "block")

"""The messages of one conversation in order: private and machine text is left out, results find their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wellkept.core.messages import Message, Origin, Role, ToolCall
from wellkept.core.text import dumps
from wellkept.formats.port import Item, Left, Said, unknown
from wellkept.formats.typed_text import (
    MOST_CHARS,
    MOST_TOOL_CHARS,
    OUR_RESULT,
    PrivateSpans,
    as_text,
    clean_answer,
    clean_arguments,
    clean_result,
    describe_block,
    is_our_tool,
    join_texts,
    remove_machine_blocks,
    result_text,
    shorten,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from wellkept.core.text import JSON

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

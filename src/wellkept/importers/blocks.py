"""Messages made of the blocks of the Anthropic API, as several programs store them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wellkept.core.text import dumps
from wellkept.importers.port import Item, Left, unknown
from wellkept.importers.typed_text import as_text, describe_block, join_texts, result_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from wellkept.importers.message_sequence import Speech

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

"""Bodies of requests: additions are inserted into the text, and every other byte stays as the client sent it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_SYSTEM_ROLES = ("system", "developer")


class Unspliceable(Exception):
    """A body that cannot be parsed, or to which nothing can be added; it is forwarded as it is."""


class Node(Struct, frozen=True):
    """A value in the text of a body, from `start` to before `end`."""

    value: Any
    start: int
    end: int


class Splice(Struct, frozen=True):
    """A text that is inserted at an offset."""

    place: int
    text: str
    is_first: bool = False
    """Whether it is an element of a list that was empty; a second one at the same offset needs a comma."""


class Body:
    """The text of a request, with the offsets of its fields."""

    def __init__(self, raw: bytes) -> None:
        try:
            self.text = raw.decode("utf-8")
            start = _skip_space(self.text, 0)
            self.fields = dict(_read_members(self.text, start))
            last = max((node.end for node in self.fields.values()), default=start + 1)
            self._end = _close(self.text, last)
        except (ValueError, IndexError, RecursionError) as error:
            raise Unspliceable("the body is not a JSON object") from error
        self._items: dict[str, list[Node]] = {}

    @property
    def values(self) -> dict[str, Any]:
        """Return the fields."""
        return {name: node.value for name, node in self.fields.items()}

    def items(self, name: str) -> list[Node]:
        """Return the elements of a list."""
        if name not in self._items:
            self._items[name] = list(_read_elements(self.text, self.fields[name].start))
        return self._items[name]

    def member(self, node: Node, name: str) -> Node | None:
        """Return a field of an object inside the body."""
        return dict(_read_members(self.text, node.start)).get(name)

    def add_field(self, name: str, value: str) -> Splice:
        """Return the splice that adds a field with a text at the end of the body."""
        comma = "," if self.fields else ""
        return Splice(self._end, f"{comma}{quote(name)}:{quote(value)}")

    def splice(self, splices: Sequence[Splice]) -> bytes:
        """Return the body with texts added."""
        parts: list[str] = []
        before = 0
        for splice in sorted(splices, key=lambda one: one.place):
            comma = "," if splice.is_first and parts and splice.place == before else ""
            parts += [self.text[before : splice.place], comma, splice.text]
            before = splice.place
        return "".join((*parts, self.text[before:])).encode("utf-8")


def quote(text: str) -> str:
    """Return a text as ASCII JSON, which has the same bytes in every encoding that JSON may have."""
    return json.dumps(text)


def _skip_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    assert match is not None
    return match.end()


def _read_members(text: str, start: int) -> Iterator[tuple[str, Node]]:
    """Yield the fields of the object at `start`; raises ValueError if it is not an object, or repeats a field."""
    seen: set[str] = set()
    place = _open(text, start, "{")
    while text[place] != "}":
        name, place = _DECODER.raw_decode(text, place)
        if not isinstance(name, str) or name in seen:  # the endpoint may use either of two
            raise ValueError("a name is not a string, or occurs twice")
        seen.add(name)
        place = _skip_space(text, place)
        if text[place] != ":":
            raise ValueError("there is no colon after a name")
        node = _read_value(text, _skip_space(text, place + 1))
        yield name, node
        place = _next(text, node.end, "}")


def _read_elements(text: str, start: int) -> Iterator[Node]:
    """Yield the elements of the list at `start`."""
    place = _open(text, start, "[")
    while text[place] != "]":
        node = _read_value(text, place)
        yield node
        place = _next(text, node.end, "]")


def _read_value(text: str, place: int) -> Node:
    value, end = _DECODER.raw_decode(text, place)
    return Node(value, place, end)


def _open(text: str, start: int, bracket: str) -> int:
    if text[start] != bracket:
        raise ValueError(f"{bracket} is missing")
    return _skip_space(text, start + 1)


def _next(text: str, end: int, bracket: str) -> int:
    place = _skip_space(text, end)
    if text[place] == ",":
        return _skip_space(text, place + 1)
    if text[place] != bracket:
        raise ValueError(f"{bracket} is missing")
    return place


def _close(text: str, last: int) -> int:
    """Return the offset of the bracket that ends the body; raises ValueError if anything follows it."""
    end = _skip_space(text, last)
    if text[end] != "}" or text[end + 1 :].strip():
        raise ValueError("something follows the object")
    return end


# where additions go in each API


def _extend_text(node: Node, text: str) -> list[Splice]:
    """Add a text at the end of a text."""
    gap = "\n\n" if node.value.strip() else ""
    return [Splice(node.end - 1, quote(gap + text)[1:-1])]


def _extend_list(node: Node, item: Mapping[str, str]) -> list[Splice]:
    """Add an object at the end of a list."""
    comma = "," if node.value else ""
    return [Splice(node.end - 1, comma + json.dumps(item, separators=(",", ":")), is_first=not node.value)]


def _extend_content(node: Node | None, text: str, kind: str) -> list[Splice]:
    """Add a text to the content of a message, which is a text or a list of parts."""
    if node is not None and isinstance(node.value, str):
        return _extend_text(node, text)
    if node is not None and isinstance(node.value, list):
        return _extend_list(node, {"type": kind, "text": text})
    raise Unspliceable("the content of a message is neither a text nor a list")


def _extend_blocks(node: Node | None, text: str) -> list[Splice]:
    """Add a block to Anthropic's content. A plain text becomes the first block, which means the same to the endpoint.

    Clients switch between the two forms when they move a cache mark, so the addition must not depend on it.
    """
    if node is not None and isinstance(node.value, str) and node.value.strip():
        block = json.dumps({"type": "text", "text": text}, separators=(",", ":"))
        return [Splice(node.start, '[{"type":"text","text":'), Splice(node.end, f"}},{block}]")]
    return _extend_content(node, text, "text")


def _add_anthropic_block(body: Body, text: str) -> list[Splice]:
    if "system" not in body.fields:
        return [body.add_field("system", text)]
    return _extend_blocks(body.fields["system"], text)


def _add_chat_block(body: Body, text: str) -> list[Splice]:
    """Add to the last of the leading system messages: not every model accepts another one."""
    messages = body.items("messages")
    leading = 0
    while leading < len(messages) and _is_system(messages[leading].value):
        leading += 1
    if leading:
        return _extend_content(body.member(messages[leading - 1], "content"), text, "text")
    own = json.dumps({"role": "system", "content": text}, separators=(",", ":"))
    return [Splice(messages[0].start, f"{own},")]


def _is_system(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") in _SYSTEM_ROLES


def _add_responses_block(body: Body, text: str) -> list[Splice]:
    """Add to the instructions, which the endpoint does not carry over from one answer to the next."""
    node = body.fields.get("instructions")
    if node is None:
        return [body.add_field("instructions", text)]
    if not isinstance(node.value, str):
        raise Unspliceable("the instructions are not a string")
    return _extend_text(node, text)


def _add_anthropic_passage(body: Body, place: int, text: str) -> list[Splice]:
    return _extend_blocks(body.member(body.items("messages")[place], "content"), text)


def _add_chat_passage(body: Body, place: int, text: str) -> list[Splice]:
    return _extend_content(body.member(body.items("messages")[place], "content"), text, "text")


def _add_responses_passage(body: Body, place: int, text: str) -> list[Splice]:
    node = body.fields["input"]
    if isinstance(node.value, str):
        return _extend_text(node, text)
    return _extend_content(body.member(body.items("input")[place], "content"), text, "input_text")


class Additive(Struct, frozen=True):
    """How texts are added to the requests of one API."""

    block: Callable[[Body, str], list[Splice]]
    passage: Callable[[Body, int, str], list[Splice]]


ANTHROPIC = Additive(_add_anthropic_block, _add_anthropic_passage)
CHAT = Additive(_add_chat_block, _add_chat_passage)
RESPONSES = Additive(_add_responses_block, _add_responses_passage)


def add_texts(body: Body, additive: Additive, block: str, passages: Mapping[int, str]) -> bytes:
    """Return the bytes of a request with a block, and with passages by the position of their message in the list."""
    try:
        splices = additive.block(body, block) if block else []
        for place, text in passages.items():
            splices += additive.passage(body, place, text)
    except (ValueError, LookupError, RecursionError) as error:
        raise Unspliceable("a message of the body has an unknown shape") from error
    return body.splice(splices)

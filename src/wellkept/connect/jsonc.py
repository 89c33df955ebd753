"""Edits of a JSON text that keep every other byte: comments, order, indentation and line ends."""

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_INDENT = re.compile(r"\n([ \t]+)\S")
_DECODER = json.JSONDecoder()
_MAX_DEPTH = 200
"""No settings file is nested deeper, and deeper nesting would exhaust the stack."""

Keys: TypeAlias = Sequence[str]


class NotJson(ValueError):
    """The text is not JSON; the message says where."""


class Node(Struct):
    """A value of the text and its position."""

    start: int
    end: int
    value: Any
    members: dict[str, "Member"] = field(default_factory=dict)
    """The members of an object by key; the last one of a key counts, as everywhere."""
    items: list["Node"] = field(default_factory=list)


class Member(Struct):
    """A key with its value; `start` is where the key begins."""

    start: int
    node: Node


class _Reader:
    def __init__(self, text: str, *, comments: bool) -> None:
        self.text = text
        self.comments = comments

    def fail(self, at: int, expected: str) -> NotJson:
        return NotJson(f"line {self.text.count(chr(10), 0, at) + 1}: expected {expected}")

    def skip(self, at: int) -> int:
        """Return the next position that is neither space nor comment."""
        while True:
            match = _SPACE.match(self.text, at)
            at = match.end() if match else at
            comment = _COMMENT.match(self.text, at) if self.comments else None
            if comment is None:
                return at
            at = comment.end()

    def value(self, at: int, depth: int = 0) -> Node:
        if depth > _MAX_DEPTH:
            raise self.fail(at, "less nesting")
        opening = self.text[at : at + 1]
        if opening == "{":
            return self.object(at, depth)
        if opening == "[":
            return self.array(at, depth)
        if opening == '"':
            text, end = self.string(at)
            return Node(at, end, text)
        word = _WORD.match(self.text, at)
        if word is None:
            raise self.fail(at, "a value")
        return Node(at, word.end(), json.loads(word[0]))

    def string(self, at: int) -> tuple[str, int]:
        if self.text[at : at + 1] != '"':
            raise self.fail(at, "a key in quotes")
        try:
            text, end = _DECODER.raw_decode(self.text, at)
        except json.JSONDecodeError:
            raise self.fail(at, "the end of this text in quotes") from None
        return str(text), end

    def object(self, start: int, depth: int) -> Node:
        node = Node(start, start, {})
        at = self.skip(start + 1)
        while self.text[at : at + 1] != "}":
            key, end = self.string(at)
            colon = self.skip(end)
            if self.text[colon : colon + 1] != ":":
                raise self.fail(colon, "a colon")
            inner = self.value(self.skip(colon + 1), depth + 1)
            node.members[key] = Member(at, inner)
            node.value[key] = inner.value
            at = self.after_value(inner.end, "}")
        node.end = at + 1
        return node

    def array(self, start: int, depth: int) -> Node:
        node = Node(start, start, [])
        at = self.skip(start + 1)
        while self.text[at : at + 1] != "]":
            inner = self.value(at, depth + 1)
            node.items.append(inner)
            node.value.append(inner.value)
            at = self.after_value(inner.end, "]")
        node.end = at + 1
        return node

    def after_value(self, end: int, closing: str) -> int:
        """Return the start of the next member or of the closing mark."""
        at = self.skip(end)
        if self.text[at : at + 1] != ",":
            if self.text[at : at + 1] != closing:
                raise self.fail(at, f"a comma or {closing}")
            return at
        after = self.skip(at + 1)
        if self.text[after : after + 1] == closing and not self.comments:  # JSON with comments allows a last comma
            raise self.fail(after, "a value after the comma")
        return after


def parse(text: str, *, comments: bool = False) -> Node:
    """Return the object that `text` holds, with positions; raise NotJson. Comments and last commas are optional."""
    reader = _Reader(text, comments=comments)
    start = reader.skip(1 if text.startswith(_BOM) else 0)
    if text[start : start + 1] != "{":
        raise reader.fail(start, "an object in braces")
    node = reader.value(start)
    if reader.skip(node.end) != len(text):
        raise reader.fail(node.end, "nothing after the closing brace")
    return node


def find(node: Node, keys: Keys) -> Node | None:
    """Return the value below `keys`, None where there is none."""
    for key in keys:
        member = node.members.get(key)
        if member is None:
            return None
        node = member.node
    return node


def set_member(text: str, keys: Keys, value: Any, *, comments: bool = False) -> str:
    """Return `text` with `value` below `keys`; objects that are missing on the way are added."""
    root = parse(text, comments=comments)
    node, depth = _deepest(root, keys)
    if depth == len(keys):
        return text[: node.start] + _render(text, value, depth) + text[node.end :]
    if not isinstance(node.value, dict):
        raise NotJson(f"{'.'.join(keys[:depth])} is not an object")
    for key in reversed(keys[depth + 1 :]):
        value = {key: value}
    last = max((member.node.end for member in node.members.values()), default=None)
    entry = f"{json.dumps(keys[depth], ensure_ascii=False)}: {_render(text, value, depth + 1)}"
    return _insert(text, node, last, entry, depth)


def append_item(text: str, keys: Keys, value: Any, *, comments: bool = False) -> str:
    """Return `text` with `value` at the end of the list below `keys`; a missing list is added."""
    node = find(parse(text, comments=comments), keys)
    if node is None:
        return set_member(text, keys, [value], comments=comments)
    if not isinstance(node.value, list):
        raise NotJson(f"{'.'.join(keys)} is not a list")
    last = node.items[-1].end if node.items else None
    return _insert(text, node, last, _render(text, value, len(keys) + 1), len(keys))


def remove_member(text: str, keys: Keys, *, comments: bool = False) -> str:
    """Return `text` without the member below `keys`; unchanged where there is none."""
    root = parse(text, comments=comments)
    parent = find(root, keys[:-1])
    if parent is None or keys[-1] not in parent.members:
        return text
    spans = sorted((member.start, member.node.end) for member in parent.members.values())
    member = parent.members[keys[-1]]
    return _cut(text, parent, spans, spans.index((member.start, member.node.end)), comments=comments)


def remove_item(text: str, keys: Keys, value: Any, *, comments: bool = False) -> str:
    """Return `text` without the items of the list below `keys` that equal `value`."""
    while True:
        node = find(parse(text, comments=comments), keys)
        places = [place for place, item in enumerate(node.items) if item.value == value] if node is not None else []
        if node is None or not places:
            return text
        text = _cut(text, node, [(item.start, item.end) for item in node.items], places[-1], comments=comments)


def _deepest(root: Node, keys: Keys) -> tuple[Node, int]:
    """Return the deepest value that exists on the way along `keys`, and how many keys lead to it."""
    node, depth = root, 0
    while depth < len(keys) and keys[depth] in node.members:
        node, depth = node.members[keys[depth]].node, depth + 1
    return node, depth


def _insert(text: str, node: Node, last: int | None, entry: str, depth: int) -> str:
    """Return `text` with `entry` as the last part of a container whose last part ends at `last`.

    A comment after the last part stays with that part.
    """
    newline, indent = _style(text)
    inner, outer = newline + indent * (depth + 1), newline + indent * depth
    closing = node.end - 1
    if last is None:
        return text[: node.start + 1] + text[node.start + 1 : closing].rstrip() + inner + entry + outer + text[closing:]
    if newline not in text[node.start : node.end]:
        return f"{text[:last]}, {entry}{text[last:]}"
    at = _Reader(text, comments=True).skip(last)
    comma = "" if text[at : at + 1] == "," else ","
    return text[:last] + comma + text[last:closing].rstrip() + inner + entry + outer + text[closing:]


def _cut(text: str, node: Node, spans: list[tuple[int, int]], place: int, *, comments: bool) -> str:
    """Return `text` without one part of a container, with its comma and the space that led to it."""
    start, end = spans[place]
    at = _Reader(text, comments=comments).skip(end)
    rest = text[at + 1 :] if text[at : at + 1] == "," else text[end:]
    if place + 1 < len(spans):
        return text[:start] + rest.lstrip()
    if place == 0:
        return text[: node.start + 1] + rest.lstrip()
    before = spans[place - 1][1]
    comma = _Reader(text, comments=comments).skip(before)
    return text[:before] + text[before:comma] + text[comma + 1 : start].rstrip() + rest


def _style(text: str) -> tuple[str, str]:
    """Return the line end and the indent of `text`."""
    match = _INDENT.search(text)
    return ("\r\n" if "\r\n" in text else "\n"), (match[1] if match else "  ")


def _render(text: str, value: Any, depth: int) -> str:
    """Render `value` for nesting level `depth`, in the style of `text`."""
    newline, indent = _style(text)
    shown = json.dumps(value, ensure_ascii=False, indent=indent)
    return shown.replace("\n", newline + indent * depth)

"""The conversations of Hermes: rows of its database and older JSON files, with copies of rows recognised."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from wellkept.core.messages import Message, Origin, Role, ToolCall
from wellkept.importers.port import UNKNOWN, Kind, Unusable
from wellkept.importers.typed_text import (
    MOST_CHARS,
    MOST_TOOL_CHARS,
    OUR_RESULT,
    as_blocks,
    as_text,
    clean_answer,
    clean_arguments,
    clean_result,
    describe_block,
    is_our_tool,
    join_texts,
    remove_machine_blocks,
    shorten,
    starts_with_any,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

MACHINE_SOURCES = frozenset(("cron", "webhook", "batch"))
"""Values of `sessions.source` whose prompts a program wrote."""
_PARTS_PREFIX = "\x00json:"
_SKILL = re.compile(r'\A\[[A-Z]+: The user has invoked the "([^"\n]{1,100})" skill')
_SKILL_ARGUMENTS = re.compile(r"alongside the skill invocation: (.*)\Z", re.DOTALL)
_SUMMARY_END = re.compile(r"--- END OF CONTEXT SUMMARY[^\n]*---\s*")
_NOTES = re.compile(r"\A\s*(?:\[(?:System note|Note|IMPORTANT|SYSTEM):[^\]]{0,20000}\]\s*)+")
_STEERING = re.compile(
    r"\s*\[OUT-OF-BAND USER MESSAGE[^\]\n]{0,200}\]\n(.*?)\n?\[/OUT-OF-BAND USER MESSAGE\]", re.DOTALL
)
_SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY")
_MACHINE_TEXTS = ("[ASYNC DELEGATION", "[IMPORTANT: Background process", "[SYSTEM: Background process")
_MOST_JSON_BYTES = 256_000_000
_MOST_JOINED = 20_000
"""Prompts that nobody answered are joined up to this length; without a bound a long run of them costs its square."""
_BURST_SECONDS = 0.05
"""Rows written in one go, without a person or a model between them, are at most this far apart."""
_END_OF_COPIES_SECONDS = 0.5
"""A row that comes later than this after copied rows and is not a copy was said after them."""


# what a row says


class Spoken(Struct, frozen=True):
    """The part of a row that is stored."""

    message: Message | None
    """None if nothing is stored."""
    why: str = ""
    """Why nothing is stored."""
    steering: tuple[str, ...] = ()
    """What the person wrote while the tool ran; Hermes appends it to the tool's result."""


def interpret(row: Mapping[str, Any], kind: Kind) -> Spoken:
    """Return what of a row is stored: without notes, summaries and prompts that a machine wrote."""
    content = _content(row.get("content"))
    match row.get("role"):
        case "user":
            return _interpret_prompt(content, kind)
        case "assistant":
            return _interpret_answer(row, content)
        case "tool":
            name, call_id = as_text(row.get("tool_name")), as_text(row.get("tool_call_id"))
            text = OUR_RESULT if is_our_tool(name) else clean_result(_STEERING.sub("", content))
            result = Message(Role.TOOL, text, tool_call_id=call_id, tool_name=name)
            return Spoken(result, steering=tuple(found.strip() for found in _STEERING.findall(content)))
        case "system" | "developer" | "session_meta" | None:
            return Spoken(None, "machine text")
        case _:
            return Spoken(None, UNKNOWN)


def _content(value: Any) -> str:
    """Return content as text; a list of parts is stored as JSON behind a prefix, in older files as a list."""
    if isinstance(value, str) and value.startswith(_PARTS_PREFIX):
        try:
            value = json.loads(value.removeprefix(_PARTS_PREFIX))
        except (ValueError, RecursionError):
            return ""
    if isinstance(value, dict):
        value = [value]
    return value if isinstance(value, str) else join_texts(describe_block(block) for block in as_blocks(value))


def _interpret_prompt(content: str, kind: Kind) -> Spoken:
    if is_summary(content):
        end = _SUMMARY_END.search(content)
        if end is None or not content[end.end() :].strip():
            return Spoken(None, "summary")
        content = content[end.end() :]  # the first message that was kept is appended to the summary
    skill = _SKILL.match(content)
    if skill is not None:
        arguments = _SKILL_ARGUMENTS.search(content)
        text = f"/{skill[1]} {arguments[1].strip()}" if arguments else ""
    elif starts_with_any(content, _MACHINE_TEXTS):
        text = ""
    else:
        text = remove_machine_blocks(_NOTES.sub("", content)).strip()
    return Spoken(Message(Role.USER, shorten(text, MOST_CHARS))) if text else Spoken(None, _why_empty(kind))


def _why_empty(kind: Kind) -> str:
    return "machine text" if kind is Kind.PERSON else "empty"


def is_summary(content: str) -> bool:
    """Whether a text is the summary that takes the place of compacted messages."""
    return starts_with_any(content, _SUMMARIES)


def _interpret_answer(row: Mapping[str, Any], content: str) -> Spoken:
    if is_summary(content):
        return Spoken(None, "summary")
    thoughts = as_text(row.get("reasoning_content")) or as_text(row.get("reasoning")) or ""
    answer = Message(
        Role.ASSISTANT,
        clean_answer(content),
        tuple(_calls(row.get("tool_calls"))),
        reasoning=shorten(clean_answer(thoughts), MOST_TOOL_CHARS) or None,
    )
    return Spoken(answer) if answer.content or answer.tool_calls else Spoken(None, "empty")


def _calls(value: Any) -> Iterator[ToolCall]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return
    for call in as_blocks(value):
        function = call.get("function")
        if isinstance(function, dict):
            name = as_text(function.get("name")) or "tool"
            yield ToolCall(str(call.get("id") or ""), name, clean_arguments(function.get("arguments") or {}))


# copies


class Originals(Struct):
    """The rows of a session so far, by what they say; each has the id under which its message is stored."""

    externals: list[str] = field(default_factory=list)
    _places: dict[int, list[int]] = field(default_factory=dict)
    _prompt: str = ""
    """The prompts since the last answer; Hermes joins them when it copies a session."""

    def add(self, row: Mapping[str, Any], external: str) -> None:
        """Add a row."""
        place = len(self.externals)
        self.externals.append(external)
        self._places.setdefault(_mark(row), []).append(place)
        if row.get("role") != "user":
            self._prompt = ""
            return
        before, text = self._prompt, _content(row.get("content"))
        if len(before) > _MOST_JOINED:
            before = ""
        self._prompt = f"{before}\n\n{text}" if before else text
        if before:
            self._places.setdefault(_mark({"role": "user", "content": self._prompt}), []).append(place)

    def find(self, row: Mapping[str, Any], start: int) -> int | None:
        """Return the place of the first row from `start` on that says the same."""
        places = self._places.get(_mark(row), [])
        found = bisect_left(places, start)
        return places[found] if found < len(places) else None


def _mark(row: Mapping[str, Any]) -> int:
    """Return a hash of what a row says; the results of tools are shortened in copies, so their call counts."""
    role, call_id = row.get("role"), row.get("tool_call_id")
    calls = [call.id for call in _calls(row.get("tool_calls"))]
    said = str(call_id) if role == "tool" and call_id else _content(row.get("content"))
    whole = "\0".join((str(role), said, *calls))
    return int.from_bytes(hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=8).digest(), "big")


class Copies:
    """Recognises rows that repeat earlier ones, which come in the order of their originals and are written at once.

    A branch begins with them. After a compaction the messages that stay in the context are written again.
    """

    def __init__(self, originals: Originals, *, is_own: bool) -> None:
        self._originals = originals
        self._is_own = is_own
        """Whether the originals are rows of the same session, so that copies can begin anywhere."""
        self._is_open = not is_own
        self._next = 0
        self._last = 0.0

    def find(self, row: Mapping[str, Any], moment: float, following: float | None) -> str | None:
        """Return the id of the message that a row repeats, or None if it is new; `following` is when the next came."""
        is_late = moment - self._last >= _END_OF_COPIES_SECONDS
        self._last = moment
        if self._is_own and (is_late or not self._is_open):
            is_burst = following is not None and 0 <= following - moment < _BURST_SECONDS
            self._is_open = is_burst and row.get("role") != "tool"
            self._next = 0
        if not self._is_open:
            return None
        place = self._originals.find(row, self._next)
        if place is None:
            self._is_open = not is_late if not self._is_own else self._next > 0
            return None
        self._next = place + 1
        return self._originals.externals[place]


# older files


def read_json(path: Path, data: bytes) -> dict[str, Any]:
    """Return the content of a JSON session; raise Unusable for anything else."""
    if len(data) > _MOST_JSON_BYTES:
        raise Unusable(f"{str(path)!r} is larger than {_MOST_JSON_BYTES:,} bytes", "split it")
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{str(path)!r} is not JSON", "it may have been cut off; the other files are read") from error
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        raise Unusable(f"{str(path)!r} is not a session of Hermes", "give the folder of Hermes")
    return value


def name_rows(session: str, rows: Sequence[Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the messages of a JSON session with ids that stay when the file grows: they have none of their own."""
    counts: dict[int, int] = {}
    for row in rows:
        if isinstance(row, dict):
            mark = _mark(row)
            counts[mark] = counts.get(mark, 0) + 1
            yield row, f"{session}:{mark:016x}:{counts[mark]}"


def from_local(value: Any) -> float | None:
    """Return epoch seconds of a time as old versions wrote it: in the zone of this machine, without naming it."""
    try:
        return datetime.fromisoformat(str(value)).astimezone().timestamp()
    except (ValueError, OverflowError):
        return None


def choose_origin(role: Role, kind: Kind) -> Origin:
    """Return who said a message; prompts of conversations that a machine led are not a person's."""
    return Origin.SYNTHETIC if role is Role.USER and kind is not Kind.PERSON else Origin.usual(role)

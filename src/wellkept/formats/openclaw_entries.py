"""The entries of OpenClaw's transcripts, the same in its files and its databases; also those of its predecessors."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.clock import from_program
from wellkept.core.messages import Message, Origin, Role, ToolCall, Usage
from wellkept.core.text import JSON, dumps
from wellkept.formats.json_files import RowParser
from wellkept.formats.messages import (
    MOST_CHARS,
    MOST_TOOL_CHARS,
    OUR_RESULT,
    PrivateTurns,
    as_blocks,
    as_count,
    as_text,
    clean_answer,
    clean_arguments,
    clean_result,
    describe_block,
    is_our_tool,
    join_texts,
    name_unknown,
    remove_machine_blocks,
    result_text,
    shorten,
    starts_with_any,
)
from wellkept.formats.port import Conversation, Item, Kind, Left, Said, Spent, Withdrawn, unknown

_MACHINE_TEXTS = (
    "[OpenClaw heartbeat",
    "Read HEARTBEAT.md",
    "[Subagent ",
    "[System Message]",
    "[System]",
    "[Inter-session message]",
    "[cron:",
    "[Bootstrap ",
    "A new session was started via",
    "Pre-compaction memory flush",
    "Session nearing compaction",
    "OpenClaw runtime context",
    "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>",
    "An async command you ran earlier has completed",
    "A scheduled reminder has been triggered",
    "Agent-to-agent ",
)
"""How texts begin that nobody typed."""
_ENVELOPE = re.compile(r"\A\[(?:[^\[\]\n]{1,160}? )?\d{4}-\d\d-\d\d[T ]\d\d:\d\d[^\[\]\n]{0,40}\][ \t]*")
"""`[Fri 2026-06-26 19:40 UTC] `, before that with channel and sender."""
_METADATA = re.compile(r"\A[^\n(]{1,80}\(untrusted[^)\n]{0,60}\):\s*\n?```(?:json)?\n(.{0,20000}?)\n?```\s*", re.DOTALL)
"""`Conversation info (untrusted metadata):` and its like, with a block of JSON."""
_SYSTEM_LINES = re.compile(r"\A(?:System(?: \(untrusted\))?: \[[^\n]*\n?)+\s*")
_QUEUED = re.compile(r"^(?:\[Queued messages while agent was busy\]|---\s*|Queued #\d+[^\n]*)$\n?", re.MULTILINE)
_QUEUE_START = "[Queued messages while agent was busy]"
_MESSAGE_ID = re.compile(r"\s*\[message_id: [^\]\n]{1,200}\]\s*\Z")
_REPLY_TAG = re.compile(r"\[\[\s*(?:reply_to_current|reply_to:[^\]\n]{1,200}|audio_as_voice)\s*\]\]\s*")
_SILENCE = re.compile(r"[\s*_`.\"']*(?:HEARTBEAT_OK|NO_REPLY|ANNOUNCE_SKIP|REPLY_SKIP)[\s*_`.\"']*")
_MOST_WRAPPINGS = 12
"""A message has a few wrappings; more are somebody's text."""
_CHAT_TYPES = frozenset(("direct", "dm", "group", "channel"))


class Typed(Struct, frozen=True):
    """What a person typed, without what OpenClaw put around it."""

    text: str
    sender: str | None = None


def unwrap(text: str) -> Typed:
    """Return what a person typed; nothing if a machine wrote the message."""
    sender = None
    for _ in range(_MOST_WRAPPINGS):
        before = text
        text = _MESSAGE_ID.sub("", _SYSTEM_LINES.sub("", remove_machine_blocks(text).lstrip()))
        metadata = _METADATA.match(text)
        if metadata is not None:
            sender = _read_sender(metadata[1]) or sender
            text = text[metadata.end() :]
        text = _ENVELOPE.sub("", text, count=1)
        if text == before:
            break
    if starts_with_any(text, _MACHINE_TEXTS):
        return Typed("")
    if text.startswith(_QUEUE_START):
        text = "\n".join(unwrap(part).text for part in _QUEUED.split(text) if part.strip())
    return Typed(text.strip(), sender)


def _read_sender(block: str) -> str | None:
    try:
        value = json.loads(block)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return as_text(value.get("name")) or as_text(value.get("label")) or as_text(value.get("sender"))


def clean_reply(text: str) -> str:
    """Return an answer without tags for the channel; nothing if it is one of the words that mean silence."""
    text = _REPLY_TAG.sub("", text)
    return "" if _SILENCE.fullmatch(text) else text


class Key(Struct, frozen=True):
    """What the key of a session says, such as `agent:main:telegram:direct:12345`."""

    agent: str | None
    kind: Kind
    channel: str | None
    is_group: bool

    @classmethod
    def parse(cls, text: str) -> Key:
        """Return what a key says; of an unknown one, nothing."""
        words = text.split(":")
        agent = words[1] if len(words) > 2 and words[0] == "agent" else None
        rest = words[2:] if agent else words
        kind = Kind.PERSON
        if "subagent" in rest:
            kind = Kind.SUBAGENT
        elif rest[:1] in (["cron"], ["hook"], ["heartbeat"]) or rest[-1] == "heartbeat" or "model-run-" in text:
            kind = Kind.HEADLESS
        place = next((number for number, word in enumerate(rest) if word in _CHAT_TYPES), 0)
        channel = rest[0] if place > 0 else None
        return cls(agent, kind, channel, is_group=place > 0 and rest[place] in {"group", "channel"})


def guess_kind(prompt: str) -> Kind:
    """Return who led a session whose key is not known, by its first prompt."""
    if starts_with_any(prompt, ("[Subagent ",)):
        return Kind.SUBAGENT
    return Kind.HEADLESS if starts_with_any(prompt, ("[cron:",)) else Kind.PERSON


def is_of_machine(message: Mapping[str, Any]) -> bool:
    """Whether a user message says itself that another session or the program sent it."""
    provenance = message.get("provenance")
    kind = provenance.get("kind") if isinstance(provenance, dict) else None
    return kind in {"inter_session", "internal_system"}


_CHAIN = 400
"""The newest entries of the branch that is read; a branch that begins earlier is not recognised."""
_WITHOUT_MESSAGES = frozenset(
    (
        "branch_summary", "compaction", "custom", "custom_message", "label", "leaf", "thinking_level_change",
    )
)  # fmt: skip
"""Entries about the session, summaries, and the state of extensions."""
_CALLS = frozenset(("toolCall", "toolUse"))
_MIRRORS = frozenset(("delivery-mirror", "gateway-injected"))
"""Models of rows that repeat what was sent to a channel."""


class EntryParser(RowParser):
    """Parses the entries of one session."""

    def __init__(self, state: Mapping[str, Any], facts: Conversation, *, is_group: bool = False) -> None:
        self._whole = facts.external_id
        self._facts = replace(
            facts,
            external_id=as_text(state.get("conversation")) or facts.external_id,
            folder=facts.folder or as_text(state.get("folder")),
            model=as_text(state.get("model")) or facts.model,
            title=facts.title or as_text(state.get("title")),
            parent=facts.parent or as_text(state.get("parent")),
        )
        self._is_group = is_group
        self._yielded: Conversation | None = None
        self._last = float(state.get("last") or 0.0)
        self._private = PrivateTurns(is_open=bool(state.get("private")), is_hidden=bool(state.get("hidden")))
        self._chain: list[tuple[str, bool]] = [(str(name), bool(turn)) for name, turn in state.get("chain") or ()]
        """The entries of the branch, each with whether a person's turn begins there."""
        self._answer = as_text(state.get("answer")) or ""
        """A hash of the last answer, by which its copy for a channel is known."""

    def state(self) -> Mapping[str, JSON]:
        """Return the facts, the newest entries of the branch and whether a private span is open."""
        facts = self._facts
        state: dict[str, JSON] = {
            "conversation": facts.external_id if facts.external_id != self._whole else None,
            "folder": facts.folder,
            "model": facts.model,
            "title": facts.title,
            "parent": facts.parent,
            "last": self._last,
            "private": self._private.is_open,
            "hidden": self._private.is_hidden,
            "chain": [[name, int(turn)] for name, turn in self._chain],
            "answer": self._answer,
        }
        return {key: value for key, value in state.items() if value}

    def take(self, row: dict[str, Any], start: int) -> Iterator[Item]:
        """Yield what an entry says."""
        del start
        kind = row.get("type")
        if kind == "session":
            self._take_header(row)
            return
        if isinstance(row.get("id"), str):
            yield from self._follow(row)
        if kind == "message" and isinstance(row.get("message"), dict):
            yield from self._take_message(row, row["message"])
        elif kind in {"model_change", "session_info", "reset"}:
            self._take_fact(row, kind)
        else:
            yield Left("no message") if kind in _WITHOUT_MESSAGES else unknown(row)

    # the session and its branches

    def _take_header(self, row: Mapping[str, Any]) -> None:
        origin = as_text(row.get("parentSession"))
        name = PurePath(origin).name.partition(".jsonl")[0] if origin else None
        self._facts = replace(
            self._facts, folder=as_text(row.get("cwd")) or self._facts.folder, parent=self._facts.parent or name
        )

    def _take_fact(self, row: Mapping[str, Any], kind: str) -> None:
        match kind:
            case "model_change":
                self._facts = replace(self._facts, model=as_text(row.get("modelId")) or self._facts.model)
            case "session_info":
                self._facts = replace(self._facts, title=self._facts.title or as_text(row.get("name")))
            case _:  # newer versions stay in the same session after a reset, where a new conversation begins
                name = f"{self._whole}#{row.get('id')}"
                self._facts = replace(self._facts, external_id=name, parent=None, link=None)
                self._chain.clear()

    def _follow(self, row: Mapping[str, Any]) -> Iterator[Item]:
        """Yield how many turns were withdrawn if an entry continues an earlier one than the last."""
        parent = row.get("parentId")
        place = next((at for at in range(len(self._chain) - 1, -1, -1) if self._chain[at][0] == parent), None)
        if place is not None:
            turns = sum(turn for _, turn in self._chain[place + 1 :])
            del self._chain[place + 1 :]
            if turns:
                yield Withdrawn(self._facts.external_id, self._name(row), turns)
        self._chain.append((row["id"], False))
        del self._chain[:-_CHAIN]

    def _yield_facts(self) -> Iterator[Item]:
        if self._yielded != self._facts:
            self._yielded = self._facts
            yield self._facts

    def _name(self, row: Mapping[str, Any]) -> str:
        """Return the id of an entry: ids have 8 digits in files and repeat by chance, but not with the same time."""
        if isinstance(row.get("id"), str):
            return f"{row['id']}@{row.get('timestamp')}"
        whole = f"{self._facts.external_id}\0{dumps(row)}"  # the first version had no ids
        return hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()

    def _moment(self, row: Mapping[str, Any]) -> float:
        message = row.get("message") or {}
        moment = from_program(row.get("timestamp")) or from_program(message.get("timestamp"))
        self._last = self._last if moment is None else moment
        return self._last

    # messages

    def _take_message(self, row: Mapping[str, Any], message: dict[str, Any]) -> Iterator[Item]:
        match message.get("role"):
            case "user":
                yield from self._take_prompt(row, message)
            case "assistant":
                yield from self._take_answer(row, message)
            case "toolResult" | "tool":
                yield from self._take_result(row, message)
            case "bashExecution" | "branchSummary" | "compactionSummary" | "custom" | "system":
                yield Left("no message")
            case _:
                yield unknown(message, "message")

    def _store(
        self, row: Mapping[str, Any], message: Message, origin: Origin, tokens: int | None = None
    ) -> Iterator[Item]:
        stored = self._private.take(message) if origin is not Origin.SYNTHETIC else message
        if stored is None:
            yield Left("private")
            return
        yield from self._yield_facts()
        name = self._name(row)
        turn = name if origin is Origin.PERSON else None
        if turn is not None and self._chain:
            self._chain[-1] = (self._chain[-1][0], True)
        yield Said(self._facts.external_id, name, stored, self._moment(row), origin, token_count=tokens, turn=turn)

    def _take_prompt(self, row: Mapping[str, Any], message: Mapping[str, Any]) -> Iterator[Item]:
        blocks = as_blocks(message.get("content"))
        yield from name_unknown(blocks)
        whole = join_texts(_describe(block) for block in blocks)
        if self._yielded is None and not self._facts.metadata.get("route"):
            self._facts = replace(self._facts, kind=guess_kind(whole))  # a former session, which no list names
        is_led = self._facts.kind is not Kind.PERSON
        typed = unwrap(whole)
        text = typed.text
        if is_led and not text:
            text = whole.strip()  # a machine wrote it, and nobody else's words are in it
        if not text or (is_of_machine(message) and not is_led):
            yield Left("machine text")
            return
        if self._is_group and typed.sender:
            text = f"{typed.sender}: {text}"  # several people talk there
        said = Message(Role.USER, shorten(text, MOST_CHARS))
        yield from self._store(row, said, Origin.SYNTHETIC if is_led else Origin.PERSON)

    def _take_answer(self, row: Mapping[str, Any], message: Mapping[str, Any]) -> Iterator[Item]:
        model = as_text(message.get("model"))
        is_mirror = model in _MIRRORS
        if model is not None and not is_mirror:
            self._facts = replace(self._facts, model=model)
        blocks = as_blocks(message.get("content"))
        yield from name_unknown(blocks, _CALLS)
        answer = _assemble(blocks)
        mark = hashlib.blake2b(answer.text.encode("utf-8", "replace"), digest_size=8).hexdigest()
        if is_mirror and mark == self._answer:
            yield Left("copy")
        elif not answer.text and not answer.tool_calls:
            yield Left("error" if message.get("errorMessage") else "silence")
        else:
            usage = message.get("usage")
            tokens = as_count(usage, "output") if isinstance(usage, dict) else 0
            yield from self._store(row, answer, Origin.MODEL, tokens or None)
            self._answer = mark
        yield from self._take_usage(row, message, model)

    def _take_usage(self, row: Mapping[str, Any], message: Mapping[str, Any], model: str | None) -> Iterator[Item]:
        usage = message.get("usage")
        if not isinstance(usage, dict) or model is None or model in _MIRRORS:
            return
        spent = Usage(*(as_count(usage, key) for key in ("input", "output", "cacheRead", "cacheWrite")))
        if spent != Usage():
            yield from self._yield_facts()
            yield Spent(self._facts.external_id, self._name(row), model, spent, self._moment(row))

    def _take_result(self, row: Mapping[str, Any], message: Mapping[str, Any]) -> Iterator[Item]:
        name = as_text(message.get("toolName")) or as_text(message.get("name"))
        call_id = as_text(message.get("toolCallId")) or as_text(message.get("tool_call_id"))
        blocks = message.get("content")
        text = result_text([_as_image(block) for block in blocks] if isinstance(blocks, list) else blocks)
        text = OUR_RESULT if is_our_tool(name) else clean_result(text)
        result = Message(Role.TOOL, text, tool_call_id=call_id, tool_name=name)
        yield from self._store(row, result, Origin.TOOL)


def _assemble(blocks: list[dict[str, Any]]) -> Message:
    texts, thoughts, calls = [], [], []
    for block in blocks:
        match block.get("type"):
            case "thinking":
                thoughts.append(str(block.get("thinking") or ""))
            case "toolCall" | "toolUse" | "tool_use":
                arguments = block.get("arguments") or block.get("input") or {}
                name = as_text(block.get("name")) or "tool"
                calls.append(ToolCall(str(block.get("id") or ""), name, clean_arguments(arguments)))
            case _:
                texts.append(_describe(block))
    return Message(
        Role.ASSISTANT,
        clean_answer(clean_reply(join_texts(texts))),
        tuple(calls),
        reasoning=shorten(clean_answer(join_texts(thoughts)), MOST_TOOL_CHARS) or None,
    )


def _describe(block: Any) -> str:
    return describe_block(_as_image(block))


def _as_image(block: Any) -> Any:
    """Return a block; an image in the form that model APIs use."""
    if isinstance(block, dict) and block.get("type") == "image" and "data" in block:
        return {"type": "image", "source": {"media_type": block.get("mimeType"), "data": block.get("data")}}
    return block

"""What people typed, in the user messages of OpenClaw, and who led a session, by its key."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wellkept.importers.port import Kind
from wellkept.importers.typed_text import as_text, remove_machine_blocks, starts_with_any

if TYPE_CHECKING:
    from collections.abc import Mapping

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

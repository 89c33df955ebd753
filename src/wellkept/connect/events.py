"""Parses the events of clients' hooks into one form, and keeps prompts whose answers have not arrived."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from wellkept.core.ids import blake2b
from wellkept.core.regular_files import load_bytes
from wellkept.core.text import dumps

MOST_BYTES = 16_000_000
"""A longer event is not read: its texts could not be stored, and its transcript is captured at the next event."""


class BadEvent(ValueError):
    """The input is not an event of the client."""


class Kind(StrEnum):
    """What an event reports."""

    START = "start"
    PROMPT = "prompt"
    STOP = "stop"
    """A turn, or that of a sub-agent, has ended."""
    ANSWER = "answer"
    """The text of an answer, from a client that sends no transcript."""
    COMPACT = "compact"
    END = "end"
    OTHER = "other"


_KINDS = {
    "SessionStart": Kind.START,
    "sessionStart": Kind.START,
    "UserPromptSubmit": Kind.PROMPT,
    "BeforeAgent": Kind.PROMPT,
    "beforeSubmitPrompt": Kind.PROMPT,
    "Stop": Kind.STOP,
    "SubagentStop": Kind.STOP,
    "AfterAgent": Kind.STOP,
    "stop": Kind.STOP,
    "agent-turn-complete": Kind.STOP,
    "afterAgentResponse": Kind.ANSWER,
    "PreCompact": Kind.COMPACT,
    "PreCompress": Kind.COMPACT,
    "SessionEnd": Kind.END,
    "sessionEnd": Kind.END,
}
"""Names that mean the same in every client that uses them."""
NOTIFY = "codex-notify"
_GIVEN = r"(?s)<hook_context>.*?</hook_context>\s*"
"""What Gemini CLI adds to a prompt for a hook that gave it context; it is neither searched for nor stored."""
_SILENT_SOURCES = frozenset(("system", "loop_wakeup", "schedule_wakeup", "poll_event"))


class HookEvent(Struct, frozen=True):
    """One event."""

    client: str
    kind: Kind
    name: str
    """The client's own name of the event."""
    session: str
    """The client's own id of the session; empty where it sends none."""
    folder: str | None = None
    source: str = ""
    """Why a session starts, or who wrote a prompt."""
    prompt: str = ""
    answer: str = ""
    turn: str | None = None
    transcript: Path | None = None
    is_hook: bool = True
    """False for Codex' `notify`, which runs without trust."""

    @property
    def is_of_a_person(self) -> bool:
        """Whether the prompt was written by a person or a program on their behalf, not by the client itself."""
        return self.source not in _SILENT_SOURCES


def parse_event(client: str, text: bytes | str) -> HookEvent:
    """Return the event; raise BadEvent for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadEvent(f"the event is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadEvent(f"the event is a {type(value).__name__}, not an object")
    return _notify_event(value) if client == NOTIFY else _hook_event(client, value)


def _hook_event(client: str, value: Mapping[str, Any]) -> HookEvent:
    name = _word(value, "hook_event_name", "event")
    if not name:
        raise BadEvent("the event has no name")
    roots = value.get("workspace_roots")
    folder = _word(value, "cwd") or (
        roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""
    )
    path = _word(value, "agent_transcript_path") if name == "SubagentStop" else ""
    path = path or _word(value, "transcript_path")
    return HookEvent(
        client,
        _KINDS.get(name, Kind.OTHER),
        name,
        _word(value, "session_id", "conversation_id"),
        folder or None,
        _word(value, "source"),
        re.sub(_GIVEN, "", _word(value, "prompt")),
        _word(value, "last_assistant_message", "prompt_response", "text"),
        _word(value, "turn_id", "generation_id", "prompt_id") or None,
        Path(path) if path and "\0" not in path else None,
    )


def _notify_event(value: Mapping[str, Any]) -> HookEvent:
    said = value.get("input-messages")
    prompts = [text for text in said if isinstance(text, str)] if isinstance(said, list) else []
    return HookEvent(
        "codex",
        _KINDS.get(_word(value, "type"), Kind.OTHER),
        _word(value, "type"),
        _word(value, "thread-id"),
        _word(value, "cwd") or None,
        "",
        "\n".join(prompts),
        _word(value, "last-assistant-message"),
        _word(value, "turn-id") or None,
        None,
        is_hook=False,
    )


def _word(value: Mapping[str, Any], *names: str) -> str:
    """Return the first of the fields that is a text; a lone surrogate in it could be neither stored nor shown."""
    found = next((text for name in names if isinstance(text := value.get(name), str) and text), "")
    return found.encode("utf-8", "replace").decode()


def answer_json(event: HookEvent, context: str, summary: str = "") -> dict[str, Any]:
    """Return what the client reads: the context for the model, and the line for the person."""
    if event.client == "cursor":
        answer: dict[str, Any] = {"additional_context": context}
        return {"continue": True, **answer} if event.kind is Kind.PROMPT else answer
    value: dict[str, Any] = {"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": context}}
    if summary:
        value["systemMessage"] = summary
    if event.client == "claude-code":
        value["suppressOutput"] = True
    return value


_PRIVATE = re.compile(r"<\s*private\s*>.*?(?:<\s*/\s*private\s*>|\Z)", re.IGNORECASE | re.DOTALL)


class KeptPrompt(Struct, frozen=True):
    """The prompt of the turn that is under way, of a client that sends no transcript."""

    prompt: str = ""
    turn: str | None = None


def keep_prompt(folder: Path, event: HookEvent) -> None:
    """Write the prompt of a session down, without private spans; best effort."""
    path = _path(folder, event)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temp = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(dumps({"prompt": _PRIVATE.sub(" ", event.prompt), "turn": event.turn}))
        temp.replace(path)


def take_prompt(folder: Path, event: HookEvent) -> KeptPrompt:
    """Return the prompt of a session and remove it; an empty one where there is none."""
    path = _path(folder, event)
    try:
        found = msgspec.json.decode(load_bytes(path), type=KeptPrompt)
    except (OSError, ValueError):
        return KeptPrompt()
    if event.answer:  # the event that ends the turn may come without it; the text then follows
        with suppress(OSError):
            path.unlink()
    return found


def _path(folder: Path, event: HookEvent) -> Path:

    name = blake2b(event.session.encode(), digest_size=8).hexdigest()
    return folder / "prompts" / f"{event.client}-{name}.json"

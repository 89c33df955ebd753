"""The system prompt in three tiers, from stable to volatile, and the cache markers of a request."""

from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from typing import Any, Literal

from msgspec import Struct

from wellkept.core.text import resource_text

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
"""Written out, because the prompt must not depend on the locale."""


class PromptInputs(Struct, frozen=True, kw_only=True):
    """The inputs of a system prompt; equal inputs give equal bytes."""

    identity: str
    tools: Sequence[str] = ()
    """Names of the loaded tools; guidance appears only for these."""
    skill_catalogue: str | None = None
    platform_hint: str = ""
    system_message: str | None = None
    project_files: Sequence[tuple[str, str]] = ()
    """Name and text, already scanned and truncated."""
    memory_block: str | None = None
    user_block: str | None = None
    project_block: str | None = None
    """The page of the project; None where none is known."""
    provider_block: str | None = None
    started: date
    conversation_id: str
    model: str


def build_prompt(inputs: PromptInputs) -> str:
    """Return the prompt: stable, then context, then volatile, joined by blank lines."""
    parts = [*_stable(inputs), *_context(inputs), *_volatile(inputs)]
    return "\n\n".join(part.strip("\n") for part in parts if part and part.strip())


def _stable(inputs: PromptInputs) -> list[str]:
    guides = [
        guidance(name)
        for name, tool in (("memory", "memory"), ("session_search", "session_search"), ("skills", "skill_manage"))
        if tool in inputs.tools
    ]
    return [inputs.identity, *guides, inputs.skill_catalogue or "", inputs.platform_hint]


def _context(inputs: PromptInputs) -> list[str]:
    files_shown = [f"# {name}\n\n{text}" for name, text in inputs.project_files]
    return [inputs.system_message or "", *files_shown]


def _volatile(inputs: PromptInputs) -> list[str]:
    day = inputs.started
    started = f"{_WEEKDAYS[day.weekday()]}, {_MONTHS[day.month - 1]} {day.day}, {day.year}"
    facts = f"Conversation started: {started}\nConversation id: {inputs.conversation_id}\nModel: {inputs.model}"
    pages = [inputs.memory_block or "", inputs.user_block or "", inputs.project_block or ""]
    return [*pages, inputs.provider_block or "", facts]


@cache
def guidance(name: str) -> str:
    """Return one guidance text, byte-stable."""
    return resource_text("wellkept.prompt", "guidance", f"{name}.md").strip("\n")


Ttl = Literal["5m", "1h"]

MAX_MARKERS = 4
"""The API's limit for one request."""
LOOK_BACK_BLOCKS = 20
"""How many blocks before a marker the API looks for an earlier one."""
_UNMARKABLE = {"thinking", "redacted_thinking"}


def apply_cache_markers(
    messages: Sequence[Mapping[str, Any]],
    *,
    ttl: Ttl = "5m",
    native: bool = True,  # noqa: ARG001 - callers of the library pass it; both formats carry the same markers
) -> list[dict[str, Any]]:
    """Return a copy of `messages` with up to four cache markers; nothing else changes.

    Markers go to a leading system message and to the last three other messages whose last part is
    neither empty nor thinking. After a long turn two of the three go to the ends of the turns before the last two
    messages of the person: the newest of them loses its recalled text in the next turn, and an endpoint looks back
    only twenty blocks from a marker. Content is a list of parts; plain text, also that of a tool message, is
    converted to one, because only parts can carry markers.
    """
    marker = {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}
    marked = [dict(message) for message in messages]
    able = [message for message in marked if _can_carry_marker(message)]
    system = [message for message in able if message["role"] == "system"]
    others = [message for message in able if message["role"] != "system"]
    for message in (*system[:1], *_choose(others)):
        message["content"] = _with_marker(message["content"], marker)
    return marked


def _choose(messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the three messages that get a marker besides the system prompt."""
    newest = messages[1 - MAX_MARKERS :]
    asked = [place for place, message in enumerate(messages) if _is_from_person(message)]
    if len(asked) < 2 or asked[-2] == 0:
        return newest
    between = messages[asked[-2] : len(messages) - len(newest) + 1]
    if sum(map(_count_blocks, between)) <= LOOK_BACK_BLOCKS:
        return newest
    return [messages[asked[-2] - 1], messages[asked[-1] - 1], messages[-1]]


def _is_from_person(message: Mapping[str, Any]) -> bool:
    content = message["content"]
    parts = content if isinstance(content, list) else []
    return message["role"] == "user" and not any(part.get("type") == "tool_result" for part in parts)


def _count_blocks(message: Mapping[str, Any]) -> int:
    content = message["content"]
    return (len(content) if isinstance(content, list) else 1) + len(message.get("tool_calls") or ())


def _can_carry_marker(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if not content:
        return False
    if isinstance(content, str):
        return True
    last = content[-1]
    return last.get("type") not in _UNMARKABLE and (last.get("type") != "text" or bool(last["text"]))


def _with_marker(content: Any, marker: Mapping[str, str]) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*(dict(part) for part in parts[:-1]), {**parts[-1], "cache_control": dict(marker)}]

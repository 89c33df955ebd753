"""The system prompt in three tiers, from what never changes to what changes with every session: pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache

from kept.core.text import resource_text

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
"""Written out, because the locale of a process must not move a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptInputs:
    """Everything that a system prompt is made of; equal inputs give equal bytes."""

    identity: str
    tools: Sequence[str] = ()
    """Names of the loaded tools; guidance appears only for these."""
    skill_catalogue: str | None = None
    platform_hint: str = ""
    system_message: str | None = None
    project_files: Sequence[tuple[str, str]] = ()
    """Name and text, scanned and capped before they come here."""
    memory_block: str | None = None
    user_block: str | None = None
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
    return [inputs.memory_block or "", inputs.user_block or "", inputs.provider_block or "", facts]


@cache
def guidance(name: str) -> str:
    """Return one guidance text, byte-stable."""
    return resource_text("kept.prompt", "guidance", f"{name}.md").strip("\n")

"""The marker of a summary message, and how one is written, found and read again."""

import re
from collections.abc import Sequence
from functools import cache

from kept.core.messages import SUMMARY_MARKER, Message, Role, StoredMessage
from kept.core.text import resource_text

MARKER = SUMMARY_MARKER
BY_RULE = "(Written by rule, without a model: extracts, not conclusions.)"
_BODY = re.compile(r"^## ", re.MULTILINE)


@cache
def prompt(name: str) -> str:
    """Return the text of `prompts/<name>.md`, without its last newline."""
    return resource_text("kept.context", "prompts", f"{name}.md").rstrip("\n")


def summary_text(body: str, *, covered: Sequence[StoredMessage], by_rule: bool = False) -> str:
    """Return the text of the message that stands for `covered`."""
    lines = [MARKER, prompt("preamble")]
    ids = [row.id for row in covered if not is_summary(row.message)]
    if ids:
        lines.append(f"Newly summarised: {len(ids)} messages, #{min(ids)} to #{max(ids)}.")
    if by_rule:
        lines.append(BY_RULE)
    return "\n".join(lines) + f"\n\n{body}"


def is_summary(message: Message) -> bool:
    """Whether `message` is the summary of an earlier compaction."""
    return message.role in {Role.USER, Role.ASSISTANT} and message.text.startswith(MARKER)


def body_of(message: Message) -> str:
    """Return a summary without its marker and preamble."""
    found = _BODY.search(message.text)
    return message.text[found.start() :] if found else message.text.removeprefix(MARKER).strip()


def with_note(system_prompt: str) -> str:
    """Return the system prompt with the compaction note at its end, exactly once."""
    note = prompt("note")
    return system_prompt if note in system_prompt else f"{system_prompt}\n\n{note}"

"""The system prompt: what stands where, and that equal inputs give equal bytes."""

from datetime import date

import pytest
from msgspec.structs import replace

from wellkept.agent.system_prompt import PromptInputs, build_prompt, guidance

WHOLE = PromptInputs(
    identity="You are a test.",
    tools=("memory", "session_search", "skill_manage"),
    skill_catalogue="## Skills\n- deploy: Ships it",
    platform_hint="Plain text only.",
    system_message="Answer in Latin.",
    project_files=(("AGENTS.md", "Use make."),),
    memory_block="MEMORY: likes tea",
    user_block="USER: is Ada",
    provider_block="graph is connected.",
    started=date(2026, 11, 16),
    conversation_id="20261116_060000_abcdef",
    model="openai/gpt-5",
)


def test_what_never_changes_comes_first():
    """Stable, then context, then volatile, a blank line between the parts."""
    expected = [
        "You are a test.",
        guidance("memory"),
        guidance("session_search"),
        guidance("skills"),
        "## Skills\n- deploy: Ships it",
        "Plain text only.",
        "Answer in Latin.",
        "# AGENTS.md\n\nUse make.",
        "MEMORY: likes tea",
        "USER: is Ada",
        "graph is connected.",
        "Conversation started: Monday, November 16, 2026\nConversation id: 20261116_060000_abcdef\nModel: openai/gpt-5",
    ]

    assert build_prompt(WHOLE) == "\n\n".join(expected)


@pytest.mark.parametrize(
    ("tool", "text"), [("memory", "memory"), ("session_search", "session_search"), ("skill_manage", "skills")]
)
def test_guidance_is_given_for_the_tools_that_are_loaded(tool, text):
    """A model is not told of a tool that it does not have."""
    without = tuple(name for name in WHOLE.tools if name != tool)

    assert guidance(text) in build_prompt(WHOLE)
    assert guidance(text) not in build_prompt(replace(WHOLE, tools=without))


def test_parts_that_are_absent_leave_no_gap():
    """The smallest prompt is the identity and the facts of the conversation."""
    small = PromptInputs(identity="You are a test.\n", started=date(2026, 1, 4), conversation_id="c", model="m")

    assert build_prompt(small) == (
        "You are a test.\n\nConversation started: Sunday, January 4, 2026\nConversation id: c\nModel: m"
    )

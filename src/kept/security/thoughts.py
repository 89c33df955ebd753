"""A model's thinking as others than its own endpoint may see it."""

import json

from kept.security.scrub import scrubbed


def shown_thinking(reasoning: str | None) -> str | None:
    """Return thinking without what it quotes of recalled memory, None when nothing is left.

    Signed blocks stay as they are while they quote nothing. Where they do, only their text is given:
    a signed block that was changed is worth nothing, and the exact one is for its endpoint alone.
    """
    if reasoning is None:
        return None
    text = _text_of_blocks(reasoning)
    clean = scrubbed(text)
    return reasoning if clean == text else clean.strip() or None


def _text_of_blocks(reasoning: str) -> str:
    """Return the words of signed blocks in one piece, or the text itself; escapes of JSON would hide a tag."""
    if not reasoning.startswith("["):
        return reasoning
    try:
        blocks = json.loads(reasoning)
    except ValueError:
        return reasoning
    return "".join(str(block.get("thinking", "")) for block in blocks if isinstance(block, dict))

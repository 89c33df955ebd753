"""Where a provider's prompt cache may begin: the system prompt and the last three messages."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Ttl = Literal["5m", "1h"]

MOST_MARKERS = 4
"""What the API allows in one request."""
_UNMARKABLE = {"thinking", "redacted_thinking"}


def apply_cache_markers(
    messages: Sequence[Mapping[str, Any]], *, ttl: Ttl = "5m", native: bool = True
) -> list[dict[str, Any]]:
    """Return a copy of `messages` with up to four markers; nothing else differs from the input.

    Marked are a leading system message and the last three others able to carry a marker: those
    whose last part is neither empty nor thinking. Tool messages carry one natively only. Content
    is expected as a list of parts; text becomes one, so that it can be marked at all.
    """
    marker = {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}
    marked = [dict(message) for message in messages]
    able = [message for message in marked if _able(message, native)]
    system = [message for message in able if message["role"] == "system"]
    others = [message for message in able if message["role"] != "system"]
    for message in (*system[:1], *others[1 - MOST_MARKERS :]):
        message["content"] = _with_marker(message["content"], marker)
    return marked


def _able(message: Mapping[str, Any], native: bool) -> bool:
    content = message.get("content")
    if not content or (message["role"] == "tool" and not native):
        return False
    if isinstance(content, str):
        return True
    last = content[-1]
    return last.get("type") not in _UNMARKABLE and (last.get("type") != "text" or bool(last["text"]))


def _with_marker(content: Any, marker: Mapping[str, str]) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*(dict(part) for part in parts[:-1]), {**parts[-1], "cache_control": dict(marker)}]

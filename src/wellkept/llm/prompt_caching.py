"""Prompt caching: which endpoints get cache markers, and which messages of a request carry them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from wellkept.llm.endpoints import VENDORS, Endpoint
from wellkept.llm.settings import PromptCachingSettings

_KNOWN_HOSTS = {"api.anthropic.com": "Anthropic", "openrouter.ai": "OpenRouter"}


class Caching(Struct, frozen=True):
    """Whether cache markers are sent to one model at one endpoint."""

    on: bool
    is_claude: bool
    via: str
    ttl: Literal["5m", "1h"]

    @property
    def status_line(self) -> str:
        """Return the line for `status` output."""
        if self.on:
            who = "Claude" if self.is_claude else "model"
            return f"Prompt caching: ENABLED ({who} via {self.via}, {self.ttl} TTL)"
        return "Prompt caching: off (no cache markers are sent; the endpoint may cache by itself)"


def caching_for(endpoint: Endpoint, model: str, *, settings: PromptCachingSettings, configured: bool) -> Caching:
    """Decide whether to send cache markers; `configured` means that the user set the address of the endpoint.

    `auto` sends them to Claude models at Anthropic and OpenRouter, and to endpoints that speak the messages API and
    are configured or on this machine.
    """
    is_claude = "claude" in model.lower()
    via = _KNOWN_HOSTS.get(endpoint.host) or ("OpenRouter" if endpoint.provider == "openrouter" else endpoint.host)
    native = VENDORS[endpoint.provider].api == "anthropic"
    understood = endpoint.host in _KNOWN_HOSTS or endpoint.provider == "openrouter"
    if native and (endpoint.is_loopback or configured):
        understood = True
    on = is_claude and understood if settings.enabled == "auto" else settings.enabled
    return Caching(on, is_claude, via, settings.cache_ttl)


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
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        message["content"] = [*(dict(part) for part in parts[:-1]), {**parts[-1], "cache_control": dict(marker)}]
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

"""Parameters that an endpoint refuses: a request is sent again without them, or under the name that it takes."""

import re
from collections.abc import Mapping
from typing import Any

OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""What the same limit is called at newer models and at older servers."""
OPTIONAL = frozenset({*OTHER_NAME, "temperature", "reasoning_effort", "prompt_cache_key", "stream_options"})
"""What a chat goes on without; all else that is refused is an error."""

_REFUSES = re.compile(
    r"unsupported|not support|unrecognized|unknown|unexpected|not permitted|not allowed|deprecated", re.IGNORECASE
)
_NAMES = re.compile(r"\b(?:" + "|".join(sorted(OPTIONAL)) + r")\b")


def refused_parameter(body: object, sent: Mapping[str, Any]) -> str | None:
    """Return which optional parameter of `sent` the error `body` of a 400 is about, None when it is about another."""
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(inner, Mapping):
        return None
    message = str(inner.get("message") or "")
    if not _REFUSES.search(f"{inner.get('code')} {message}"):
        return None
    named = [str(inner.get("param")), *_NAMES.findall(message)]
    return next((name for name in named if name in OPTIONAL and name in sent), None)


def without(body: dict[str, Any], refused: frozenset[str]) -> dict[str, Any]:
    """Return the request as the endpoint takes it: a limit under its other name, the rest left out."""
    made: dict[str, Any] = {}
    for name, value in body.items():
        if name not in refused:
            made[name] = value
        elif name in OTHER_NAME and OTHER_NAME[name] not in refused:
            made[OTHER_NAME[name]] = value
    return made

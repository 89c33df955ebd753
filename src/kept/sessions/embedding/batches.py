"""Many texts embedded in batches: patiently with a busy model, one by one where it refuses a batch."""

import math
import time
from collections.abc import Sequence

from kept.core.errors import ContextOverflow, ModelBusy, ModelError, ModelRefused
from kept.core.ports import Embeds

RETRIES = 4
LONGEST_WAIT_SECONDS = 60.0


def embedded(model: Embeds, texts: Sequence[str], *, size: int) -> list[list[float]]:
    """Return one vector per text; a text that the model refuses while it takes others gets an empty one."""
    return [one for start in range(0, len(texts), size) for one in _batch(model, texts[start : start + size])]


def _batch(model: Embeds, texts: Sequence[str]) -> list[list[float]]:
    try:
        return _patiently(model, texts)
    except (ModelRefused, ContextOverflow):
        if len(texts) == 1:
            raise
    singles: list[list[float]] = []
    last: ModelError | None = None
    for text in texts:
        try:
            singles += _patiently(model, [text])
        except (ModelRefused, ContextOverflow) as error:
            last = error
            singles.append([])
    if last is not None and not any(singles):
        raise last  # it takes nothing at all: the key or the name is wrong, not the texts
    return singles


def _patiently(model: Embeds, texts: Sequence[str]) -> list[list[float]]:
    for attempt in range(RETRIES + 1):
        try:
            return model.embed(texts)
        except ModelBusy as error:
            asked = error.retry_after_seconds
            wait = 0.5 * 2.0**attempt if asked is None else asked
            if attempt == RETRIES or not math.isfinite(wait) or wait > LONGEST_WAIT_SECONDS:
                raise
            time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")

"""What of a message gets a vector: its sentences, because one sentence answers a question and the rest hides it."""

import re

MOST = 12
"""Passages of one message; the sentences of a longer one are put together evenly."""
CHARACTERS = 4_000
_SHORT = 12
"""A passage of fewer characters says nothing by itself."""
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


def passages(text: str) -> list[str]:
    """Return the passages of a text, at least one unless it is blank."""
    whole = text[:CHARACTERS].strip()
    parts = [part.strip() for part in _END.split(whole)]
    kept = [part for part in parts if len(part) > _SHORT]
    if not kept:
        return [whole] if whole else []
    return kept if len(kept) <= MOST else _joined(kept)


def _joined(parts: list[str]) -> list[str]:
    """Return at most `MOST` runs of neighbours, of about the same length."""
    total = sum(map(len, parts))
    runs: list[str] = []
    run: list[str] = []
    done = 0
    for part in parts:
        run.append(part)
        done += len(part)
        if done * MOST >= total * (len(runs) + 1):
            runs.append(" ".join(run))
            run = []
    if run:
        runs.append(" ".join(run))
    return runs

"""Recalled texts of several providers as one: under one budget, without duplicates."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

_LIST_MARK = re.compile(r"^(?:[\s\-*•#>]+|\d{1,3}[.)]\s+)+")


def merged(texts: Sequence[str], *, max_chars: int) -> str:
    """Return the lines of `texts` within `max_chars`.

    Each text keeps its order; when the budget does not hold all of them, they get their lines in
    turn, so that none of them uses it up alone.
    """
    unique = _without_duplicates(texts)
    chosen: list[list[str]] = [[] for _ in unique]
    left = max_chars
    for place, line in _in_turn(unique):
        cost = len(line) + 1
        if cost > left:
            if not any(any(lines) for lines in chosen):
                chosen[place].append(line[: max(0, left)])  # thin context is better than none
            break
        chosen[place].append(line)
        left -= cost
    return "\n".join(text for text in ("\n".join(lines).strip("\n") for lines in chosen) if text.strip())


def _without_duplicates(texts: Sequence[str]) -> list[list[str]]:
    seen: set[str] = set()
    result = []
    for text in texts:
        lines = []
        for line in text.splitlines():
            key = " ".join(_LIST_MARK.sub("", line).casefold().split()).rstrip(".!;,")
            if not key or key not in seen:
                lines.append(line.rstrip())
            if key:
                seen.add(key)
        result.append(lines)
    return result


def _in_turn(texts: Sequence[Sequence[str]]) -> Iterator[tuple[int, str]]:
    for row in zip_longest(*texts):
        yield from ((place, line) for place, line in enumerate(row) if line is not None)

"""Snippets: the part of a text that shows best why it was found."""

import re
from collections.abc import Sequence

ELLIPSIS = "…"
_LEAST_STEM = 4
_LOOKED_AT = 1_000_000


def pattern(terms: Sequence[str]) -> re.Pattern[str] | None:
    """Return what marks `terms` in a text, endings aside; None when there is nothing to mark."""
    stems = sorted({_stem(term) for term in terms if term.strip()}, key=len, reverse=True)
    if not stems:
        return None
    either = (rf"(?<!\w){re.escape(stem)}\w*" if stem.isascii() else re.escape(stem) for stem in stems)
    return re.compile("|".join(either), re.IGNORECASE)


def _stem(term: str) -> str:
    # the index compares stems: a hit for `deploys` must also be marked in `deployed`
    word = term.strip().strip('"*').casefold()
    return word[: max(_LEAST_STEM, len(word) - 3)] if word.isalpha() and word.isascii() else word


class Marker:
    """Cuts texts to where most terms are close together.

    An answer that must fit is cut repeatedly, each time shorter, so the positions of terms are cached per text.
    """

    def __init__(self, terms: Sequence[str] = ()) -> None:
        self._wanted = pattern(terms)
        self._places: dict[str, list[tuple[int, str]]] = {}

    def around(self, text: str, *, width: int) -> str:
        """Return at most about `width` characters of `text`, from where most of the terms are."""
        if len(text) <= width:
            return text
        start = self._best_start(text, width=width)
        end = min(len(text), start + width)
        start = max(0, end - width)
        piece = text[start:end]
        return f"{ELLIPSIS if start else ''}{piece.strip()}{ELLIPSIS if end < len(text) else ''}"

    def _best_start(self, text: str, *, width: int) -> int:
        hits = self._hits(text)
        best, best_count, left = 0, 0, 0
        for right, (place, _) in enumerate(hits):
            while hits[left][0] < place - width * 3 // 4:
                left += 1
            count = len({word for _, word in hits[left : right + 1][-40:]})
            if count > best_count:
                best, best_count = hits[left][0], count
        return max(0, best - width // 4)

    def _hits(self, text: str) -> list[tuple[int, str]]:
        if self._wanted is None:
            return []
        found = self._places.get(text)
        if found is None:
            matches = self._wanted.finditer(text[:_LOOKED_AT])
            found = [(match.start(), match.group().casefold()[:_LEAST_STEM]) for match in matches]
            self._places[text] = found
        return found


def one_line(text: str, *, width: int) -> str:
    """Return the beginning of `text` on one line."""
    line = " ".join(text[: width * 4].split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}{ELLIPSIS}"

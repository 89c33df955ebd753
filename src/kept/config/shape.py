"""The keys of the configuration, and the one that a misspelt word may mean."""

import difflib
from collections.abc import Iterable, Iterator

from kept.config.settings import Settings
from kept.core.settings import fields, is_section


def known_keys(section: type = Settings, prefix: str = "") -> Iterator[str]:
    """Yield every dotted key that the configuration accepts, in order."""
    for name, annotation in fields(section).items():
        if is_section(annotation):
            yield from known_keys(annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return a hint that names the most similar candidate, or nothing."""
    close = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""

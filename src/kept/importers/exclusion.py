"""Projects that are left alone."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_excluded(folder: str | None, patterns: Sequence[str], home: str) -> bool:
    """Whether a working folder is, or is below, one that the patterns name: a path, a name, or with `*` and `?`."""
    if folder is None or not patterns:
        return False
    places = [PurePath(folder), *PurePath(folder).parents]
    for pattern in patterns:
        wanted = pattern.rstrip("/") or "/"
        if wanted == "~" or wanted.startswith("~/"):
            wanted = f"{home}{wanted[1:]}"
        if "/" in wanted:
            if any(fnmatchcase(str(place), wanted) for place in places):
                return True
        elif any(fnmatchcase(place.name, wanted) for place in places):
            return True
    return False

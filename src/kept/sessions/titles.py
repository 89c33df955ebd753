"""Titles that are unique for one person: a taken one continues as `Title #2`."""

import re

_NUMBERED = re.compile(r"^(?P<base>.*\S) #(?P<number>[1-9]\d{0,8})$", re.DOTALL)
MOST_CHARS = 200


def cleaned(title: str) -> str:
    """Return `title` on one line, without surrounding space, not longer than a title may be."""
    return " ".join(title.split())[:MOST_CHARS].rstrip()


def base_of(title: str) -> str:
    """Return `title` without its ` #N`."""
    match = _NUMBERED.match(title)
    return match["base"] if match else title


def numbered(base: str, number: int) -> str:
    """Return the title of the `number`-th session that is called `base`."""
    return f"{base} #{number}"

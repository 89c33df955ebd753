"""SQL statements, read by name from the file beside the code that runs them."""

import re
from functools import cache

from kept.core.text import resource_text

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


class Statements:
    """The statements of one file; each is an attribute under its name."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        pieces = _NAME.split(text)
        self._by_name = {name: body.strip().rstrip(";") for name, body in zip(pieces[1::2], pieces[2::2], strict=True)}

    def __getattr__(self, name: str) -> str:
        try:
            return self._by_name[name]
        except KeyError:
            raise AttributeError(f"no statement {name!r} in {self._source}") from None


@cache
def statements(package: str, file: str) -> Statements:
    """Return the statements of `file` in `package`, each begun by a line `-- name: NAME`."""
    return Statements(f"{package}/{file}", resource_text(package, file))

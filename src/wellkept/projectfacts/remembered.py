"""What a thorough check found in the history, remembered for the start of a session: digests and commits, no text."""

import json
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from wellkept.core.ids import blake2b
from wellkept.core.text import dumps, expression

_ID: Final = expression(r"[0-9a-f]{40}")


class Remembered(Struct, frozen=True):
    """The steps of the history that answered a question, by the digest of the question."""

    head: str = ""
    """The commit that was checked out."""
    steps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The commit before something left and the one after it, the commit of a moment, or none."""

    def dump(self) -> bytes:
        """Return the form that is stored."""
        return dumps({"head": self.head, "steps": {key: list(ids) for key, ids in self.steps.items()}}).encode()


def load_remembered(data: bytes | None) -> Remembered:
    """Return what was stored; nothing if it is damaged."""
    try:
        value = json.loads(data or b"{}")
        steps = {str(key): tuple(ids) for key, ids in value["steps"].items()}
        if all(_ID.fullmatch(name) for ids in steps.values() for name in ids) and _ID.fullmatch(value["head"]):
            return Remembered(value["head"], steps)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return Remembered()


def digest_question(*parts: object) -> str:
    """Return the key of a question."""
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()

"""Damaged rows: the checksum that detects a damaged message, and what can still be read of any row."""

import json
import marshal
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeGuard
from zlib import crc32

from wellkept.core.digests import checksum as checksum_of
from wellkept.core.messages import ImagePart, Origin, Part, Role, State, TextPart

Row: TypeAlias = tuple[Any, ...]

COVERED = 15
"""How many columns of a row the checksum always covers: the id and everything up to `interrupted`."""
_TEXT_OR_NONE = (5, 6, 7, 8, 9, 10, 12, 13)
_SESSION, _ROLE, _CONTENT, _TIME, _ORIGIN, _CALLS, _CALL, _REASONING, PARTS, _TOKENS, _SENT = (
    1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12,
)  # fmt: skip
_INTERRUPTED, _STATE, _SOURCE = 14, 15, 16


def checksum(values: Row) -> int:
    """Return the checksum of a row's id and columns; the state, which changes often, is not covered.

    A source is covered where there is one, so that rows from before there were sources keep their checksums.
    """
    source = values[_SOURCE]
    return checksum_of(values[:COVERED] if source is None else (*values[:COVERED], source))


def is_damaged(values: Row) -> bool:
    """Whether a row (id, columns of MessageRow, checksum) is not as it was written.

    A row without a checksum, which another program wrote, is damaged if it cannot be parsed.
    """
    if values[-1] is None:
        return not _is_well_formed(values)
    source = values[_SOURCE]
    covered = values[:COVERED] if source is None else (*values[:COVERED], source)
    try:
        number = crc32(marshal.dumps(covered, 2))  # as `checksum_of` does, without its call: an answer reads dozens
    except ValueError:
        number = checksum_of(covered)
    return values[-1] != number or values[_STATE] not in _STATES


def _is_well_formed(values: Row) -> bool:
    return (
        type(values[_CONTENT]) is str
        and type(values[_SESSION]) is str
        and type(values[_ROLE]) is str
        and isinstance(values[_TIME], float | int)
        and all(values[place] is None or type(values[place]) is str for place in _TEXT_OR_NONE)
        and values[_ORIGIN] in _ORIGINS
        and values[_STATE] in _STATES
        and (not values[_CALLS] or are_calls(parse(values[_CALLS])))
        and (values[PARTS] is None or is_shape(parse(values[PARTS])))
        and (values[_SOURCE] is None or isinstance(values[_SOURCE], int))
    )


_STATES = frozenset(state.value for state in State)
_ORIGINS = frozenset(origin.value for origin in Origin) | {None}
_ROLES = frozenset(role.value for role in Role)


def readable(values: Row) -> Row:
    """Return a damaged row with every column in its type, as far as it can be read; without the sent text."""
    row = [text_or_none(value) if place in _TEXT_OR_NONE else value for place, value in enumerate(values)]
    row[_SESSION] = text_of(values[_SESSION])
    row[_CONTENT] = text_of(values[_CONTENT])
    if row[_CALLS] and not are_calls(parse(row[_CALLS])):
        row[_CONTENT] = f"{row[_CONTENT]}\n{row[_CALLS]}".lstrip()
        row[_CALLS] = None
    if row[PARTS] is not None and not is_shape(parse(row[PARTS])):
        row[PARTS] = None
    if str(row[_REASONING]).startswith("["):
        row[_REASONING] = None  # an endpoint refuses signed blocks that were changed
    row[_ROLE] = values[_ROLE] if values[_ROLE] in _ROLES else _guess_role(row)
    row[_TIME] = number_of(values[_TIME])
    row[_ORIGIN] = row[_ORIGIN] if row[_ORIGIN] in _ORIGINS else None
    row[_TOKENS] = values[_TOKENS] if isinstance(values[_TOKENS], int) else None
    row[_SENT] = None
    row[_INTERRUPTED] = int(values[_INTERRUPTED] == 1)
    row[_STATE] = values[_STATE] if values[_STATE] in _STATES else State.ACTIVE.value
    # any number that no source has: what is damaged is not trusted
    row[_SOURCE] = values[_SOURCE] if values[_SOURCE] is None or isinstance(values[_SOURCE], int) else -1
    return tuple(row)


def _guess_role(row: list[Any]) -> str:
    if row[_CALLS]:
        return Role.ASSISTANT.value
    return (Role.TOOL if row[_CALL] else Role.USER).value


def text_of(value: object) -> str:
    """Return a column that should hold text, as far as it can be read."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "" if value is None else str(value)


def text_or_none(value: object) -> str | None:
    """Return a column that should hold text or nothing."""
    return value if value is None or type(value) is str else text_of(value)


def number_of(value: object) -> float:
    """Return a column that should hold a number, 0 if it does not."""
    return float(value) if isinstance(value, float | int) else 0.0


def parse(text: object) -> Any:
    """Return the value of a JSON text, None if it is not JSON."""
    try:
        return json.loads(text_of(text))
    except (ValueError, RecursionError):
        return None


def are_calls(value: object) -> TypeGuard[list[Mapping[str, str]]]:
    """Whether this is the stored form of tool calls."""
    return isinstance(value, list) and all(
        isinstance(call, dict) and all(isinstance(call.get(name), str) for name in ("id", "name", "arguments"))
        for call in value
    )


def is_shape(value: object) -> bool:
    """Whether this is the stored form of the parts of a content."""
    return isinstance(value, list) and all(isinstance(piece, dict) and _is_piece(piece) for piece in value)


def _is_piece(piece: Mapping[str, Any]) -> bool:
    match piece:
        case {"type": "image", "media_type": str(), "blob": str()}:
            return True
        case {"type": "string" | "text" as kind, "blobs": list(blobs)}:
            return all(isinstance(one, str) for one in blobs) and (kind == "string" or type(piece.get("chars")) is int)
    return False


def mark(content: str | tuple[Part, ...]) -> str | tuple[Part, ...]:
    """Return a content that says that it is damaged."""
    if isinstance(content, str):
        return f"[damaged: {content}]"
    text = "\n".join(part.text for part in content if isinstance(part, TextPart))
    return (TextPart(f"[damaged: {text}]"), *(part for part in content if isinstance(part, ImagePart)))

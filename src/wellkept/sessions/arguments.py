"""The arguments of `session_search`, validated: a model may send any JSON."""

from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from wellkept.core.clock import from_program
from wellkept.core.errors import Reason, Refused
from wellkept.core.ids import SessionId
from wellkept.core.text import JSON
from wellkept.sessions.records import storable

Detail: TypeAlias = Literal["index", "window", "full"]
Sort: TypeAlias = Literal["newest", "oldest"]

DEFAULT_LIMIT, MOST_LIMIT = 3, 10
DEFAULT_WINDOW, MOST_WINDOW = 5, 20
ROLES = ("user", "assistant", "tool", "system")
_GREATEST_ID = 2**63 - 1


class Asker(Struct, frozen=True):
    """Who searches: `hidden` are the messages that their context shows already."""

    hidden: frozenset[int]


class Asked(Struct, frozen=True):
    """The arguments of one call; absent ones are None or their default."""

    query: str | None = None
    session_id: SessionId | None = None
    around_message_id: int | None = None
    limit: int = DEFAULT_LIMIT
    listed: int = MOST_LIMIT
    """How many conversations of a time are listed: the limit if one was given."""
    window: int = DEFAULT_WINDOW
    sort: Sort | None = None
    detail: Detail = "window"
    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    project: str | None = None
    after: float | None = None
    before: float | None = None
    summarize: bool = False


class _Unreadable(ValueError):
    """An argument cannot be read; `args` are the complaint and the remedy."""


def read(arguments: Mapping[str, JSON], *, now: float) -> Asked | Refused:
    """Return the arguments, or a refusal that names the invalid one and its valid values."""
    try:
        after, before = _time_span(arguments, now=now)
        return Asked(
            query=_text(arguments, "query"),
            session_id=cast("SessionId | None", _text(arguments, "session_id")),
            around_message_id=_number(arguments, "around_message_id"),
            limit=_clamp(arguments, "limit", default=DEFAULT_LIMIT, most=MOST_LIMIT),
            listed=_clamp(arguments, "limit", default=MOST_LIMIT, most=MOST_LIMIT),
            window=_clamp(arguments, "window", default=DEFAULT_WINDOW, most=MOST_WINDOW),
            sort=cast("Sort | None", _one_of(arguments, "sort", ("newest", "oldest"))),
            detail=cast("Detail", _one_of(arguments, "detail", ("index", "window", "full")) or "window"),
            roles=_roles(arguments),
            sources=_words(arguments, "source"),
            project=_text(arguments, "project"),
            after=after,
            before=before,
            summarize=_flag(arguments, "summarize"),
        )
    except _Unreadable as unreadable:
        error, remedy = unreadable.args
        return Refused(Reason.INVALID, error, remedy)


def _shown(value: JSON) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _text(arguments: Mapping[str, JSON], name: str) -> str | None:
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise _Unreadable(f"{name} must be a text, not {_shown(value)}", f"give {name} as one string, or leave it out")
    return storable(value).strip() or None


def _number(arguments: Mapping[str, JSON], name: str) -> int | None:
    value = arguments.get(name)
    if value is None or value == "":
        return None
    number = _whole(value)
    if number is None:
        raise _Unreadable(f"{name} must be a whole number, not {_shown(value)}", f"give {name} as a number")
    return max(-_GREATEST_ID, min(_GREATEST_ID, number))


def _whole(value: JSON) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return value if isinstance(value, int) else int(float(value))
    except (ValueError, OverflowError):
        return None


def _clamp(arguments: Mapping[str, JSON], name: str, *, default: int, most: int) -> int:
    value = _number(arguments, name)
    return default if value is None else max(1, min(most, value))


def _one_of(arguments: Mapping[str, JSON], name: str, accepted: tuple[str, ...]) -> str | None:
    value = _text(arguments, name)
    if value is None:
        return None
    if value.lower() not in accepted:
        raise _Unreadable(f"{name} is {_shown(value)}", f"use one of: {', '.join(accepted)}; or leave it out")
    return value.lower()


def _words(arguments: Mapping[str, JSON], name: str) -> tuple[str, ...]:
    value = arguments.get(name)
    if value is None:
        return ()
    pieces = value.split(",") if isinstance(value, str) else value
    if not isinstance(pieces, (list, tuple)) or not all(isinstance(piece, str) for piece in pieces):
        raise _Unreadable(
            f"{name} must be a text or a list of texts, not {_shown(value)}", f"give {name} as a list or with commas"
        )
    return tuple(dict.fromkeys(storable(str(piece)).strip() for piece in pieces if str(piece).strip()))


def _roles(arguments: Mapping[str, JSON]) -> tuple[str, ...]:
    words = tuple(word.lower() for word in _words(arguments, "role_filter"))
    unknown = [word for word in words if word not in ROLES]
    if unknown:
        raise _Unreadable(f"role_filter has {_shown(unknown[0])}", f"use some of: {', '.join(ROLES)}")
    return words


def _moment(arguments: Mapping[str, JSON], name: str, *, now: float) -> float | None:
    value = arguments.get(name)
    text = _text(arguments, name)
    if text is None:
        return None
    number = from_program(value) if isinstance(value, (int, float)) else None
    from wellkept.languages.dates import parse_moment  # lazy: few searches are given a date

    found = number if number is not None else parse_moment(text, now=now)
    if found is None:
        raise _Unreadable(
            f"{name} is {_shown(text)}, which is not a date that can be read",
            "use 2026-03-01, an ISO moment, or words like: yesterday, last week, in March, 3 days ago",
        )
    return found


def _time_span(arguments: Mapping[str, JSON], *, now: float) -> tuple[float | None, float | None]:
    after, before = (_moment(arguments, name, now=now) for name in ("after", "before"))
    if after is not None and before is not None and after >= before:
        raise _Unreadable("after is not earlier than before", "exchange them, or leave one out")
    return after, before


def _flag(arguments: Mapping[str, JSON], name: str) -> bool:
    value = arguments.get(name)
    if isinstance(value, str):
        return value.strip().lower() in {"true", "yes", "1"}
    return value is True or value == 1

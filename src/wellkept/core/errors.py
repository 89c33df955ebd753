"""Errors and refusals: what failed, and who must act.

KeptError
├── UsageError            the caller can fix it         exit 2  · HTTP 400 · shown as is
│   ├── ConfigError       a settings file is wrong      exit 2  · names file, line, accepted values
│   └── NotFound          nothing has that name or id   exit 2  · HTTP 404
├── NotAllowed            the caller lacks a scope      exit 77 · HTTP 403
├── StorageError          disk or database refused      exit 74 · HTTP 503 · retry later
│   ├── Busy              locked by another process     exit 75 · HTTP 503 · retry soon
│   ├── Unreadable        exists but cannot be read     exit 74 · nothing is overwritten
│   │   └── DamagedLog    SQLite would lose a part of it  exit 74 · the rows in it can be salvaged
│   ├── ForeignDatabase   the file is another program's exit 74 · never written
│   └── NewerDatabase     made by a newer kept          exit 74 · never touched
├── ModelError            an LLM endpoint failed        exit 69 · HTTP 502
│   ├── ModelRefused      4xx: key, name or request     exit 69 · never retried
│   ├── ModelBusy         429, 5xx, 529, time-outs      exit 69 · retried, then the next model
│   └── ContextOverflow   handled by compaction         exit 69 · shown only when that cannot help
├── ProviderError         an external memory failed     exit 69 · counted, never ends a turn
└── GivenUp               the caller stopped waiting    exit 130 · nothing was changed

A refusal that the caller is expected to handle is a value, not an error: `Refused`.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Self

from msgspec import Struct, field

from wellkept.core.text import JSON

REMEDY = "remedy"
"""A log record with this attribute is shown to the user as a warning: for modules that have no sink of events."""


class KeptError(Exception):
    """Something failed; `message` says what, `remedy` what to do next."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message

    def after_start(self, what: str) -> Self:
        """Return the same error of an operation that has begun, and that the next command completes."""
        remedy = f"{self.remedy}; {what} has begun, and the next command completes it"
        return type(self)(self.message, remedy.removeprefix("; "))


class UsageError(KeptError):
    """The request is invalid; the caller can fix it."""

    exit_code = 2
    http_status = 400


class ConfigError(UsageError):
    """A settings file or variable has an invalid value."""


class NotFound(UsageError):
    """There is nothing with the given name or id."""

    http_status = 404


class NotAllowed(KeptError):
    """The caller may not do this, whatever the arguments."""

    exit_code = 77
    http_status = 403

    def as_refused(self) -> "Refused":
        """Return it as a value, for a caller that goes on without it."""
        return Refused(Reason.NOT_ALLOWED, f"{self.message};", self.remedy)


class StorageError(KeptError):
    """The disk or the database failed."""

    exit_code = 74
    http_status = 503


class Busy(StorageError):
    """Another process held a lock for longer than the timeout."""

    exit_code = 75


class Unreadable(StorageError):
    """The file exists but cannot be read or decoded; it is left unchanged."""


class DamagedLog(Unreadable):
    """A write-ahead log holds more than SQLite can read of it; nothing was changed."""


class ForeignDatabase(StorageError):
    """The database file belongs to another program."""


class NewerDatabase(StorageError):
    """The database was written by a newer version of kept."""


class ModelError(KeptError):
    """A model endpoint failed."""

    exit_code = 69
    http_status = 502


class ModelRefused(ModelError):
    """The endpoint rejects this request; a retry would not help."""


class ModelBusy(ModelError):
    """The endpoint is overloaded, unreachable or too slow; a retry may help."""

    def __init__(self, message: str, remedy: str = "", *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, remedy)
        self.retry_after_seconds = retry_after_seconds


class ContextOverflow(ModelError):
    """The request is larger than the model's context window."""


class GivenUp(KeptError):
    """The caller stopped waiting."""

    exit_code = 130
    http_status = 503


class ProviderError(KeptError):
    """An external memory failed; the turn continues without it."""

    exit_code = 69
    http_status = 502


class Reason(StrEnum):
    """Why something was refused; the values are stable and part of the JSON output."""

    INVALID = "invalid"
    EMPTY = "empty"
    DELIMITER = "delimiter"
    OVER_BUDGET = "over_budget"
    NO_MATCH = "no_match"
    AMBIGUOUS = "ambiguous"
    BLOCKED = "blocked"
    HELD = "held"
    STAGED = "staged"
    DRIFT = "drift"
    DISABLED = "disabled"
    BATCH = "batch"
    MOVED_ON = "moved_on"
    NOT_ALLOWED = "not_allowed"
    PRESENT = "present"
    UNAVAILABLE = "unavailable"


class Refused(Struct, frozen=True):
    """An expected refusal: `error` says why, `remedy` is an instruction, `detail` has data to follow it."""

    reason: Reason
    error: str
    remedy: str = ""
    detail: Mapping[str, JSON] = field(default_factory=lambda: MappingProxyType({}))

    def as_json(self) -> dict[str, JSON]:
        """Return the refusal as tools and commands print it."""
        return {
            "success": False,
            "error": self.error,
            "reason": self.reason.value,
            "remedy": self.remedy,
            **self.detail,
        }

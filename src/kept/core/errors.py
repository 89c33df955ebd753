"""The one tree of errors: what broke, and who must act.

KeptError
├── UsageError            the caller can fix it         exit 2  · HTTP 400 · shown as is
│   ├── ConfigError       a settings file is wrong      exit 2  · names file, line, accepted values
│   └── NotFound          nothing has that name or id   exit 2  · HTTP 404
├── NotAllowed            the caller lacks a scope      exit 77 · HTTP 403
├── StorageError          disk or database refused      exit 74 · HTTP 503 · retry later
│   ├── Busy              someone else holds it         exit 75 · HTTP 503 · retry soon
│   ├── Unreadable        bytes are there, not legible  exit 74 · nothing is overwritten
│   ├── ForeignDatabase   the file is another program's exit 74 · never written
│   └── NewerDatabase     made by a newer kept          exit 74 · never touched
├── ModelError            an LLM endpoint failed        exit 69 · HTTP 502
│   ├── ModelRefused      4xx: key, name or request     exit 69 · never retried
│   ├── ModelBusy         429, 5xx, 529, time-outs      exit 69 · retried, then the next model
│   └── ContextOverflow   handled by compaction         exit 69 · shown only when that cannot help
├── ProviderError         an external memory failed     exit 69 · counted, never ends a turn
└── GivenUp               the caller waits no longer    exit 130 · what was under way is left as it was

A refusal that the caller is expected to handle is a value, not an error: `Refused`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from kept.core.text import JSON


class KeptError(Exception):
    """Something broke; `message` says what, `remedy` what to do next."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class UsageError(KeptError):
    """The caller asked for something that cannot be, and can fix it."""

    exit_code = 2
    http_status = 400


class ConfigError(UsageError):
    """A settings file or variable holds a value that cannot be used."""


class NotFound(UsageError):
    """Nothing has the given name or id."""

    http_status = 404


class NotAllowed(KeptError):
    """The caller may not do this, whatever the arguments."""

    exit_code = 77
    http_status = 403


class StorageError(KeptError):
    """The disk or the database refused."""

    exit_code = 74
    http_status = 503


class Busy(StorageError):
    """Another process holds what is needed, and did not let go in time."""

    exit_code = 75


class Unreadable(StorageError):
    """The bytes exist but cannot be read or decoded; they are left as they are."""


class ForeignDatabase(StorageError):
    """The database file belongs to another program."""


class NewerDatabase(StorageError):
    """The database was written by a newer version of kept."""


class ModelError(KeptError):
    """A model endpoint failed."""

    exit_code = 69
    http_status = 502


class ModelRefused(ModelError):
    """The endpoint will not serve this request, however often it is sent."""


class ModelBusy(ModelError):
    """The endpoint is overloaded, out of reach or too slow; trying again may help."""

    def __init__(self, message: str, remedy: str = "", *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, remedy)
        self.retry_after_seconds = retry_after_seconds


class ContextOverflow(ModelError):
    """The request is larger than the model's window."""


class GivenUp(KeptError):
    """Whoever waited for it has stopped waiting."""

    exit_code = 130
    http_status = 503


class ProviderError(KeptError):
    """An external memory failed; the turn goes on without it."""

    exit_code = 69
    http_status = 502


class Reason(StrEnum):
    """Why something was refused; stable words that callers may match on."""

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


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer no: `error` says why, `remedy` is an instruction, `detail` what helps to follow it."""

    reason: Reason
    error: str
    remedy: str = ""
    detail: Mapping[str, JSON] = field(default_factory=lambda: MappingProxyType({}))

    def as_json(self) -> dict[str, JSON]:
        """Return the refusal as a tool or a command answers it."""
        return {
            "success": False,
            "error": self.error,
            "reason": self.reason.value,
            "remedy": self.remedy,
            **self.detail,
        }

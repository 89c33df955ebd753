"""A refusal: an expected no, with the reason and the instruction that leads on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from kept.core.jsontypes import JSON


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

"""Bounds of a setting, written beside its type: `Annotated[int, Between(1, 20)]`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Between:
    """A number from `low` to `high`, both included; None is no bound."""

    low: float | None
    high: float | None = None

    def __str__(self) -> str:
        if self.high is None:
            return f"at least {self.low:g}"
        return f"from {self.low:g} to {self.high:g}" if self.low is not None else f"at most {self.high:g}"

    def holds(self, value: float) -> bool:
        """Whether `value` lies inside."""
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True, slots=True)
class Above:
    """A number greater than `low`."""

    low: float

    def __str__(self) -> str:
        return f"greater than {self.low:g}"

    def holds(self, value: float) -> bool:
        """Whether `value` lies inside."""
        return value > self.low

"""The circuit breaker: leaves a provider alone for a while after it failed several times in a row."""

import threading
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Health:
    """How a provider has been; times are epoch seconds."""

    failures: int = 0
    """Failures since the last success."""
    paused_until: float = 0.0
    last_error: str | None = None
    last_error_at: float | None = None
    last_success_at: float | None = None


class Breaker:
    """Counts failures of one provider; safe to use from several threads.

    After the pause one more failure is enough for the next one; a success ends the count.
    """

    def __init__(self, health: Health, *, limit: int, pause_seconds: float) -> None:
        self._health = health
        self._limit = limit
        self._pause_seconds = pause_seconds
        self._guard = threading.Lock()

    @property
    def health(self) -> Health:
        """Return how the provider is."""
        return self._health

    def is_open(self, now: float) -> bool:
        """Tell whether the provider is to be left alone now."""
        return now < self._health.paused_until

    def succeeded(self, now: float) -> None:
        """Count a success."""
        with self._guard:
            self._health = replace(self._health, failures=0, paused_until=0.0, last_success_at=now)

    def failed(self, now: float, error: str) -> bool:
        """Count a failure; True when it begins a pause."""
        with self._guard:
            failures = self._health.failures + 1
            pauses = failures >= self._limit
            self._health = replace(
                self._health,
                failures=failures,
                paused_until=now + self._pause_seconds if pauses else self._health.paused_until,
                last_error=error,
                last_error_at=now,
            )
            return pauses

"""The circuit breaker."""

from wellkept.providers.audit import Health
from wellkept.providers.guard import Breaker


def breaker():
    return Breaker(Health(), limit=5, pause_seconds=120)


def test_five_failures_in_a_row_begin_a_pause():
    """The fifth failure opens the circuit for 120 seconds."""
    guard = breaker()

    began = [guard.record_failure(1000.0 + number, "down") for number in range(5)]

    assert began == [False, False, False, False, True]
    assert guard.is_open(1004.0 + 119)
    assert not guard.is_open(1004.0 + 120)


def test_a_success_ends_the_count():
    """Failures that are not in a row do not add up."""
    guard = breaker()
    for _ in range(4):
        guard.record_failure(1.0, "down")
    guard.record_success(2.0)

    assert not guard.record_failure(3.0, "down")
    assert guard.health.failures == 1


def test_after_the_pause_one_failure_is_enough():
    """A provider that is still down is left alone again at once."""
    guard = breaker()
    for _ in range(5):
        guard.record_failure(0.0, "down")

    assert guard.record_failure(200.0, "still down")
    assert guard.is_open(300.0)

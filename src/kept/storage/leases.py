"""Leases: work that one process at a time may do, which ends with its time or with the process that holds it."""

import os

from kept.core.ids import random_hex
from kept.storage.files import is_alive


def new_holder() -> str:
    """Return a unique name for a holder, with the machine and the process it runs in."""
    return f"{_machine()}:{os.getpid()}:{random_hex(4)}"


def is_held(holder: str, until: float, *, now: float, seconds: float) -> bool:
    """Whether a stored lease still keeps others away, for leases that last `seconds`.

    It does not when its time is over, when its process was one of this machine and has ended, or when it would last
    much longer than any lease: then a clock was wrong when it was taken, and it could keep everybody away for years.
    A holder that loses its lease in this way notices when it renews it, which it does before every write.
    """
    # twice the time, so that a clock that is set back by some seconds ends no lease
    return now < until <= now + 2 * seconds and not _has_ended(holder)


def _has_ended(holder: str) -> bool:
    machine, _, pid = holder.rpartition(":")[0].rpartition(":")
    return pid.isdigit() and machine == _machine() and not is_alive(int(pid))


def _machine() -> str:
    import socket  # 3 ms of every start, and few commands take a lease

    return socket.gethostname()

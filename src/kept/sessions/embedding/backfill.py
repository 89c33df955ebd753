"""The thread that makes vectors of new messages while nobody waits for them."""

import logging
import threading
from collections.abc import Callable

from kept.core.errors import KeptError

log = logging.getLogger(__name__)
SETTLE_SECONDS = 0.3
"""How long new messages are let be, so that a turn is stored whole before its vectors are made."""
REST_SECONDS = 60.0
CLOSE_SECONDS = 5.0


class Backfill:
    """Runs `step` until it has nothing more to do, whenever it is woken; a failure is tried again later."""

    def __init__(self, step: Callable[[], bool]) -> None:
        self._step = step
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._owed = threading.Event()
        """There are messages that no step has seen yet."""
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Have the work looked at soon; returns at once."""
        self._owed.set()
        self._woken.set()
        if self._thread is None:
            with self._guard:
                if self._thread is None and not self._stopping.is_set():
                    self._thread = threading.Thread(target=self._run, name="kept-vectors", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """Let the newest messages get theirs, for a moment; what is left is done by the next process."""
        self._stopping.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.wait()
            self._stopping.wait(SETTLE_SECONDS)
            self._woken.clear()
            if self._stopping.is_set() and not self._owed.is_set():
                return
            self._owed.clear()
            if not self._worked():
                self._stopping.wait(REST_SECONDS)
                self._woken.set()

    def _worked(self) -> bool:
        """Work until nothing is left, or once when it is time to stop; False when something failed."""
        try:
            while self._step() and not self._stopping.is_set():
                pass
        except KeptError as error:
            log.warning("vectors of new messages wait: %s", error)
            return False
        except Exception:  # background task: the chat must not feel it
            log.warning("vectors of new messages could not be made", exc_info=True)
            return False
        return True

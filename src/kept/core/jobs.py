"""Jobs: calls in daemon threads; one that hangs is left behind and never holds the exit."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class Job(Generic[T]):
    """One call, and what it came to."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done = threading.Event()
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do the work; whatever it raises is kept."""
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for; even SystemExit ends no thread of ours
            self.error = error
        finally:
            self._done.set()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end; False when it did not come in time."""
        return self._done.wait(max(0.0, timeout_seconds))

    def value(self) -> T:
        """Return what a call that has ended returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return cast("T", self.result)


def begun(work: Callable[[], T], *, name: str) -> Job[T]:
    """Start `work` in a thread of its own."""
    job = Job(work)
    threading.Thread(target=job.run, name=name, daemon=True).start()
    return job

"""Calls in daemon threads, and the allocator that threads share."""

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar, cast

_M_ARENA_MAX = -8  # from glibc's malloc.h

T = TypeVar("T")


class Job(Generic[T]):
    """One call and its result or exception."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._followers: list[Callable[[], object]] = []
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run the call and store its result or the exception it raised."""
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - re-raised by `value`; even SystemExit must not end the thread
            self.error = error
        finally:
            with self._lock:
                self._done.set()
            for follow in self._followers:
                follow()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the call to end; return False on timeout."""
        return self._done.wait(max(0.0, timeout_seconds))

    def when_done(self, follow: Callable[[], object]) -> None:
        """Call `follow` after the call, in its thread; at once if it has ended."""
        with self._lock:
            if not self._done.is_set():
                self._followers.append(follow)
                return
        follow()

    def value(self) -> T:
        """Return the result of a finished call, or raise its exception."""
        if self.error is not None:
            raise self.error
        return cast("T", self.result)


def start_thread(work: Callable[[], object], *, name: str) -> threading.Thread:
    """Start a daemon thread that inherits the context variables of its creator, so that it logs to the same app."""
    thread = threading.Thread(target=copy_context().run, args=(work,), name=name, daemon=True)
    thread.start()
    return thread


def start_job(work: Callable[[], T], *, name: str) -> Job[T]:
    """Start `work` in a daemon thread, so that a call that hangs never delays the exit of the process."""
    job = Job(work)
    start_thread(job.run, name=name)
    return job


def share_one_heap() -> bool:
    """Let all threads allocate from one malloc arena; return whether the C library supports it.

    The work of a turn moves between threads, and glibc gives each thread its own arena. Memory freed in one arena is
    not reused by another, so a chat that runs for days grows without holding anything. The threads take turns, so
    sharing one arena costs no speed.
    """
    import ctypes  # lazy: 5 ms that short commands do not need

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # Windows, macOS, musl
        return False
    return bool(mallopt(_M_ARENA_MAX, 1))

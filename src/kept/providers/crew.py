"""The crew: daemon threads that run the calls of providers and are used again."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from kept.core.threads import Job


class Crew:
    """Threads that are reused when idle; one is added whenever all of them are busy or hang."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[SimpleQueue[Job[object] | None]] = []
        self._is_closed = False
        self._guard = threading.Lock()

    def submit(self, work: Callable[[], object]) -> Job[object]:
        """Start `work` at once and return the job."""
        job: Job[object] = Job(work)
        with self._guard:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name=self._name, daemon=True).start()
        inbox.put(job)
        return job

    def close(self) -> None:
        """Let the idle threads end, and each busy one after what it does."""
        with self._guard:
            self._is_closed = True
            for inbox in self._idle:
                inbox.put(None)
            self._idle.clear()

    def _serve(self, inbox: "SimpleQueue[Job[object] | None]") -> None:
        while (job := inbox.get()) is not None:
            job.run()
            del job  # an idle thread must not keep the last answer alive
            with self._guard:
                if self._is_closed:
                    return
                self._idle.append(inbox)

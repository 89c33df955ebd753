"""How hooks are called: with the keyword arguments that their signatures accept, in reusable daemon threads."""

import inspect
import threading
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any

from kept.core.threads import Job, start_thread
from kept.providers.base import MemoryProvider

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_hook(provider: object, hook: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Call `hook` of `provider` with those of `keywords` that its signature accepts."""
    method = getattr(provider, hook)
    if hook == "on_memory_write":
        return _call_memory_write(method, args, keywords)
    return method(*args, **accepted_keywords(method, keywords, positional=len(args)))


def overrides(provider: object, hook: str) -> bool:
    """Whether `provider` overrides `hook`, which does nothing in the base class."""
    own = getattr(type(provider), hook, None)
    inherited = getattr(MemoryProvider, hook, None)
    return hook in getattr(provider, "__dict__", {}) or (own is not None and own is not inherited)


def accepted_keywords(hook: Callable[..., Any], keywords: Mapping[str, Any], *, positional: int = 0) -> dict[str, Any]:
    """Return those of `keywords` that `hook` names, or all of them if it has `**`.

    Parameters that the first `positional` arguments fill are left out.
    """
    parameters = _parameters(hook)
    if parameters is None:
        return dict(keywords)
    filled = set([name for name, p in parameters.items() if p.kind in _POSITIONAL][:positional])
    free = {name: value for name, value in keywords.items() if name not in filled}
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return free
    named = {name for name, p in parameters.items() if p.kind is not inspect.Parameter.POSITIONAL_ONLY}
    return {name: value for name, value in free.items() if name in named}


def _call_memory_write(method: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Pass the metadata by name, as the fourth argument, or not at all: older plugins take three arguments."""
    fitting = accepted_keywords(method, keywords, positional=len(args))
    if "metadata" in fitting or not _takes_positional(method, len(args) + 1):
        return method(*args, **fitting)
    return method(*args, keywords["metadata"], **fitting)


def _takes_positional(hook: Callable[..., Any], count: int) -> bool:
    parameters = _parameters(hook)
    if parameters is None or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values()):
        return True
    return sum(p.kind in _POSITIONAL for p in parameters.values()) >= count


def _parameters(hook: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(hook).parameters
    except (TypeError, ValueError):  # implemented in C: the signature is unknown
        return None


class WorkerThreads:
    """Daemon threads that run provider calls.

    An idle thread is reused; a new one is started whenever all are busy or hang. A pool with a fixed size
    would be blocked by hanging providers, and `concurrent.futures` would delay the exit of the process.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[SimpleQueue[Job[object] | None]] = []
        self._is_closed = False
        self._lock = threading.Lock()

    def submit(self, work: Callable[[], object]) -> Job[object]:
        """Start `work` at once and return the job."""
        job: Job[object] = Job(work)
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            start_thread(partial(self._serve, inbox), name=self._name)
        inbox.put(job)
        return job

    def close(self) -> None:
        """End the idle threads now, and each busy one after its current job."""
        with self._lock:
            self._is_closed = True
            for inbox in self._idle:
                inbox.put(None)
            self._idle.clear()

    def _serve(self, inbox: "SimpleQueue[Job[object] | None]") -> None:
        while (job := inbox.get()) is not None:
            job.run()
            del job  # an idle thread must not keep the last answer alive
            with self._lock:
                if self._is_closed:
                    return
                self._idle.append(inbox)

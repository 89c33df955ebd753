"""How a hook is called: with the keyword arguments that its signature takes, and no others."""

import inspect
import threading
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any

from kept.core.threads import Job, start_thread
from kept.providers.base import MemoryProvider

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def accepted_keywords(hook: Callable[..., Any], keywords: Mapping[str, Any], *, positional: int = 0) -> dict[str, Any]:
    """Return those of `keywords` that `hook` names, or all of them when it takes any.

    What the first `positional` arguments fill already is left out.
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


def takes_positional(hook: Callable[..., Any], count: int) -> bool:
    """Tell whether `hook` takes `count` positional arguments."""
    parameters = _parameters(hook)
    if parameters is None or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values()):
        return True
    return sum(p.kind in _POSITIONAL for p in parameters.values()) >= count


def overrides(provider: object, hook: str) -> bool:
    """Tell whether `provider` has a `hook` of its own, not just the base class's that does nothing."""
    own = getattr(type(provider), hook, None)
    inherited = getattr(MemoryProvider, hook, None)
    return hook in getattr(provider, "__dict__", {}) or (own is not None and own is not inherited)


def call_hook(provider: object, hook: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Call `hook` of `provider` in the way that its signature asks for."""
    method = getattr(provider, hook)
    if hook == "on_memory_write":
        return _call_memory_write(method, args, keywords)
    return method(*args, **accepted_keywords(method, keywords, positional=len(args)))


def _call_memory_write(method: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Plugins written before there was metadata take three arguments; they are still served."""
    fitting = accepted_keywords(method, keywords, positional=len(args))
    if "metadata" in fitting or not takes_positional(method, len(args) + 1):
        return method(*args, **fitting)
    return method(*args, keywords["metadata"], **fitting)


def _parameters(hook: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(hook).parameters
    except (TypeError, ValueError):  # written in C: nothing can be known
        return None


class WorkerThreads:
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
            start_thread(partial(self._serve, inbox), name=self._name)
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

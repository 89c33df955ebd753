"""How hooks are called: with the keyword arguments that their signatures accept, in reusable daemon threads."""

import inspect
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import PurePath
from queue import SimpleQueue
from typing import Any, Protocol, cast

from msgspec.structs import replace

from wellkept.core.threads import Job, start_thread
from wellkept.providers.base import ForgetRequest, MemoryProvider
from wellkept.security.secrets import redact, redact_json

_IDENTIFIERS = frozenset({
    "session_id", "parent_session_id", "child_session_id", "user_id", "chat_id", "thread_id", "gateway_session_key",
    "idempotency_key", "kept_home", "hermes_home",
})  # fmt: skip
"""Keyword arguments that name something; two users whose ids were redacted could become one."""
_ANSWERS = frozenset({"check_config", "save_config"})
"""Hooks that get what a person answered to the provider's own questions, which includes credentials meant for it."""
_ONLY_REDACTED = re.compile(r"(?:\s*\[redacted:\w+\])+\s*")
HERMES_MARK = "_kept_hermes"
"""The attribute that loading sets on a provider which was written for Hermes."""
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Isolated(Protocol):
    """A provider in another process: hooks are called there, where their signatures are known."""

    def offers(self, hook: str) -> bool:
        """Whether the plugin defines `hook`."""
        ...

    def call_hook(self, hook: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Run `hook` in the process of the plugin."""
        ...

    def listen(self, complaint: Callable[[str], None]) -> None:
        """Call `complaint` with every line that the plugin logs as a warning or an error."""
        ...

    def set_variables(self, values: Mapping[str, str]) -> None:
        """Set environment variables in the process of the plugin."""
        ...

    def run_in_terminal(self, hook: str, *args: Any) -> None:
        """Run `hook` in a process that has this terminal."""
        ...

    def close(self) -> None:
        """End the process."""
        ...


def find_isolated(provider: object) -> Isolated | None:
    """Return the provider if it runs in another process, None if it runs in this one."""
    return cast("Isolated", provider) if "_process" in getattr(provider, "__dict__", {}) else None


def call_hook(provider: object, hook: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Call `hook` of `provider` with those of `keywords` that its signature accepts, and without credentials.

    Every call of a provider passes here, or `IsolatedProvider.call_hook` directly, which removes credentials too.
    """
    isolated = find_isolated(provider)
    if isolated is not None:
        return isolated.call_hook(hook, args, keywords)
    from wellkept.providers.running import plugin_code  # only where a provider is used

    args, keywords = remove_credentials(hook, args, keywords)
    with plugin_code(str(getattr(provider, "name", "provider"))):
        return call_directly(provider, hook, args, keywords)


def remove_credentials(
    hook: str, args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a hook as a provider gets them: each credential in any text is replaced."""
    if hook in _ANSWERS:
        return args, dict(keywords)
    named = {key: value if key in _IDENTIFIERS else _without_credentials(value) for key, value in keywords.items()}
    return tuple(map(_without_credentials, args)), named


def _without_credentials(value: Any) -> Any:
    if isinstance(value, ForgetRequest):
        # a text of which only the mark is left would select whatever held any credential
        texts = (redact(text) for text in value.texts)
        return replace(value, texts=tuple(text for text in texts if not _ONLY_REDACTED.fullmatch(text)))
    return redact_json(value) if isinstance(value, str | Mapping | list | tuple) else value


def listen(provider: object, complaint: Callable[[str], None]) -> None:
    """Call `complaint` with every line that the provider logs as a warning or an error."""
    isolated = find_isolated(provider)
    if isolated is not None:
        isolated.listen(complaint)
        return
    from wellkept.providers.running import listen as listen_here

    listen_here(str(getattr(provider, "name", "provider")), complaint)


def describe_error(error: BaseException) -> str:
    """Return what plugin code raised, here or in its own process, as one line."""
    words = " ".join(str(error).split())
    kind = getattr(error, "kind", type(error).__name__)
    if isinstance(error, SyntaxError):
        words = f"{error.msg} ({PurePath(error.filename or '').name}, line {error.lineno})"
    return f"{kind}: {words}" if kind and words else kind or words


def close_provider(provider: object) -> None:
    """End the process of a provider that has one."""
    isolated = find_isolated(provider)
    if isolated is not None:
        isolated.close()


def call_directly(provider: object, hook: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Call `hook` in this process."""
    method = getattr(provider, hook)
    if hook == "initialize" and getattr(provider, HERMES_MARK, False):
        from wellkept.providers.hermes import adapt_context

        keywords = adapt_context(keywords)
    if hook == "initialize" and _takes_session_by_name(method):
        args, keywords = args[1:], {**keywords, "session_id": args[0]}
    if hook == "on_memory_write":
        fitting = accepted_keywords(method, keywords, positional=len(args))
        if "metadata" in fitting or not _takes_positional(method, len(args) + 1):
            return method(*args, **fitting)
        return method(*args, keywords["metadata"], **fitting)
    return method(*args, **accepted_keywords(method, keywords, positional=len(args)))


def overrides(provider: object, hook: str) -> bool:
    """Whether `provider` overrides `hook`, which does nothing in the base class."""
    isolated = find_isolated(provider)
    if isolated is not None:
        return isolated.offers(hook)
    if hook in getattr(provider, "__dict__", {}):
        return True
    for kind in type(provider).__mro__:
        if hook in vars(kind):
            return not _is_base(kind)
    return False


def _is_base(kind: type) -> bool:
    """Whether a class is the base class of the port, ours or that of an installed Hermes."""
    return kind is MemoryProvider or (kind.__name__, kind.__module__) == ("MemoryProvider", "agent.memory_provider")


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


def _takes_session_by_name(initialize: Callable[..., Any]) -> bool:
    """Whether `initialize` gets the session id by name, as from Hermes, and not as a parameter of another name."""
    parameters = _parameters(initialize)
    if parameters is None:
        return False
    positional = [name for name, p in parameters.items() if p.kind in _POSITIONAL]
    if positional[:1] not in ([], ["session_id"]):
        return False
    kinds = {p.kind for p in parameters.values()}
    own = parameters.get("session_id")
    return own.kind is not inspect.Parameter.POSITIONAL_ONLY if own else inspect.Parameter.VAR_KEYWORD in kinds


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

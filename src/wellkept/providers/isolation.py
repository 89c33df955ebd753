"""A provider in a process of its own: the supervisor that starts, restarts and ends it, and calls over a socket."""

import atexit
import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from wellkept.core.agency import mark_environment
from wellkept.core.errors import ProviderError
from wellkept.core.ids import random_hex
from wellkept.core.regular_files import load_bytes
from wellkept.core.text import JSON
from wellkept.core.threads import start_thread
from wellkept.core.values import asdict
from wellkept.providers.base import CommandAnswer, ForgetRequest, ProviderCommand
from wellkept.providers.hooks import WorkerThreads, describe_error, remove_credentials
from wellkept.providers.loading import IMPORT_ERRORS, Facts, load_error
from wellkept.providers.plugins import Found, manifest_of
from wellkept.providers.running import Complaint, log_output, log_record
from wellkept.security.secrets import redact

log = logging.getLogger(__name__)

MAX_LINE_BYTES: Final = 64_000_000
"""The longest message; a conversation of 4,000,000 characters fits, escaped."""
SEND_SECONDS: Final = 30
"""How long a process that reads nothing may block the sender."""
_CHUNK: Final = 1 << 18
_LOOK_SECONDS: Final = 0.2
"""How often a waiting call looks whether the other process still lives: a fork may hold its socket open."""
_VALUES: Final[dict[str, Any]] = {kind.__name__: kind for kind in (ForgetRequest, CommandAnswer)}
"""Values that cross the boundary besides JSON."""


class PeerError(ProviderError):
    """A call failed in the other process, or the process is gone."""

    def __init__(self, message: str, *, kind: str = "", permanent: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        """The class of what was raised there; empty when the process is gone or silent."""
        self.permanent = permanent


def encode(value: Any) -> Any:
    """Return a value that JSON can carry; raises TypeError for one that it cannot."""
    if isinstance(value, ForgetRequest | CommandAnswer):
        return {"$value": type(value).__name__, "fields": encode(asdict(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): encode(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [encode(inner) for inner in value]
    raise TypeError(f"{type(value).__name__} is not JSON")


def decode(value: Any) -> Any:
    """Return the value that `encode` was given; tuples come back as lists."""
    if isinstance(value, list):
        return [decode(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    kind = _VALUES.get(str(value.get("$value")))
    if kind is None:
        return {key: decode(inner) for key, inner in value.items()}
    fields = {key: decode(inner) for key, inner in value["fields"].items()}
    if kind is ForgetRequest:
        fields |= {key: tuple(inner) for key, inner in fields.items() if isinstance(inner, list)}
    return kind(**fields)


class _Waiting:
    """A call that waits for its answer."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer: Mapping[str, Any] = {}


class Peer:
    """One end of the connection. Calls of the other side run in daemon threads: one that hangs blocks no other."""

    def __init__(self, connection: socket.socket, serve: Callable[[str, Any], Any], *, name: str) -> None:
        limit = struct.pack("ll", SEND_SECONDS, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._connection = connection
        self._serve = serve
        self._name = name
        self._threads = WorkerThreads(name)
        self._sending = threading.Lock()
        self._numbers = count(1)
        self._waiting: dict[int, _Waiting] = {}
        self.ended = threading.Event()
        """Set when the other side closed the connection."""

    def start(self) -> None:
        """Read what arrives in a thread of its own."""
        start_thread(self._read, name=f"{self._name}-reader")

    def notify(self, method: str, params: Any) -> None:
        """Send something that has no answer; nothing happens if the other side is gone."""
        try:
            self._send({"notify": method, "params": encode(params)})
        except (OSError, TypeError):
            self.ended.set()

    def call(self, method: str, params: Any, *, seconds: float, is_alive: Callable[[], bool] = lambda: True) -> Any:
        """Call the other side and return its answer; PeerError if it raises, ends or does not answer in time."""
        number, waiting = next(self._numbers), _Waiting()
        self._waiting[number] = waiting
        try:
            self._send({"call": number, "method": method, "params": encode(params)})
            self._wait(waiting, seconds, is_alive)
        except OSError as error:
            raise PeerError(f"its process cannot be reached: {error}") from error
        finally:
            self._waiting.pop(number, None)
        answer = waiting.answer
        if "raised" in answer:
            kind, message = str(answer["raised"]), str(answer.get("message", ""))
            raise PeerError(message, kind=kind, permanent=answer.get("permanent") is True)
        return decode(answer.get("value"))

    def close(self) -> None:
        """Close the connection for both sides, even if another process holds a copy of the socket."""
        self.ended.set()
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            log.debug("the connection was closed already")
        self._threads.close()

    def _wait(self, waiting: _Waiting, seconds: float, is_alive: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not waiting.done.wait(_LOOK_SECONDS):
            if self.ended.is_set() or not is_alive():
                if waiting.done.wait(_LOOK_SECONDS):  # the answer may have arrived just before the end
                    return
                raise PeerError("its process ended")
            if time.monotonic() > deadline:
                raise PeerError(f"its process did not answer within {seconds:g} s")

    def _send(self, message: Mapping[str, JSON]) -> None:
        line = json.dumps(message, ensure_ascii=True).encode() + b"\n"
        with self._sending:
            self._connection.sendall(line)

    def _read(self) -> None:
        pieces: list[bytes] = []
        try:
            while chunk := self._connection.recv(_CHUNK):
                *ends, rest = chunk.split(b"\n")
                for end in ends:
                    self._receive(b"".join((*pieces, end)))
                    pieces.clear()
                pieces.append(rest)
                if len(pieces) * _CHUNK > MAX_LINE_BYTES and sum(map(len, pieces)) > MAX_LINE_BYTES:
                    log.warning("%s sent more than %d bytes at once", self._name, MAX_LINE_BYTES)
                    break
        except OSError as error:
            log.debug("%s: %s", self._name, error)
        self.ended.set()

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            log.warning("%s sent a line that is not JSON", self._name)
            return
        if not isinstance(message, dict):
            return
        if "call" in message:
            self._threads.submit(partial(self._answer, message))
        elif "notify" in message:
            self._serve(str(message["notify"]), decode(message.get("params")))
        elif (waiting := self._waiting.get(message.get("answer", 0))) is not None:
            waiting.answer = message
            waiting.done.set()

    def _answer(self, message: Mapping[str, Any]) -> None:
        answer: dict[str, Any] = {"answer": message["call"]}
        try:
            answer["value"] = encode(self._serve(str(message["method"]), decode(message.get("params"))))
        except BaseException as error:  # noqa: BLE001 - the caller gets it; even SystemExit must not end this thread
            answer |= {"raised": type(error).__name__, "message": str(error)}
            answer |= {"permanent": getattr(error, "permanent", False) is True}
        try:
            self._send(answer)
        except OSError:
            self.ended.set()


CALL_SECONDS: Final = 300.0
"""After this time without an answer the process is ended; callers have shorter limits of their own."""
STOP_SECONDS: Final = 0.3
"""How long a process that was told to end may take before it is killed."""
MAX_LINES_PER_MINUTE: Final = 300
"""How much of a plugin's output is logged, in case it prints without end."""
_OUTPUT_CHUNK: Final = 65_536
_VARIABLE: Final = "KEPT_PLUGIN_PROCESS"
_KILL_ROUNDS: Final = 5


class _Process(Struct):
    """A running process of the plugin."""

    program: subprocess.Popen[bytes]
    peer: Peer
    output: socket.socket | None
    facts: Mapping[str, Any]
    """What it said about the plugin when it loaded it."""
    mark: str = ""
    """Its entry in the environment, which everything that it starts inherits."""

    def is_alive(self) -> bool:
        """Whether the process has not ended; whatever it forked does not count."""
        return self.program.poll() is None

    def describe_end(self) -> str:
        """Return how the process ended, in words."""
        code = self.program.poll()
        if code is None:
            return "its process does not answer"
        return f"its process was ended by signal {-code}" if code < 0 else f"its process ended with exit code {code}"

    def end(self) -> None:
        """End the process and everything that it started; waits a moment only."""
        self.peer.close()
        try:
            self.program.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            log.info("the process %d of a plugin is killed", self.program.pid)
        for target in (partial(os.killpg, self.program.pid), self.program.send_signal):
            try:
                target(signal.SIGKILL)
            except (OSError, ValueError):  # nothing is left of it
                continue
        _kill_marked(self.mark)
        if self.output is not None:
            try:
                self.output.shutdown(socket.SHUT_RDWR)
            except OSError:
                log.debug("it was closed already")


class IsolatedProvider:
    """The parent's side of a plugin: each attribute that the plugin has as a hook is a call to its process.

    If the process dies, the call that it died in fails, and the next call starts another one and initialises the
    provider in it as before.
    """

    def __init__(self, found: Found, environ: Mapping[str, str], facts: Facts, *, start_seconds: float) -> None:
        self.name = found.name
        self._found = found
        self._environ = environ
        self._surroundings = facts
        self._start_seconds = start_seconds
        self._process: _Process | None = None
        self._starting = threading.Lock()
        self._initialized: tuple[tuple[Any, ...], Mapping[str, Any]] | None = None
        self._complaint: Complaint = lambda _line: None
        self._is_closed = False

    def start(self) -> None:
        """Start the process and load the plugin in it; raises a ProviderError if that fails."""
        with self._starting:
            self._start()

    @property
    def own_name(self) -> str:
        """Return the name that the plugin gives itself."""
        return str(self._facts["name"])

    @property
    def is_hermes(self) -> bool:
        """Whether the plugin was written for Hermes."""
        return bool(self._facts["is_hermes"])

    @property
    def notes(self) -> Sequence[str]:
        """Return what the author of the plugin should know."""
        return list(self._facts["notes"])

    @property
    def process_id(self) -> int | None:
        """Return the id of the running process."""
        return self._process.program.pid if self._process is not None and self._process.is_alive() else None

    @property
    def _facts(self) -> Mapping[str, Any]:
        assert self._process is not None  # `start` returned
        return self._process.facts

    def offers(self, hook: str) -> bool:
        """Whether the plugin defines `hook`."""
        return hook in self._facts["hooks"]

    def listen(self, complaint: Complaint) -> None:
        """Call `complaint` with every line that the plugin logs as a warning or an error."""
        self._complaint = complaint

    def __getattr__(self, hook: str) -> Any:
        if hook.startswith("_") or not self.offers(hook):
            raise AttributeError(hook)
        if hook == "get_commands":
            return self._get_commands
        return lambda *args, **keywords: self.call_hook(hook, args, keywords)

    def call_hook(self, hook: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Run a hook in the process; the process takes the keywords that the hook's signature accepts."""
        args, keywords = remove_credentials(hook, args, keywords)
        answer = self._call("call", [hook, list(args), keywords])
        if hook == "initialize":
            self._initialized = (args, keywords)
        elif hook == "on_session_switch" and self._initialized is not None:
            self._initialized = ((args[0], *self._initialized[0][1:]), self._initialized[1])
        return answer

    def set_variables(self, values: Mapping[str, str]) -> None:
        """Set environment variables in the process, now and whenever it is started again."""
        self._environ = {**self._environ, **values}
        self._call("set_variables", dict(values))

    def close(self) -> None:
        """End the process, if one runs."""
        with self._starting:
            self._is_closed = True
            if self._process is not None:
                self._process.end()
            _open.discard(self)

    def run_in_terminal(self, hook: str, *args: Any) -> None:
        """Run a hook in a process that has this terminal, for a dialogue; no time limit."""
        args, _ = remove_credentials(hook, args, {})
        process = _launch(self._found, self._serve, has_terminal=True)
        try:
            self._load(process, seconds=CALL_SECONDS)
            process.peer.call("call", [hook, list(args), {}], seconds=86_400.0, is_alive=process.is_alive)
        except PeerError as error:
            raise ProviderError(f"{hook} of {self.name} failed: {error.kind} {error.message}".strip()) from error
        finally:
            process.peer.close()
            process.program.wait(CALL_SECONDS)

    def _call(self, method: str, params: Any) -> Any:
        process = self._ensure_process()
        try:
            return process.peer.call(method, params, seconds=CALL_SECONDS, is_alive=process.is_alive)
        except PeerError as error:
            if error.kind:
                raise
            end = process.describe_end()
            process.end()
            raise PeerError(end) from error

    def _ensure_process(self) -> _Process:
        """Return a living process; a new one is started where the last has died."""
        with self._starting:
            if self._is_closed:
                raise PeerError("it was shut down")
            process = self._process
            if process is not None and process.is_alive() and not process.peer.ended.is_set():
                return process
            log.warning("the process of the plugin %s is started again", self.name)
            process = self._start()
            if self._initialized is not None:
                args, keywords = self._initialized
                params = ["initialize", list(args), dict(keywords)]
                process.peer.call("call", params, seconds=CALL_SECONDS, is_alive=process.is_alive)
            return process

    def _start(self) -> _Process:
        process = _launch(self._found, self._serve)
        _open.add(self)
        try:
            process.facts = self._load(process, seconds=self._start_seconds)
        except PeerError as error:
            reason = describe_error(error) if error.kind else self._explain(process, error)
            process.end()
            raise load_error(self.name, reason, needs_package=error.kind in IMPORT_ERRORS) from error
        self._process = process
        return process

    def _explain(self, process: _Process, error: PeerError) -> str:
        return error.message if process.is_alive() else process.describe_end()

    def _load(self, process: _Process, *, seconds: float) -> Mapping[str, Any]:
        found, facts = self._found, self._surroundings
        wanted = manifest_of(found).variables
        declared: list[str] = list(self._facts["variables"]) if self._process is not None else []
        params: dict[str, JSON] = {
            "name": found.name,
            "kind": found.kind,
            "place": found.place,
            "alias": found.alias,
            "home": str(facts.home),
            "profile": facts.profile,
            "profiles": list(facts.profiles),
            "path": [each for each in sys.path if each],
            "variables": {name: self._environ[name] for name in (*wanted, *declared) if self._environ.get(name)},
        }
        loaded: Mapping[str, Any] = process.peer.call("load", params, seconds=seconds, is_alive=process.is_alive)
        values = {name: self._environ[name] for name in loaded["variables"] if self._environ.get(name)}
        process.peer.call("set_variables", values, seconds=seconds, is_alive=process.is_alive)
        return loaded

    def _serve(self, method: str, params: Any) -> Any:
        """Answer what the process asks for, and log what it reports."""
        facts = self._surroundings
        match method:
            case "log":
                level, logger, message, trace = params
                record = logging.LogRecord(str(logger), int(level), "", 0, "%s", (str(message),), None)
                line = log_record(self.name, record)
                if trace:
                    log.log(int(level), "plugin %s: %s", self.name, redact(str(trace)))
                if line:
                    self._complaint(line)
                return None
            case "complete" if facts.complete is not None:
                return facts.complete(params[0], params[1])
            case "choose" if facts.choose is not None:
                return facts.choose(str(params))
            case _:
                raise ProviderError(f"kept offers no {method!r} to plugins here")

    def _get_commands(self) -> list[ProviderCommand]:
        listed = self._call("call", ["get_commands", [], {}])
        return [ProviderCommand(each["name"], each["summary"], partial(self._run, each["name"])) for each in listed]

    def _run(self, name: str, words: Sequence[str]) -> CommandAnswer:
        answer: CommandAnswer = self._call("command", [name, list(words)])
        return answer


_open: set[IsolatedProvider] = set()


@atexit.register
def _end_all() -> None:
    for provider in list(_open):
        provider.close()


def _kill_marked(mark: str) -> None:
    """Kill what a plugin started in sessions of its own; possible where the system shows environments in files."""
    wanted, processes = mark.encode(), Path("/proc")
    for _ in range(_KILL_ROUNDS):  # one that forks meanwhile is found in the next round
        living = [entry for entry in processes.glob("[0-9]*") if _has_variable(entry / "environ", wanted)]
        for entry in living:
            with suppress(OSError):
                os.kill(int(entry.name), signal.SIGKILL)
        if not living:
            return


def _has_variable(environ: Path, wanted: bytes) -> bool:
    try:
        return bool(wanted) and wanted in load_bytes(environ).split(b"\0")
    except OSError:  # it has ended, or belongs to somebody else
        return False


def _launch(found: Found, serve: Any, *, has_terminal: bool = False) -> _Process:
    """Start an empty process; its standard streams are ours only for a dialogue."""
    ours, theirs = socket.socketpair()
    output: socket.socket | None = None
    streams: dict[str, Any] = {}
    if not has_terminal:
        output, sink = socket.socketpair()
        streams = {"stdin": subprocess.DEVNULL, "stdout": sink, "stderr": sink, "start_new_session": True}
    # -P: without it the working folder, whose modules may have any name, would come before the packages
    # -u: what a plugin prints is in the log at once, also if its process is killed
    command = [sys.executable, "-P", "-u", "-m", "wellkept.providers.child", str(theirs.fileno())]
    token = random_hex(16)
    try:
        environment = mark_environment({**os.environ, _VARIABLE: token})
        program = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, **streams)
    except OSError as error:
        raise ProviderError(f"no process could be started for the plugin {found.name!r}: {error}") from error
    finally:
        theirs.close()
        if output is not None:
            sink.close()
    if output is not None:
        start_thread(partial(_log_output, found.name, output), name=f"kept-plugin-output-{found.name}")
    peer = Peer(ours, serve, name=f"kept-plugin-{found.name}")
    peer.start()
    return _Process(program, peer, output, {}, f"{_VARIABLE}={token}")


def _log_output(name: str, output: socket.socket) -> None:
    """Write what the process prints to the log, up to a number of lines per minute."""
    minute, lines = 0.0, 0
    try:
        while chunk := output.recv(_OUTPUT_CHUNK):
            if time.monotonic() - minute > 60.0:
                minute, lines = time.monotonic(), 0
            text = chunk.decode("utf-8", "replace")
            lines += text.count("\n") + 1
            if lines <= MAX_LINES_PER_MINUTE:
                log_output(name, text)
    except OSError:
        log.debug("the output of %s was closed", name)
    output.close()

"""The hidden `kept hook CLIENT`: reads an event, answers in time, and never blocks or fails the client.

It always exits with 0 and prints one JSON object or nothing. A watchdog ends the process at the deadline, even if
the store hangs; everything else is imported only after the watchdog has started.
"""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from wellkept.app import App, Caller
    from wellkept.connect.events import HookEvent

_START_UP_SECONDS = 2.0
"""The deadline until the event is known: the longest of all events."""
_NOTE_SECONDS = 0.3
"""How long a process that missed its deadline may take to log that and spool its event."""


class Watchdog:
    """Ends the process with 0 at its deadline, after a note in the log."""

    def __init__(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds
        self.what = "the event did not arrive"
        self.log_file = ""
        self.on_timeout: Callable[[], object] = bool
        """Spools the unfinished work for a later event."""
        self.started = time.monotonic()
        self._printing = threading.Lock()
        threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    def allow(self, seconds: float) -> None:
        """Set the deadline to `seconds` after the start."""
        self.deadline = self.started + seconds

    def _watch(self) -> None:
        while (left := self.deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
        note = threading.Thread(target=self._note, daemon=True)
        note.start()
        note.join(_NOTE_SECONDS)  # the log itself may be what hangs
        with self._printing:
            os._exit(0)

    def _note(self) -> None:
        if not self.log_file:
            return
        spent = time.monotonic() - self.started
        moment = time.strftime("%Y-%m-%dT%H:%M:%S")
        line = f"{moment} WARNING wellkept.cli.hook {self.what}: not done after {spent:.1f} s\n"
        with suppress(OSError):
            Path(self.log_file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # not through logging: the thread that hangs may hold its lock
            descriptor = os.open(self.log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)
            os.write(descriptor, line.encode("utf-8", "replace"))
        self.on_timeout()

    def print(self, text: str) -> None:
        """Print the whole answer at once; the watchdog does not end the process in the middle of it."""
        with self._printing:
            data = text.encode("utf-8", "replace")
            while data:
                data = data[os.write(1, data) :]


def run(options: dict[str, str], words: list[str]) -> NoReturn:
    """Handle the event on stdin, or in the last argument; never returns and never fails."""
    if os.environ.get("KEPT_OFF") == "1" or not words:
        os._exit(0)
    gc.disable()  # the process ends after a quarter of a second anyway; this saves a tenth of its processor time
    _load_msgspec_alone()
    try:
        if words[0] == "--catch-up":
            _catch_up(options, words[1:])
        _handle(options, words, Watchdog(_START_UP_SECONDS))
    except Exception:  # process entry: an agent must never notice a fault of kept
        import logging

        logging.getLogger("wellkept").exception("hook %s", words[0])
    os._exit(0)


def _load_msgspec_alone() -> None:
    """Load msgspec without `typing_extensions`, which takes 10 ms and has nothing for it from Python 3.11 on."""
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment] # importing it fails, as if it were missing
        with suppress(ImportError):
            import msgspec  # noqa: F401
        del sys.modules["typing_extensions"]


def _handle(options: dict[str, str], words: list[str], watchdog: Watchdog) -> None:
    from wellkept.config.home import find_home
    from wellkept.connect.events import NOTIFY, BadEvent, parse_event

    client, *rest = words
    home = find_home(options.get("--home"), options.get("--profile") or options.get("-p"), os.environ)
    watchdog.log_file = str(home.logs / "kept.log")
    text = rest[-1].encode("utf-8", "surrogateescape") if rest else _read_input()
    if client == NOTIFY:
        _pass_on(rest)
    app, caller = _open(options)
    try:
        event = parse_event(client, text)
    except BadEvent as error:
        from wellkept.connect.hooks import report_bad_event

        report_bad_event(caller, client, str(error))
    else:
        watchdog.what = f"{event.client} {event.name}"
        from wellkept.connect.events import Kind

        settings = app.settings.connect
        limits = {Kind.START: settings.start_seconds, Kind.PROMPT: settings.prompt_seconds}
        watchdog.allow(limits.get(event.kind, settings.stop_seconds))
        _answer(caller, event, watchdog)
    app.close()


def _open(options: dict[str, str]) -> "tuple[App, Caller]":
    from wellkept.app import open_app
    from wellkept.core.ids import OWNER, UserId

    app = open_app(options.get("--home"), options.get("--profile") or options.get("-p"))
    if app.home.unfinished_forgets.is_dir():  # never recall what a killed process was about to remove
        from wellkept.forgetting.forget import finish_interrupted

        finish_interrupted(app.caller())
    return app, app.caller(UserId(options["--as"]) if options.get("--as") else OWNER).without_decisions()


def _read_input() -> bytes:
    from wellkept.connect.events import MOST_BYTES

    return sys.stdin.buffer.read(MOST_BYTES) if sys.stdin is not None else b""


def _pass_on(words: list[str]) -> None:
    """Start the `notify` command that Codex had before kept was connected, with the same argument."""
    if len(words) > 1:
        start_detached(words)


def start_detached(command: list[str]) -> None:
    """Start a command that this process does not wait for and that outlives it."""
    from wellkept.core.agency import mark_environment

    environ = mark_environment(os.environ)
    if sys.platform == "win32":
        import subprocess

        nowhere = subprocess.DEVNULL
        with suppress(OSError):
            subprocess.Popen(command, env=environ, stdin=nowhere, stdout=nowhere, stderr=nowhere)
        return
    # not by subprocess, whose import takes 10 ms of each session start
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    with suppress(OSError, NotImplementedError):
        os.posix_spawnp(command[0], command, environ, file_actions=quiet, setsid=True)


def _answer(caller: "Caller", event: "HookEvent", watchdog: Watchdog) -> None:
    from wellkept.connect.hooks import handle_event, is_repairing, needs_catching_up, put_off

    def give_up() -> None:
        put_off(caller, event)
        if is_repairing(caller.app.home.database):
            _start_catch_up(event.client)  # no event has the time for the repair of a large file

    watchdog.on_timeout = give_up
    answer = handle_event(caller, event, deadline=watchdog.deadline)
    if answer is not None:
        import json

        watchdog.print(json.dumps(answer, ensure_ascii=False) + "\n")
    watchdog.on_timeout = bool
    if needs_catching_up(caller, event):
        _start_catch_up(event.client)


def _start_catch_up(client: str) -> None:
    options = sys.argv[1 : sys.argv.index("hook")]
    start_detached([sys.executable, "-m", "wellkept", *options, "hook", "--catch-up", client])


def _catch_up(options: dict[str, str], words: list[str]) -> NoReturn:
    """Store what earlier events left, in a separate process that the client does not wait for."""
    from wellkept.connect.hooks import catch_up, complete_repair

    with suppress(OSError):
        os.nice(10)
    app, caller = _open(options)
    complete_repair(caller)
    if app.home.restoring.is_dir():
        from wellkept.backup.restore import finish_interrupted

        finish_interrupted(app.caller())
    for client in words:
        catch_up(caller, client)
    if app.settings.backup.every != "off":
        from wellkept.backup.backup import take_scheduled_backup

        take_scheduled_backup(app.caller())
    app.close()
    os._exit(0)

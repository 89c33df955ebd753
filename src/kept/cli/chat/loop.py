"""Running an agent from a terminal: turns in a loop of their own, Ctrl-C."""

import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kept.cli.terminal import note, printable
from kept.core.events import Warned
from kept.core.text import JSON, dumps

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from kept.agent.agent import Agent
    from kept.agent.settings import Approvals
    from kept.agent.turn import Answer
    from kept.agent.workspace import Workspace
    from kept.core.tools import Tool


AGAIN_SECONDS = 2.0
"""Two presses of Ctrl-C within this time leave."""
MOST_SHOWN = 4_000
"""How many characters of a foreign tool's arguments a question shows."""
_LOOK_SECONDS = 0.2
LEAVE_SECONDS = 5.0
"""How long an interrupted turn may take to be stored when the process is asked to end."""
SILENT_SECONDS = 1.0
"""How long a review may hold the exit before a person is told why."""
_ENDINGS = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


class Leaving(KeyboardInterrupt):
    """Ctrl-C was pressed again while what it stopped had not ended."""


@dataclass(slots=True)
class Talk:
    """An agent and the loop that its turns run in."""

    agent: "Agent"
    portal: "BlockingPortal"
    interrupted_at: float = -AGAIN_SECONDS
    """When Ctrl-C was last pressed, on the monotonic clock."""
    _review: "Future[Any] | None" = None

    def turn(self, text: str) -> "Answer":
        """Answer one message; Ctrl-C once stops the turn, twice leaves."""
        answer: Answer = self.run(self.agent.turn, text)
        return answer

    def _waited(self, running: "Future[Any]") -> Any:
        try:
            return running.result()
        except KeyboardInterrupt:
            self.is_pressed_again()
            self.portal.call(self._stop)
            return self._stopped(running)
        except SystemExit:  # the terminal is closed, or the machine shut down: what was said is kept first
            self.portal.call(self.agent.interrupt)
            wait([running], timeout=LEAVE_SECONDS)
            raise

    def is_pressed_again(self) -> bool:
        """Take note of a press of Ctrl-C; True when it followed another soon enough to mean leaving."""
        before, self.interrupted_at = self.interrupted_at, time.monotonic()
        return self.interrupted_at - before < AGAIN_SECONDS

    @staticmethod
    def _stopped(running: "Future[Any]") -> Any:
        try:
            return running.result()
        except KeyboardInterrupt:
            raise Leaving from None

    def _stop(self) -> None:
        # told from the loop's own thread, because the answer is being shown from there
        self.agent.interrupt()
        self.agent.parts.sink(Warned("stopping …", "Ctrl-C again to leave"))

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run something of the agent's in its loop; what is typed meanwhile is seen when it can be answered."""
        with unseen():
            return self._waited(self.portal.start_task_soon(work, *args))

    def begin_review(self) -> None:
        """Start the review that is due; the chat goes on meanwhile."""
        due = any(self.agent.review_due()) or self.agent.title_due()
        if due and (self._review is None or self._review.done()):
            self._review = self.portal.start_task_soon(self.agent.after_turn)

    def await_review(self, seconds: float) -> None:
        """Give a running review some time; past it, or after Ctrl-C, it stays due for the next process."""
        if self._review is None:
            return
        try:
            if not wait([self._review], timeout=min(seconds, SILENT_SECONDS)).done and sys.stderr.isatty():
                note("looking back at what to remember … (Ctrl-C leaves at once)")
            self._review.result(timeout=max(0.0, seconds - SILENT_SECONDS))
        except (TimeoutError, CancelledError, KeyboardInterrupt):
            self._review.cancel()


@contextmanager
def talking(agent: "Agent", *, exit_wait_seconds: float) -> Iterator[Talk]:
    """Give the agent a loop to run in, and close both at the end."""
    from anyio.from_thread import start_blocking_portal

    from kept.llm.retry import close

    with _signals(), start_blocking_portal() as portal:
        talk = Talk(agent, portal)
        try:
            yield talk
            talk.await_review(exit_wait_seconds)
        finally:
            portal.call(agent.close)
            if agent.parts.model is not None:
                portal.call(close, agent.parts.model)


@contextmanager
def _signals() -> Iterator[None]:
    """Leave in good order when the terminal is closed or the process is asked to end."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in _ENDINGS if _is_main_thread()}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:  # `nohup` has it ignored, and means it
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def unseen() -> Iterator[None]:
    """Hide what is typed until the end of the block, where the next prompt takes it up."""
    with _echoing(on=False):
        yield


@contextmanager
def seen() -> Iterator[None]:
    """Show what is typed until the end of the block; what was typed before its question is no answer to it."""
    with _echoing(on=True) as terminal:
        if terminal is not None:
            import termios

            termios.tcflush(terminal, termios.TCIFLUSH)
        yield


@contextmanager
def _echoing(*, on: bool) -> Iterator[int | None]:
    if not sys.stdin.isatty():
        yield None
        return
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    flags = before[3] | termios.ECHO if on else before[3] & ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, [*before[:3], flags, *before[4:]])
    try:
        yield terminal
    finally:
        with suppress(termios.error):  # the terminal may be closed by now
            termios.tcsetattr(terminal, termios.TCSANOW, before)


def approver(
    workspace: "Workspace", mode: "Approvals", *, yes_to_reads: bool = False
) -> "Callable[[Tool, dict[str, JSON]], bool]":
    """Return who allows tool calls: the settings where they decide, else the person at the terminal."""
    from kept.agent.workspace import Permission, permission

    def approve(tool: "Tool", arguments: dict[str, JSON]) -> bool:
        said = permission(tool, arguments, workspace=workspace, mode=mode, yes_to_reads=yes_to_reads)
        return _asked(tool, arguments, mode) if said is Permission.ASK else said is Permission.GIVEN

    return approve


def _asked(tool: "Tool", arguments: dict[str, JSON], mode: "Approvals") -> bool:
    name = tool.schema.name
    if not sys.stdin.isatty():
        note(f"kept: {name} was not allowed, because nobody can be asked here; {_way_to_allow(tool, mode)}")
        return False
    note(f"\nallow {name}: {_shown(tool, arguments)} ? [y/N]")
    return _says_yes()


def _way_to_allow(tool: "Tool", mode: "Approvals") -> str:
    auto = "" if mode == "auto" else ", or set approvals to auto"
    if tool.schema.toolset == "mcp":
        return f"trust its server with `approve: true` under mcp_servers{auto}"
    return f"`kept chat` asks{auto}"


def _shown(tool: "Tool", arguments: dict[str, JSON]) -> str:
    """Return what a person needs to see of a call to decide about it: a command whole, whatever its length."""
    if tool.schema.toolset != "mcp":
        return printable(str(arguments.get("command") or arguments.get("path") or ""))
    text = printable(dumps(arguments))
    left_out = f" … {len(text) - MOST_SHOWN:,} characters more" if len(text) > MOST_SHOWN else ""
    return f"{text[:MOST_SHOWN]}{left_out}"


def _says_yes() -> bool:
    """Wait for the person's word; a turn that is interrupted meanwhile waits no longer."""
    from kept.agent.offload import is_cancelled

    with seen():
        while not select.select([sys.stdin], [], [], _LOOK_SECONDS)[0]:
            if is_cancelled():
                return False
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

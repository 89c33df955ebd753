"""An agent in a terminal: its event loop in another thread, Ctrl-C, and questions before tool calls."""

import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wellkept.cli.terminal import note
from wellkept.core.events import Warned
from wellkept.core.text import JSON, dumps

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from wellkept.agent.agent import Agent
    from wellkept.agent.settings import Approvals
    from wellkept.agent.turn import Answer
    from wellkept.agent.workspace import Workspace
    from wellkept.core.provenance import Stated
    from wellkept.core.tools import Tool


AGAIN_SECONDS = 2.0
"""Pressing Ctrl-C twice within this time exits."""
MOST_SHOWN = 4_000
"""How many characters of the arguments of an MCP tool a question shows."""
_LOOK_SECONDS = 0.2
LEAVE_SECONDS = 5.0
"""How long an interrupted turn may take to be stored when the process receives a signal."""
SILENT_SECONDS = 1.0
"""How long a review may delay the exit before a line explains the delay."""
_ENDINGS = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


class Leaving(KeyboardInterrupt):
    """Ctrl-C was pressed again before the interrupted work had ended."""


class Talk(Struct):
    """An agent and the event loop in which its turns run."""

    agent: "Agent"
    portal: "BlockingPortal"
    interrupted_at: float = -AGAIN_SECONDS
    """When Ctrl-C was last pressed, on the monotonic clock."""
    _review: "Future[Any] | None" = None

    def turn(self, text: str, *, loaded: str = "", source: "Stated") -> "Answer":
        """Answer one message; pressing Ctrl-C once stops the turn, twice exits."""
        answer: Answer = self.run(partial(self.agent.turn, text, loaded=loaded, source=source))
        return answer

    def _await_result(self, running: "Future[Any]") -> Any:
        try:
            return running.result()
        except KeyboardInterrupt:
            self.is_pressed_again()
            self.portal.call(self._stop)
            try:
                return running.result()
            except KeyboardInterrupt:
                raise Leaving from None
        except SystemExit:  # SIGHUP or SIGTERM: store the turn before the process ends
            self.portal.call(self.agent.interrupt)
            wait([running], timeout=LEAVE_SECONDS)
            raise

    def is_pressed_again(self) -> bool:
        """Record that Ctrl-C was pressed; return whether it was the second time within `AGAIN_SECONDS`."""
        before, self.interrupted_at = self.interrupted_at, time.monotonic()
        return self.interrupted_at - before < AGAIN_SECONDS

    def _stop(self) -> None:
        # runs in the thread of the event loop, which also prints the answer
        self.agent.interrupt()
        self.agent.parts.sink(Warned("stopping …", "Ctrl-C again to leave"))

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run `work` in the event loop and return its result; text typed meanwhile is shown by the next prompt."""
        with hide_typing():
            return self._await_result(self.portal.start_task_soon(work, *args))

    def begin_review(self) -> None:
        """Start the review if one is due, in the background."""
        due = any(self.agent.review_due()) or self.agent.title_due()
        if due and (self._review is None or self._review.done()):
            self._review = self.portal.start_task_soon(self.agent.after_turn)

    def await_review(self, seconds: float) -> None:
        """Wait for a running review; after a timeout or Ctrl-C it stays due for the next process."""
        if self._review is None:
            return
        try:
            if not wait([self._review], timeout=min(seconds, SILENT_SECONDS)).done and sys.stderr.isatty():
                note("reviewing what to remember … (Ctrl-C exits at once)")
            self._review.result(timeout=max(0.0, seconds - SILENT_SECONDS))
        except (TimeoutError, CancelledError, KeyboardInterrupt):
            self._review.cancel()


@contextmanager
def open_talk(agent: "Agent", *, exit_wait_seconds: float) -> Iterator[Talk]:
    """Start an event loop for the agent, and close both at the end."""
    from anyio.from_thread import start_blocking_portal

    from wellkept.llm.retry import close

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
    """Turn SIGTERM and SIGHUP into SystemExit, so that everything is closed properly."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in _ENDINGS if _is_main_thread()}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:  # keep a handler that ignores the signal, as set by `nohup`
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def hide_typing() -> Iterator[None]:
    """Switch echo off in the block; the next prompt shows what was typed."""
    with _set_echo(on=False):
        yield


@contextmanager
def show_typing() -> Iterator[None]:
    """Switch echo on in the block, and discard what was typed before: it does not answer the question."""
    with _set_echo(on=True) as terminal:
        if terminal is not None:
            import termios

            termios.tcflush(terminal, termios.TCIFLUSH)
        yield


@contextmanager
def _set_echo(*, on: bool) -> Iterator[int | None]:
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
        with suppress(termios.error):  # the terminal may have been closed
            termios.tcsetattr(terminal, termios.TCSANOW, before)


def approver(
    workspace: "Workspace", mode: "Approvals", *, yes_to_reads: bool = False
) -> "Callable[[Tool, dict[str, JSON]], bool]":
    """Return the function that approves tool calls: by the settings if they decide, else by asking the person."""
    from wellkept.agent.workspace import Permission, permission

    def approve(tool: "Tool", arguments: dict[str, JSON]) -> bool:
        said = permission(tool, arguments, workspace=workspace, mode=mode, yes_to_reads=yes_to_reads)
        return _ask(tool, arguments, mode) if said is Permission.ASK else said is Permission.GIVEN

    return approve


def _ask(tool: "Tool", arguments: dict[str, JSON], mode: "Approvals") -> bool:
    name = tool.schema.name
    if not sys.stdin.isatty():
        note(f"kept: {name} was not allowed, because there is no terminal to ask; {_way_to_allow(tool, mode)}")
        return False
    note(f"\nallow {name}: {_shown(tool, arguments)} ? [y/N]")
    return _read_answer()


def _read_answer() -> bool:
    """Wait for the answer; return False if the turn is interrupted meanwhile."""
    from wellkept.agent.offload import is_cancelled

    with show_typing():
        while not select.select([sys.stdin], [], [], _LOOK_SECONDS)[0]:
            if is_cancelled():
                return False
        return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _way_to_allow(tool: "Tool", mode: "Approvals") -> str:
    auto = "" if mode == "auto" else ", or set approvals to auto"
    if tool.schema.toolset == "mcp":
        return f"trust its server with `approve: true` under mcp_servers{auto}"
    return f"`kept chat` asks{auto}"


def _shown(tool: "Tool", arguments: dict[str, JSON]) -> str:
    """Return what a person must see of a call to decide; a shell command is never shortened."""
    if tool.schema.toolset != "mcp":
        return str(arguments.get("command") or arguments.get("path") or "")
    text = dumps(arguments)
    left_out = f" … {len(text) - MOST_SHOWN:,} characters more" if len(text) > MOST_SHOWN else ""
    return f"{text[:MOST_SHOWN]}{left_out}"

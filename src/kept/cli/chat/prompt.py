"""The prompt of an interactive chat: history, completion, several lines, a status line."""

import select
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout

from kept.cli.chat.loop import seen
from kept.cli.chat.slash import COMMANDS, Slash
from kept.cli.terminal import note, printable, say
from kept.core.text import JSON, dumps

if TYPE_CHECKING:
    from kept.agent.settings import Approvals
    from kept.agent.workspace import Workspace
    from kept.core.tools import Tool


class Prompt:
    """Asks a person for the next message."""

    def __init__(self, history: Path, slash: Slash, *, when_shown: Callable[[], object]) -> None:
        self._slash = slash
        self._session: PromptSession[str] = PromptSession(
            history=_history(history, incognito=slash.talk.agent.conversation.incognito),
            completer=WordCompleter([f"/{name}" for name in COMMANDS], sentence=True),
            complete_while_typing=False,
            bottom_toolbar=slash.status_line,
            key_bindings=_bindings(slash),
        )
        self._first_time(when_shown)

    def _first_time(self, when_shown: Callable[[], object]) -> None:
        def rendered(app: Application[str]) -> None:
            app.after_render.remove_handler(rendered)
            when_shown()

        self._session.app.after_render.add_handler(rendered)

    def ask(self) -> str | None:
        """Return the next message, None at the end; Alt-Enter adds a line."""
        try:
            # what a review has to say meanwhile stands above what the person types
            with patch_stdout(raw=True):
                return self._session.prompt("› ")
        except KeyboardInterrupt:
            if self._slash.talk.is_pressed_again():
                return None
            note("(Ctrl-C again to leave)")
            return ""
        except EOFError:
            return None


def _history(path: Path, *, incognito: bool) -> History:
    if incognito:
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return _TypedBefore(str(path))


class _TypedBefore(FileHistory):
    """What was typed in earlier chats, without credentials; a disk that refuses costs the history, not the chat."""

    def store_string(self, string: str) -> None:
        """Keep one message."""
        from kept.security.secrets import redact

        with suppress(OSError):
            super().store_string(redact(string))


def _bindings(slash: Slash) -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("c-o")
    def _(_event: KeyPressEvent) -> None:
        from kept.cli.terminal import printable

        run_in_terminal(lambda: say(printable(slash.screen.expanded()) or "no tool has answered in the last turn"))

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


MOST_SHOWN = 4_000
"""How many characters of a foreign tool's arguments a question shows."""
_LOOK_SECONDS = 0.2


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

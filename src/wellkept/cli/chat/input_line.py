"""The prompt of an interactive chat: history, completion, several lines, a status line."""

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

from wellkept.cli.chat.slash import COMMANDS, Slash
from wellkept.cli.terminal import note, say

if TYPE_CHECKING:
    pass


class Prompt:
    """Asks the person for the next message."""

    def __init__(self, history: Path, slash: Slash, *, when_shown: Callable[[], object]) -> None:
        self._slash = slash
        self._session: PromptSession[str] = PromptSession(
            history=_history(history, incognito=slash.talk.agent.conversation.incognito),
            completer=WordCompleter([f"/{name}" for name in COMMANDS], sentence=True),
            complete_while_typing=False,
            bottom_toolbar=slash.status_line,
            key_bindings=_bindings(slash),
        )

        def on_render(app: Application[str]) -> None:
            app.after_render.remove_handler(on_render)
            when_shown()

        self._session.app.after_render.add_handler(on_render)

    def ask(self) -> str | None:
        """Return the next message, None at the end; Alt-Enter adds a line."""
        try:
            # output of a background review appears above the prompt
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
    if not path.is_file():  # a pipe in its place would never end
        return InMemoryHistory()
    return _RedactedHistory(str(path))


class _RedactedHistory(FileHistory):
    """The input history of earlier chats, without credentials; a failed write does not end the chat."""

    def store_string(self, string: str) -> None:
        """Store one message."""
        from wellkept.security.secrets import redact

        with suppress(OSError):
            super().store_string(redact(string))


def _bindings(slash: Slash) -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("c-o")
    def _(_event: KeyPressEvent) -> None:

        run_in_terminal(lambda: say(slash.screen.tool_answers() or "no tool has answered in the last turn"))

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings

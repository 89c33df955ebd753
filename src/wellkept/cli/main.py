"""The `kept` command: loads only the requested command group and maps errors to exit codes."""

import errno
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

from wellkept.cli import terminal
from wellkept.core.errors import KeptError, StorageError, UsageError
from wellkept.core.text import printable

log = logging.getLogger(__name__)

COMMANDS = {
    "chat": "Talk with an agent that remembers.",
    "run": "Answer one message and exit, for scripts.",
    "memory": "The two pages of curated memory: show, edit, undo.",
    "sessions": "Past conversations: list, search, read, export.",
    "receipts": "What models were shown from memory; mark it.",
    "skills": "Procedures that were learned or installed.",
    "curator": "Archive unused skills.",
    "providers": "External memories: set up, status, outbox.",
    "plugins": "Third-party plugins: list, show, disable.",
    "connect": "Give other agents this memory: Claude Code, Codex and more.",
    "disconnect": "Remove everything that connect wrote to an agent.",
    "claw": "Move from OpenClaw: migrate, clean up.",
    "import": "Import conversations of other agents on this machine.",
    "backup": "Write everything to one file, even while others write.",
    "restore": "Merge a backup into this home, or restore it into an empty one.",
    "storage": "Where the home is stored: move it to PostgreSQL and back.",
    "context": "The engine that keeps a conversation within the window.",
    "model": "Choose and test models.",
    "profile": "Separate homes, for example for work.",
    "config": "Show and change settings.",
    "user": "The people who share this home: list, create, export, forget.",
    "export": "Write everything of one user as JSONL.",
    "forget": "Permanently remove a conversation, words or a user.",
    "usage": "Tokens and cost by day, model and session.",
    "eval": "Measure the search with questions from your own history.",
    "scan": "Check a text for threats, as every memory write is checked.",
    "mcp": "Serve this memory to other agents (MCP).",
    "serve": "Serve this memory to programs and people (HTTP).",
    "tool": "Run any tool of the agent, exactly as the agent would.",
    "doctor": "Check the installation by running the real code paths.",
    "version": "Print the version.",
}
"""Each name is a module of `commands` (or `chat`) with `register(program)`; the text is its line in the help."""

_MODULES = {
    "chat": "chat.command",
    "run": "chat.command",
    **dict.fromkeys(("user", "export"), "commands.users"),
    **dict.fromkeys(("connect", "disconnect"), "commands.connect"),
    **dict.fromkeys(("import", "claw"), "commands.imports"),
    "mcp": "commands.serve",
    "plugins": "commands.providers",
    "curator": "commands.skills",
    "restore": "commands.backup",
    **dict.fromkeys(("config", "profile", "model", "context"), "commands.settings"),
    **dict.fromkeys(("doctor", "eval", "scan", "tool", "usage", "version"), "commands.diagnostics"),
}
"""Commands whose module has another name; every other command is in the module of its own name."""

_LINE_CHARS = 72
"""The width of a line in the list of commands at 80 columns, without margins; the longest name is part of it."""
_GLOBAL_WITH_VALUE = {"--home": "home", "--profile": "profile", "-p": "profile", "--as": "user"}
"""The options that every command accepts, with the field of the invocation that each sets."""


def main() -> None:
    """Run a command; the one place where errors become exit codes."""
    logging.getLogger("wellkept").addHandler(logging.NullHandler())  # until the home's log file is known
    try:
        arguments = _without_globals(_as_text(sys.argv[1:]))
        words = _completion_words() or arguments
        values = {place + 1 for place, word in enumerate(words) if word in _GLOBAL_WITH_VALUE}
        asked = next(
            (word for place, word in enumerate(words) if not word.startswith("-") and place not in values), None
        )
        _build_parser(asked if asked in COMMANDS else None)(args=arguments, prog_name="kept", standalone_mode=True)
    except KeptError as error:
        _report(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        _exit_on_broken_pipe()
    except SystemExit as left:
        _check_exit(left)
        raise
    except OSError as error:
        where = f" at {str(error.filename)!r}" if error.filename else ""
        is_full = error.errno == errno.ENOSPC
        remedy = "free some space where the output is written; `kept doctor` checks what was stored" if is_full else ""
        _report(
            StorageError(
                f"the system refused{where}: {error.strerror or error}", remedy or "check the path and the permissions"
            )
        )
        sys.exit(StorageError.exit_code)
    except Exception as error:
        log.exception("unexpected error")
        _report(
            KeptError(f"this is a bug: {type(error).__name__}", "run it again with --debug and report what it shows")
        )
        sys.exit(KeptError.exit_code)


def _check_exit(left: SystemExit) -> None:
    """Complete what typer does when a command ends."""
    if isinstance(left.__context__, BrokenPipeError):  # typer turns it into exit code 1
        _exit_on_broken_pipe()
    if left.code == 128 + signal.SIGHUP:  # the terminal is gone
        _discard_output()
    if left.code == UsageError.exit_code:  # the parser has written what is wrong to stderr
        describe = getattr(left.__context__, "format_message", None)
        error = " ".join(describe().split()) if describe is not None else "the arguments are not valid"
        terminal.answer_error(error, "add --help to the command")


def _exit_on_broken_pipe() -> NoReturn:
    """Exit silently with the code of SIGPIPE, as other programs do when their reader is gone (`| head`)."""
    _discard_output()
    sys.exit(141)


def _discard_output() -> None:
    """Redirect the remaining output to nowhere, so that Python reports no error when it flushes at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def _as_text(arguments: list[str]) -> list[str]:
    """Return the arguments; UTF-8 counts in a locale that has less, too. Raise UsageError for what is not text."""
    texts = []
    for number, word in enumerate(arguments, start=1):
        try:
            # bytes beyond the locale came as surrogates
            texts.append(os.fsencode(word).decode() if any("\ud800" <= letter <= "\udfff" for letter in word) else word)
        except UnicodeError:
            raise UsageError(f"argument {number} ({word!r}) is not UTF-8 text", "write it in UTF-8") from None
    return texts


@cache  # a process that runs many commands reads the signatures of each group once
def _build_parser(asked: str | None) -> Any:
    return get_command(build(asked))


def build(asked: str | None) -> typer.Typer:
    """Return the program with the requested command loaded; for help and unknown names, with all names only."""
    program = _create_program()
    if asked is not None:
        _module_of(asked).register(program)
        for group in program.registered_groups:
            commands = group.typer_instance.registered_commands if group.typer_instance is not None else []
            # a command without an explicit name is named after its function
            names = (one.name or getattr(one.callback, "__name__", "") for one in commands)
            room = _LINE_CHARS - max(map(len, names), default=0)
            for command in commands:
                words = (command.callback.__doc__ or "").split("\n\n")[0] if command.callback is not None else ""
                clause = re.split(r"[;:] ", words)[0]
                if len(words) > room and clause != words:
                    command.short_help = f"{clause}."
        return program
    for name, line in COMMANDS.items():
        program.command(name, help=line)(_list_only)
    return program


def _module_of(command: str) -> Any:
    """Return the module of a command group, which has `register(program)`."""
    return import_module(f"wellkept.cli.{_MODULES.get(command, f'commands.{command}')}")


def _completion_words() -> list[str] | None:
    """Return the words that the shell completes, None when this process is not a completion."""
    if "_KEPT_COMPLETE" not in os.environ:
        return None
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    return line.split()[1:]


def build_all() -> typer.Typer:
    """Return the program with every command loaded."""
    program = _create_program()
    for module in dict.fromkeys(_module_of(name) for name in COMMANDS):
        module.register(program)
    for command in program.registered_commands:
        command.short_help = COMMANDS[str(command.name)]
    for group in program.registered_groups:
        group.short_help = COMMANDS[str(group.name)]
    return program


class _OrderedGroup(TyperGroup):
    """Lists the commands in the order of `COMMANDS`, the most used first, and prints no control characters."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the global options."""
        with _printable_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _printable_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: object) -> list[str]:
        """Return the names of the commands that are loaded."""
        del ctx
        return [name for name in COMMANDS if name in self.commands]


_PARSER_ERROR: type[Any] = typer.BadParameter.__bases__[0]
"""The parent of all usage errors of the parser; typer exports only some of its children."""


@contextmanager
def _printable_errors() -> Iterator[None]:
    """Remove control characters from usage errors, which quote the arguments and are printed by the parser."""
    try:
        yield
    except _PARSER_ERROR as error:
        error.message = printable(error.message)
        raise


def _create_program() -> typer.Typer:
    program = typer.Typer(
        name="kept",
        cls=_OrderedGroup,
        help="Persistent memory for LLM agents.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(_globals)
    return program


def _list_only() -> None:
    """Stand in for a command in the list of all commands: loading them all takes a third of a second."""


def _print_version(asked: bool) -> None:
    if asked:
        from wellkept import __version__

        terminal.say(f"kept {__version__}")
        raise typer.Exit


def complete_profiles(incomplete: str) -> list[str]:
    """Return the profiles that start with `incomplete`."""
    from wellkept.config.home import DEFAULT_PROFILE, find_home

    folder = find_home(None, DEFAULT_PROFILE, os.environ).root / "profiles"
    names = [DEFAULT_PROFILE, *sorted(path.name for path in folder.glob("*") if path.is_dir())]
    return [name for name in names if name.startswith(incomplete)]


def _globals(
    home: Annotated[
        str | None, typer.Option("--home", help="The folder to use instead of $KEPT_HOME or ~/.kept.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", help="The profile to use.", autocompletion=complete_profiles),
    ] = None,
    user: Annotated[str | None, typer.Option("--as", help="Act for this user instead of the owner.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the log and full errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Give an agent persistent memory."""
    # declared for the help only: `_without_globals` reads these options, so that they are accepted anywhere


def _without_globals(arguments: list[str]) -> list[str]:
    """Read the global options wherever they occur before a `--`, and return the other arguments."""
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "--":
            return [*rest, word, *words]
        if name in _GLOBAL_WITH_VALUE and not (name in {"--profile", "-p"} and rest[:2] == ["sessions", "search"]):
            text = value if equals else next(words, None)
            if not text:
                raise UsageError(f"{name} needs a value", f"write {name} {'FOLDER' if name == '--home' else 'NAME'}")
            setattr(terminal.invocation, _GLOBAL_WITH_VALUE[name], text)
        elif word == "--debug":
            terminal.invocation.debug = True
        else:
            rest.append(word)
    return rest


def _report(error: KeptError) -> None:
    if terminal.invocation.debug:
        import traceback

        terminal.note(traceback.format_exc())
    terminal.report_error(error.message, error.remedy)

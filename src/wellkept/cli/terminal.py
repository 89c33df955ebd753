"""What every command shares: the opened app, output, questions and completion."""

import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol, TypeVar

import typer
from msgspec import Struct

from wellkept.app import App, Caller, open_app
from wellkept.config.home import Home, find_home
from wellkept.core.agency import refuse_decision
from wellkept.core.clock import Pace
from wellkept.core.errors import Refused, StorageError, UsageError
from wellkept.core.events import Event, Progressed, Warned
from wellkept.core.regular_files import load_text
from wellkept.core.text import JSON, printable, printable_json
from wellkept.storage.files import open_replacement

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
MOST = 1_000_000_000
MOST_DAYS = 36_500
"""Upper bounds of numeric options: larger values would exceed the range of the database or the calendar."""


class Invocation(Struct):
    """The global options of this process."""

    home: str | None = None
    profile: str | None = None
    user: str | None = None
    debug: bool = False
    has_printed_json: bool = False
    """Whether a JSON answer was printed."""


invocation = Invocation()
"""Set once per process by `main`, before any command runs."""


T = TypeVar("T")


class Result(Protocol):
    """The result of an operation."""

    def as_json(self) -> Any:
        """Return the JSON form."""
        ...


@contextmanager
def _open_app() -> Iterator[App]:
    """Open the app on the chosen home, and close it at the end."""
    app = open_app(invocation.home, invocation.profile, debug=invocation.debug, sink=TerminalSink())
    for warning in app.warnings:
        note(warning)
    try:
        yield app
    except BaseException:
        with suppress(StorageError):  # the first error says more
            app.close()
        raise
    else:
        app.close()  # here a log that cannot be synced ends the command: what it wrote is not safe
    finally:
        if app.settings.backup.every != "off":
            from wellkept.cli.commands.backup import start_if_due

            start_if_due(app)


@contextmanager
def open_caller(user: str | None = None) -> Iterator[Caller]:
    """Open the app on the chosen home and yield a caller: the owner, or the user named by `--as` or `user`."""
    if user and invocation.user and user != invocation.user:
        # whoever runs commands `--as` somebody must not reach another user by an argument
        raise UsageError(f"--as {invocation.user!r} and the user {user!r} contradict each other", "name one user only")
    with _open_app() as app:
        owner = app.caller()
        if app.home.unfinished_forgets.is_dir():
            from wellkept.forgetting.forget import finish_interrupted

            finish_interrupted(app.caller(sink=app.report))
        if app.home.restoring.is_dir():
            from wellkept.backup.restore import finish_interrupted as finish_restore

            finish_restore(app.caller(sink=app.report))
        chosen = user or invocation.user
        if user is None and invocation.user is not None:
            from wellkept.operations.users import require_user

            require_user(owner, invocation.user)
        if chosen is None:
            yield owner
        else:
            from wellkept.operations.users import check_user_id

            caller = owner.for_user(check_user_id(chosen))
            caller.listen(app.report)  # the app itself receives only events of the home and of the owner
            yield caller


def join_groups(group: typer.Typer, *parts: typer.Typer) -> None:
    """Add the commands of each part to a group; repeated calls add nothing."""
    for part in parts:
        group.registered_commands += [
            command for command in part.registered_commands if command not in group.registered_commands
        ]


def chosen_home() -> Home:
    """Return the chosen home without reading its settings, so that a command can repair them."""
    return find_home(invocation.home, invocation.profile, os.environ)


def why_no_person(home: Home) -> str:
    """Return why this process cannot take the decisions of a person about a home; empty if it can."""
    from wellkept.operations.profiles import explain_no_person

    return explain_no_person(home, os.environ)


def require_person(home: Home, command: str) -> None:
    """Raise NotAllowed if this process cannot take the decisions of a person about a home."""
    if why := why_no_person(home):
        raise refuse_decision(why, command)


def read_input() -> str:
    """Return standard input as text; raise UsageError if it is not UTF-8."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input is not UTF-8 text (byte {error.start})", "convert it to UTF-8 first"
        ) from None


class Bold(Struct, frozen=True):
    """A part of a line that is printed in bold where the terminal supports it."""

    text: str


def say(*parts: str | Bold) -> None:
    """Print one line to stdout: the result of the command, without control characters.

    Everything that commands print goes through `say`, `note` and the other functions of this module, so that stored
    text, file names and answers cannot control the terminal, even through a pager or another program.
    """
    _write(sys.stdout, "".join(map(_render, parts)))


def note(text: str) -> None:
    """Print one line to stderr: warnings, hints, progress; without control characters."""
    _write(sys.stderr, printable(complete_hint(text)))


def say_exactly(text: str) -> None:
    """Print data that is meant to be stored: unchanged into a file or a pipe, like `say` in a terminal."""
    _write(sys.stdout, printable(text) if sys.stdout.isatty() else text)


def put(text: str, *, exactly: bool) -> None:
    """Print a piece of an answer without a line break; `exactly` is for files and pipes."""
    _write(sys.stdout, text if exactly else printable(text), end="")


def wrap(text: str) -> str:
    """Return `text` wrapped to the width of the terminal; unchanged if stderr is not a terminal."""
    if not sys.stderr.isatty():
        return text
    from shutil import get_terminal_size
    from textwrap import fill

    return fill(text, max(20, get_terminal_size().columns - 1), break_long_words=False, break_on_hyphens=False)


def is_styled() -> bool:
    """Whether bold may be used: stdout is a terminal that supports it, and NO_COLOR is not set."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")


def _render(part: str | Bold) -> str:
    if isinstance(part, str):
        return printable(part)
    return f"\x1b[1m{printable(part.text)}\x1b[0m" if is_styled() else printable(part.text)


def _write(stream: object, text: str, *, end: str = "\n") -> None:
    # escape characters that the terminal cannot encode, instead of failing
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True, end=end)  # type: ignore[call-overload] # stdout or stderr


def print_json(value: JSON) -> None:
    """Print `value` as JSON: indented in a terminal, on one line when piped."""
    invocation.has_printed_json = True
    _write(sys.stdout, printable_json(_complete_hints(value), indent=2 if sys.stdout.isatty() else None))


def print_json_line(value: JSON) -> None:
    """Print `value` as one line of JSONL."""
    invocation.has_printed_json = True
    _write(sys.stdout, printable_json(value))


def write_lines(out: Path, lines: Iterable[str], home: Path) -> int:
    """Write the lines to a file that only its owner can read, but not over one of `home`; return how many."""
    if out.is_file() and out.resolve().is_relative_to(home.resolve()):
        raise UsageError(f"{str(out)!r} is a file of kept itself", "give another path with --output")
    count = 0
    with open_replacement(out) as file:
        for line in lines:
            file.write(f"{line}\n".encode("utf-8", "surrogatepass"))
            count += 1
    return count


def fail(message: str, remedy: str = "", *, code: int = 1) -> NoReturn:
    """Print what is wrong and what to do next to stderr, and exit."""
    report_error(message, remedy)
    raise typer.Exit(code)


def report_error(message: str, remedy: str) -> None:
    """Print an error to stderr, and with `--json` to stdout too."""
    note(f"kept: {message}")
    if remedy:
        note(f"  next: {remedy}")
    answer_error(message, remedy)


def answer_error(message: str, remedy: str) -> None:
    """With `--json`, print an error to stdout, unless a JSON answer was printed already: it is never empty."""
    if "--json" in sys.argv and not invocation.has_printed_json:
        print_json({"error": message, "next": remedy})


_OF_ONE_USER = frozenset(("memory", "sessions", "receipts", "skills", "forget", "connect", "disconnect", "eval"))
"""Commands whose hints repeat `--as`: without it, `kept memory undo` would undo an edit of the owner."""


_HINTS = frozenset(("next", "remedy"))
"""The keys of answers in JSON that name what to do."""


def complete_hint(text: str) -> str:
    """Return a hint with the options of this process in its commands: `kept connect` → `kept -p work connect`.

    `note` and the hints of `print_json` do this themselves; a hint on stdout needs it.
    """
    if (invocation.home, invocation.profile, invocation.user) == (None, None, None):
        return text
    from wellkept.cli.main import COMMANDS

    return re.sub(rf"\bkept (?=({'|'.join(COMMANDS)})\b)", lambda found: f"kept {_options_for(found[1])}", text)


def _options_for(command: str) -> str:
    options = {
        "--home": invocation.home,
        "-p": invocation.profile if command != "profile" else None,  # those concern the whole home
        "--as": invocation.user if command in _OF_ONE_USER else None,
    }
    return "".join(f"{name} {shlex.quote(value)} " for name, value in options.items() if value is not None)


def _complete_hints(value: JSON) -> JSON:
    """Return an answer with the options of this process in the commands of each hint."""
    if isinstance(value, Mapping):
        return {
            name: complete_hint(one) if name in _HINTS and isinstance(one, str) else _complete_hints(one)
            for name, one in value.items()
        }
    return [_complete_hints(item) for item in value] if isinstance(value, list | tuple) else value


def refuse(refused: Refused, *, as_json: bool, code: int = 1) -> NoReturn:
    """Print a refusal to stderr, with `as_json` also to stdout as JSON, and exit."""
    if as_json:
        print_json({**refused.as_json(), "next": refused.remedy})
    fail(refused.error, refused.remedy, code=code)


def expect(result: T | Refused, *, as_json: bool, code: int = 1) -> T:
    """Return the result of an operation; print a refusal and exit."""
    if isinstance(result, Refused):
        refuse(result, as_json=as_json, code=code)
    return result


def show_json(result: Result | Sequence[Result] | dict[str, JSON], *, as_json: bool) -> None:
    """With `as_json`, print the result of a command as JSON and end it; outside of `open_caller`, which may fail."""
    if as_json:
        if isinstance(result, Sequence):
            print_json([item.as_json() for item in result])
        else:
            print_json(result if isinstance(result, dict) else result.as_json())
        raise typer.Exit


def confirm(question: str, *, yes: bool, remedy: str = "give --yes to agree") -> bool:
    """Ask the person at the terminal; without a terminal, exit unless `--yes` was given."""
    if yes:
        return True
    if not sys.stdin.isatty():
        fail(f"there is no terminal to ask: {question}", remedy, code=2)
    return typer.confirm(printable(question), default=False, err=True)


def ask(question: str, *, default: str | None = None, hidden: bool = False) -> str:
    """Ask the person at the terminal for a line of text; `hidden` does not show what is typed."""
    shown = on_one_line(f"{question} [{default}]" if default else question)
    return str(typer.prompt(shown, default=default, hide_input=hidden, show_default=False, err=True))


def ask_number(question: str) -> int:
    """Ask the person at the terminal for a number, again until one is given."""
    return int(typer.prompt(on_one_line(question), type=int, err=True))


class TerminalSink:
    """Prints events to stderr: warnings as lines, progress in one line that is updated."""

    def __init__(self) -> None:
        self._pace = Pace()

    def __call__(self, event: Event, /) -> None:
        """Print warnings and progress; ignore other events."""
        match event:
            case Warned(message, remedy):
                note(f"kept: {message}{f' ({remedy})' if remedy else ''}")
            case Progressed(task, done, total):
                self._show_progress(task, done, total)
            case _:
                return

    def _show_progress(self, task: str, done: int, total: int | None) -> None:
        if not sys.stderr.isatty():
            return
        share = f" {done * 100 // total:3d} %{self._pace.left(task, done, total)}" if total else ""
        end = "\n" if total is not None and done >= total else ""
        print(
            f"\r{on_one_line(task)}: {done:,}{f' of {total:,}' if total else ''}{share:<28}",
            end=end,
            file=sys.stderr,
            flush=True,
        )


def moment(text: str, *, now: float) -> float:
    """Return the moment that `text` names; raise UsageError if it is not a date."""
    from wellkept.languages.dates import parse_moment  # lazy: few commands are given a date

    named = parse_moment(text, now=now)
    if named is None:
        raise UsageError(
            f"{text!r} is not a date that kept understands",
            "write it like 2026-11-15, 2026-11-15T18:30, yesterday, last week, in March, 3 days ago, gestern, 上周",
        )
    return named


_LEAST_CELLS = 20


def on_one_line(text: str) -> str:
    """Return `text` as one printable line, so that untrusted text cannot imitate lines of output."""
    return " ".join(printable(text).split())


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """Return `1 message`, `2,000 messages`, `2 entries`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def indent_lines(text: str, indent: str = "    ") -> str:
    """Return `text` with every line indented; in a terminal also wrapped, so that wrapped lines keep the indent."""
    if not sys.stdout.isatty():
        return "\n".join(f"{indent}{line}" for line in text.split("\n"))
    from shutil import get_terminal_size

    cells = max(_LEAST_CELLS, get_terminal_size().columns - len(indent) - 1)
    return "\n".join(f"{indent}{part}" for line in text.split("\n") for part in fold_line(line, cells))


def fold_line(line: str, cells: int) -> Iterator[str]:
    """Yield `line` in parts of at most `cells` terminal cells, broken after a space where there is one."""
    start = used = 0
    space: int | None = None
    for place, character in enumerate(line):
        width = _cells(character)
        while used + width > cells and place > start:
            cut = space + 1 if space is not None else place
            yield line[start:cut].rstrip(" ")
            start, space = cut, None
            used = sum(_cells(letter) for letter in line[start:place])
        if character == " ":
            space = place
        used += width
    yield line[start:]


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def edit_text(text: str, *, name: str, otherwise: str) -> tuple[str, Path]:
    """Open `text` in the editor and return the result, and the temporary file, which the caller removes.

    `otherwise` is the remedy where no editor can be opened. If the editor fails or the result is not UTF-8, the
    file is left in place, so that no text is lost.
    """
    import subprocess
    import tempfile

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    if not editor and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("there is no terminal to open an editor in", otherwise)
    editor = editor or "vi"
    descriptor, place = tempfile.mkstemp(prefix=f"kept-{name}-", suffix=".md")
    os.close(descriptor)
    file = Path(place)
    file.write_text(text, encoding="utf-8")
    try:
        code = subprocess.run([*shlex.split(editor), place], check=False).returncode
    except (OSError, ValueError) as error:
        file.unlink(missing_ok=True)
        raise UsageError(f"cannot start the editor {editor!r}: {error}", f"set $EDITOR, or {otherwise}") from error
    if code != 0:
        raise UsageError(f"the editor {editor!r} ended with {code}; nothing was changed", f"your text is in {place}")
    try:
        return load_text(file), file
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read back {place!r}: {error}", "save it as UTF-8; nothing was changed") from error

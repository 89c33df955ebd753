"""What every command shares: the app it runs on, and how it speaks."""

import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from kept.app import App, Caller, open_app
from kept.config.home import Home, find_home
from kept.core.clock import parse_moment
from kept.core.errors import Refused, UsageError
from kept.core.events import Event, Progressed, Warned
from kept.core.text import JSON, dumps
from kept.storage.files import explain_errors

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
MOST = 1_000_000_000
MOST_DAYS = 36_500
"""The greatest numbers that an option takes: more would leave the range of a database or a calendar."""


@dataclass(slots=True)
class Invocation:
    """What stood before or after the command and holds for all of them."""

    home: str | None = None
    profile: str | None = None
    user: str | None = None
    debug: bool = False


invocation = Invocation()
"""Set once per process by `main`, before any command runs."""


@contextmanager
def _open_app() -> Iterator[App]:
    """Open the app on the chosen home, and close it whatever happens."""
    app = open_app(invocation.home, invocation.profile, debug=invocation.debug, sink=TerminalSink())
    for warning in app.warnings:
        note(warning)
    try:
        yield app
    finally:
        app.close()


@contextmanager
def open_caller(user: str | None = None) -> Iterator[Caller]:
    """Open the app on the chosen home and give a caller: the owner, or the user that `--as` or `user` names."""
    with _open_app() as app:
        owner = app.caller()
        chosen = user or invocation.user
        if user is None and invocation.user is not None:
            from kept.operations.users import require_user

            require_user(owner, invocation.user)
        if chosen is None:
            yield owner
        else:
            from kept.operations.users import check_user_id

            caller = owner.for_user(check_user_id(chosen))
            caller.listen(app.report)  # the app itself receives only events of the home and of the owner
            yield caller


def join_groups(group: typer.Typer, *parts: typer.Typer) -> None:
    """Add the commands of each part to a group, once however many programs are built in one process."""
    for part in parts:
        group.registered_commands += [
            each for each in part.registered_commands if each not in group.registered_commands
        ]


def chosen_home() -> Home:
    """Return the chosen home without reading its settings, so that a command can mend them."""
    return find_home(invocation.home, invocation.profile, os.environ)


def read_input() -> str:
    """Return standard input as text, or raise UsageError: bytes that are no text cannot be kept."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input is not UTF-8 text (byte {error.start})", "convert it to UTF-8 first"
        ) from None


def say(text: str = "") -> None:
    """Print one line of the answer."""
    _write(sys.stdout, text)


def note(text: str) -> None:
    """Print one line beside the answer: warnings, hints, progress."""
    _write(sys.stderr, text)


def wrapped(text: str) -> str:
    """Return a sentence broken between words where a person reads it in a narrow terminal."""
    if not sys.stderr.isatty():
        return text
    from shutil import get_terminal_size
    from textwrap import fill

    return fill(text, max(20, get_terminal_size().columns - 1), break_long_words=False, break_on_hyphens=False)


def is_styled() -> bool:
    """Whether bold and colour may be used: a person looks, at a terminal that knows them, and wants them."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")


def put(text: str) -> None:
    """Print a part of the answer; the line goes on."""
    _write(sys.stdout, text, end="")


def _write(stream: object, text: str, *, end: str = "\n") -> None:
    # a terminal that cannot show a character shows its escape; the answer must not end in a traceback
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True, end=end)  # type: ignore[call-overload] # stdout or stderr


def print_json(value: JSON) -> None:
    """Print `value`: indented for a person, one line when piped."""
    say(dumps(value, indent=2 if sys.stdout.isatty() else None))


def write_lines(out: Path, lines: Iterable[str]) -> int:
    """Write each line into a file that only the person can read; return how many there were."""
    count = 0
    with explain_errors("write", out), out.open("w", encoding="utf-8", newline="\n") as file:
        out.chmod(0o600)
        for line in lines:
            file.write(f"{line}\n")
            count += 1
    return count


def fail(message: str, remedy: str = "", *, code: int = 1) -> NoReturn:
    """Say what is wrong and what to do next, on stderr, and leave."""
    note(printable(f"kept: {message}"))
    if remedy:
        note(printable(f"  next: {add_user_option(remedy)}"))
    raise typer.Exit(code)


_USER_COMMAND = re.compile(r"\bkept (?=(?:memory|sessions|skills|forget) [-a-z])")


def add_user_option(text: str) -> str:
    """Return a hint with `--as USER` in its commands when this process acts for another user than the owner.

    Without it, the `kept memory undo` of a hint would undo an edit of the owner.
    """
    user = invocation.user
    return text if user is None else _USER_COMMAND.sub(lambda _match: f"kept --as {shlex.quote(user)} ", text)


def refuse(refused: Refused, *, as_json: bool, code: int = 1) -> NoReturn:
    """Show a refusal: JSON on stdout where it was asked for, the reason on stderr always."""
    if as_json:
        print_json(refused.as_json())
    fail(refused.error, refused.remedy, code=code)


def confirm(question: str, *, yes: bool) -> bool:
    """Ask a person; without a terminal only `--yes` counts."""
    if yes:
        return True
    if not sys.stdin.isatty():
        fail(f"nobody is at the terminal to be asked: {question}", "give --yes to agree", code=2)
    return typer.confirm(question, default=False, err=True)


class TerminalSink:
    """Shows events on stderr: warnings as lines, long work as a bar."""

    def __init__(self) -> None:
        self._task = ""

    def __call__(self, event: Event, /) -> None:
        """Show what a person should see of `event`."""
        match event:
            case Warned(message, remedy):
                note(printable(f"kept: {message}{f' ({remedy})' if remedy else ''}"))
            case Progressed(task, done, total):
                self._show_progress(task, done, total)
            case _:
                return

    def _show_progress(self, task: str, done: int, total: int | None) -> None:
        if not sys.stderr.isatty():
            return
        share = f" {done * 100 // total:3d} %" if total else ""
        end = "\n" if total is not None and done >= total else ""
        print(
            f"\r{task}: {done:,}{f' of {total:,}' if total else ''}{share}   ",
            end=end,
            file=sys.stderr,
            flush=True,
        )


def moment(text: str, *, now: float) -> float:
    """Return the moment that `text` means; raises UsageError for what is no date."""
    found = parse_moment(text, now=now)
    if found is None:
        raise UsageError(
            f"{text!r} is not a date that can be read",
            "write it like 2026-11-15, 2026-11-15T18:30, yesterday, last week, in March, 3 days ago, gestern, 上周",
        )
    return found


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LEAST_CELLS = 20


def printable(text: str) -> str:
    """Return `text` without what could steer the terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def on_one_line(text: str) -> str:
    """Return `text` as one printable line, so that foreign text cannot draw lines of its own."""
    return " ".join(printable(text).split())


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return `1 message`, `2,000 messages`, `2 entries`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def indented(text: str, indent: str = "    ") -> str:
    """Return `text` with every line indented; for a person, broken between words so that the indent stays whole."""
    if not sys.stdout.isatty():
        return "\n".join(f"{indent}{line}" for line in text.split("\n"))
    from shutil import get_terminal_size

    cells = max(_LEAST_CELLS, get_terminal_size().columns - len(indent) - 1)
    return "\n".join(f"{indent}{part}" for line in text.split("\n") for part in folded(line, cells))


def folded(line: str, cells: int) -> Iterator[str]:
    """Yield a line in parts of at most so many cells, broken after a space where there is one."""
    start = used = 0
    space: int | None = None
    for place, character in enumerate(line):
        width = _cells(character)
        while used + width > cells and place > start:
            cut = space + 1 if space is not None else place
            yield line[start:cut].rstrip(" ")
            start, space = cut, None
            used = sum(_cells(each) for each in line[start:place])
        if character == " ":
            space = place
        used += width
    yield line[start:]


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def typed_words() -> list[str] | None:
    """Return the words that a shell asks to have completed, None when this is no completion."""
    if "_KEPT_COMPLETE" not in os.environ:
        return None
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    return line.split()[1:]


def complete_settings(incomplete: str) -> list[str]:
    """Return the settings that begin like this."""
    from kept.config.settings import known_keys

    return [key for key in known_keys() if key.startswith(incomplete)]


def complete_profiles(incomplete: str) -> list[str]:
    """Return the profiles that begin like this."""
    from kept.config.home import DEFAULT_PROFILE, find_home

    folder = find_home(None, DEFAULT_PROFILE, os.environ).root / "profiles"
    names = [DEFAULT_PROFILE, *sorted(path.name for path in folder.glob("*") if path.is_dir())]
    return [name for name in names if name.startswith(incomplete)]


def complete_rules(incomplete: str) -> list[str]:
    """Return the scanner's rules that begin like this."""
    from kept.security.scan import rule_ids

    return sorted(rule for rule in rule_ids() if rule.startswith(incomplete))


def edited(text: str, *, name: str, otherwise: str) -> tuple[str, Path]:
    """Return the text as it came back, and the file that holds it until the caller removes it.

    `otherwise` says what to do where no editor can be opened. What was written is never lost: an editor that
    fails, or bytes that are no text, leave the file where it is.
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
        return file.read_text(encoding="utf-8"), file
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read back {place!r}: {error}", "save it as UTF-8; nothing was changed") from error

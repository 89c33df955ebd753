"""The workspace tools: files and shell commands in the user's folder, and when they need approval."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from wellkept.agent import file_search
from wellkept.agent.file_search import find_files
from wellkept.agent.settings import Approvals
from wellkept.core.agency import mark_environment, mark_process
from wellkept.core.errors import KeptError
from wellkept.core.text import JSON, is_encodable, resource_text
from wellkept.core.tools import Tool, ToolContext, ToolSchema
from wellkept.storage.files import make_folder, read_bytes, write_atomically

MAX_READ_CHARS = 60_000
MAX_HITS = 200
TERMINAL_SECONDS = 110.0
"""Below the limit of a tool call (120 s), so that the output so far is still returned."""
SEARCH_SECONDS = 30.0
MAX_EXPRESSION_CHARS = 2_000
"""Longer expressions are not useful, and would not fit the arguments of a process."""
_DANGEROUS = re.compile(
    r"\brm\s+-(?:\w*[rf]|-(?:recursive|force))|\bfind\b.*\s-delete\b|\bgit\s+(?:reset\s+--hard|clean\s+-\w*[fdx])|"
    r"\bsudo\b|\bmkfs|\bdd\s+(?:if|of)=|>\s*/dev/|\bshutdown\b|\breboot\b|:\(\)\s*\{|\bchmod\s+-R\s+777|"
    r"\bcurl\b.*\|\s*(?:ba|z)?sh|\bwget\b.*\|\s*(?:ba|z)?sh|\bgit\s+push\b.*\s(?:--force|-f\b|\+)|\bkill(?:all)?\s+-9|"
    # what sends local files to others, or runs what nobody can read
    r"\b(?:curl|wget)\b.*\s(?:-d|-F|-T|--data\S*|--form|--upload-file|--post-file)\b\S*[\s=]*\S*@?[~/.]|"
    r"\|\s*(?:nc|ncat|netcat|socat)\b|\bbase64\s+(?:-d|-D|--decode)\b.*\|\s*(?:ba|z|da)?sh|\brmtree\b|\btruncate\s+-s\s*0|"
    # a person's decisions about the memory, and the files and the server behind it
    r"\bkept\b.*\s(?:approve|confirm|accept|forget|restore|reset|revoke|pair|token|migrate|purge|install|config\s+(?:set|unset|secret))\b|"
    r"\bKEPT_AGENT\b|[~/]\.kept\b|\bKEPT_HOME\b|\bopen_app\b|:8642\b|"
    r"\b(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?/api/(?:memory|skills|forget|tokens|pairings|tools)\b",
    re.IGNORECASE,
)

_Call: TypeAlias = Callable[[Mapping[str, JSON], ToolContext], Mapping[str, JSON]]


class Workspace(Struct, frozen=True):
    """The user's working folder."""

    folder: Path

    def tools(self) -> list[Tool]:
        """Return the tools, in a fixed order."""
        calls = {
            "read_file": self.read,
            "write_file": self.write,
            "edit_file": self.edit,
            "list_files": self.list,
            "search_files": self.search,
            "terminal": self.terminal,
        }
        rows = json.loads(resource_text("wellkept.agent", "workspace.json"))
        return [
            Tool(
                ToolSchema(row["name"], row["description"], row["parameters"], row["toolset"]),
                _answer_errors(calls[row["name"]]),
                parallel=row["name"] in {"read_file", "list_files", "search_files"},
                asks=row["name"] in {"write_file", "edit_file", "terminal"},
            )
            for row in rows
        ]

    def needs_asking(self, name: str, arguments: Mapping[str, JSON]) -> bool:
        """Whether a call needs approval even in `auto` mode: dangerous commands, files outside the folder."""
        if name == "terminal":
            return bool(_DANGEROUS.search(str(arguments.get("command", ""))))
        return not self._inside(str(arguments.get("path", "")))

    def read(self, arguments: Mapping[str, JSON], _context: ToolContext) -> Mapping[str, JSON]:
        """Read a file, or some of its lines."""
        path = self._path(arguments)
        data = read_bytes(path)
        if data is None:
            return _fail(f"there is no file {str(path)!r}")
        lines = data.decode("utf-8", "replace").splitlines(keepends=True)
        first = max(1, _integer(arguments.get("start_line"), 1))
        count = max(1, _integer(arguments.get("lines"), len(lines) or 1))
        text = "".join(lines[first - 1 : first - 1 + count])
        answer: dict[str, JSON] = {
            "success": True,
            "path": str(path),
            "content": text[:MAX_READ_CHARS],
            "lines": len(lines),
        }
        if len(text) > MAX_READ_CHARS:
            answer["note"] = f"cut after {MAX_READ_CHARS:,} characters: read on with start_line"
        return answer

    def write(self, arguments: Mapping[str, JSON], _context: ToolContext) -> Mapping[str, JSON]:
        """Write a file, atomically."""
        path = self._path(arguments)
        content = str(arguments.get("content", ""))
        data = content.encode()
        make_folder(path.parent, mode=0o777)  # a project is shared as the person wishes: the umask decides
        write_atomically(path, data, mode=0o644)
        return {"success": True, "path": str(path), "chars": len(content)}

    def edit(self, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        """Replace one passage of a file."""
        path, old = self._path(arguments), str(arguments.get("old_text", ""))
        data = read_bytes(path)
        if data is None:
            return _fail(f"there is no file {str(path)!r}")
        text = data.decode()
        occurrences = text.count(old) if old else 0
        if occurrences != 1:
            return _fail(f"old_text occurs {occurrences} times in {path}", "quote a passage that occurs exactly once")
        return self.write(
            {"path": str(path), "content": text.replace(old, str(arguments.get("new_text", "")))}, context
        )

    def list(self, arguments: Mapping[str, JSON], _context: ToolContext) -> Mapping[str, JSON]:
        """List files below a folder."""
        pattern = str(arguments.get("pattern") or "*")
        files = map(Path, find_files(str(self._path(arguments)), pattern))
        newest_first = sorted(files, key=_modified_time, reverse=True)
        names: list[JSON] = [
            _encodable(str(file.relative_to(self.folder) if self._inside(str(file)) else file))
            for file in newest_first[:MAX_HITS]
        ]
        return {"success": True, "files": names, "count": len(newest_first)}

    def search(self, arguments: Mapping[str, JSON], _context: ToolContext) -> Mapping[str, JSON]:
        """Search the contents of files."""
        expression = str(arguments.get("pattern", ""))
        if len(expression) > MAX_EXPRESSION_CHARS:
            return _fail(f"the expression has {len(expression):,} characters", "search for less at once")
        try:
            re.compile(expression)
        except (re.error, RecursionError, OverflowError) as error:
            return _fail(f"not a regular expression: {error}", "correct it and try again")
        request = {"expression": expression, "place": str(self._path(arguments)), "most": MAX_HITS + 1}
        request["files"] = str(arguments.get("files") or "*")
        program = [sys.executable, "-I", "-S", file_search.__file__, json.dumps(request)]
        process = run_process(program, folder=self.folder, seconds=SEARCH_SECONDS, max_bytes=_SEARCH_BYTES)
        hits: list[JSON] = [_encodable(json.loads(line)) for line in process.output.splitlines() if line.endswith('"')]
        answer: dict[str, JSON] = {"success": True, "hits": hits[:MAX_HITS], "count": len(hits)}
        if process.exit_code is None:
            late = f"the search was stopped after at most {SEARCH_SECONDS:g} s"
            return {**_fail(late, "use a simpler expression, or fewer files"), "hits": hits[:MAX_HITS]}
        if process.exit_code != 0:
            return _fail("the search failed", "use a simpler expression")
        return answer

    def terminal(self, arguments: Mapping[str, JSON], _context: ToolContext) -> Mapping[str, JSON]:
        """Run a shell command."""
        shell = str(arguments.get("command", ""))
        try:
            result = run_command(shell, folder=self.folder, seconds=TERMINAL_SECONDS, max_bytes=4 * MAX_READ_CHARS)
        except (OSError, ValueError) as error:
            return _fail(f"the command cannot be run: {error}", "check the command and try again")
        output = result.output[-MAX_READ_CHARS:]
        if result.exit_code is None:
            late = f"the command was stopped after at most {TERMINAL_SECONDS:g} s"
            return {**_fail(late, "run it in the background, or do less at once"), "output": output}
        return {"success": result.exit_code == 0, "exit_code": result.exit_code, "output": output}

    def _path(self, arguments: Mapping[str, JSON]) -> Path:
        return (self.folder / Path(str(arguments.get("path") or ".")).expanduser()).resolve()

    def _inside(self, path: str) -> bool:
        try:
            return (self.folder / Path(path).expanduser()).resolve().is_relative_to(self.folder.resolve())
        except (OSError, ValueError, RuntimeError):  # no such path can exist: asking does no harm
            return False


def _answer_errors(call: _Call) -> _Call:
    """Return `call` with an answer in place of the errors that a path or a disk can cause."""

    def answer(arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        try:
            return call(arguments, context)
        except KeptError as error:
            return _fail(error.message, error.remedy)
        except OSError as error:
            return _fail(f"the system refused: {error.strerror or error}")
        except UnicodeError as error:
            return _fail(f"not UTF-8 text: {error.reason if isinstance(error, UnicodeEncodeError) else error}")
        except (ValueError, RuntimeError) as error:  # a zero byte in a path, an unknown user after "~"
            return _fail(f"not a path: {error}")

    return answer


def _encodable(text: str) -> str:
    """Return `text` without lone surrogates, which stand for bytes of a file name that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if not is_encodable(text) else text


def _fail(error: str, remedy: str = "check the path and try again") -> Mapping[str, JSON]:
    return {"success": False, "error": error, "remedy": remedy}


def _integer(value: JSON, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _modified_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


_POLL_SECONDS = 0.2
"""How often to check for the time limit and for an interrupt."""
_CHUNK_BYTES = 65_536
_SEARCH_BYTES = 4_000_000
"""More than all hits of a search take."""


class CommandResult(Struct, frozen=True):
    """The result of a command; no exit code when it was killed."""

    output: str
    exit_code: int | None


def run_command(command: str, *, folder: Path, seconds: float, max_bytes: int) -> CommandResult:
    """Run `command` and return the end of its output; raise OSError when there is no shell."""
    # the outer shell waits until it is marked, and stays the parent, so that its environment shows what was unset below
    program = ["/bin/sh", "-c", 'read -r _; "$@" </dev/null; exit $?', "sh", "/bin/sh", "-c", command]
    return run_process(program, folder=folder, seconds=seconds, max_bytes=max_bytes, waits=True)


def run_process(
    program: Sequence[str], *, folder: Path, seconds: float, max_bytes: int, waits: bool = False
) -> CommandResult:
    """Run a program and return the end of its output; with `waits` it begins when it has read a line.

    It gets its own process group, so that its child processes are killed with it.
    """
    from wellkept.agent.offload import is_cancelled  # loads the event loop, which `kept tool` does not need otherwise

    process = subprocess.Popen(
        program, cwd=folder, env=mark_environment(os.environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.PIPE if waits else subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    output_bytes = bytearray()
    deadline = time.monotonic() + seconds
    try:
        if process.stdin is not None:
            mark_process(process.pid)
            with suppress(BrokenPipeError), process.stdin as start:
                start.write(b"\n")
        with process.stdout as pipe:
            while _read_output(process, pipe.fileno(), output_bytes):
                del output_bytes[:-max_bytes]
                if time.monotonic() >= deadline or is_cancelled():
                    _kill(process)
                    return CommandResult(_text(output_bytes), None)
        return CommandResult(_text(output_bytes), process.wait())
    except KeyboardInterrupt:  # a separate process group does not receive Ctrl-C
        _kill(process)
        raise


def _read_output(process: "subprocess.Popen[bytes]", pipe: int, output_bytes: bytearray) -> bool:
    """Read available output; return False at the end, even when a background process keeps the pipe open."""
    was_running = process.poll() is None
    if select.select([pipe], [], [], _POLL_SECONDS)[0]:
        piece = os.read(pipe, _CHUNK_BYTES)
        output_bytes += piece
        return bool(piece)
    return was_running


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _text(output_bytes: bytearray) -> str:
    return bytes(output_bytes).decode("utf-8", "replace")


class Permission(StrEnum):
    """Whether the settings allow a tool call."""

    GIVEN = "given"
    DENIED = "denied"
    ASK = "ask"


def permission(
    tool: Tool, arguments: Mapping[str, JSON], *, workspace: Workspace, mode: Approvals, yes_to_reads: bool = False
) -> Permission:
    """Whether the settings allow a call, deny it, or leave it to the user."""
    if mode == "deny":
        return Permission.DENIED
    is_risky = workspace.needs_asking(tool.schema.name, arguments)
    if not is_risky and (mode == "auto" or tool.schema.name in {"write_file", "edit_file"}):
        return Permission.GIVEN
    return Permission.GIVEN if yes_to_reads and tool.only_reads else Permission.ASK

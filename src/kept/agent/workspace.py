"""The workspace tools: files and shell commands in the user's folder, and when they need approval."""

import fnmatch
import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kept.agent.settings import Approvals
from kept.core.text import JSON, resource_text
from kept.core.tools import Tool, ToolContext, ToolSchema
from kept.storage.files import write_atomically

MAX_READ_CHARS = 60_000
MAX_HITS = 200
TERMINAL_SECONDS = 110.0
"""Below the limit of a tool call (120 s), so that the output so far is still returned."""
_SKIPPED = {".git", "node_modules", "__pycache__", ".venv", ".mypy_cache"}
_DANGEROUS = re.compile(
    r"\brm\s+-(?:\w*[rf]|-(?:recursive|force))|\bfind\b.*\s-delete\b|\bgit\s+(?:reset\s+--hard|clean\s+-\w*[fdx])|"
    r"\bsudo\b|\bmkfs|\bdd\s+if=|>\s*/dev/|\bshutdown\b|\breboot\b|:\(\)\s*\{|\bchmod\s+-R\s+777|"
    r"\bcurl\b.*\|\s*(?:ba|z)?sh|\bwget\b.*\|\s*(?:ba|z)?sh|\bgit\s+push\b.*\s(?:--force|-f\b|\+)|\bkill(?:all)?\s+-9",
    re.IGNORECASE,
)


def project_root(folder: Path) -> Path:
    """Return the repository that `folder` is in, or the folder itself."""
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate
    return folder


@dataclass(frozen=True, slots=True)
class Workspace:
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
        rows = json.loads(resource_text("kept.agent", "workspace.json"))
        return [
            Tool(
                ToolSchema(row["name"], row["description"], row["parameters"], row["toolset"]),
                calls[row["name"]],
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
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        except OSError as error:
            return _fail(f"cannot read {path}: {error.strerror}")
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
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content.encode(), mode=0o644)
        return {"success": True, "path": str(path), "chars": len(content)}

    def edit(self, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        """Replace one passage of a file."""
        path, old = self._path(arguments), str(arguments.get("old_text", ""))
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            return _fail(f"cannot read {path}: {error}")
        found = text.count(old) if old else 0
        if found != 1:
            return _fail(f"old_text occurs {found} times in {path}", "quote a passage that occurs exactly once")
        return self.write(
            {"path": str(path), "content": text.replace(old, str(arguments.get("new_text", "")))}, context
        )

    def list(self, arguments: Mapping[str, JSON], _context: ToolContext) -> Mapping[str, JSON]:
        """List files below a folder."""
        pattern = str(arguments.get("pattern") or "*")
        found = sorted(self._files(self._path(arguments), pattern), key=_modified_time, reverse=True)
        shown: list[JSON] = [
            str(file.relative_to(self.folder) if self._inside(str(file)) else file) for file in found[:MAX_HITS]
        ]
        return {"success": True, "files": shown, "count": len(found)}

    def search(self, arguments: Mapping[str, JSON], _context: ToolContext) -> Mapping[str, JSON]:
        """Search the contents of files."""
        try:
            pattern = re.compile(str(arguments.get("pattern", "")))
        except re.error as error:
            return _fail(f"not a regular expression: {error}")
        hits: list[JSON] = []
        for file in self._files(self._path(arguments), str(arguments.get("files") or "*")):
            try:
                lines = file.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError):
                continue
            hits += [f"{file}:{number}: {line[:300]}" for number, line in enumerate(lines, 1) if pattern.search(line)]
            if len(hits) >= MAX_HITS:
                break
        return {"success": True, "hits": hits[:MAX_HITS], "count": len(hits)}

    def terminal(self, arguments: Mapping[str, JSON], _context: ToolContext) -> Mapping[str, JSON]:
        """Run a shell command."""
        shell = str(arguments.get("command", ""))
        try:
            done = run_command(shell, folder=self.folder, seconds=TERMINAL_SECONDS, max_bytes=4 * MAX_READ_CHARS)
        except (OSError, ValueError) as error:
            return _fail(f"the command cannot be run: {error}", "check the command and try again")
        output = done.output[-MAX_READ_CHARS:]
        if done.exit_code is None:
            late = f"the command was stopped after at most {TERMINAL_SECONDS:g} s"
            return {**_fail(late, "run it in the background, or do less at once"), "output": output}
        return {"success": done.exit_code == 0, "exit_code": done.exit_code, "output": output}

    def _path(self, arguments: Mapping[str, JSON]) -> Path:
        return (self.folder / Path(str(arguments.get("path") or ".")).expanduser()).resolve()

    def _inside(self, path: str) -> bool:
        return (self.folder / Path(path).expanduser()).resolve().is_relative_to(self.folder.resolve())

    @staticmethod
    def _files(place: Path, pattern: str) -> Iterator[Path]:
        if place.is_file():
            yield place
            return
        for folder, names, inside in os.walk(place):
            names[:] = sorted(name for name in names if name not in _SKIPPED)
            for file in sorted(inside):
                inner = Path(folder, file)
                if fnmatch.fnmatch(file, pattern) or fnmatch.fnmatch(str(inner.relative_to(place)), pattern):
                    yield inner


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


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command; no exit code when it was killed."""

    output: str
    exit_code: int | None


def run_command(command: str, *, folder: Path, seconds: float, max_bytes: int) -> CommandResult:
    """Run `command` and return the end of its output; raise OSError when there is no shell.

    It gets its own process group, so that its child processes are killed with it.
    """
    from kept.agent.offload import is_cancelled  # loads the event loop, which `kept tool` does not need otherwise

    process = subprocess.Popen(
        ["/bin/sh", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    output_bytes = bytearray()
    deadline = time.monotonic() + seconds
    with process.stdout as pipe:
        while _read_output(process, pipe.fileno(), output_bytes):
            del output_bytes[:-max_bytes]
            if time.monotonic() >= deadline or is_cancelled():
                _kill(process)
                return CommandResult(_text(output_bytes), None)
    return CommandResult(_text(output_bytes), process.wait())


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
    """Return whether the settings allow a call, deny it, or leave it to the user."""
    if mode == "deny":
        return Permission.DENIED
    is_risky = workspace.needs_asking(tool.schema.name, arguments)
    if not is_risky and (mode == "auto" or tool.schema.name in {"write_file", "edit_file"}):
        return Permission.GIVEN
    return Permission.GIVEN if yes_to_reads and tool.only_reads else Permission.ASK

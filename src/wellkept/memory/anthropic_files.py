"""Memory as files below `/memories`: the commands of Anthropic's memory tool, over the two pages and a folder.

`MEMORY.md` and `USER.md` are the pages, with their limits, scanner, approval, ledger and undo. Any other path is a
file in a folder of its own. The answers are those of the SDK's own implementation, because models are trained on them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Final

from msgspec import Struct

from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.core.text import JSON, is_encodable
from wellkept.llm.anthropic_memory_tool import SdkMemoryTool
from wellkept.memory.approval import Approvals, needs_approval
from wellkept.memory.page import (
    ENTRY_DELIMITER,
    Add,
    Author,
    Edit,
    Page,
    Remove,
    Target,
    mask_threats,
    parse,
    steps_between,
)
from wellkept.memory.rewrite import edit_page
from wellkept.memory.store import MemoryStore, check_text, rules_in
from wellkept.security.paths import refuse_spelling
from wellkept.storage.files import make_folder
from wellkept.storage.locks import hold_lock
from wellkept.storage.tree import FileTree, Parts

ROOT: Final = "/memories"
MOST_FILE_BYTES = 200_000
MOST_FILES = 500
_PAGES: Final = {f"{target.value.upper()}.md": target for target in (Target.MEMORY, Target.USER)}
_ORIGIN = "agent"
_WIDTH = 6
"""The width of line numbers, as in the reference implementation."""
_LEVELS = 2
_AROUND = 2
"""Lines that are shown before and after a replaced one."""
_UNITS = "BKMG"
_FOLDER_BYTES = 4_096
"""The size that a folder is listed with; what a file system reports means nothing to a model."""


class _Path(Struct, frozen=True):
    """A path below `/memories`, in the one spelling that names it."""

    given: str
    """As the model wrote it, for answers."""
    parts: Parts

    @property
    def page(self) -> Target | None:
        """Return the page that the path names."""
        return _PAGES.get(self.parts[0]) if len(self.parts) == 1 else None

    @property
    def is_below_page(self) -> bool:
        """Whether the path treats a page as a folder."""
        return len(self.parts) > 1 and self.parts[0] in _PAGES


class MemoryFiles:
    """Runs the commands over one store; raises UsageError with the text that the model must be told."""

    def __init__(self, store: MemoryStore, folder: Path, approvals: Approvals | None = None) -> None:
        self._store = store
        self._folder = folder
        self._tree = FileTree(folder, ROOT)
        self._approvals = approvals
        """Where writes wait that a person must decide; without it they are refused."""

    def run(self, command: Mapping[str, JSON]) -> str:
        """Run one command and return its answer."""
        match command:
            case {"command": "view", "path": str(path)}:
                return self._view(_parse(path), _range(command.get("view_range")))
            case {"command": "create", "path": str(path), "file_text": str(text)}:
                return self._create(_parse(path), text)
            case {"command": "str_replace", "path": str(path), "old_str": str(old)}:
                new = command.get("new_str")
                return self._replace(_parse(path), old, new if isinstance(new, str) else "")
            case {"command": "insert", "path": str(path), "insert_line": int(line), "insert_text": str(text)}:
                return self._insert(_parse(path), line, text)
            case {"command": "delete", "path": str(path)}:
                return self._delete(_parse(path))
            case {"command": "rename", "old_path": str(old_path), "new_path": str(new_path)}:
                return self._rename(_parse(old_path), _parse(new_path))
            case _:
                raise UsageError(f"Unknown command, or arguments are missing: {str(command.get('command'))[:40]!r}")

    # commands

    def _view(self, path: _Path, lines: tuple[int, int] | None) -> str:
        if not path.parts or (path.page is None and self._tree.is_folder(path.parts)):
            return self._list(path)
        text = self._read_shown(path)
        rows = text.split("\n")
        first = 0
        if lines is not None:
            first = max(1, lines[0]) - 1
            rows = rows[first : len(rows) if lines[1] == -1 else lines[1]]
        return f"Here's the content of {path.given} with line numbers:\n" + _number(rows, first + 1)

    def _list(self, path: _Path) -> str:
        path_shown = "/".join((ROOT, *path.parts))
        rows = [f"{_size(_FOLDER_BYTES)}\t{path_shown}"]
        rows += [f"{_size(size)}\t{path_shown}/{item}" for item, size in sorted(self._items(path.parts))]
        head = f"Here're the files and directories up to {_LEVELS} levels deep in {path.given}, excluding hidden items:"
        return f"{head}\n" + "\n".join(rows)

    def _items(self, folder: Parts) -> Iterator[tuple[str, int]]:
        if not folder:
            for page, target in _PAGES.items():
                text = self._store.page(target).text
                if text:
                    yield page, len(text.encode())
        for parts, status in self._tree.walk(folder, levels=_LEVELS):
            if not any(part.startswith(".") for part in parts):
                name = "/".join(parts)
                yield (f"{name}/", _FOLDER_BYTES) if S_ISDIR(status.st_mode) else (name, status.st_size)

    def _create(self, path: _Path, text: str) -> str:
        with self._lock():
            if self._exists(path):
                raise UsageError(f"File {path.given} already exists")
            self._write(path, text)
        return f"File created successfully at: {path.given}"

    def _replace(self, path: _Path, old: str, new: str) -> str:
        with self._lock():
            text = self._read(path)
            count = text.count(old) if old else 0
            if count == 0:
                raise UsageError(
                    f"No replacement was performed, old_str `{old}` did not appear verbatim in {path.given}."
                )
            if count > 1:
                lines = ", ".join(str(number) for number in _lines_with(text, old))
                raise UsageError(
                    f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {lines}. "
                    "Please ensure it is unique"
                )
            changed = text[: text.index(old)].count("\n")
            self._write(path, text.replace(old, new))
        rows = self._read_shown(path).split("\n")
        first = max(0, changed - _AROUND)
        snippet = _number(rows[first : changed + _AROUND + 1], first + 1)
        head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return f"{head}\n{snippet}"

    def _insert(self, path: _Path, line: int, text: str) -> str:
        with self._lock():
            rows = self._read(path).split("\n")
            if rows[-1] == "":
                rows.pop()
            if not 0 <= line <= len(rows):
                raise UsageError(
                    f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {len(rows)}]."
                )
            rows.insert(line, text.rstrip("\n"))
            self._write(path, "\n".join(rows) + "\n")
        return f"The file {path.given} has been edited."

    def _delete(self, path: _Path) -> str:
        if not path.parts:
            raise UsageError(f"Cannot delete the {ROOT} directory itself")
        with self._lock():
            if not self._exists(path):
                raise UsageError(f"The path {path.given} does not exist")
            if path.page is not None:
                self._write_page(path.page, ())
            else:
                self._tree.remove(path.parts)
        return f"Successfully deleted {path.given}"

    def _rename(self, old: _Path, new: _Path) -> str:
        if not old.parts:
            raise UsageError(f"Cannot rename the {ROOT} directory itself")
        for path in (old, new):
            if path.page is not None or path.is_below_page:
                raise UsageError(f"{path.parts[0]} is one of the two pages and cannot be renamed or replaced")
        with self._lock():
            if not self._exists(old):
                raise UsageError(f"The path {old.given} does not exist")
            if not new.parts or self._exists(new):
                raise UsageError(f"The destination {new.given} already exists")
            if new.parts[: len(old.parts)] == old.parts:
                raise UsageError(f"The destination {new.given} is inside {old.given}")
            self._tree.rename(old.parts, new.parts)
        return f"Successfully renamed {old.given} to {new.given}"

    # files and pages

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the lock of the folder: a command reads, decides and writes."""
        make_folder(self._folder.parent)
        with hold_lock(self._folder.with_name(f"{self._folder.name}.lock")):
            yield

    def _exists(self, path: _Path) -> bool:
        if path.page is not None:
            return bool(self._store.page(path.page).entries)
        return not path.parts or self._tree.status(path.parts) is not None

    def _read(self, path: _Path) -> str:
        if path.page is not None:
            if text := self._store.page(path.page).text:
                return text
        elif not path.parts or self._tree.is_folder(path.parts):
            raise UsageError(f"The path {path.given} is not a file.")
        elif (data := self._tree.read(path.parts)) is not None:
            return data.decode("utf-8", "replace")
        raise UsageError(f"The path {path.given} does not exist. Please provide a valid path.")

    def _read_shown(self, path: _Path) -> str:
        """Return a text as a model may see it: threats that came in from outside are replaced by a marker."""
        text = self._read(path)
        if path.page is None:
            return "".join(mask_threats([text], lambda _text: frozenset()))
        entries = self._store.page(path.page).entries
        return ENTRY_DELIMITER.join(self._store.mask(path.page, entries, is_page=True))

    def _write(self, path: _Path, text: str) -> None:
        if path.page is not None:
            self._write_page(path.page, parse(text))
            return
        if not is_encodable(text) or len(data := text.encode()) > MOST_FILE_BYTES:
            raise UsageError(f"A memory file has at most {MOST_FILE_BYTES:,} bytes of valid Unicode; keep it shorter")
        refused = check_text(text)
        if refused is not None:
            raise UsageError(f"{refused.error} {refused.remedy}")
        is_new = self._tree.status(path.parts) is None
        if is_new and sum(S_ISREG(status.st_mode) for _, status in self._tree.walk()) >= MOST_FILES:
            raise UsageError(f"There are {MOST_FILES} memory files already; delete or merge some first")
        above = [path.parts[:depth] for depth in range(1, len(path.parts))]
        if path.is_below_page or any(
            self._tree.status(folder) and not self._tree.is_folder(folder) for folder in above
        ):
            raise UsageError(f"{path.given} names a directory, or is below a file")
        self._tree.write(path.parts, data)

    def _write_page(self, target: Target, entries: tuple[str, ...]) -> None:
        before, author = self._store.page(target), Author(origin=_ORIGIN)
        if needs_approval(self._store, _ORIGIN):
            self._leave_to_person(before, target, entries, why="approval is switched on")
        result = edit_page(self._store, target, entries, before=before, author=author)
        if not isinstance(result, Refused):
            return
        if result.reason is Reason.HELD and self._approvals is not None:
            self._leave_to_person(before, target, entries, why="suspicious", rules=sorted(rules_in(result)))
        raise UsageError(f"{result.error} {result.remedy}")

    def _leave_to_person(
        self, before: Page, target: Target, entries: tuple[str, ...], *, why: str, rules: Sequence[str] = ()
    ) -> None:
        if self._approvals is None:
            raise UsageError("Changes of this page need the user's approval, which is not possible here.")
        steps = steps_between(before.entries, entries)
        edits: list[Edit] = [Add(step.after) if step.after is not None else Remove(step.before or "") for step in steps]
        pending = self._approvals.stage(target, edits, Author(origin=_ORIGIN), why=why, rules=rules)
        raise UsageError(
            f"The change waits as {pending.id} for the user, who alone can decide it. Do not send it again."
        )


def _parse(path: str) -> _Path:
    """Return the path that a text names; raises UsageError for one outside of `/memories` or of hidden files."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise UsageError(f"Path must start with {ROOT}, got: {path[:200]}")
    parts: list[str] = []
    for part in path[len(ROOT) :].split("/"):
        if part == "..":
            if not parts:
                raise UsageError(f"Path {path[:200]} would escape {ROOT} directory")
            parts.pop()  # no link is ever followed, so the folder above is the component before
        elif part not in {"", "."}:
            parts.append(part)
    name = "/".join(parts)
    is_hidden = any(part.startswith(".") for part in parts)
    if parts and (is_hidden or not is_encodable(name) or refuse_spelling(name) is not None):
        raise UsageError(f"Path {path[:200]} would escape {ROOT} directory")
    return _Path(path, tuple(parts))


def _range(value: JSON) -> tuple[int, int] | None:
    match value:
        case [int(first), int(last)]:
            return first, last
        case _:
            return None


def _number(rows: Sequence[str], first: int) -> str:
    return "\n".join(f"{number:>{_WIDTH}}\t{row}" for number, row in enumerate(rows, start=first))


def _lines_with(text: str, needle: str) -> Iterator[int]:
    position = text.find(needle)
    while position != -1:
        yield text.count("\n", 0, position) + 1
        position = text.find(needle, position + 1)


def _size(count: int) -> str:
    """Return a size as the reference implementation writes it: 12B, 4K, 1.5K."""
    unit = min((max(count, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    value = count / 1_024**unit
    return f"{int(value)}{_UNITS[unit]}" if value == int(value) else f"{value:.1f}{_UNITS[unit]}"


class AnthropicMemoryTool(SdkMemoryTool):
    """The tool `memory_20250818`, opened with the folder of the two pages; other files are in its subfolder `files`.

    With `approvals`, writes that need a person's decision become pending; without, they are refused.
    """

    def __init__(
        self, folder: Path | str, *, store: MemoryStore | None = None, approvals: Approvals | None = None
    ) -> None:
        self.store = store or MemoryStore(folder)
        super().__init__(MemoryFiles(self.store, Path(folder) / "files", approvals))

    def close(self) -> None:
        """Close the store."""
        self.store.close()

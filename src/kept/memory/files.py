"""Memory as files below `/memories`: the commands of Anthropic's memory tool, over the two pages and a folder.

`MEMORY.md` and `USER.md` are the pages, with their limits, scanner, approval, ledger and undo. Any other path is a
file in a folder of its own. The answers are those of the SDK's own implementation, because models are trained on them.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from kept.core.errors import Reason, Refused, UsageError
from kept.core.text import JSON, is_encodable
from kept.memory.approval import Approvals, needs_approval
from kept.memory.edits import Add, Author, Edit, Remove, Target, steps_between
from kept.memory.page import ENTRY_DELIMITER, Page, parse
from kept.memory.rewrite import edit_page
from kept.memory.snapshot import mask_threats
from kept.memory.store import MemoryStore, check_text, rules_in
from kept.security.paths import inside
from kept.storage.files import explain_errors, hold_lock, make_folder, read_bytes, write_atomically

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


class MemoryFiles:
    """Runs the commands over one store; raises UsageError with the text that the model must be told."""

    def __init__(self, store: MemoryStore, folder: Path, approvals: Approvals | None = None) -> None:
        self._store = store
        self._folder = folder
        self._approvals = approvals
        """Where writes wait that a person must decide; without it they are refused."""

    def run(self, command: Mapping[str, JSON]) -> str:
        """Run one command and return its answer."""
        match command:
            case {"command": "view", "path": str(path)}:
                return self._view(path, _range(command.get("view_range")))
            case {"command": "create", "path": str(path), "file_text": str(text)}:
                return self._create(path, text)
            case {"command": "str_replace", "path": str(path), "old_str": str(old)}:
                new = command.get("new_str")
                return self._replace(path, old, new if isinstance(new, str) else "")
            case {"command": "insert", "path": str(path), "insert_line": int(line), "insert_text": str(text)}:
                return self._insert(path, line, text)
            case {"command": "delete", "path": str(path)}:
                return self._delete(path)
            case {"command": "rename", "old_path": str(old_path), "new_path": str(new_path)}:
                return self._rename(old_path, new_path)
            case _:
                raise UsageError(f"Unknown command, or arguments are missing: {str(command.get('command'))[:40]!r}")

    # commands

    def _view(self, path: str, lines: tuple[int, int] | None) -> str:
        name = _relative(path)
        place = self._place(name, path)
        if name not in _PAGES and (not name or place.is_dir()):
            return self._list(path, name)
        text = self._read_shown(name, path)
        rows = text.split("\n")
        first = 0
        if lines is not None:
            first = max(1, lines[0]) - 1
            rows = rows[first : len(rows) if lines[1] == -1 else lines[1]]
        return f"Here's the content of {path} with line numbers:\n" + _number(rows, first + 1)

    def _list(self, path: str, name: str) -> str:
        shown = path.rstrip("/")
        rows = [f"{_size(_FOLDER_BYTES)}\t{shown}"]
        rows += [f"{_size(size)}\t{shown}/{item}" for item, size in sorted(self._items(name))]
        head = f"Here're the files and directories up to {_LEVELS} levels deep in {path}, excluding hidden items:"
        return f"{head}\n" + "\n".join(rows)

    def _items(self, name: str) -> Iterator[tuple[str, int]]:
        if not name:
            for page, target in _PAGES.items():
                text = self._store.page(target).text
                if text:
                    yield page, len(text.encode())
        folder = self._folder / name
        for item in sorted(folder.rglob("*")) if folder.is_dir() else ():
            parts = item.relative_to(folder).parts
            if len(parts) <= _LEVELS and not any(part.startswith(".") for part in parts) and not item.is_symlink():
                shown = "/".join(parts)
                yield (f"{shown}/", _FOLDER_BYTES) if item.is_dir() else (shown, item.stat().st_size)

    def _create(self, path: str, text: str) -> str:
        name = _relative(path)
        place = self._place(name, path)
        with self._lock():
            if self._exists(name, place):
                raise UsageError(f"File {path} already exists")
            self._write(name, place, text)
        return f"File created successfully at: {path}"

    def _replace(self, path: str, old: str, new: str) -> str:
        name = _relative(path)
        place = self._place(name, path)
        with self._lock():
            text = self._read(name, path)
            count = text.count(old) if old else 0
            if count == 0:
                raise UsageError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
            if count > 1:
                lines = ", ".join(str(number) for number in _lines_with(text, old))
                raise UsageError(
                    f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {lines}. "
                    "Please ensure it is unique"
                )
            changed = text[: text.index(old)].count("\n")
            self._write(name, place, text.replace(old, new))
        rows = self._read_shown(name, path).split("\n")
        first = max(0, changed - _AROUND)
        snippet = _number(rows[first : changed + _AROUND + 1], first + 1)
        head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return f"{head}\n{snippet}"

    def _insert(self, path: str, line: int, text: str) -> str:
        name = _relative(path)
        place = self._place(name, path)
        with self._lock():
            rows = self._read(name, path).split("\n")
            if rows[-1] == "":
                rows.pop()
            if not 0 <= line <= len(rows):
                raise UsageError(
                    f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {len(rows)}]."
                )
            rows.insert(line, text.rstrip("\n"))
            self._write(name, place, "\n".join(rows) + "\n")
        return f"The file {path} has been edited."

    def _delete(self, path: str) -> str:
        name = _relative(path)
        place = self._place(name, path)
        if not name:
            raise UsageError("Cannot delete the /memories directory itself")
        with self._lock():
            if not self._exists(name, place):
                raise UsageError(f"The path {path} does not exist")
            if name in _PAGES:
                self._write_page(_PAGES[name], ())
            else:
                with explain_errors("delete", place):
                    shutil.rmtree(place) if place.is_dir() else place.unlink()
        return f"Successfully deleted {path}"

    def _rename(self, old_path: str, new_path: str) -> str:
        old, new = _relative(old_path), _relative(new_path)
        source, target = self._place(old, old_path), self._place(new, new_path)
        if not old:
            raise UsageError("Cannot rename the /memories directory itself")
        if old in _PAGES or new in _PAGES:
            page = old if old in _PAGES else new
            raise UsageError(f"{page} is one of the two pages and cannot be renamed or replaced")
        with self._lock():
            if not self._exists(old, source):
                raise UsageError(f"The path {old_path} does not exist")
            if not new or self._exists(new, target):
                raise UsageError(f"The destination {new_path} already exists")
            if target.is_relative_to(source):
                raise UsageError(f"The destination {new_path} is inside {old_path}")
            make_folder(target.parent)
            with explain_errors("rename", source):
                source.rename(target)
        return f"Successfully renamed {old_path} to {new_path}"

    # files and pages

    def _place(self, name: str, path: str) -> Path:
        """Return the file of a path; raises UsageError if it leads elsewhere or would be invisible."""
        if not name:
            return self._folder
        if any(part.startswith(".") for part in PurePosixPath(name).parts):
            raise UsageError(f"Path {path} would escape /memories directory")
        try:
            return inside(self._folder, name)
        except UsageError:
            raise UsageError(f"Path {path} would escape /memories directory") from None

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the lock of the folder: a command reads, decides and writes."""
        make_folder(self._folder.parent)
        with hold_lock(self._folder.with_name(f"{self._folder.name}.lock")):
            yield

    def _exists(self, name: str, place: Path) -> bool:
        return bool(self._store.page(_PAGES[name]).entries) if name in _PAGES else place.exists()

    def _read(self, name: str, path: str) -> str:
        if name in _PAGES:
            if not (text := self._store.page(_PAGES[name]).text):
                raise UsageError(f"The path {path} does not exist. Please provide a valid path.")
            return text
        place = self._folder / name
        if place.is_dir():
            raise UsageError(f"The path {path} is not a file.")
        data = read_bytes(place)
        if data is None:
            raise UsageError(f"The path {path} does not exist. Please provide a valid path.")
        return data.decode("utf-8", "replace")

    def _read_shown(self, name: str, path: str) -> str:
        """Return a text as a model may see it: threats that came in from outside are replaced by a marker."""
        if name not in _PAGES:
            return "".join(mask_threats([self._read(name, path)], lambda _text: frozenset()))
        target = _PAGES[name]
        self._read(name, path)
        return ENTRY_DELIMITER.join(self._store.mask(target, self._store.page(target).entries, is_page=True))

    def _write(self, name: str, place: Path, text: str) -> None:
        if name in _PAGES:
            self._write_page(_PAGES[name], parse(text))
            return
        if not is_encodable(text) or len(data := text.encode()) > MOST_FILE_BYTES:
            raise UsageError(f"A memory file has at most {MOST_FILE_BYTES:,} bytes of valid Unicode; keep it shorter")
        refused = check_text(text)
        if refused is not None:
            raise UsageError(f"{refused.error} {refused.remedy}")
        if not place.exists() and sum(one.is_file() for one in self._folder.rglob("*")) >= MOST_FILES:
            raise UsageError(f"There are {MOST_FILES} memory files already; delete or merge some first")
        if place.is_dir() or any(parent.is_file() for parent in place.parents):
            raise UsageError(f"{name} names a directory, or is below a file")
        make_folder(place.parent)
        write_atomically(place, data)

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
        edits: list[Edit] = [Add(one.after) if one.after is not None else Remove(one.before or "") for one in steps]
        pending = self._approvals.stage(target, edits, Author(origin=_ORIGIN), why=why, rules=rules)
        raise UsageError(f"The change waits for the user: `kept memory approve {pending.id}`. Do not send it again.")


def _relative(path: str) -> str:
    """Return a path below `/memories` without that root; raises UsageError for any other path."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise UsageError(f"Path must start with /memories, got: {path[:200]}")
    return path[len(ROOT) :].strip("/")


def _range(value: JSON) -> tuple[int, int] | None:
    match value:
        case [int(first), int(last)]:
            return first, last
        case _:
            return None


def _number(rows: Sequence[str], first: int) -> str:
    return "\n".join(f"{number:>{_WIDTH}}\t{row}" for number, row in enumerate(rows, start=first))


def _lines_with(text: str, needle: str) -> Iterator[int]:
    place = text.find(needle)
    while place != -1:
        yield text.count("\n", 0, place) + 1
        place = text.find(needle, place + 1)


def _size(count: int) -> str:
    """Return a size as the reference implementation writes it: 12B, 4K, 1.5K."""
    unit = min((max(count, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    value = count / 1_024**unit
    return f"{int(value)}{_UNITS[unit]}" if value == int(value) else f"{value:.1f}{_UNITS[unit]}"

"""Forgetting in the files of a home: find those that contain a text, and clean each as the table of places says."""

from __future__ import annotations

import os
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wellkept.app.caller import Caller, Scope
from wellkept.app.places import OnForget, Place, find_place
from wellkept.backup.backup import list_outside_backups
from wellkept.core.errors import KeptError, Unreadable
from wellkept.core.regular_files import explain_errors
from wellkept.memory.page import ENTRY_DELIMITER, Target, parse
from wellkept.storage.files import read_bytes, remove, update_in_place, write_atomically
from wellkept.storage.locks import hold_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wellkept.core.text import JSON
    from wellkept.forgetting.removal import FullForgetPlan
    from wellkept.storage.texts import Texts

_FORGOTTEN = b"[forgotten]"
_COPIES = frozenset({OnForget.REMOVE, OnForget.REMOVE_COPY, OnForget.OVERWRITE})
"""Kinds of files that are cleaned even if they only contain a passage of a forgotten conversation."""
_NOT_OWN = frozenset({"users", "profiles"})
_FIXED_NAMES = frozenset({"SKILL.md", "files", "references", "templates", "scripts", "assets"})
_REMEDIES = {
    OnForget.REMOVE_COPY: "ask the owner of this home to remove it",
    OnForget.ROWS: "run `kept doctor`, then forget again",
    OnForget.SKILL: "it is not text, so edit or remove it yourself",
}
_EDIT = "edit or remove it yourself"


class HeldFile(Struct, frozen=True):
    """A file that holds a text to forget."""

    path: Path
    name: str
    """The path relative to the home."""
    place: Place | None
    size: int
    problem: str = ""
    """Why it could not be searched."""
    by_name: bool = False
    """Whether only its name holds the text."""

    @property
    def remedy(self) -> str:
        """Return what a person can do about a file that was not changed."""
        if self.by_name:
            return "its name contains the words: rename it, or remove the file or folder"
        return _EDIT if self.place is None else _REMEDIES.get(self.place.on_forget, _EDIT)

    def as_json(self) -> dict[str, JSON]:
        """Return the file, what is done with it, and its size."""
        action = "name" if self.place is None else self.place.on_forget.value
        return {"path": self.name, "action": action, "bytes": self.size}


def iterate_files(caller: Caller) -> Iterator[HeldFile]:
    """Yield every file that may contain the user's text, including those that all users share."""
    home = caller.space.home
    yield from _walk(caller, home.own)
    if not caller.is_owner:
        shared = _walk(caller, home.path)
        yield from (file for file in shared if file.place is not None and file.place.shared)


def _walk(caller: Caller, root: Path) -> Iterator[HeldFile]:
    home = caller.app.home.path
    for base, folders, names in os.walk(root):
        if Path(base) == home:
            folders[:] = [name for name in folders if name not in _NOT_OWN]
        folders.sort()
        for name in sorted(names):
            path = Path(base, name)
            relative = path.relative_to(home).as_posix()
            try:
                size = path.stat().st_size
            except OSError:  # removed meanwhile, or a link to nowhere
                continue
            yield HeldFile(path, relative, find_place(relative), size)


def find_files(caller: Caller, texts: Texts, passages: Texts) -> list[HeldFile]:
    """Return the files, except databases, that hold one of the texts, or copies that hold one of the passages."""
    files = []
    for file in iterate_files(caller):
        if file.place is not None and file.place.on_forget is OnForget.ROWS:
            continue
        try:
            if texts.are_in_file(file.path) or _holds_passage(file, passages):
                files.append(file)
            elif texts.are_in(_given_name(file)):
                files.append(replace(file, place=None, by_name=True))
        except Unreadable as error:
            files.append(replace(file, problem=error.message))
    return files


def _given_name(file: HeldFile) -> str:
    """Return the part of the path that a person or a model chose."""
    if file.place is not None and file.place.on_forget is not OnForget.SKILL:
        return ""
    parts = file.name.split("/")[1:] if file.place is not None else [file.name]
    return "/".join(part for part in parts if not part.startswith(".") and part not in _FIXED_NAMES)


def _holds_passage(file: HeldFile, passages: Texts) -> bool:
    return file.place is not None and file.place.on_forget in _COPIES and passages.are_in_file(file.path)


def find_other_copies(caller: Caller, plan: FullForgetPlan) -> list[str]:
    """Return what forget does not change.

    Copies of a database and backups are always listed: a damaged copy may contain a text in fragments, and a backup is
    compressed. Files with a passage of a forgotten conversation, other profiles and skills in other folders are
    listed if they contain the words. Transcripts of other programs belong to those programs.
    """
    going, texts = {file.name for file in plan.files}, plan.texts
    files = [file for file in iterate_files(caller) if file.name not in going]
    found = [file.name for file in files if _is_copy(file) or (_is_own_text(file) and _keeps_passage(file, plan))]
    found += [str(path) for path in _outside(caller) if texts.may_be_in_file(path)] if texts else []
    found += [str(path) for path in list_outside_backups(caller)]
    return found + [f"the transcripts that {client} keeps itself" for client in _read_clients(caller)]


def _is_own_text(file: HeldFile) -> bool:
    """Whether a passage of a forgotten conversation may be here independently, so that it stays."""
    return file.place is None or file.place.on_forget in {OnForget.SKILL, OnForget.LINES, OnForget.ENTRIES}


def _keeps_passage(file: HeldFile, plan: FullForgetPlan) -> bool:
    """Whether a passage is still in a file after the planned entries left the pages."""
    passages, page = plan.long_passages, _find_page(file.path)
    if page is None or not passages.may_be_in_file(file.path):
        return passages.may_be_in_file(file.path)
    try:
        entries = parse((read_bytes(file.path) or b"").decode("utf-8", "surrogateescape"))
    except KeptError:
        return True
    going = {entry for target, entry in plan.entries if target is page}
    return any(passages.are_in(entry) for entry in entries if entry not in going)


def _find_page(path: Path) -> Target | None:
    """Return the page that a file holds, None for other files."""
    from wellkept.memory.store import ARCHIVE, FILE_NAMES, PROJECTS

    pages = {name: target for target, name in FILE_NAMES.items()}
    if path.parent.name in ("memories", ARCHIVE):
        return pages.get(path.name)
    is_project = path.parent.parent.name == PROJECTS and path.name == FILE_NAMES[Target.MEMORY]
    return Target.PROJECT if is_project else None


def _read_clients(caller: Caller) -> list[str]:
    from wellkept.imports.record import list_clients

    with caller.database.reading() as connection:
        return list_clients(connection, caller.user)


def _is_copy(file: HeldFile) -> bool:
    place = file.place
    if place is None or file.path.suffix == ".json":  # the record of backups holds no text
        return False
    return place.on_forget is OnForget.REMOVE_COPY or place.pattern.startswith("backups/")


def _outside(caller: Caller) -> Iterator[Path]:
    """Yield files outside of the profile that may hold text of the user: skills of other folders, other profiles."""
    home = caller.app.home
    library = caller.space.skill_tools.library
    for skill in library.skills():
        if not skill.folder.is_relative_to(library.path):
            yield from (path for path in sorted(skill.folder.rglob("*")) if path.is_file())
    if caller.is_owner:
        for path in sorted(home.root.rglob("*")):
            is_profile = not path.is_relative_to(home.path) or path.is_relative_to(home.path / "profiles")
            if is_profile and path.is_file() and "users" not in path.relative_to(home.root).parts:
                yield path


def drop_spooled(caller: Caller, source: str, project: str | None) -> int:
    """Remove spooled items of a client that are not stored yet; return how many."""
    from wellkept.imports.spool import Spool, WaitingTurn

    spool, count = Spool(caller.space.home.spool), 0
    for path, waiting in spool.entries():
        of_project = waiting.project if isinstance(waiting, WaitingTurn) else None
        if waiting.client == source and project in {None, of_project}:
            spool.remove(path)
            count += 1
    prompts = caller.space.home.connections / "prompts"
    for path in sorted(prompts.glob(f"{escape(source)}-*.json")) if project is None else ():
        remove(path)
        count += 1
    return count


def treat_file(caller: Caller, file: HeldFile, texts: Texts) -> None:
    """Remove the texts from one file; the verification afterwards finds anything that remains."""
    try:
        _treat(caller, file, texts)
    except KeptError:
        return  # the verification afterwards reports the file


def _treat(caller: Caller, file: HeldFile, texts: Texts) -> None:
    match None if file.place is None else file.place.on_forget:
        case OnForget.REMOVE:
            remove(file.path)
        case OnForget.REMOVE_COPY:
            if Scope.ADMIN in caller.scopes:  # the copy holds the data of every user
                remove(file.path)
        case OnForget.OVERWRITE:
            _overwrite_lines(file.path, texts)
        case OnForget.LINES:
            data = read_bytes(file.path) or b""
            text = data.decode("utf-8", "surrogateescape")
            write_atomically(file.path, texts.without_lines(text)[0].encode("utf-8", "surrogateescape"))
        case OnForget.ENTRIES:
            _remove_entries(file.path, texts)
        case OnForget.MEMBERS:
            from wellkept.skills.curator.backup import forget_in_backup

            forget_in_backup(file.path, texts)
        case _:
            return


def _remove_entries(path: Path, texts: Texts) -> None:
    """Remove entries that the memory store could not: from a page that it refuses to write, or does not know."""
    with hold_lock(path.with_name(f"{path.name}.lock")):
        data = read_bytes(path) or b""
        entries = parse(data.decode("utf-8", "surrogateescape"))
        rest = ENTRY_DELIMITER.join(entry for entry in entries if not texts.are_in(entry))
        write_atomically(path, rest.encode("utf-8", "surrogateescape"))


def _overwrite_lines(path: Path, texts: Texts) -> None:
    """Overwrite lines with as many bytes, so that processes that append to the file are not disturbed."""
    with explain_errors("overwrite", path), update_in_place(path) as file:
        lines = file.read().decode("utf-8", "surrogateescape").splitlines(keepends=True)
        going, at = set(texts.lines_in("".join(lines))), 0
        for number, line in enumerate(lines):
            size = len(line.encode("utf-8", "surrogateescape"))
            if number in going:
                end = line[len(line.rstrip("\r\n")) :].encode()
                file.seek(at)
                file.write(_FORGOTTEN[: size - len(end)].ljust(size - len(end)) + end)
            at += size

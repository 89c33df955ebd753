"""Changing the user's own skills, always in the same order.

Lock the skill, reconcile its version log, compute the new files, check them with the guard,
record the version, and only then write the files.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace

from wellkept.core.agency import refuse_decision
from wellkept.core.clock import iso
from wellkept.core.errors import Reason, Refused, StorageError
from wellkept.core.regular_files import explain_errors
from wellkept.skills.changes import (
    Author,
    Change,
    Changed,
    Create,
    Delete,
    FileChanges,
    Patch,
    RemoveFile,
    WriteFile,
    Writing,
    action_of,
    compute_files,
)
from wellkept.skills.document import refuse_name
from wellkept.skills.guard import Level, Policy, policy
from wellkept.skills.library import SkillLibrary
from wellkept.skills.roots import MAIN, Kind, support_file
from wellkept.skills.usage import Status, usage_error
from wellkept.skills.versions import VERSIONS_FOLDER, State, Version, digest, remove_empty, state_of
from wellkept.storage.files import move
from wellkept.storage.locks import hold_lock

ARCHIVE_FOLDER = ".archive"
PlaceAction: TypeAlias = Literal["install", "update", "rollback", "restore"]
_PLACE_VERBS: Mapping[PlaceAction, str] = {"install": "installed", "update": "updated"}


class SkillEditor:
    """Writes the skills of one user; processes that edit the same skill wait for each other."""

    def __init__(self, library: SkillLibrary) -> None:
        self.library = library
        self.home = library.path

    def apply(self, change: Change, author: Author) -> Changed | Refused:
        """Apply `change`, or return why not; once this returns, the change survives power loss."""
        refused = refuse_name(change.name)
        if refused is not None:
            return refused
        with self.lock(change.name):
            folder = self.library.home_folder(change.name)
            if isinstance(change, Delete):
                if folder is None:
                    return self._not_deletable(change.name)
                return self._move_to_archive(change.name, folder, author, "delete")
            place = self._place(change, folder)
            if isinstance(place, Refused):
                return place
            return self._write(change, place, author)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the lock of one skill; reconcile its version log with the files on entry."""
        sidecar = self.home / VERSIONS_FOLDER / f"{name}.lock"
        with hold_lock(sidecar, timeout_seconds=self.library.settings.lock_timeout_seconds):
            self.library.versions.reconcile(name, iso(self.library.clock.now()))
            yield

    def begin(self, name: str, version: Version, data: Mapping[str, bytes], author: Author) -> Version:
        """Record a version before its files change, with author and time, and return it with its number."""
        signed = replace(
            version,
            time=iso(self.library.clock.now()),
            origin=author.origin,
            session_id=author.session_id,
            reason=author.reason,
            source=author.source,
        )
        return self.library.versions.begin(name, signed, data)

    def _place(self, change: Writing, folder: Path | None) -> Path | Refused:
        """Return the folder that the change writes to."""
        if isinstance(change, Create):
            return self._new_place(change, folder)
        if folder is not None:
            return folder
        known = self.library.skill(change.name)
        if known is None:
            return self._not_found(change.name)
        if known.root.is_copied_on_write:
            return self.home.joinpath(*filter(None, (known.category, change.name)))
        error = f"{change.name!r} belongs to a folder that kept only reads"
        return Refused(Reason.NOT_ALLOWED, error, f"edit the files in {str(known.folder)!r} yourself")

    def _not_deletable(self, name: str) -> Refused:
        known = self.library.skill(name)
        if known is None or known.root.kind is not Kind.OWNER:
            return self._not_found(name)
        remedy = "ask the owner to delete it, or change it: the change applies to you only"
        return Refused(Reason.NOT_ALLOWED, f"{name!r} belongs to the owner of this home", remedy)

    def _new_place(self, change: Create, folder: Path | None) -> Path | Refused:
        known = self.library.skill(change.name)
        if folder is not None or known is not None:
            remedy = f"change it with action 'patch' or 'edit', or choose another name than {change.name!r}"
            return Refused(Reason.INVALID, f"there is a skill {change.name!r} already", remedy)
        if change.category:
            refused = refuse_name(change.category)
            if refused is not None:
                return Refused(Reason.INVALID, f"{change.category[:80]!r} cannot be a category", refused.remedy)
        place = self.home.joinpath(*filter(None, (change.category, change.name)))
        if not _is_free(place) or (place.parent / MAIN).exists():
            return Refused(
                Reason.INVALID, f"{str(place.relative_to(self.home))!r} is taken", "choose another name or category"
            )
        return place

    def _not_found(self, name: str) -> Refused:
        near = [ranked.skill.name for ranked in self.library.search(name)[:3]]
        return Refused(Reason.NO_MATCH, f"there is no skill {name!r}", "skills_list shows the names", {"similar": near})

    def _write(self, change: Writing, place: Path, author: Author) -> Changed | Refused:
        present = state_of(place)
        basis = present if present.files else self._copy_source(change)
        if isinstance(change, WriteFile | RemoveFile) or (isinstance(change, Patch) and change.file_path != MAIN):
            path = support_file(place, change.file_path, write=True)
            if isinstance(path, Refused):
                return path
        known = {path: basis.data[checksum] for path, checksum in basis.files.items() if checksum in basis.data}
        result = compute_files(change, known)
        if isinstance(result, Refused):
            return result
        refused = _check_guard(result, author)
        if refused is not None:
            return refused
        after, data = _merge_files(basis, result)
        if after == dict(present.files):
            return Changed(change.name, action_of(change), 0, "", "Nothing changed: the skill already has this text.")
        version = Version(action_of(change), self._relative(place), present.files, after)
        return self._commit(change.name, version, data={**present.data, **data}, author=author, message=result.message)

    def _copy_source(self, change: Writing) -> State:
        """Return the files of a bundled or the owner's skill, which the first change copies to the user's folder."""
        known = None if isinstance(change, Create) else self.library.skill(change.name)
        return state_of(known.folder) if known is not None and known.root.is_copied_on_write else State({})

    def place_files(
        self, name: str, place: Path, *, files: Mapping[str, bytes], author: Author, action: PlaceAction
    ) -> Changed:
        """Make `place` hold exactly `files`, for installs and rollbacks; the caller holds the lock."""
        present = state_of(place)
        after, data = _merge_files(State({}), FileChanges(files, ""))
        version = Version(action, self._relative(place), present.files, after)
        message = f"Skill {name!r} {_PLACE_VERBS.get(action, 'put back')}."
        return self._commit(name, version, data={**present.data, **data}, author=author, message=message)

    def _commit(
        self, name: str, version: Version, *, data: Mapping[str, bytes], author: Author, message: str
    ) -> Changed:
        """Record the version, write the files, count the change: in this order a crash loses nothing."""
        numbered = self.begin(name, version, data, author)
        self.library.versions.apply(name, numbered)
        return self._count(Changed(name, numbered.action, numbered.number, numbered.id, message), author)

    def _count(self, changed: Changed, author: Author) -> Changed:
        try:
            if changed.action in {"create", "install"}:
                self.library.usage.record_creation(
                    changed.name, by={"background_review": "review"}.get(author.origin, author.origin)
                )
            elif changed.action in {"delete", "archive"}:
                self._mark_archived(changed.name)
            else:
                self.library.usage.record_patch(changed.name)
        except StorageError as error:
            return replace(changed, warnings=(usage_error(error),))
        return changed

    def _mark_archived(self, name: str) -> None:
        now = iso(self.library.clock.now())
        self.library.usage.change({name: lambda use: replace(use, state=Status.ARCHIVED, archived_at=now)})

    def accept(self, name: str, author: Author) -> Changed | Refused:
        """Record that a person accepts the files as they are, although the guard finds them dangerous."""
        with self.lock(name):
            folder = self.library.home_folder(name)
            if folder is None:
                return self._not_found(name)
            present = state_of(folder)
            version = Version("accept", self._relative(folder), present.files, present.files)
            numbered = self.begin(name, version, present.data, author)
        message = f"Skill {name!r} is accepted as it is; any change of its files ends that."
        return Changed(name, "accept", numbered.number, numbered.id, message)

    def archive(self, name: str, author: Author) -> Changed | Refused:
        """Move one of the user's skills to the archive, keeping its category."""
        with self.lock(name):
            folder = self.library.home_folder(name)
            return self._not_found(name) if folder is None else self._move_to_archive(name, folder, author, "archive")

    def _move_to_archive(self, name: str, folder: Path, author: Author, action: str) -> Changed:
        present = state_of(folder)
        relative = self._relative(folder)
        numbered = self.begin(name, Version(action, relative, present.files, {}), present.data, author)
        target = self.home / ARCHIVE_FOLDER / relative
        if target.exists():
            older = self.home / ARCHIVE_FOLDER / ".older" / f"{name}-{numbered.number}"
            move(target, older)
        move(folder, target)
        self.tidy(folder.parent)
        message = f"Skill {name!r} moved to the archive; `kept skills undo {name}` brings it back."
        return self._count(Changed(name, action, numbered.number, numbered.id, message), author)

    def restore(self, name: str, author: Author) -> Changed | Refused:
        """Move a skill from the archive back to its category."""
        refused = refuse_name(name)
        if refused is not None:
            return refused
        with self.lock(name):
            archived = self.archived_folder(name)
            if archived is None:
                return Refused(
                    Reason.NO_MATCH, f"{name!r} is not in the archive", "`kept curator status` lists what is"
                )
            if self.library.home_folder(name) is not None:
                return Refused(Reason.MOVED_ON, f"there is a newer skill {name!r}", "delete or rename that one first")
            relative = archived.relative_to(self.home / ARCHIVE_FOLDER).as_posix()
            state = state_of(archived)
            numbered = self.begin(name, Version("restore", relative, {}, state.files), state.data, author)
            move(archived, self.home / relative)
            self.tidy(archived.parent)
            now = iso(self.library.clock.now())
            self.library.usage.change(
                {name: lambda use: replace(use, state=Status.ACTIVE, archived_at=None, last_used_at=now)}
            )
            return Changed(name, "restore", numbered.number, numbered.id, f"Skill {name!r} restored to {relative!r}.")

    def purge(self, name: str) -> Changed | Refused:
        """Remove a skill permanently, with its archived copies and versions; never offered to the agent."""
        refused = refuse_name(name)
        if refused is not None:
            return refused
        with self.lock(name):
            older = self.home / ARCHIVE_FOLDER / ".older"
            places = [self.library.home_folder(name), self.archived_folder(name), self.home / VERSIONS_FOLDER / name]
            found = [place for place in places if place is not None and place.is_dir()]
            if not found:
                return self._not_found(name)
            for place in (*found, *older.glob(f"{name}-*[0-9]")):
                with explain_errors("remove", place):
                    shutil.rmtree(place)
                self.tidy(place.parent)
        self.library.usage.forget(name)
        return Changed(name, "purge", 0, "", f"Skill {name!r} and all its versions are removed.")

    def archived_folder(self, name: str) -> Path | None:
        """Return the folder of an archived skill, None when the archive does not have it."""
        return next((path for path in self.archive_folders() if path.name == name), None)

    def archive_folders(self) -> list[Path]:
        """Return the folders of all archived skills."""
        archive = self.home / ARCHIVE_FOLDER
        found = [main.parent for depth in ("*", "*/*", "*/*/*") for main in archive.glob(f"{depth}/{MAIN}")]
        return sorted(path for path in found if ".older" not in path.parts)

    def tidy(self, folder: Path) -> None:
        """Remove empty category folders from `folder` upwards; one with a DESCRIPTION.md is not empty."""
        archive = self.home / ARCHIVE_FOLDER
        remove_empty(archive if folder.is_relative_to(archive) else self.home, folder)

    def _relative(self, place: Path) -> str:
        return place.relative_to(self.home).as_posix()


def _is_free(place: Path) -> bool:
    """Whether nothing is in the way of a new skill; a folder without files is what a killed writer leaves."""
    if place.is_symlink() or not place.exists():
        return not place.is_symlink()
    return place.is_dir() and not state_of(place).files


def _check_guard(result: FileChanges, author: Author) -> Refused | None:
    """Return a refusal when the guard wants a person to review the files first."""
    if author.trust is None:
        return None
    from wellkept.skills.guard import (
        inspect,  # loading its rules takes a third of the time to start and read a skill
    )

    report = inspect({path: data for path, data in result.files.items() if data is not None})
    if policy(author.trust, report.danger) is Policy.ALLOW:
        return None
    findings = [str(finding) for finding in report.findings if finding.level is Level.CRITICAL][:10]
    remedy = "remove what the rules name, or let the person decide: `kept skills pending`"
    error = f"the guard considers this dangerous: {', '.join(report.rules)}"
    return Refused(Reason.HELD, error, remedy, {"rules": list(report.rules), "findings": findings})


def _merge_files(basis: State, result: FileChanges) -> tuple[dict[str, str], dict[str, bytes]]:
    after, data = dict(basis.files), dict(basis.data)
    for path, content in result.files.items():
        if content is None:
            after.pop(path, None)
            continue
        executable = basis.files.get(path, "").endswith("+x") or (path not in basis.files and content.startswith(b"#!"))
        after[path] = digest(content, executable=executable)
        data[after[path]] = content
    return after, data


def undo(editor: SkillEditor, name: str, author: Author, *, number: int | None = None) -> Changed | Refused:
    """Undo the change `number`, by default the newest that is not undone yet; repeating it walks back.

    An undo is a change with a number of its own: undoing that number redoes the original change.
    """
    refused = refuse_name(name)
    if refused is not None:
        return refused
    with editor.lock(name):
        versions = [version for version in editor.library.versions.of(name) if not version.voided]
        chosen = _pick(versions, number)
        if chosen is None:
            wanted = "nothing left" if number is None else f"no change {number}"
            return Refused(
                Reason.NO_MATCH, f"{name!r} has {wanted} to undo", f"`kept skills log {name}` lists its changes"
            )
        refused = _refuse_forgotten(editor, name, chosen)
        if refused is not None:
            return refused
        if author.trust is not None and chosen.is_of_person:
            raise refuse_decision("a person made this change", f"`kept skills undo {name} {chosen.number}`")
        present = state_of(editor.home / versions[-1].place)
        moved_on = [path for path in chosen.touched if present.files.get(path) != chosen.after.get(path)]
        if moved_on:
            error = f"{name!r} moved on: {', '.join(moved_on[:5])} changed after change {chosen.number}"
            return Refused(Reason.MOVED_ON, error, f"undo the later changes first: `kept skills log {name}`")
        return _revert(editor, name, chosen, author)


def _refuse_forgotten(editor: SkillEditor, name: str, chosen: Version) -> Refused | None:
    """Return the refusal to undo a change of which nothing is left, or whose files cannot be brought back."""
    needed = [chosen.before[path] for path in chosen.touched if path in chosen.before]
    if not chosen.forgotten:
        return None
    if not chosen.touched:
        why = "what it changed was forgotten, which is permanent"
    elif any(editor.library.versions.content(name, checksum) is None for checksum in needed):
        why = "the bytes that it would bring back were forgotten"
    else:
        return None
    error = f"change {chosen.number} of {name!r} cannot be undone: {why}"
    return Refused(Reason.MOVED_ON, error, f"`kept skills log {name}` lists its changes; name another one")


def _pick(versions: list[Version], number: int | None) -> Version | None:
    if number is not None:
        return next((version for version in versions if version.number == number), None)
    taken = {version.undoes for version in versions if version.undoes is not None and not _is_undone(version, versions)}
    standing = [version for version in versions if version.undoes is None and version.number not in taken]
    return standing[-1] if standing else None


def _is_undone(version: Version, versions: list[Version]) -> bool:
    return any(later.undoes == version.number and not _is_undone(later, versions) for later in versions)


def _revert(editor: SkillEditor, name: str, chosen: Version, author: Author) -> Changed:
    place = editor.home / chosen.place
    present = state_of(place)
    after = dict(present.files)
    for path in chosen.touched:
        after.pop(path, None)
        if path in chosen.before:
            after[path] = chosen.before[path]
    version = Version("undo", chosen.place, present.files, after, undoes=chosen.number)
    archived = editor.home / ARCHIVE_FOLDER / chosen.place
    numbered = editor.begin(name, version, present.data, author)
    if not present.files and archived.is_dir() and dict(state_of(archived).files) == after:
        move(archived, place)
        editor.tidy(archived.parent)
    else:
        editor.library.versions.apply(name, numbered)
    state = Status.ACTIVE if after else Status.ARCHIVED
    editor.library.usage.change(
        {name: lambda use: replace(use, state=state, archived_at=None if after else numbered.time)}
    )
    rest = ", without the lines that were forgotten" if chosen.forgotten else ""
    message = f"Change {chosen.number} ({chosen.action}) of {name!r} undone{rest}."
    return Changed(name, "undo", numbered.number, numbered.id, message)

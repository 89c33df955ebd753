"""Merge of the skills of a backup into a library, by their version histories."""

import shutil
import stat
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path

from wellkept.skills.changes import Author
from wellkept.skills.document import refuse_name
from wellkept.skills.editor import SkillEditor
from wellkept.skills.roots import MAIN, files_of, read_regular
from wellkept.skills.usage import USAGE_FILE, parse_usage
from wellkept.skills.versions import VERSIONS_FOLDER, Version, Versions, fingerprint, state_of
from wellkept.storage.files import move, read_bytes

_MOST_DEPTH = 4


class SkillChange(StrEnum):
    """What a restore does with a skill."""

    NEW = "new"
    """It does not exist here."""
    SAME = "unchanged"
    """Both are the same, or the one here continues that of the backup."""
    UPDATED = "updated"
    """The one of the backup continues the one here."""
    BOTH = "conflict"
    """Both were changed: ours stays, and that of the backup becomes a version of it."""


class SkillMerge:
    """The skills of a backup, in the folder `source`, beside those of a library."""

    def __init__(self, editor: SkillEditor, source: Path) -> None:
        self._editor = editor
        self._source = source
        self._versions = Versions(source)

    def find(self) -> dict[str, Path]:
        """Return the folders of the backup's skills by name, without archived ones."""
        found: dict[str, Path] = {}
        for main in sorted(self._source.rglob(MAIN)) if self._source.is_dir() else ():
            parts = main.parent.relative_to(self._source).parts
            is_skill = parts and len(parts) <= _MOST_DEPTH and not any(part.startswith(".") for part in parts)
            if is_skill and refuse_name(main.parent.name) is None:
                found.setdefault(main.parent.name, main.parent)
        return found

    def decide(self, name: str, folder: Path) -> SkillChange:
        """Return what a restore would do with one skill; writes nothing."""
        own = self._editor.library.home_folder(name)
        known = self._editor.library.versions.of(name)
        if own is None and not known:
            return SkillChange.NEW
        theirs = fingerprint(state_of(folder).files)
        mine = fingerprint(state_of(own).files if own is not None else {})
        if theirs == mine or theirs in _states(known):
            return SkillChange.SAME
        return SkillChange.UPDATED if mine in _states(self._versions.of(name)) else SkillChange.BOTH

    def apply(self, name: str, folder: Path) -> SkillChange:
        """Bring one skill into the library; repeating it changes nothing."""
        editor, change = self._editor, self.decide(name, folder)
        with editor.lock(name):
            own = editor.library.home_folder(name)
            if change is SkillChange.NEW:
                move(folder, editor.home / folder.relative_to(self._source))
            elif change is not SkillChange.SAME:
                target = own or editor.home / folder.relative_to(self._source)
                before = read_skill(target)
                author = Author("restore", reason="from a backup")
                editor.place_files(name, target, files=read_skill(folder), author=author, action="restore")
                if change is SkillChange.BOTH:
                    editor.place_files(name, target, files=before, author=author, action="restore")
        return change

    def apply_histories(self) -> None:
        """Take the versions of skills that have none here, deleted ones included.

        After the folders: a history without its files would look like a deletion from outside.
        """
        for history in sorted((self._source / VERSIONS_FOLDER).glob("*/")):
            name, versions = history.name, self._editor.library.versions
            if refuse_name(name) is not None or versions.of(name):
                continue
            last = [version for version in self._versions.of(name) if not version.voided][-1:]
            is_deleted = bool(last) and not last[0].after
            with self._editor.lock(name):
                if is_deleted or self._editor.library.home_folder(name) is not None:
                    own = self._editor.home / VERSIONS_FOLDER / name
                    shutil.rmtree(own, ignore_errors=True)  # an empty folder, or one without a readable version
                    move(history, own)

    def apply_usage(self) -> None:
        """Take the counters of skills that were never counted here."""
        raw = read_bytes(self._source / USAGE_FILE)
        theirs = parse_usage(raw) if raw is not None else {}
        known = self._editor.library.usage.read()
        new = {name: use for name, use in theirs.items() if name not in known}
        if new:
            self._editor.library.usage.replace_all({**new, **known})


def _states(versions: Iterable[Version]) -> set[str]:
    return {fingerprint(files) for version in versions for files in (version.before, version.after)}


def read_skill(folder: Path) -> Mapping[str, bytes]:
    """Return the files of a skill by their path in its folder; links are not files of it."""
    paths = [path for path, status in files_of(folder) if stat.S_ISREG(status.st_mode)]
    found = {path: read_regular(folder / path) for path in paths}
    return {path: data for path, data in found.items() if data is not None}

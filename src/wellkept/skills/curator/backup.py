"""Backups of one user's skills: taken before the curator moves anything, restored as a whole."""

import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from wellkept.core.errors import NotFound, Unreadable
from wellkept.core.ports import Clock
from wellkept.core.regular_files import explain_errors
from wellkept.core.text import JSON
from wellkept.core.values import asdict
from wellkept.skills.changes import Author
from wellkept.skills.editor import ARCHIVE_FOLDER, SkillEditor
from wellkept.skills.forgetting import rewrite
from wellkept.skills.roots import ROLLBACK_JOURNAL, files_of, read_regular
from wellkept.skills.usage import USAGE_FILE, parse_usage
from wellkept.skills.versions import state_of
from wellkept.storage.files import make_folder, read_bytes, write_atomically
from wellkept.storage.texts import Texts

CURATOR_FOLDER = ".curator"
_MOST_BYTES = 64 * 1_048_576
"""The size limit for one file: above that for skills, so that files placed by hand are backed up too."""


class RollbackResult(Struct, frozen=True):
    """What a rollback restored."""

    backup: str
    restored: tuple[str, ...]
    unarchived: tuple[str, ...]

    def as_json(self) -> dict[str, JSON]:
        """Return the backup and the skills that differed from it."""
        return {"success": True, "backup": self.backup, "restored": [*self.restored]}


class Begun(Struct, frozen=True):
    """A rollback that has begun: the backup to restore, and the one that holds the state before."""

    backup: str
    before: str


class Backups:
    """The newest backups, one archive each."""

    def __init__(self, editor: SkillEditor, clock: Clock, *, kept: int = 5) -> None:
        self._editor = editor
        self._folder = editor.home / CURATOR_FOLDER / "backups"
        self._clock = clock
        self._kept = kept

    def take(self, *, name: str = "", spare: str = "") -> str:
        """Back up the user's skills and the usage file, and return the backup's name.

        The oldest backups over the limit are removed, except `spare`.
        """
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for path, data, mode in self._read_files():
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(data), mode
                archive.addfile(entry, io.BytesIO(data))
        make_folder(self._folder)
        name = name or self._free_name()
        write_atomically(self._folder / name, stream.getvalue())
        for old in self.names()[: -self._kept]:
            if old != spare:
                (self._folder / old).unlink(missing_ok=True)
        return name

    def names(self) -> list[str]:
        """Return the backups that exist, oldest first."""
        return sorted(path.name for path in self._folder.glob("*.tar.gz"))

    def _free_name(self) -> str:
        stamp = f"{self._clock.now():%Y%m%dT%H%M%S}"
        taken = set(self.names())
        return next(name for number in range(1_000) if (name := f"{stamp}-{number:03d}.tar.gz") not in taken)

    def _read_files(self) -> list[tuple[str, bytes, int]]:
        found = []
        for folder in self._editor.library.home_folders():
            for path, status in files_of(folder):
                data = _bytes(folder / path)
                if data is not None:
                    name = f"skills/{folder.relative_to(self._editor.home).as_posix()}/{path}"
                    found.append((name, data, 0o700 if status.st_mode & 0o100 else 0o600))
        usage = self._editor.library.usage.read_raw()
        if usage is not None:
            found.append((USAGE_FILE, usage, 0o600))
        return found

    def roll_back(self, name: str | None = None) -> RollbackResult:
        """Restore every skill of a backup, byte for byte; without a name the newest, or the one that was begun.

        The current state is backed up first. Newer skills stay, and every change is a version that
        can be undone. An interrupted rollback continues where it stopped.
        """
        begun = self.unfinished()
        if begun is None or name not in {None, begun.backup}:
            begun = self._begin(name)
        held = _read(self._folder / begun.backup)
        if begun.before not in self.names():
            self.take(name=begun.before, spare=begun.backup)
        before = _by_skill(_read(self._folder / begun.before))
        restored, unarchived = [], []
        for place, files in sorted(_by_skill(held).items()):
            skill = Path(place).name
            if self._put_back(skill, place, files) or before.get(place) != files:
                restored.append(skill)
            if self._leave_archive(place, files):
                unarchived.append(skill)
        usage = held.get(USAGE_FILE)
        if usage is not None:
            self._editor.library.usage.replace_all({**self._editor.library.usage.read(), **parse_usage(usage)})
        with explain_errors("remove", self._journal):
            self._journal.unlink(missing_ok=True)
        return RollbackResult(begun.backup, tuple(restored), tuple(unarchived))

    @property
    def _journal(self) -> Path:
        return self._editor.home / ROLLBACK_JOURNAL

    def _begin(self, name: str | None) -> Begun:
        """Record what is going to be restored; from now on the rollback is completed, whatever happens."""
        names = self.names()
        chosen = name or (names[-1] if names else "")
        if chosen not in names:
            raise NotFound(f"there is no backup {chosen!r}", f"the backups are: {', '.join(names) or 'none'}")
        _read(self._folder / chosen)  # raises before anything changes
        begun = Begun(chosen, self._free_name())
        write_atomically(self._journal, json.dumps(asdict(begun)).encode())
        return begun

    def unfinished(self) -> Begun | None:
        """Return the rollback that was begun and not finished."""
        raw = read_bytes(self._journal)
        try:
            begun = None if raw is None else msgspec.json.decode(raw, type=Begun)
        except ValueError:
            return None
        return begun if begun is not None and begun.backup in self.names() else None

    def _put_back(self, name: str, place: str, files: Mapping[str, bytes]) -> bool:
        editor = self._editor
        with editor.lock(name):
            elsewhere = editor.library.home_folder(name)
            target = editor.home / place
            if elsewhere is not None and elsewhere != target:
                # the skill was moved there after the backup; the version log still has its bytes
                editor.place_files(name, elsewhere, files={}, author=Author("rollback"), action="rollback")
            if {path: _bytes(target / path) for path in state_of(target).files} == dict(files):
                return False
            editor.place_files(name, target, files=files, author=Author("rollback"), action="rollback")
        return True

    def _leave_archive(self, place: str, files: Mapping[str, bytes]) -> bool:
        """Remove the archived copy of a restored skill when the bytes are the same."""
        archived = self._editor.home / ARCHIVE_FOLDER / place
        present = {path: _bytes(archived / path) for path, _status in files_of(archived)}
        if not present or present != dict(files):
            return False
        with explain_errors("remove", archived):
            shutil.rmtree(archived)
        self._editor.tidy(archived.parent)
        return True


def forget_in_backup(path: Path, texts: Texts) -> None:
    """Rewrite a backup without the passages that contain one of the texts; files that are not text are left out."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for entry, data in _entries(path):
            rest = data
            if texts.are_in_bytes(data):
                folder = entry.name.removesuffix("/SKILL.md").rpartition("/")[2]
                rest = rewrite(entry.name, data, folder=folder, texts=texts) or b""
            kept = tarfile.TarInfo(entry.name)
            kept.size, kept.mode = len(rest), entry.mode
            archive.addfile(kept, io.BytesIO(rest))
    write_atomically(path, stream.getvalue())


def _bytes(file: Path) -> bytes | None:
    return read_regular(file, most_bytes=_MOST_BYTES)


def _read(path: Path) -> dict[str, bytes]:
    return {entry.name: data for entry, data in _entries(path)}


def _entries(path: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    raw = read_bytes(path) or b""
    try:
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:gz") as archive:
            return [(entry, file.read()) for entry in archive if (file := archive.extractfile(entry)) is not None]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Unreadable(f"the backup {str(path)!r} cannot be read: {error}", "choose an older one") from error


def _by_skill(held: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    places = {name.removeprefix("skills/").removesuffix("/SKILL.md") for name in held if name.endswith("/SKILL.md")}
    skills: dict[str, dict[str, bytes]] = {}
    for name, data in held.items():
        path = name.removeprefix("skills/")
        place = next((place for place in places if path.startswith(f"{place}/")), None)
        if place is not None:
            skills.setdefault(place, {})[path.removeprefix(f"{place}/")] = data
    return skills

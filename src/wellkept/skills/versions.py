"""The version log of every skill, written before the files change so that a crash loses nothing."""

import json
import logging
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.errors import StorageError
from wellkept.core.ids import sha256
from wellkept.core.regular_files import explain_errors
from wellkept.core.values import asdict
from wellkept.skills.roots import MAIN, files_of, is_text, read_regular
from wellkept.storage.files import make_folder, read_bytes, remove_stale_temps, write_atomically
from wellkept.storage.texts import Texts

log = logging.getLogger(__name__)

VERSIONS_FOLDER = ".versions"
NOTHING = "none"
_EXECUTABLE = "+x"
_SHORT = 12
_PEOPLE = frozenset({"person", "approval", "hub"})
"""Origins that stand for a person's consent: own edits, approved changes, installs."""


class Version(Struct, frozen=True):
    """One change of a skill: the files before and after, by their hashes."""

    action: str
    place: str
    """The skill's folder, relative to the home of skills."""
    before: Mapping[str, str]
    after: Mapping[str, str]
    number: int = 0
    """Its position in the log, assigned when it is recorded."""
    time: str = ""
    origin: str = ""
    session_id: str | None = None
    reason: str = ""
    undoes: int | None = None
    voided: bool = False
    """Whether the process died before any file changed: the change never happened."""
    source: str = ""
    """The untrusted source that the author had read before the change."""
    forgotten: bool = False
    """Whether lines that it added or removed were forgotten: an undo leaves them out."""

    @property
    def id(self) -> str:
        """Return the fingerprint of the files after this change."""
        return fingerprint(self.after)

    @property
    def is_by_person(self) -> bool:
        """Whether a person wrote or accepted these files through kept; an edit from outside may be anyone's."""
        return self.origin in _PEOPLE and self.action not in {"outside", "undo"}

    @property
    def is_of_person(self) -> bool:
        """Whether the change is a person's in any way; an agent cannot undo it."""
        return self.origin in _PEOPLE

    @property
    def touched(self) -> tuple[str, ...]:
        """Return the paths that differ before and after."""
        paths = sorted({*self.before, *self.after})
        return tuple(path for path in paths if self.before.get(path) != self.after.get(path))


class State(Struct, frozen=True):
    """The files of a skill: their hashes, and the bytes that were read for them."""

    files: Mapping[str, str]
    data: Mapping[str, bytes] = field(default_factory=dict)


def fingerprint(files: Mapping[str, str]) -> str:
    """Return a short hash that identifies exactly these files."""
    if not files:
        return NOTHING
    text = "\n".join(f"{path}\0{checksum}" for path, checksum in sorted(files.items()))
    return sha256(text.encode()).hexdigest()[:_SHORT]


def digest(data: bytes, *, executable: bool = False) -> str:
    """Return the hash of a file's bytes, with a suffix for executables."""
    return sha256(data).hexdigest() + (_EXECUTABLE if executable else "")


def state_of(folder: Path) -> State:
    """Read a skill's folder; links are skipped, and files over the size limit are known by size and time only."""
    files: dict[str, str] = {}
    data: dict[str, bytes] = {}
    if not folder.is_dir():
        return State(files, data)
    for path, status in files_of(folder):
        if not stat.S_ISREG(status.st_mode) or ".kept-tmp-" in path:
            continue
        executable = bool(status.st_mode & stat.S_IXUSR)
        content = read_regular(folder / path)
        if content is not None:
            files[path] = digest(content, executable=executable)
            data[files[path]] = content
        else:
            files[path] = f"large-{status.st_size}-{status.st_mtime_ns}"
    return State(files, data)


def _remove_links(folder: Path, path: str) -> None:
    """Remove links on the way to a file of a skill: what is written or removed there is elsewhere."""
    place = folder
    with explain_errors("write", folder / path):
        for part in Path(path).parts:
            place /= part
            if place.is_symlink():
                place.unlink()


class Versions:
    """The version logs of one user's skills; the caller holds the skill's lock for every write."""

    def __init__(self, home: Path, *, kept: int = 100) -> None:
        self._home = home
        self._folder = home / VERSIONS_FOLDER
        self._kept = kept

    def of(self, name: str) -> list[Version]:
        """Return the versions of a skill, oldest first; needs no lock."""
        found = []
        for number in self._numbers(name):
            version = self._read(name, number)
            if version is not None:
                found.append(version)
        return found

    def begin(self, name: str, version: Version, data: Mapping[str, bytes]) -> Version:
        """Record a change and its bytes before the files change, and return it with its number."""
        make_folder(self._folder / name / "files")
        for checksum in {*version.before.values(), *version.after.values()}:
            target = self._object(name, checksum)
            if checksum in data and not target.exists():
                write_atomically(target, data[checksum])
        numbered = replace(version, number=max(self._numbers(name), default=0) + 1)
        self._write(name, numbered)
        return numbered

    def apply(self, name: str, version: Version) -> None:
        """Change the files of the skill from the state before to the state after."""
        folder = self._home / version.place
        make_folder(folder)
        # write SKILL.md last, so that a reader never sees a skill without its support files
        for path in sorted(version.touched, key=lambda path: (path == MAIN, path)):
            checksum = version.after.get(path)
            _remove_links(folder, path)
            if checksum is None:
                with explain_errors("remove", folder / path):
                    (folder / path).unlink(missing_ok=True)
                remove_empty(folder, (folder / path).parent)
            else:
                self._put(folder / path, checksum, self.content(name, checksum))
        if not version.after:
            remove_empty(self._home, folder)
        self._prune(name)

    def _put(self, target: Path, checksum: str, content: bytes | None) -> None:
        if content is None:
            raise StorageError(f"the recorded bytes of {str(target)!r} are missing", "restore them from a backup")
        make_folder(target.parent)
        write_atomically(target, content, mode=0o600)
        with explain_errors("set the mode of", target):
            mode = stat.S_IMODE(target.stat().st_mode)
            wanted = mode | stat.S_IXUSR if checksum.endswith(_EXECUTABLE) else mode & ~0o111
            if mode != wanted:
                target.chmod(wanted)

    def content(self, name: str, checksum: str) -> bytes | None:
        """Return the recorded bytes with this hash, None when they are missing."""
        return read_bytes(self._object(name, checksum))

    def holding(self, name: str, texts: Texts) -> int:
        """Return how many recorded files and records of a skill hold one of the texts."""
        records = (self._folder / name / f"{number:06d}.json" for number in self._numbers(name))
        return sum(texts.are_found_in_file(path) for path in (*self._objects(name), *records))

    def forget(self, name: str, texts: Texts, rewrite: Callable[[str, bytes], bytes | None]) -> None:
        """Replace recorded bytes that hold one of the texts by what `rewrite` returns for their path.

        Where it returns None the bytes are removed: that version can be listed, but no longer restored.
        """
        known = self.of(name)
        paths: dict[str, str] = {}
        for path, checksum in (item for each in known for item in (*each.before.items(), *each.after.items())):
            plain = checksum.removesuffix(_EXECUTABLE)
            paths[plain] = path if path == MAIN else paths.get(plain, path)
        new: dict[str, str] = {}
        lost: dict[str, frozenset[bytes]] = {}
        going = [entry for entry in self._objects(name) if texts.are_found_in_file(entry)]
        for entry in going:
            held = read_bytes(entry) or b""
            data = rewrite(paths.get(entry.name, entry.name), held)
            lost[entry.name] = frozenset(held.splitlines()).difference((data or b"").splitlines())
            if data is not None:
                new[entry.name] = digest(data)
                write_atomically(self._object(name, new[entry.name]), data)
        for version in known:
            changed = _with_checksums(version, new, texts)
            changed = replace(changed, forgotten=version.forgotten or _changed_lost_lines(version, lost))
            if changed != version:
                self._write(name, changed)
        for entry in going:  # last, so that no record ever names bytes that are missing
            entry.unlink(missing_ok=True)

    def drop(self, name: str) -> None:
        """Remove the whole log of a skill, with its bytes."""
        for path in (*self._objects(name), *(self._folder / name).glob("*.json")):
            path.unlink(missing_ok=True)
        remove_empty(self._folder, self._folder / name / "files")

    def _objects(self, name: str) -> list[Path]:
        folder = self._folder / name / "files"
        return sorted(entry for entry in folder.iterdir() if entry.is_file()) if folder.is_dir() else []

    def reconcile(self, name: str, now: str) -> None:
        """Make the log agree with the files after a crash or an edit by hand.

        Files as before the last change: void it. A mixture of before and after: finish it.
        Anything else: record it as an edit from outside.
        """
        known = [version for version in self.of(name) if not version.voided]
        if not known:
            return
        last = known[-1]
        present = state_of(self._home / last.place)
        if dict(present.files) == dict(last.after):
            return
        if dict(present.files) == dict(last.before):
            self._write(name, replace(last, voided=True))
            if not present.files:
                _remove_remains(self._home, self._home / last.place)
            return
        paths = {*present.files, *last.before, *last.after}
        if all(present.files.get(path) in {last.before.get(path), last.after.get(path)} for path in paths):
            log.warning("finishing change %d of skill %s, which was interrupted", last.number, name)
            self.apply(name, replace(last, before=present.files))
            return
        outside = Version("outside", last.place, dict(last.after), dict(present.files), time=now, origin="person")
        self.begin(name, outside, present.data)

    def diff(self, name: str, version: Version) -> str:
        """Return what a version changed, as a unified diff."""
        import difflib

        pieces = []
        for path in version.touched:
            one, other = (self._text(name, files.get(path)) for files in (version.before, version.after))
            lines = difflib.unified_diff(one.splitlines(), other.splitlines(), f"a/{path}", f"b/{path}", lineterm="")
            pieces.append("\n".join(lines))
        return "\n".join(piece for piece in pieces if piece)

    def _text(self, name: str, checksum: str | None) -> str:
        content = self.content(name, checksum) if checksum else b""
        if content is None:
            return "(the bytes are not recorded)"
        return content.decode() if is_text(content) else f"(binary, {len(content):,} bytes)"

    def _numbers(self, name: str) -> list[int]:
        try:
            entries = [entry.name for entry in (self._folder / name).iterdir()]
        except OSError:
            return []
        return sorted(int(entry[:-5]) for entry in entries if entry.endswith(".json") and entry[:-5].isdigit())

    def _object(self, name: str, checksum: str) -> Path:
        return self._folder / name / "files" / checksum.removesuffix(_EXECUTABLE)

    def _write(self, name: str, version: Version) -> None:
        text = json.dumps(asdict(version), ensure_ascii=False, indent=1)
        write_atomically(self._folder / name / f"{version.number:06d}.json", text.encode())

    def _read(self, name: str, number: int) -> Version | None:
        path = self._folder / name / f"{number:06d}.json"
        try:
            return Version(**json.loads(read_bytes(path) or b""))
        except (ValueError, TypeError):
            log.warning("%s is not a readable version and is skipped", path)
            return None

    def _prune(self, name: str) -> None:
        numbers = self._numbers(name)
        if len(numbers) <= self._kept:
            return
        for number in numbers[: -self._kept]:
            (self._folder / name / f"{number:06d}.json").unlink(missing_ok=True)
        checksums = [checksum for kept in self.of(name) for checksum in (*kept.before.values(), *kept.after.values())]
        used = {checksum.removesuffix(_EXECUTABLE) for checksum in checksums}
        for entry in (self._folder / name / "files").iterdir():
            if entry.name not in used:
                entry.unlink(missing_ok=True)


def _remove_remains(home: Path, folder: Path) -> None:
    """Remove the temporary files and empty folders that a killed writer of a new skill left."""
    for base, _folders, _names in os.walk(folder, topdown=False):
        remove_stale_temps(Path(base, MAIN))
        remove_empty(home, Path(base))


def _with_checksums(version: Version, new: Mapping[str, str], texts: Texts) -> Version:
    """Return the record with new checksums, and without a reason or session that holds one of the texts."""

    def swap(files: Mapping[str, str]) -> dict[str, str]:
        return {path: _swap(checksum, new) for path, checksum in files.items()}

    reason = "" if texts.are_in(version.reason) else version.reason
    session_id = None if texts.are_in(version.session_id or "") else version.session_id
    before, after = swap(version.before), swap(version.after)
    return replace(version, before=before, after=after, reason=reason, session_id=session_id)


def _changed_lost_lines(version: Version, lost: Mapping[str, frozenset[bytes]]) -> bool:
    """Whether a version added or removed lines that are lost, rather than keep them."""

    def find_lost(files: Mapping[str, str], path: str) -> frozenset[bytes]:
        return lost.get(files.get(path, "").removesuffix(_EXECUTABLE), frozenset())

    return any(find_lost(version.before, path) != find_lost(version.after, path) for path in version.touched)


def _swap(checksum: str, new: Mapping[str, str]) -> str:
    plain = checksum.removesuffix(_EXECUTABLE)
    return new.get(plain, plain) + (_EXECUTABLE if checksum.endswith(_EXECUTABLE) else "")


def remove_empty(stop: Path, folder: Path) -> None:
    """Remove `folder` and its parents below `stop` while they are empty."""
    while folder != stop and folder.is_relative_to(stop):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent

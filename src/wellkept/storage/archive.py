"""The archive of a backup: a tar in gzip in which every file, and the whole, has a checksum.

In this order:

    kept-backup.json   format, version, moment, program, user, number and bytes of the files
    home/…             the files, sorted by path
    manifest.json      path, size, mode and SHA-256 of every file; what was left out, and why
    the end mark       an empty gzip member; its comment is the SHA-256 of all bytes before it

`tar xzf` opens it. The description comes first, so that an archive of a newer format is refused before anything is
read; the manifest comes last, so that every file is read once. Neither gzip nor tar checks all of its own bytes
(the time in a header, the bits after the last block): the end mark does.
"""

import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from wellkept.core.errors import Unreadable, UsageError
from wellkept.core.events import Progressed
from wellkept.core.ports import EventSink, ignore
from wellkept.core.regular_files import explain_errors, open_regular
from wellkept.core.text import JSON, dumps
from wellkept.core.values import asdict
from wellkept.storage.files import make_folder, sync_folder, temporary_name

FORMAT = "kept-backup"
VERSION = 1
HOME = "home/"
"""The prefix of files of the home."""
OUTSIDE = "outside/"
"""The prefix of files that a provider keeps elsewhere."""
_DESCRIPTION, _MANIFEST = "kept-backup.json", "manifest.json"
_MOST_DESCRIPTION_BYTES, _MOST_MANIFEST_BYTES = 65_536, 256 * 1_048_576
_MOST_NAME_BYTES = 1_024
_CHUNK_BYTES = 262_144
_GZIP_START = b"\x1f\x8b"
_LEVEL = 6
"""Higher levels take twice as long for two per cent."""
_AGE_START = b"age-encryption.org/v1\n"


class Member(Struct, frozen=True):
    """One file of an archive."""

    path: str
    size: int
    mode: int
    sha256: str


class Description(Struct, frozen=True):
    """What an archive says about itself before its files."""

    created: str
    program: str
    user: str
    profile: str
    files: int
    bytes: int
    format: str = FORMAT
    version: int = VERSION


class Contents(Struct, frozen=True):
    """An archive that was read and found to be whole."""

    description: Description
    members: tuple[Member, ...]
    details: Mapping[str, Any]
    """The rest of the manifest."""


class ArchiveWriter:
    """Writes the members of an archive in the order in which they are given."""

    def __init__(self, file: BinaryIO, description: Description, *, sink: "EventSink" = ignore) -> None:
        self._file = _HashingFile(file)
        self._gzip = gzip.GzipFile("", "wb", _LEVEL, self._file, mtime=0)
        self._tar = tarfile.TarFile(fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT)
        self._description = description
        self._sink = sink
        self._written = 0
        self.members: list[Member] = []
        self._put(_DESCRIPTION, io.BytesIO(dumps(asdict(description), indent=1).encode()), 0o600)

    def add(self, name: str, source: Path, *, mode: int) -> None:
        """Add a file, which must not change meanwhile."""
        with open_regular(source) as file:
            self.members.append(self._put(name, file, mode))

    def finish(self, details: Mapping[str, JSON]) -> None:
        """Write the manifest and the end mark."""
        manifest: dict[str, JSON] = {**details, "members": [asdict(member) for member in self.members]}
        self._put(_MANIFEST, io.BytesIO(dumps(manifest, indent=1).encode()), 0o600)
        self._tar.close()
        self._gzip.close()
        self._file.write(_end_mark(self._file.sha256.hexdigest()))
        self._sink(Progressed("writing the backup", self._description.bytes, self._description.bytes))

    def _put(self, name: str, file: BinaryIO, mode: int) -> Member:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = file.seek(0, os.SEEK_END), mode
        file.seek(0)
        hashed = _HashingFile(file, report=self._report)
        self._tar.addfile(entry, hashed)
        return Member(name, entry.size, mode, hashed.sha256.hexdigest())

    def _report(self, size: int) -> None:
        self._written += size
        total = self._description.bytes
        if self._written < total:  # the end is reported once, after the manifest
            self._sink(Progressed("writing the backup", self._written, total))


class _HashingFile(io.RawIOBase):
    """A file whose bytes are hashed as they pass."""

    def __init__(self, file: BinaryIO, *, report: Any = None) -> None:
        self._file = file
        self._report = report
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._note(data)
        return data

    def write(self, data: Any) -> int:
        self._note(data)
        return self._file.write(data)

    def _note(self, data: Any) -> None:
        self.sha256.update(data)
        if self._report is not None:
            self._report(len(data))


def _end_mark(digest: str) -> bytes:
    """Return an empty gzip member with a comment: an empty last block, a checksum of 0 and a length of 0."""
    return b"\x1f\x8b\x08\x10\x00\x00\x00\x00\x00\xff" + f"sha256:{digest}".encode() + b"\0\x03\x00" + bytes(8)


_END_BYTES = len(_end_mark("0" * 64))


@contextmanager
def create_archive(path: Path, *, passphrase: str | None = None) -> Iterator[BinaryIO]:
    """Yield a file that takes the name `path` at the end of the block, durably; an error leaves nothing of it."""
    temporary = temporary_name(path)
    with explain_errors("write", path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
            with os.fdopen(descriptor, "wb") as file:
                if passphrase is None:
                    yield file
                else:
                    from wellkept.storage.age import Encryption

                    encryption = Encryption(file, passphrase)
                    yield encryption  # type: ignore[misc]  # it has `write`, which is all that is used
                    encryption.finish()
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            with suppress(OSError):  # the first error says more
                temporary.unlink(missing_ok=True)
        sync_folder(path.parent)


@contextmanager
def open_archive(path: Path, *, passphrase: str | None = None) -> Iterator[BinaryIO]:
    """Yield the bytes of an archive, decrypted if need be; raise UsageError for a file of another kind."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        raise UsageError(f"there is no file {str(path)!r}", "check the path") from None
    except OSError as error:
        raise Unreadable(f"cannot read {str(path)!r}: {error.strerror or error}", "check the file") from error
    with file, explain_errors("read", path):
        beginning = file.read(len(_AGE_START))
        file.seek(0)
        if beginning == _AGE_START:
            from wellkept.storage.age import Decryption

            if passphrase is None:
                raise UsageError(f"{str(path)!r} is encrypted", "give its passphrase: --passphrase-env NAME")
            yield Decryption(file, passphrase)  # type: ignore[misc]  # it has `read`, which is all that is used
        elif beginning.startswith(_GZIP_START):
            yield file
        else:
            raise UsageError(f"{str(path)!r} is not a backup of kept", "`kept backup FILE` makes one")


def is_encrypted(path: Path) -> bool:
    """Whether a file needs a passphrase; False if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(len(_AGE_START)) == _AGE_START
    except OSError:
        return False


def read_archive(
    file: BinaryIO, *, into: Path | None = None, is_wanted: Callable[[str], bool] = bool, sink: "EventSink" = ignore
) -> Contents:
    """Read a whole archive, compare all checksums, and write its files, or those that are wanted, below `into`.

    Raises UsageError, or Unreadable with the name of the file that is damaged; what was written by then must not
    be used.
    """
    reading = _Reading(file, into, is_wanted, sink)
    try:
        return reading.run()
    except EOFError as error:
        raise Unreadable(f"the backup ends too early: it was cut off in {reading.at}", _DAMAGED) from error
    except tarfile.ReadError as error:
        if reading.description is None:
            message = "the file is not a backup of kept, or only the beginning of one"
            raise UsageError(message, "`kept backup FILE` makes one") from error
        raise Unreadable(f"the backup is damaged in {reading.at}: {error}", _DAMAGED) from error
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error) as error:
        raise Unreadable(f"the backup is damaged in {reading.at}: {error}", _DAMAGED) from error


_DAMAGED = "nothing was changed; use another backup"


class _Reading:
    """One pass over an archive."""

    def __init__(self, file: BinaryIO, into: Path | None, is_wanted: Callable[[str], bool], sink: "EventSink") -> None:
        self._raw = _UpToEndMark(file)
        self._into = into
        self._is_wanted = is_wanted
        self._sink = sink
        self._read = 0
        self.at = "its beginning"
        """Where reading is, for messages."""
        self.description: Description | None = None
        self._members: list[Member] = []

    def run(self) -> Contents:
        unpacked = gzip.GzipFile(fileobj=io.BufferedReader(self._raw, _CHUNK_BYTES))
        manifest: dict[str, Any] | None = None
        with tarfile.open(fileobj=unpacked, mode="r|") as tar:
            for entry in tar:
                self.at = repr(entry.name)
                if not entry.isreg() or manifest is not None:
                    raise UsageError(
                        f"the archive holds {entry.name!r}, which does not belong in a backup", "it was not used"
                    )
                manifest = self._take(tar, entry)
        problem = _drain(unpacked)
        if manifest is None or self.description is None:
            self.at = f"{self.at} or right after it"  # tarfile ends at a header that it cannot read
            raise problem or EOFError
        self.at = "the bytes after the last file"
        self._compare(manifest.pop("members", None))  # first, because it can name the damaged file
        if problem is not None:
            raise problem
        if self._raw.end_mark != _end_mark(self._raw.sha256.hexdigest()):
            raise Unreadable("the backup is damaged: its checksum as a whole does not match", _DAMAGED)
        return Contents(self.description, tuple(self._members), manifest)

    def _take(self, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> dict[str, Any] | None:
        file = tar.extractfile(entry)
        assert file is not None
        if self.description is None:
            if entry.name != _DESCRIPTION or entry.size > _MOST_DESCRIPTION_BYTES:
                raise UsageError("the file is an archive, but not a backup of kept", "`kept backup FILE` makes one")
            self.description = _parse_description(file.read())
        elif entry.name == _MANIFEST:
            if entry.size > _MOST_MANIFEST_BYTES:
                raise Unreadable("the backup is damaged: its manifest is too large", _DAMAGED)
            try:
                manifest = json.loads(file.read())
            except ValueError as error:
                raise Unreadable(f"the backup is damaged in {_MANIFEST!r}: {error}", _DAMAGED) from error
            if not isinstance(manifest, dict):
                raise Unreadable(f"the backup is damaged in {_MANIFEST!r}", _DAMAGED)
            return manifest
        else:
            self._keep(entry, file, self.description)
        return None

    def _keep(self, entry: tarfile.TarInfo, file: Any, description: Description) -> None:
        parts = entry.name.split("/")
        is_safe = entry.name.startswith((HOME, OUTSIDE)) and not {"", ".", ".."} & set(parts) and "\\" not in entry.name
        if (
            not is_safe
            or len(entry.name.encode("utf-8", "surrogateescape")) > _MOST_NAME_BYTES
            or not entry.name.isprintable()
        ):
            raise UsageError(f"the archive holds the unsafe name {entry.name[:200]!r}", "it was not used")
        if len(self._members) >= description.files or self._read + entry.size > description.bytes:
            raise UsageError("the archive holds more than it says", "it was not used")
        sha256 = hashlib.sha256()
        target = None if self._into is None or not self._is_wanted(entry.name) else self._into / entry.name
        if target is not None:
            make_folder(target.parent)
        place = Path(os.devnull) if target is None else target
        with explain_errors("write", place), place.open("wb") as out:
            while data := _read_chunk(file):
                sha256.update(data)
                out.write(data)
                self._read += len(data)
                self._sink(Progressed("reading the backup", self._read, description.bytes))
        mode = 0o700 if entry.mode & 0o100 else 0o600
        if target is not None:
            target.chmod(mode)
        self._members.append(Member(entry.name, entry.size, entry.mode, sha256.hexdigest()))

    def _compare(self, listed: Any) -> None:
        try:
            expected = {str(one["path"]): Member(**one) for one in listed}
        except (TypeError, KeyError) as error:
            raise Unreadable("the backup is damaged: its manifest lists no files", _DAMAGED) from error
        found = {member.path: member for member in self._members}
        wrong = sorted(path for path in {*expected, *found} if expected.get(path) != found.get(path))
        if wrong:
            raise Unreadable(f"the backup is damaged: {', '.join(wrong[:10])} differ from their checksums", _DAMAGED)


def _read_chunk(file: Any) -> bytes:
    """Return the next bytes of a member; report damage as ReadError, because gzip's error is an OSError."""
    try:
        data: bytes = file.read(_CHUNK_BYTES)
    except gzip.BadGzipFile as error:
        raise tarfile.ReadError(str(error)) from error
    return data


def _drain(file: gzip.GzipFile) -> Exception | None:
    """Read the rest of a file, because gzip verifies its checksum at the end; return the error, if any."""
    try:
        while file.read(_CHUNK_BYTES):
            pass
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        return error
    return None


class _UpToEndMark(io.RawIOBase):
    """The bytes of a file without the end mark, hashed as they pass."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()
        self.end_mark = b""
        """The bytes held back; at the end of the file they are the end mark."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.end_mark
        while len(data) <= _END_BYTES:
            more = self._file.read(max(1, len(buffer) + _END_BYTES - len(data)))
            if not more:
                return 0
            data += more
        given, self.end_mark = data[:-_END_BYTES], data[-_END_BYTES:]
        self.sha256.update(given)
        buffer[: len(given)] = given
        return len(given)


def _parse_description(data: bytes) -> Description:
    try:
        fields = json.loads(data)
        version = int(fields["version"]) if fields["format"] == FORMAT else 0
    except (ValueError, KeyError, TypeError):
        version = 0
    if version < 1:
        raise UsageError("the file is an archive, but not a backup of kept", "`kept backup FILE` makes one")
    if version > VERSION:
        message = f"the backup has format {version}, made by kept {fields.get('program')}; this kept reads {VERSION}"
        raise UsageError(message, "update kept; nothing was changed")
    try:
        return Description(**fields)
    except TypeError as error:
        raise Unreadable("the backup is damaged in its description", _DAMAGED) from error

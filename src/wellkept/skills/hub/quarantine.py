"""Quarantine: archives unpacked and packages checked before any of their files may be used."""

import gzip
import io
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Self, cast

from msgspec import Struct

from wellkept.core.errors import Reason, Refused
from wellkept.core.regular_files import load_bytes
from wellkept.core.text import JSON
from wellkept.skills.document import MOST_NAME, NAME, BadFrontmatter, Document, parse, read_skill
from wellkept.skills.roots import MAIN, MOST_FILE_BYTES, MOST_FILES, MOST_SKILL_BYTES, files_of, refuse_path

MOST_ENTRIES = 2_000
MOST_BYTES = 64 * 1_048_576
_CHUNK = 65_536
_DESCRIBING = frozenset(
    (
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    )
)
_MOST_HEADER_BYTES = 65_536
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Unsafe(Exception):
    """An archive that must not be unpacked."""


def unpack(data: bytes, into: Path) -> Refused | None:
    """Unpack a zip or tar.gz below `into`, or return why it is refused."""
    opened = _zip_entries if data[:4] == b"PK\x03\x04" else _tar_entries
    try:
        for name, content in _limit_total(opened(data)):
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    except Unsafe as error:
        return Refused(Reason.BLOCKED, str(error), "do not use this package")
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        OSError,
    ) as error:
        return Refused(Reason.INVALID, f"the archive cannot be read: {error}", "fetch it again, or use another source")
    return None


class _Header(tarfile.TarInfo):
    """A header of an archive; one that describes another may not be large, because it is read whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type in _DESCRIBING and header.size > _MOST_HEADER_BYTES:
            raise Unsafe(f"the archive has a header of {header.size:,} bytes")
        return header


class _Unpacked:
    """The decompressed bytes of an archive, up to the limit."""

    def __init__(self, data: bytes) -> None:
        self._file = gzip.GzipFile(fileobj=io.BytesIO(data))
        self._left = MOST_BYTES + MOST_ENTRIES * 4 * tarfile.BLOCKSIZE

    def read(self, size: int) -> bytes:
        piece = self._file.read(size)
        self._left -= len(piece)
        if self._left < 0:
            raise Unsafe(f"the archive unpacks to more than {MOST_BYTES:,} bytes")
        return piece


def _open_tar(data: bytes) -> tarfile.TarFile:
    return tarfile.open(fileobj=cast("IO[bytes]", _Unpacked(data)), mode="r|", tarinfo=_Header)


def commit_of(data: bytes) -> str:
    """Return the commit that `git archive` wrote into a tar.gz; empty when there is none."""
    try:
        with _open_tar(data) as archive:
            archive.next()
            said = archive.pax_headers.get("comment", "")
    except (tarfile.TarError, zlib.error, EOFError, OSError, Unsafe):
        return ""
    return said if _COMMIT.fullmatch(said) else ""


def _limit_total(entries: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    total = 0
    for number, (name, content) in enumerate(entries):
        total += len(content)
        if number >= MOST_ENTRIES or total > MOST_BYTES:
            raise Unsafe(f"the archive unpacks to more than {MOST_ENTRIES:,} files or {MOST_BYTES:,} bytes")
        yield name, content


def _zip_entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)
            name = _check_entry_name(entry.filename, entry.orig_filename)
            if kind == stat.S_IFLNK:
                raise Unsafe(f"the archive holds a symbolic link: {name!r}")
            if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise Unsafe(f"the archive holds a device or pipe: {name!r}")
            if entry.is_dir():
                continue
            with archive.open(entry) as file:
                yield name, _read_limited(file, name)


def _tar_entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    with _open_tar(data) as archive:
        for entry in archive:
            name = _check_entry_name(entry.name, entry.name)
            if entry.isdir():
                continue
            if not entry.isfile():
                raise Unsafe(f"the archive holds a link, device or pipe: {name!r}")
            file = archive.extractfile(entry)
            assert file is not None
            yield name, _read_limited(file, name)


def _read_limited(file: IO[bytes], name: str) -> bytes:
    """Read one entry up to the limit, whatever size the archive claims."""
    pieces, size = [], 0
    while chunk := file.read(_CHUNK):
        size += len(chunk)
        if size > 16 * MOST_FILE_BYTES:
            raise Unsafe(f"{name!r} unpacks to more than {16 * MOST_FILE_BYTES:,} bytes")
        pieces.append(chunk)
    return b"".join(pieces)


def _check_entry_name(name: str, original: str) -> str:
    plain = name.removeprefix("./").rstrip("/")
    parts = plain.split("/")
    climbs = name.startswith(("/", "\\", "~")) or ".." in parts or "\\" in original or "\0" in original
    if climbs or any(":" in part for part in parts):
        raise Unsafe(f"the archive holds a path that leads out: {name[:120]!r}")
    # hidden files are refused later, by name; here only what could escape or collide
    visible = "/".join(part.lstrip(".") or "_" for part in parts[-6:])
    if plain and refuse_path(visible) is not None:
        raise Unsafe(f"the archive holds an unsafe name: {name[:120]!r}")
    return plain


_HARMLESS_HIDDEN = frozenset({".gitignore", ".gitattributes", ".gitkeep", ".DS_Store", ".editorconfig", ".prettierrc"})
_SKIPPED_FOLDERS = frozenset({".git", ".github", "node_modules", "__pycache__", "__MACOSX"})
_DEEPEST = 6


class Package(Struct, frozen=True):
    """A skill that passed the checks of sizes and paths; its content is not inspected yet."""

    name: str
    description: str
    files: Mapping[str, bytes]
    warnings: tuple[str, ...]


def skills_below(folder: Path) -> list[Path]:
    """Return the folders with a SKILL.md, none of them inside another."""
    if (folder / MAIN).is_file() or (folder / MAIN).is_symlink():
        return [folder]
    found: list[Path] = []
    level = [folder]
    for _ in range(_DEEPEST):
        below: list[Path] = []
        for place in level:
            for child in sorted(place.iterdir()):
                if child.is_symlink() or not child.is_dir() or child.name in _SKIPPED_FOLDERS:
                    continue
                if (child / MAIN).exists() or (child / MAIN).is_symlink():
                    found.append(child)
                else:
                    below.append(child)
        level = below
    return found


def choose_skill(folder: Path, wanted: str | None) -> Path | Refused:
    """Return the folder of the wanted skill, or of the only one."""
    found = skills_below(folder)
    matching = [place for place in found if place.name == wanted or _name(place) == wanted] if wanted else found
    if len(matching) == 1:
        return matching[0]
    names: list[JSON] = [*sorted(_name(place) for place in found)]
    if not found:
        return Refused(Reason.NO_MATCH, "there is no SKILL.md in it", "check the source and the path")
    error = f"it has no skill {wanted!r}" if wanted else f"it holds {len(found)} skills"
    return Refused(Reason.AMBIGUOUS, error, "name one with --skill", {"skills": names})


def _name(folder: Path) -> str:
    document = read_skill(folder)
    return document.name if isinstance(document, Document) else folder.name


def check_package(folder: Path) -> Package | Refused:
    """Read the skill in `folder`, or return why a size, name or kind of file is not allowed."""
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    total = 0
    for path, status in files_of(folder):
        name = path.rpartition("/")[2]
        if name in _HARMLESS_HIDDEN or path.startswith((".github/", "__MACOSX/")):
            continue
        refused = _refuse_file(path, status.st_mode, status.st_size)
        if refused is None and path.casefold() in seen:
            refused = _refuse(f"two files differ only by case: {path!r}")
        if refused is not None:
            return refused
        seen.add(path.casefold())
        total += status.st_size
        if len(seen) > MOST_FILES + 1:
            return _refuse(f"the skill has more than {MOST_FILES:,} support files")
        if total > MOST_SKILL_BYTES:
            return _refuse(f"the skill has more than {MOST_SKILL_BYTES:,} bytes")
        files[path] = load_bytes(folder / path)
    return _read_package(folder.name, files)


def _refuse_file(path: str, mode: int, size: int) -> Refused | None:
    if stat.S_ISLNK(mode):
        return _refuse(f"{path!r} is a symbolic link")
    if not stat.S_ISREG(mode):
        return _refuse(f"{path!r} is a device, pipe or socket")
    if any(part.startswith(".") for part in path.split("/")):
        return _refuse(f"{path!r} is a hidden file")
    if refuse_path(path) is not None:
        return _refuse(f"{path!r} is not a safe path")
    if size > MOST_FILE_BYTES:
        return _refuse(f"{path!r} has {size:,} bytes, more than {MOST_FILE_BYTES:,}")
    return None


def _read_package(folder: str, files: Mapping[str, bytes]) -> Package | Refused:
    try:
        document = parse(files[MAIN].decode("utf-8-sig"), folder)
    except KeyError:
        return Refused(Reason.NO_MATCH, "there is no SKILL.md in it", "check the source and the path")
    except UnicodeDecodeError:
        return Refused(Reason.INVALID, "its SKILL.md is not UTF-8", "tell its author")
    if isinstance(document, BadFrontmatter):
        return Refused(Reason.INVALID, f"its SKILL.md cannot be loaded: {document.problem}", document.fix)
    if not NAME.fullmatch(document.name) or len(document.name) > MOST_NAME:
        return Refused(Reason.INVALID, f"{document.name[:80]!r} cannot be the name of a skill", "tell its author")
    warnings = tuple(warning for warning in document.warnings if "differs from the folder" not in warning)
    return Package(document.name, document.description, files, warnings)


def _refuse(error: str) -> Refused:
    return Refused(Reason.BLOCKED, f"stopped in quarantine: {error}", "do not use this package")

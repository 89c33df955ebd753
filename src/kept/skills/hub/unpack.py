"""Archives opened without trust: no path leads out, no size is believed, nothing but files comes in."""

import io
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kept.core.errors import Reason, Refused
from kept.skills.places import MOST_FILE_BYTES, bad_path

MOST_ENTRIES = 2_000
MOST_BYTES = 64 * 1_048_576
_CHUNK = 65_536
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Unsafe(Exception):
    """An archive that must not be opened."""


def unpack(data: bytes, into: Path) -> Refused | None:
    """Write the files of a zip or tar.gz below `into`, or return why it is not opened."""
    opened = _zip_entries if data[:4] == b"PK\x03\x04" else _tar_entries
    try:
        for name, content in _bounded(opened(data)):
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


def commit_of(data: bytes) -> str:
    """Return the commit that `git archive` wrote into a tar.gz, or nothing."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|gz") as archive:
            archive.next()
            said = archive.pax_headers.get("comment", "")
    except (tarfile.TarError, zlib.error, EOFError, OSError):
        return ""
    return said if _COMMIT.fullmatch(said) else ""


def _bounded(entries: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
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
            name = _checked(entry.filename, entry.orig_filename)
            if kind == stat.S_IFLNK:
                raise Unsafe(f"the archive holds a symbolic link: {name!r}")
            if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise Unsafe(f"the archive holds a device or pipe: {name!r}")
            if entry.is_dir():
                continue
            with archive.open(entry) as file:
                yield name, _limited(file, name)


def _tar_entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|gz") as archive:
        for entry in archive:
            name = _checked(entry.name, entry.name)
            if entry.isdir():
                continue
            if not entry.isfile():
                raise Unsafe(f"the archive holds a link, device or pipe: {name!r}")
            file = archive.extractfile(entry)
            assert file is not None
            yield name, _limited(file, name)


def _limited(file: IO[bytes], name: str) -> bytes:
    """Read at most one file's worth, whatever size the archive claims."""
    pieces, size = [], 0
    while chunk := file.read(_CHUNK):
        size += len(chunk)
        if size > 16 * MOST_FILE_BYTES:
            raise Unsafe(f"{name!r} unpacks to more than {16 * MOST_FILE_BYTES:,} bytes")
        pieces.append(chunk)
    return b"".join(pieces)


def _checked(name: str, original: str) -> str:
    plain = name.removeprefix("./").rstrip("/")
    parts = plain.split("/")
    climbs = name.startswith(("/", "\\", "~")) or ".." in parts or "\\" in original or "\0" in original
    if climbs or any(":" in part for part in parts):
        raise Unsafe(f"the archive holds a path that leads out: {name[:120]!r}")
    # hidden files are judged later, by name; here only what could escape or collide is refused
    visible = "/".join(part.lstrip(".") or "_" for part in parts[-6:])
    if plain and bad_path(visible) is not None:
        raise Unsafe(f"the archive holds an unsafe name: {name[:120]!r}")
    return plain

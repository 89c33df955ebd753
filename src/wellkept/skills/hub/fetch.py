"""Fetching skills of others into quarantine: downloads, git, archives, and the checks before any file may be used.

HTTP answers are bounded in size and time, and redirects go only to safe addresses. Git clones are
shallow and run without hooks, prompts or protocols other than the one in the address.
"""

import gzip
import hashlib
import io
import json
import re
import resource
import shutil
import stat
import subprocess
import tarfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self, assert_never, cast
from urllib.parse import quote, urljoin

from msgspec import Struct

from wellkept.core.agency import mark_environment
from wellkept.core.errors import Reason, Refused
from wellkept.core.regular_files import load_bytes
from wellkept.core.text import JSON
from wellkept.skills.document import MOST_NAME, NAME, BadFrontmatter, Document, parse, read_skill
from wellkept.skills.hub.sources import (
    Archive,
    Distribution,
    Download,
    Fetched,
    Folder,
    Git,
    Source,
    WellKnown,
    may_redirect,
    safe_url,
)
from wellkept.skills.roots import (
    MAIN,
    MOST_FILE_BYTES,
    MOST_FILES,
    MOST_SKILL_BYTES,
    files_of,
    plugin_roots,
    read_regular,
    refuse_path,
)
from wellkept.storage.files import copy_bytes

if TYPE_CHECKING:
    import httpx2


MOST_ENTRIES = 2_000
MOST_BYTES = 64 * 1_048_576
_CHUNK = 65_536
_DESCRIBING = frozenset(
    (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
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


_MOST_REDIRECTS = 5
_WHOLE = 4
"""The whole response may take this many times `skills.hub_timeout_seconds`, which limits each single read."""


class _Refusal(Exception):
    """Carries a refusal out of a nested context manager."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.error)
        self.refused = refused


def get(url: str, most_bytes: int, *, seconds: float, origin: str = "") -> bytes | Refused:
    """Download `url`; `origin` is the address that referred to it."""
    import httpx2

    if not may_redirect(origin or url, url):
        return Refused(Reason.BLOCKED, f"{url[:120]!r} is not a protected address", "use https://")
    deadline = time.monotonic() + _WHOLE * seconds
    try:
        with httpx2.Client(timeout=seconds, follow_redirects=False) as client, _open_response(client, url) as response:
            return _read_body(response, url, most_bytes, deadline=deadline)
    except _Refusal as no:
        return no.refused
    except httpx2.TimeoutException:
        return Refused(
            Reason.UNAVAILABLE,
            f"{url[:120]!r} was silent for {seconds:g} s",
            "try again later; skills.hub_timeout_seconds sets how long to wait",
        )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        said = str(error) or type(error).__name__
        return Refused(
            Reason.UNAVAILABLE, f"{url[:120]!r} cannot be fetched: {said}", "check the address and the network"
        )


@contextmanager
def _open_response(client: "httpx2.Client", url: str) -> Iterator["httpx2.Response"]:
    """Follow redirects one by one, checking each address before it is requested."""
    address = url
    for _ in range(_MOST_REDIRECTS + 1):
        with client.stream("GET", address, headers={"accept": "*/*"}) as response:
            if response.next_request is None:
                yield response
                return
            address = str(response.next_request.url)
        if not (safe_url(address) and may_redirect(url, address)):
            raise _Refusal(
                Refused(Reason.BLOCKED, f"{url[:120]!r} leads to an unprotected address", "use another source")
            )
    raise _Refusal(Refused(Reason.UNAVAILABLE, f"{url[:120]!r} redirects too often", "check the address"))


def _read_body(response: "httpx2.Response", url: str, most_bytes: int, *, deadline: float) -> bytes | Refused:
    if response.status_code != 200:
        return Refused(Reason.UNAVAILABLE, f"{url[:120]!r} answered {response.status_code}", "check the address")
    too_large = Refused(Reason.BLOCKED, f"{url[:120]!r} is larger than {most_bytes:,} bytes", "use another source")
    if int(response.headers.get("content-length", "0")) > most_bytes:
        return too_large
    data = bytearray()
    for chunk in response.iter_bytes():
        data += chunk
        if len(data) > most_bytes:
            return too_large
        if time.monotonic() > deadline:
            return Refused(Reason.UNAVAILABLE, f"{url[:120]!r} is too slow", "try again later, or use another source")
    return bytes(data)


_MOST_PACK_BYTES = 256 * 1_048_576
_SAFETY = ("core.hooksPath=/dev/null", "core.symlinks=true", "fetch.fsckObjects=true", "submodule.recurse=false")


def has_git(environ: Mapping[str, str]) -> bool:
    """Whether git is installed."""
    return shutil.which("git", path=environ.get("PATH")) is not None


def clone(source: Git, target: Path, *, environ: Mapping[str, str], seconds: float) -> Fetched | Refused:
    """Fetch one revision of `source` to `target`, without its history."""
    if source.ref.startswith("-"):
        return Refused(Reason.INVALID, f"{source.ref!r} is not a revision", "name a branch or tag")
    branch = ["--branch", source.ref] if source.ref else []
    options = ["--quiet", "--depth", "1", "--no-tags", "--single-branch", *branch]
    safety = [word for setting in _SAFETY for word in ("-c", setting)]
    try:
        _git([*safety, "clone", *options, "--", source.url, str(target)], source, environ=environ, seconds=seconds)
        revision = _git(["-C", str(target), "rev-parse", "HEAD"], source, environ=environ, seconds=seconds)
    except subprocess.TimeoutExpired:
        return Refused(Reason.UNAVAILABLE, f"git took more than {seconds:g} s", "try again, or use a zip")
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode("utf-8", "replace").strip().splitlines()
        return Refused(Reason.UNAVAILABLE, f"git could not fetch it: {said[-1] if said else '?'}", "check the address")
    shutil.rmtree(target / ".git")
    return Fetched(revision.decode().strip(), target)


def _git(arguments: list[str], source: Git, *, environ: Mapping[str, str], seconds: float) -> bytes:
    quiet = {
        **environ,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_ASKPASS": "true",
        # applies to redirects too: an answer over HTTPS cannot lead to a plain or local address
        "GIT_ALLOW_PROTOCOL": source.url.partition("://")[0] if "://" in source.url else "ssh",
    }
    done = subprocess.run(
        ["git", *arguments],
        env=mark_environment(quiet),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=seconds,
        check=True,
        preexec_fn=_limit_file_size,
    )
    return done.stdout


def _limit_file_size() -> None:
    """Limit the file size, so that a repository cannot fill the disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_PACK_BYTES, _MOST_PACK_BYTES))


_GIT_TIMES = 6
"""A whole clone may take this many times `skills.hub_timeout_seconds`."""
_INDEXES = ("/.well-known/agent-skills/index.json", "/.well-known/skills/index.json")
_MOST_INDEX_BYTES = 2 * 1_048_576
_MOST_DOWNLOAD_BYTES = 20 * 1_048_576


class FetchLimits(Struct, frozen=True):
    """The environment for programs, and the timeout of a single read in seconds."""

    environ: Mapping[str, str]
    seconds: float


def fetch(source: Source, into: Path, *, wanted: str | None, reach: FetchLimits) -> Fetched | Refused:
    """Fetch `source` to a folder below `into`; from an index only the `wanted` skill."""
    match source:
        case Folder(path):
            return _copy_folder(path, into)
        case Archive() | Download():
            data = _read_archive(source, reach)
            return data if isinstance(data, Refused) else _unpack_to(data, into)
        case Git():
            return _fetch_git(source, into, reach)
        case WellKnown(url):
            return _from_index(url, into, wanted, reach=reach)
        case Distribution(name):
            return _from_distribution(name, into)
        case _:
            assert_never(source)


def _read_archive(source: Archive | Download, reach: FetchLimits) -> bytes | Refused:
    if isinstance(source, Download):
        return get(source.url, _MOST_DOWNLOAD_BYTES, seconds=reach.seconds)
    data = read_regular(source.path, most_bytes=_MOST_DOWNLOAD_BYTES)
    if data is None:
        error = f"{str(source.path)!r} is not a file of at most {_MOST_DOWNLOAD_BYTES:,} bytes"
        return Refused(Reason.INVALID, error, "name a zip, or the skill's folder")
    return data


def _from_distribution(name: str, into: Path) -> Fetched | Refused:
    root = next((root for root in plugin_roots() if root.plugin == name), None)
    if root is None:
        return Refused(Reason.NO_MATCH, f"no installed package offers skills as {name!r}", "install it with pip first")
    return _copy_folder(root.path, into)


def _copy_folder(path: Path, into: Path) -> Fetched | Refused:
    """Copy a folder including its links, so that the checks see them."""
    if into.resolve().is_relative_to(path.resolve()):
        return Refused(Reason.INVALID, f"{str(path)!r} contains the home of kept", "name the skill's own folder")
    total = 0
    for number, file in enumerate(path.rglob("*")):
        total += file.lstat().st_size if not file.is_dir() else 0
        if number > MOST_ENTRIES or total > MOST_BYTES:
            return Refused(
                Reason.OVER_BUDGET, f"{str(path)!r} is too large to look through", "name the skill's own folder"
            )
        if not file.is_symlink() and not file.is_file() and not file.is_dir():
            return Refused(Reason.BLOCKED, f"{str(file)!r} is a device, pipe or socket", "do not use this package")
    ignored = shutil.ignore_patterns(".git", "__pycache__", "node_modules")
    target = into / path.resolve().name
    shutil.copytree(path, target, symlinks=True, ignore=ignored, copy_function=copy_bytes)
    return Fetched("", target)


def _unpack_to(data: bytes, into: Path) -> Fetched | Refused:
    refused = unpack(data, into)
    return refused or Fetched(f"sha256:{hashlib.sha256(data).hexdigest()}", into)


def _fetch_git(source: Git, into: Path, reach: FetchLimits) -> Fetched | Refused:
    target = into / "repository"
    found = _check_out(source, target, reach)
    if isinstance(found, Refused):
        return found
    folder = found.folder / source.path
    if folder.is_symlink() or not folder.is_dir() or not folder.resolve().is_relative_to(found.folder.resolve()):
        return Refused(Reason.NO_MATCH, f"the repository has no folder {source.path!r}", "check the path")
    return Fetched(found.revision, folder)


def _check_out(source: Git, target: Path, reach: FetchLimits) -> Fetched | Refused:
    if has_git(reach.environ):
        return clone(source, target, environ=reach.environ, seconds=_GIT_TIMES * reach.seconds)
    if not source.archive:
        return Refused(Reason.UNAVAILABLE, "git is not installed", "install git, or use a zip of the repository")
    data = get(source.archive, _MOST_DOWNLOAD_BYTES, seconds=reach.seconds)
    if isinstance(data, Refused):
        return data
    opened = _unpack_to(data, target)
    if isinstance(opened, Refused):
        return opened
    # the archive holds one folder, named after the repository and the revision
    inside = list(target.iterdir())
    return Fetched(commit_of(data) or opened.revision, inside[0]) if len(inside) == 1 else opened


def read_index(url: str, *, seconds: float) -> tuple[str, list[dict[str, JSON]]] | Refused:
    """Return the address of a site's index and its entries; invalid entries are skipped."""
    candidates = [url] if url.endswith(".json") else [url + path for path in _INDEXES]
    refused: Refused | None = None
    for address in candidates:
        data = get(address, _MOST_INDEX_BYTES, seconds=seconds)
        if isinstance(data, Refused):
            refused = refused or data
            continue
        try:
            entries = json.loads(data)["skills"]
            named = [entry for entry in entries if isinstance(entry, dict) and _is_name(entry.get("name"))]
        except (ValueError, KeyError, TypeError, RecursionError):
            return Refused(Reason.INVALID, f"{address!r} is not an index of skills", "check the address")
        return address, named
    return refused or Refused(Reason.UNAVAILABLE, f"{url!r} has no index of skills", "check the address")


def _is_name(name: JSON) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _from_index(url: str, into: Path, wanted: str | None, *, reach: FetchLimits) -> Fetched | Refused:
    read = read_index(url, seconds=reach.seconds)
    if isinstance(read, Refused):
        return read
    address, entries = read
    names: list[JSON] = [str(entry["name"]) for entry in entries]
    chosen = [entry for entry in entries if entry["name"] == wanted] if wanted else entries
    if len(chosen) != 1:
        error = f"{url!r} has no skill {wanted!r}" if wanted else f"{url!r} offers {len(entries)} skills"
        return Refused(Reason.AMBIGUOUS, error, "name one with --skill", {"skills": names})
    folder = into / str(chosen[0]["name"])
    folder.mkdir(parents=True)
    return _fetch_artifact(address, chosen[0], folder, seconds=reach.seconds)


def _fetch_artifact(address: str, entry: Mapping[str, JSON], folder: Path, *, seconds: float) -> Fetched | Refused:
    if isinstance(entry.get("files"), list):
        return _fetch_listed_files(address, entry, folder, seconds=seconds)
    try:
        url, digest = urljoin(address, str(entry.get("url", ""))), str(entry.get("digest", ""))
    except ValueError:
        return Refused(Reason.INVALID, f"the index gives {entry['name']!r} no address", "tell the publisher")
    data = get(url, _MOST_DOWNLOAD_BYTES, seconds=seconds, origin=address)
    if isinstance(data, Refused):
        return data
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if digest.lower() != found:
        error = f"{url[:120]!r} is not what the index promises (its digest differs)"
        return Refused(Reason.BLOCKED, error, "do not use it; tell the publisher")
    if entry.get("type") == "skill-md":
        (folder / "SKILL.md").write_bytes(data)
        return Fetched(found, folder)
    refused = unpack(data, folder)
    return refused or Fetched(found, folder)


def _fetch_listed_files(address: str, entry: Mapping[str, JSON], folder: Path, *, seconds: float) -> Fetched | Refused:
    """Fetch the files one by one, as an index of version 1 lists them."""
    listed = entry["files"]
    assert isinstance(listed, list)
    whole = hashlib.sha256()
    for path in listed[:100]:
        if not isinstance(path, str) or refuse_path(path) is not None:
            return Refused(
                Reason.BLOCKED, f"the index lists the unsafe path {str(path)[:80]!r}", "do not use this package"
            )
        url = urljoin(address, f"{entry['name']}/{quote(path)}")
        data = get(url, MOST_FILE_BYTES, seconds=seconds, origin=address)
        if isinstance(data, Refused):
            return data
        whole.update(data)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return Fetched(f"sha256:{whole.hexdigest()}", folder)

"""Fetching a source into quarantine."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never
from urllib.parse import quote, urljoin

from kept.core.errors import Reason, Refused
from kept.core.text import JSON
from kept.skills.document import NAME
from kept.skills.hub.repository import clone, has_git
from kept.skills.hub.sources import Archive, Distribution, Download, Fetched, Folder, Git, Source, WellKnown
from kept.skills.hub.unpack import MOST_BYTES, MOST_ENTRIES, commit_of, unpack
from kept.skills.hub.web import get
from kept.skills.places import MOST_FILE_BYTES, bad_path, read_regular
from kept.skills.roots import plugin_roots

_GIT_TIMES = 6
"""How many times the patience for one silence a whole clone may take."""
_INDEXES = ("/.well-known/agent-skills/index.json", "/.well-known/skills/index.json")
_MOST_INDEX_BYTES = 2 * 1_048_576
_MOST_DOWNLOAD_BYTES = 20 * 1_048_576


@dataclass(frozen=True, slots=True)
class Reach:
    """What fetching may use: variables for programs, and patience."""

    environ: Mapping[str, str]
    seconds: float


def fetch(source: Source, into: Path, *, wanted: str | None, reach: Reach) -> Fetched | Refused:
    """Bring `source` below `into`; of an index only the `wanted` skill."""
    match source:
        case Folder(path):
            return _copy(path, into)
        case Archive() | Download():
            data = _archive(source, reach)
            return data if isinstance(data, Refused) else _opened(data, into)
        case Git():
            return _repository(source, into, reach)
        case WellKnown(url):
            return _from_index(url, into, wanted, reach=reach)
        case Distribution(name):
            return _from_distribution(name, into)
        case _:
            assert_never(source)


def _archive(source: Archive | Download, reach: Reach) -> bytes | Refused:
    if isinstance(source, Download):
        return get(source.url, _MOST_DOWNLOAD_BYTES, seconds=reach.seconds)
    data = read_regular(source.path, most_bytes=_MOST_DOWNLOAD_BYTES)
    if data is None:
        error = f"{str(source.path)!r} is no file of at most {_MOST_DOWNLOAD_BYTES:,} bytes"
        return Refused(Reason.INVALID, error, "name a zip, or the skill's folder")
    return data


def _from_distribution(name: str, into: Path) -> Fetched | Refused:
    root = next((root for root in plugin_roots() if root.plugin == name), None)
    if root is None:
        return Refused(Reason.NO_MATCH, f"no installed package offers skills as {name!r}", "install it with pip first")
    return _copy(root.path, into)


def _copy(path: Path, into: Path) -> Fetched | Refused:
    """Copy a folder as it is, links included, so that the checks see them."""
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
    shutil.copytree(path, target, symlinks=True, ignore=ignored)
    return Fetched("", target)


def _opened(data: bytes, into: Path) -> Fetched | Refused:
    refused = unpack(data, into)
    return refused or Fetched(f"sha256:{hashlib.sha256(data).hexdigest()}", into)


def _repository(source: Git, into: Path, reach: Reach) -> Fetched | Refused:
    target = into / "repository"
    found = _checked_out(source, target, reach)
    if isinstance(found, Refused):
        return found
    folder = found.folder / source.path
    if folder.is_symlink() or not folder.is_dir() or not folder.resolve().is_relative_to(found.folder.resolve()):
        return Refused(Reason.NO_MATCH, f"the repository has no folder {source.path!r}", "check the path")
    return Fetched(found.revision, folder)


def _checked_out(source: Git, target: Path, reach: Reach) -> Fetched | Refused:
    if has_git(reach.environ):
        return clone(source, target, environ=reach.environ, seconds=_GIT_TIMES * reach.seconds)
    if not source.archive:
        return Refused(Reason.UNAVAILABLE, "git is not installed", "install git, or use a zip of the repository")
    data = get(source.archive, _MOST_DOWNLOAD_BYTES, seconds=reach.seconds)
    if isinstance(data, Refused):
        return data
    opened = _opened(data, target)
    if isinstance(opened, Refused):
        return opened
    # such an archive holds one folder, named after the repository and the revision
    inside = list(target.iterdir())
    return Fetched(commit_of(data) or opened.revision, inside[0]) if len(inside) == 1 else opened


def read_index(url: str, *, seconds: float) -> tuple[str, list[dict[str, JSON]]] | Refused:
    """Return the address of a site's index and its entries; entries that make no sense are left out."""
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
            return Refused(Reason.INVALID, f"{address!r} is no index of skills", "check the address")
        return address, named
    return refused or Refused(Reason.UNAVAILABLE, f"{url!r} has no index of skills", "check the address")


def _is_name(name: JSON) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _from_index(url: str, into: Path, wanted: str | None, *, reach: Reach) -> Fetched | Refused:
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
    return _artifact(address, chosen[0], folder, seconds=reach.seconds)


def _artifact(address: str, entry: Mapping[str, JSON], folder: Path, *, seconds: float) -> Fetched | Refused:
    if isinstance(entry.get("files"), list):
        return _listed_files(address, entry, folder, seconds=seconds)
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


def _listed_files(address: str, entry: Mapping[str, JSON], folder: Path, *, seconds: float) -> Fetched | Refused:
    """Fetch the files that an index of the first version lists one by one."""
    listed = entry["files"]
    assert isinstance(listed, list)
    whole = hashlib.sha256()
    for path in listed[:100]:
        if not isinstance(path, str) or bad_path(path) is not None:
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

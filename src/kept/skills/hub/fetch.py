"""Fetching a source into quarantine; the only place of this tier that may use the network."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never
from urllib.parse import urljoin

from kept.core.jsontypes import JSON
from kept.core.refusal import Reason, Refused
from kept.skills.document import NAME
from kept.skills.hub.sources import Archive, Download, Folder, Git, Package, Source, WellKnown, safe_url
from kept.skills.hub.unpack import MOST_BYTES, MOST_ENTRIES, unpack
from kept.skills.places import bad_path, read_regular
from kept.skills.roots import plugin_roots

GIT_SECONDS = 180.0
WEB_SECONDS = 30.0
_INDEXES = ("/.well-known/agent-skills/index.json", "/.well-known/skills/index.json")
_MOST_INDEX_BYTES = 2 * 1_048_576
_MOST_DOWNLOAD_BYTES = 20 * 1_048_576


@dataclass(frozen=True, slots=True)
class Fetched:
    """What lies in quarantine, and which revision it is."""

    revision: str
    folder: Path


def fetch(source: Source, into: Path, *, wanted: str | None, environ: Mapping[str, str]) -> Fetched | Refused:
    """Bring `source` below `into`; of an index only the `wanted` skill."""
    match source:
        case Folder(path):
            return _copy(path, into)
        case Archive() | Download():
            data = _archive(source)
            return data if isinstance(data, Refused) else _opened(data, into)
        case Git():
            return _clone(source, into, environ)
        case WellKnown(url):
            return _from_index(url, into, wanted)
        case Package(name):
            return _from_package(name, into)
        case _:
            assert_never(source)


def _archive(source: Archive | Download) -> bytes | Refused:
    if isinstance(source, Download):
        return _get(source.url, _MOST_DOWNLOAD_BYTES)
    data = read_regular(source.path, most_bytes=_MOST_DOWNLOAD_BYTES)
    if data is None:
        error = f"{str(source.path)!r} is no file of at most {_MOST_DOWNLOAD_BYTES:,} bytes"
        return Refused(Reason.INVALID, error, "name a zip, or the skill's folder")
    return data


def _from_package(name: str, into: Path) -> Fetched | Refused:
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


def _clone(source: Git, into: Path, environ: Mapping[str, str]) -> Fetched | Refused:
    if shutil.which("git", path=environ.get("PATH")) is None:
        return Refused(Reason.UNAVAILABLE, "git is not installed", "install git, or use a zip of the repository")
    if source.ref.startswith("-"):
        return Refused(Reason.INVALID, f"{source.ref!r} is no revision", "name a branch or tag")
    target = into / "repository"
    command = [
        "git",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "protocol.ext.allow=never",
        "clone",
        "--quiet",
        "--depth",
        "1",
    ]
    command += [
        "--no-tags",
        "--single-branch",
        *(["--branch", source.ref] if source.ref else []),
        "--",
        source.url,
        str(target),
    ]
    quiet = {**environ, "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", "GIT_ASKPASS": "true"}
    try:
        done = subprocess.run(command, env=quiet, capture_output=True, timeout=GIT_SECONDS, check=False)
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            return Refused(
                Reason.UNAVAILABLE, f"git could not fetch it: {said[-1] if said else '?'}", "check the address"
            )
        head = subprocess.run(
            ["git", "-C", str(target), "rev-parse", "HEAD"],
            env=quiet,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return Refused(Reason.UNAVAILABLE, f"git took more than {GIT_SECONDS:g} s", "try again, or use a zip")
    shutil.rmtree(target / ".git")
    folder = target / source.path
    if folder.is_symlink() or not folder.is_dir() or not folder.resolve().is_relative_to(target.resolve()):
        return Refused(Reason.NO_MATCH, f"the repository has no folder {source.path!r}", "check the path")
    return Fetched(head.stdout.decode().strip(), folder)


def _get(url: str, most_bytes: int) -> bytes | Refused:
    import httpx2

    if not safe_url(url):
        return Refused(Reason.BLOCKED, f"{url[:120]!r} is not a protected address", "use https://")
    try:
        with (
            httpx2.Client(timeout=WEB_SECONDS, follow_redirects=True, max_redirects=5) as client,
            client.stream("GET", url, headers={"accept": "*/*"}) as response,
        ):
            if not all(safe_url(str(step.url)) for step in (*response.history, response)):
                return Refused(Reason.BLOCKED, f"{url[:120]!r} leads to an unprotected address", "use another source")
            if response.status_code != httpx2.codes.OK:
                return Refused(
                    Reason.UNAVAILABLE, f"{url[:120]!r} answered {response.status_code}", "check the address"
                )
            return _received(response.iter_bytes(), url, most_bytes)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return Refused(
            Reason.UNAVAILABLE, f"{url[:120]!r} cannot be reached: {error}", "check the address and the network"
        )


def _received(chunks: object, url: str, most_bytes: int) -> bytes | Refused:
    data = bytearray()
    for chunk in chunks:  # type: ignore[attr-defined] # an iterator of bytes
        data += chunk
        if len(data) > most_bytes:
            return Refused(Reason.BLOCKED, f"{url[:120]!r} is larger than {most_bytes:,} bytes", "use another source")
    return bytes(data)


def read_index(url: str) -> tuple[str, list[dict[str, JSON]]] | Refused:
    """Return the address of a site's index and its entries; entries that make no sense are left out."""
    candidates = [url] if url.endswith(".json") else [url + path for path in _INDEXES]
    refused: Refused | None = None
    for address in candidates:
        data = _get(address, _MOST_INDEX_BYTES)
        if isinstance(data, Refused):
            refused = refused or data
            continue
        try:
            entries = json.loads(data)["skills"]
            named = [
                entry for entry in entries if isinstance(entry, dict) and NAME.fullmatch(str(entry.get("name", "")))
            ]
        except (ValueError, KeyError, TypeError):
            return Refused(Reason.INVALID, f"{address!r} is no index of skills", "check the address")
        return address, named
    return refused or Refused(Reason.UNAVAILABLE, f"{url!r} has no index of skills", "check the address")


def _from_index(url: str, into: Path, wanted: str | None) -> Fetched | Refused:
    read = read_index(url)
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
    return _artifact(address, chosen[0], folder)


def _artifact(address: str, entry: Mapping[str, JSON], folder: Path) -> Fetched | Refused:
    if isinstance(entry.get("files"), list):
        return _listed_files(address, entry, folder)
    url, digest = urljoin(address, str(entry.get("url", ""))), str(entry.get("digest", ""))
    data = _get(url, _MOST_DOWNLOAD_BYTES)
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


def _listed_files(address: str, entry: Mapping[str, JSON], folder: Path) -> Fetched | Refused:
    """Fetch the files that an index of the first version lists one by one."""
    listed = entry["files"]
    assert isinstance(listed, list)
    whole = hashlib.sha256()
    for path in listed[:100]:
        if not isinstance(path, str) or bad_path(path) is not None:
            return Refused(
                Reason.BLOCKED, f"the index lists the unsafe path {str(path)[:80]!r}", "do not use this package"
            )
        data = _get(urljoin(address, f"{entry['name']}/{path}"), _MOST_DOWNLOAD_BYTES)
        if isinstance(data, Refused):
            return data
        whole.update(data)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return Fetched(f"sha256:{whole.hexdigest()}", folder)

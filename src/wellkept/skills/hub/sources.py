"""Sources of skills as a person writes them, and the lock file of what was installed from them."""

import json
import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from wellkept.core.errors import Reason, Refused, Unreadable
from wellkept.core.values import asdict
from wellkept.skills.roots import MAIN, read_regular
from wellkept.skills.versions import digest
from wellkept.storage.files import make_folder, read_bytes, write_atomically
from wellkept.storage.locks import hold_lock

_GITHUB_SHORT = re.compile(r"(?:github:)?([\w.-]{1,39})/([\w.-]{1,100})((?:/[\w.-]+)*)(?:@([\w./-]{1,100}))?")
_GITHUB_PAGE = re.compile(r"/([\w.-]+)/([\w.-]+?)(?:\.git)?(?:/tree/([\w.-]+)((?:/[\w.-]+)*))?/?")
_GIT = re.compile(r"(?:git\+)?((?:https?|ssh|file)://[^\s#]+?|git@[\w.-]+:[^\s#]+?)(?:#([\w./-]+))?(?:@([\w./-]+))?")
GITHUB = "https://github.com"
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_REMEDY = "give a folder, a .zip, a git URL, owner/repo/path on GitHub, an https:// site with an index, or pip:PACKAGE"


class Folder(Struct, frozen=True):
    """A folder on this machine."""

    path: Path


class Archive(Struct, frozen=True):
    """A zip on this machine."""

    path: Path


class Download(Struct, frozen=True):
    """A zip or tar.gz behind an address."""

    url: str


class Git(Struct, frozen=True):
    """A git repository, and a folder and revision in it."""

    url: str
    path: str = ""
    ref: str = ""
    archive: str = ""
    """The address of the same revision as a tar.gz, for machines without git."""


class WellKnown(Struct, frozen=True):
    """A site that publishes an index of skills."""

    url: str


class Distribution(Struct, frozen=True):
    """An installed Python package with the entry point `wellkept.skills`."""

    name: str


Source: TypeAlias = Folder | Archive | Download | Git | WellKnown | Distribution


class Fetched(Struct, frozen=True):
    """The files of a source in `folder`, and their revision."""

    revision: str
    folder: Path


def uses_network(source: Source) -> bool:
    """Whether fetching uses the network."""
    match source:
        case Git(url):
            return not url.startswith("file://")
        case Download() | WellKnown():
            return True
        case Folder() | Archive() | Distribution():
            return False


def parse_source(text: str, *, folder: Path | None = None, github: str = GITHUB) -> Source | Refused:
    """Parse a source; an existing local path takes precedence over every other reading."""
    text = text.strip()
    if not text or text.startswith("-") or not text.isprintable():
        return Refused(Reason.INVALID, f"{text[:80]!r} names no source", _REMEDY)
    local = (folder or Path()) / Path(text).expanduser()
    if "://" not in text and not text.startswith(("git@", "pip:", "github:")) and local.exists():
        return Folder(local) if local.is_dir() else Archive(local)
    if text.startswith("pip:"):
        return Distribution(text.removeprefix("pip:"))
    return _parse_remote(text, github.rstrip("/")) or Refused(
        Reason.INVALID, f"{text[:120]!r} names no source", _REMEDY
    )


def _parse_remote(text: str, github: str) -> Source | None:
    for host in (GITHUB, github):
        page = _GITHUB_PAGE.fullmatch(text.removeprefix(host)) if text.startswith(f"{host}/") else None
        if page is not None:
            return _github_source(host, page[1], page[2], path=page[4] or "", ref=page[3] or "")
    if text.startswith(("git+", "git@", "ssh://", "git://", "file://")) or re.search(r"\.git(#|@|$)", text):
        found = _GIT.fullmatch(text)
        if found is None or _has_traversal(found[2] or ""):
            return None
        # git:// and http:// to other machines can be modified in transit
        plain = found[1].startswith("http") and not safe_url(found[1])
        return None if plain else Git(found[1], found[2] or "", found[3] or "")
    if safe_url(text):
        return (
            Download(text) if re.search(r"\.(zip|tar\.gz|tgz)$", urlsplit(text).path) else WellKnown(text.rstrip("/"))
        )
    short = _GITHUB_SHORT.fullmatch(text)
    return _github_source(github, short[1], short[2], path=short[3], ref=short[4] or "") if short is not None else None


def _github_source(host: str, owner: str, name: str, *, path: str, ref: str) -> Git | None:
    if _has_traversal(path) or _has_traversal(ref) or _has_traversal(f"{owner}/{name}"):
        return None
    url = f"{host}/{owner}/{name}"
    return Git(url, path.strip("/"), ref, f"{url}/archive/{ref or 'HEAD'}.tar.gz")


def _has_traversal(path: str) -> bool:
    return any(part in {"..", "."} or part.startswith("-") for part in path.split("/"))


def safe_url(url: str) -> bool:
    """Whether an address is safe in transit: HTTPS, or plain HTTP to this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if parts.username or parts.password or not host:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in _THIS_MACHINE)


def may_redirect(origin: str, url: str) -> bool:
    """Whether `origin` may redirect or refer to `url`; another machine may not refer to this one."""
    if not safe_url(url):
        return False
    host = urlsplit(url).hostname or ""
    return host == urlsplit(origin).hostname or urlsplit(origin).hostname in _THIS_MACHINE or not _is_local(host)


def _is_local(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_link_local or address.is_unspecified


def is_from(source: str, known: str) -> bool:
    """Whether `source` is `known` or below it; `acme/skills-2` is not below `acme/skills`."""
    return bool(known) and (
        source == known or (source.startswith(known) and (known[-1] in "/:" or source[len(known)] in "/#@"))
    )


HUB_FOLDER = ".hub"


class Installed(Struct, frozen=True):
    """One skill that came through the hub."""

    source: str
    revision: str
    files: Mapping[str, str]
    """Path → sha256."""
    verdict: str
    installed_at: str
    place: str
    network: bool
    skill: str
    """Its name at the source."""
    rules: tuple[str, ...] = ()


_Rows: TypeAlias = Mapping[str, Installed]


class LockFile:
    """`skills/.hub/lock.json`; audits depend on it, so one that cannot be read is an error."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home / HUB_FOLDER / "lock.json"

    def read(self) -> dict[str, Installed]:
        """Return what is installed, by name; an announced installation counts from the moment its SKILL.md is there."""
        rows, announced = self._read_rows()
        return {**rows, **{name: row for name, row in announced.items() if self._is_placed(row)}}

    def _read_rows(self) -> tuple[dict[str, Installed], dict[str, Installed]]:
        raw = read_bytes(self._file)
        if raw is None:
            return {}, {}
        try:
            held = json.loads(raw)
            return _rows(held["skills"]), _rows(held.get("announced", {}))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            remedy = "restore it from a backup, or move it away and install the skills again"
            raise Unreadable(f"{str(self._file)!r} is damaged", remedy) from error

    def _is_placed(self, row: Installed) -> bool:
        present = read_regular(self._home / row.place / MAIN)
        return present is not None and digest(present) == row.files.get(MAIN)

    def announce(self, name: str, installed: Installed) -> None:
        """Record an installation before its files are placed, so that a kill in between leaves no unknown skill."""
        self._change(lambda rows, announced: (rows, {**announced, name: installed}))

    def put(self, name: str, installed: Installed) -> None:
        """Record an installation."""
        self._change(lambda rows, announced: ({**rows, name: installed}, _without(announced, name)))

    def drop(self, name: str) -> None:
        """Drop an installation."""
        self._change(lambda rows, announced: (_without(rows, name), _without(announced, name)))

    def _change(self, edit: Callable[[_Rows, _Rows], tuple[_Rows, _Rows]]) -> None:
        make_folder(self._file.parent)
        with hold_lock(self._file.with_name("lock.json.lock")):
            rows, announced = edit(*self._read_rows())
            held = {"version": 1, "skills": _as_json(rows)} | ({"announced": _as_json(announced)} if announced else {})
            write_atomically(self._file, (json.dumps(held, indent=1, ensure_ascii=False) + "\n").encode())


def _rows(held: Mapping[str, Any]) -> dict[str, Installed]:
    return {name: Installed(**{**row, "rules": tuple(row["rules"])}) for name, row in held.items()}


def _as_json(rows: _Rows) -> dict[str, dict[str, Any]]:
    return {name: asdict(row) for name, row in sorted(rows.items())}


def _without(rows: _Rows, name: str) -> dict[str, Installed]:
    return {other: row for other, row in rows.items() if other != name}

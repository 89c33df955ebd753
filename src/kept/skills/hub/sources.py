"""Where a skill can be fetched from, as a person writes it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from kept.core.refusal import Reason, Refused

_GITHUB_SHORT = re.compile(r"(?:github:)?([\w.-]{1,39})/([\w.-]{1,100})((?:/[\w.-]+)*)(?:@([\w./-]{1,100}))?")
_GITHUB_URL = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?(?:/tree/([\w.-]+)((?:/[\w.-]+)*))?/?")
_GIT = re.compile(r"(?:git\+)?((?:https|ssh|git|file)://[^\s#]+?|git@[\w.-]+:[^\s#]+?)(?:#([\w./-]+))?(?:@([\w./-]+))?")
_REMEDY = "give a folder, a .zip, a git URL, owner/repo/path on GitHub, an https:// site with an index, or pip:PACKAGE"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder on this machine."""

    path: Path


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip on this machine."""

    path: Path


@dataclass(frozen=True, slots=True)
class Download:
    """A zip or tar.gz behind an address."""

    url: str


@dataclass(frozen=True, slots=True)
class Git:
    """A git repository, and a folder and revision in it."""

    url: str
    path: str = ""
    ref: str = ""


@dataclass(frozen=True, slots=True)
class WellKnown:
    """A site that publishes an index of skills."""

    url: str


@dataclass(frozen=True, slots=True)
class Package:
    """An installed Python package with the entry point `kept.skills`."""

    name: str


Source: TypeAlias = Folder | Archive | Download | Git | WellKnown | Package


def uses_network(source: Source) -> bool:
    """Tell whether fetching leaves this machine."""
    match source:
        case Git(url):
            return not url.startswith("file://")
        case Download() | WellKnown():
            return True
        case Folder() | Archive() | Package():
            return False


def parse_source(text: str, *, folder: Path | None = None, github: str = "https://github.com") -> Source | Refused:
    """Return the source that `text` names; a local path wins over everything that looks like one."""
    text = text.strip()
    if not text or text.startswith("-") or not text.isprintable():
        return Refused(Reason.INVALID, f"{text[:80]!r} names no source", _REMEDY)
    local = (folder or Path()) / Path(text).expanduser()
    if "://" not in text and not text.startswith(("git@", "pip:", "github:")) and local.exists():
        return Folder(local) if local.is_dir() else Archive(local)
    if text.startswith("pip:"):
        return Package(text.removeprefix("pip:"))
    return _remote(text, github) or Refused(Reason.INVALID, f"{text[:120]!r} names no source", _REMEDY)


def _remote(text: str, github: str) -> Source | None:
    page = _GITHUB_URL.fullmatch(text)
    if page is not None:
        return Git(f"{github}/{page[1]}/{page[2]}", (page[4] or "").strip("/"), page[3] or "")
    if text.startswith(("git+", "git@", "ssh://", "git://", "file://")) or re.search(r"\.git(#|@|$)", text):
        found = _GIT.fullmatch(text)
        return Git(found[1], found[2] or "", found[3] or "") if found and not _climbs(found[2] or "") else None
    if safe_url(text):
        return (
            Download(text) if re.search(r"\.(zip|tar\.gz|tgz)$", urlsplit(text).path) else WellKnown(text.rstrip("/"))
        )
    short = _GITHUB_SHORT.fullmatch(text)
    if short is not None and not _climbs(short[3]):
        return Git(f"{github}/{short[1]}/{short[2]}", short[3].strip("/"), short[4] or "")
    return None


def _climbs(path: str) -> bool:
    return any(part in {"..", "."} or part.startswith("-") for part in path.split("/"))


def safe_url(url: str) -> bool:
    """Tell whether an address is protected on its way: HTTPS, or plain HTTP to this machine."""
    parts = urlsplit(url)
    if parts.username or parts.password or not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in {"localhost", "127.0.0.1", "::1"})

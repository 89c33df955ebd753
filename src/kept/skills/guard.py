"""The guard: what the files of a skill would do to the machine and the agent that trust it."""

import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path, PurePosixPath

from kept.core.resources import shipped_text
from kept.security import encoded, secrets, unicode
from kept.security.scan import Finding as Threat
from kept.skills import guard_prose
from kept.skills.places import files_of, is_text, read_regular


class Level(StrEnum):
    """How bad one finding is."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"


class Danger(StrEnum):
    """The verdict over a whole skill."""

    SAFE = "safe"
    CAUTION = "caution"
    DANGEROUS = "dangerous"


class Trust(StrEnum):
    """Where a skill comes from."""

    BUNDLED = "bundled"
    TRUSTED = "trusted"
    COMMUNITY = "community"
    AGENT = "agent"


class Policy(StrEnum):
    """What is done with a skill."""

    ALLOW = "allow"
    ASK = "ask"
    BLOCK = "block"


_POLICIES = {
    Trust.BUNDLED: (Policy.ALLOW, Policy.ALLOW, Policy.ALLOW),
    Trust.TRUSTED: (Policy.ALLOW, Policy.ASK, Policy.BLOCK),
    Trust.COMMUNITY: (Policy.ALLOW, Policy.ASK, Policy.BLOCK),
    Trust.AGENT: (Policy.ALLOW, Policy.ALLOW, Policy.ASK),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that matched in one file; never quotes the text."""

    rule: str
    category: str
    level: Level
    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.level} · {self.path}:{self.line} · {self.what} [{self.rule}]"


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the guard found in a skill."""

    findings: tuple[Finding, ...]

    @property
    def danger(self) -> Danger:
        """Return the verdict: critical findings are dangerous, high ones ask for caution."""
        levels = {finding.level for finding in self.findings}
        if Level.CRITICAL in levels:
            return Danger.DANGEROUS
        return Danger.CAUTION if Level.HIGH in levels else Danger.SAFE

    @property
    def rules(self) -> tuple[str, ...]:
        """Return the rules behind the verdict."""
        serious = [finding.rule for finding in self.findings if finding.level is not Level.MEDIUM]
        return tuple(dict.fromkeys(serious))


def policy(trust: Trust, danger: Danger) -> Policy:
    """Return what is done with a skill of `trust` whose verdict is `danger`."""
    safe, caution, dangerous = _POLICIES[trust]
    return {Danger.SAFE: safe, Danger.CAUTION: caution, Danger.DANGEROUS: dangerous}[danger]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of guard_rules.toml."""

    id: str
    category: str
    level: Level
    what: str
    anchors: tuple[str, ...]
    """Lower-cased literals, one of which the text must hold before the pattern is tried."""
    pattern: re.Pattern[str]
    unless: re.Pattern[str] | None
    """What makes the matched line harmless."""
    examples: tuple[str, ...]
    harmless: tuple[str, ...]


@cache
def rules() -> tuple[Rule, ...]:
    """Return the table, compiled."""
    rows = tomllib.loads(shipped_text("kept.skills", "guard_rules.toml"))["rule"]
    flags = re.IGNORECASE | re.MULTILINE
    return tuple(
        Rule(
            row["id"], row["category"], Level(row["level"]), row["what"], tuple(row["anchors"]),
            re.compile(row["pattern"], flags), re.compile(row["unless"], flags) if "unless" in row else None,
            tuple(row["examples"]), tuple(row["harmless"]),
        )
        for row in rows
    )  # fmt: skip


_PROSE = frozenset({".md", ".markdown", ".txt", ".rst", ""})
_PICTURES = frozenset(
    (
        ".png",
        ".jpg",
        ".jpeg",
        ".gif",
        ".webp",
        ".ico",
        ".bmp",
        ".pdf",
        ".ttf",
        ".otf",
        ".woff",
        ".woff2",
        ".docx",
        ".xlsx",
        ".pptx",
        ".csv",
        ".parquet",
        ".sqlite",
        ".mp3",
        ".wav",
        ".mp4",
    )
)
_PROGRAMS = (
    b"\x7fELF",
    b"MZ",
    b"\xcf\xfa\xed\xfe",
    b"\xce\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
    b"\xfe\xed\xfa",
    b"!<arch>\n",
    b"dex\n",
)
_PROGRAM_NAMES = frozenset(
    (
        ".exe",
        ".dll",
        ".so",
        ".dylib",
        ".pyc",
        ".pyo",
        ".class",
        ".jar",
        ".node",
        ".o",
        ".a",
        ".wasm",
        ".msi",
        ".scr",
        ".com",
        ".bin",
    )
)
_CONTINUED = re.compile(r"\\\n[ \t]*")
_SPLIT_WORD = re.compile(r"(?<=\w)(?:''|\"\"|\\(?=[a-z]))(?=\w)", re.IGNORECASE)
_IFS = re.compile(r"\$\{?IFS\}?(?:\$9)?")
_MOST_FINDINGS = 60


def inspect_folder(folder: Path) -> Report:
    """Return what the guard finds in a folder on disk."""
    texts: dict[str, bytes] = {}
    found: list[Finding] = []
    for path, status in files_of(folder):
        if stat.S_ISLNK(status.st_mode):
            found.append(_link(folder, path))
        elif not stat.S_ISREG(status.st_mode):
            found.append(Finding("special_file", "path_traversal", Level.CRITICAL, path, 0, "a device, pipe or socket"))
        else:
            data = read_regular(folder / path, most_bytes=16 * 1_048_576)
            if data is None:
                found.append(
                    Finding("unreadable", "obfuscation", Level.HIGH, path, 0, "a file that cannot be looked into")
                )
            else:
                texts[path] = data
    return Report((*found, *inspect(texts).findings))


def _link(folder: Path, path: str) -> Finding:
    try:
        stays = (folder / path).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        stays = False
    what = "a symbolic link" if stays else "a symbolic link that leaves the folder"
    return Finding("symlink", "symlink", Level.HIGH if stays else Level.CRITICAL, path, 0, what)


def inspect(contents: Mapping[str, bytes]) -> Report:
    """Return what the guard finds in files given as bytes by their relative path."""
    found: list[Finding] = []
    for path, data in sorted(contents.items()):
        if _is_program(path, data):
            found.append(
                Finding("program", "obfuscation", Level.CRITICAL, path, 0, "a compiled program, which nobody can read")
            )
        elif is_text(data):
            found.extend(inspect_text(path, data.decode("utf-8")))
        elif PurePosixPath(path).suffix.lower() not in _PICTURES:
            found.append(Finding("binary", "obfuscation", Level.HIGH, path, 0, "binary data of an unknown kind"))
        if len(found) > _MOST_FINDINGS:
            break
    return Report(tuple(dict.fromkeys(found)))


def _is_program(path: str, data: bytes) -> bool:
    # two letters are too little to go by: plain text may begin with MZ
    magic = data.startswith(_PROGRAMS) and (not data.startswith(b"MZ") or b"\0" in data[:256])
    return magic or (PurePosixPath(path).suffix.lower() in _PROGRAM_NAMES and not is_text(data))


def inspect_text(path: str, text: str) -> list[Finding]:
    """Return what the rules find in one text, hidden and rewritten forms of it included."""
    found = list(_matched(path, text))
    plain = _unfolded(text)
    if plain != text:
        found += [finding for finding in _matched(path, plain) if finding.rule not in {seen.rule for seen in found}]
    for hidden in encoded.payloads(text):
        found += [_hidden(finding) for finding in _matched(path, hidden) if finding.level is Level.CRITICAL]
    found += _invisible(path, text)
    if PurePosixPath(path).suffix.lower() in _PROSE:
        found += [_steering(path, threat, line) for threat, line in guard_prose.steering(text)]
    proven = [rule for rule, proof in secrets.shapes(text) if proof and rule != "private_key"]
    found += [Finding(rule, "credentials", Level.HIGH, path, 0, "a credential in the text") for rule in proven]
    return found


def _matched(path: str, text: str) -> Iterator[Finding]:
    lowered = text.lower()
    for rule in rules():
        if any(anchor in lowered for anchor in rule.anchors):
            at = _first(rule, text, prose=PurePosixPath(path).suffix.lower() in _PROSE)
            if at is not None:
                yield Finding(rule.id, rule.category, rule.level, path, text.count("\n", 0, at) + 1, rule.what)


def _first(rule: Rule, text: str, *, prose: bool) -> int | None:
    for match in rule.pattern.finditer(text):
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        line = text[start : end if end >= 0 else len(text)]
        warned = prose and guard_prose.warns_before(text[start : match.start()])
        if not warned and (rule.unless is None or not rule.unless.search(line)):
            return match.start()
    return None


def _unfolded(text: str) -> str:
    """Return shell text with the tricks undone that split a word without changing the command."""
    return _SPLIT_WORD.sub("", _IFS.sub(" ", _CONTINUED.sub(" ", text)))


def _hidden(finding: Finding) -> Finding:
    what = f"hidden in an encoding: {finding.what}"
    return Finding("encoded_payload", "obfuscation", Level.CRITICAL, finding.path, finding.line, what)


def _steering(path: str, threat: Threat, line: int) -> Finding:
    return Finding(threat.rule, threat.category, Level.CRITICAL, path, line, "text that would steer the agent")


def _invisible(path: str, text: str) -> Iterator[Finding]:
    for point, in_word in unicode.invisible(text):
        level = Level.CRITICAL if in_word else Level.HIGH
        yield Finding("invisible_unicode", "invisible_unicode", level, path, 0, f"the invisible character {point}")


def abilities(contents: Mapping[str, bytes]) -> Sequence[str]:
    """Return in plain words what the scripts of a skill may do, for a person who decides."""
    text = "\n".join(
        data.decode("utf-8", "replace")
        for path, data in contents.items()
        if PurePosixPath(path).suffix.lower() not in _PROSE
    )
    return tuple(words for words, pattern in _ABILITIES if pattern.search(text))


_ABILITIES = (
    (
        "use the network",
        re.compile(r"\b(curl|wget|requests|urllib|httpx|aiohttp|socket|fetch|axios|Invoke-WebRequest)\b"),
    ),
    ("start other programs", re.compile(r"\b(subprocess|os\.system|exec|spawn|child_process|Start-Process|eval)\b")),
    ("delete or move files", re.compile(r"\b(rm|rmtree|unlink|Remove-Item|shutil\.move|os\.remove|mv)\b")),
    ("write files", re.compile(r"\b(write_text|write_bytes|writeFile|tee|open\([^)]*['\"][wa])|>>?\s*[\w~/$]")),
    ("read environment variables", re.compile(r"\b(os\.environ|getenv|process\.env|printenv)\b|\$\{?[A-Z_]{4,}")),
    ("install packages", re.compile(r"\b(pip|pipx|uv|npm|npx|apt|apt-get|brew|cargo|gem) +(-\w+ +)*(install|add|i)\b")),
    ("ask for administrator rights", re.compile(r"\b(sudo|doas|runas|pkexec)\b")),
)

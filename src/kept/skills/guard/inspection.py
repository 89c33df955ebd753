"""The inspection of a skill: every file of it read, and what was found in them."""

import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from kept.security import encoded, secrets, unicode
from kept.security.scan import Finding as Threat
from kept.skills.guard.prose import is_prose, steering, warns_before
from kept.skills.guard.table import Rule, rules
from kept.skills.guard.verdict import Finding, Level, Report
from kept.skills.places import files_of, is_text, read_regular

_DATA_SUFFIXES = frozenset((
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".bmp", ".pdf", ".ttf", ".otf", ".woff", ".woff2",
    ".docx", ".xlsx", ".pptx", ".csv", ".parquet", ".sqlite", ".mp3", ".wav", ".mp4",
))  # fmt: skip
_PROGRAM_MARKS = (
    b"\x7fELF",
    b"MZ",
    b"\xcf\xfa\xed\xfe",
    b"\xce\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
    b"\xfe\xed\xfa",
    b"!<arch>\n",
    b"dex\n",
)
_PROGRAM_SUFFIXES = frozenset((
    ".exe", ".dll", ".so", ".dylib", ".pyc", ".pyo", ".class", ".jar", ".node", ".o", ".a", ".wasm", ".msi",
    ".scr", ".com", ".bin",
))  # fmt: skip
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
        elif PurePosixPath(path).suffix.lower() not in _DATA_SUFFIXES:
            found.append(Finding("binary", "obfuscation", Level.HIGH, path, 0, "binary data of an unknown kind"))
        if len(found) > _MOST_FINDINGS:
            break
    return Report(tuple(dict.fromkeys(found)))


def _is_program(path: str, data: bytes) -> bool:
    # two letters are too little to go by: plain text may begin with MZ
    magic = data.startswith(_PROGRAM_MARKS) and (not data.startswith(b"MZ") or b"\0" in data[:256])
    return magic or (PurePosixPath(path).suffix.lower() in _PROGRAM_SUFFIXES and not is_text(data))


def inspect_text(path: str, text: str) -> list[Finding]:
    """Return what the rules find in one text, hidden and rewritten forms of it included."""
    found = list(_matched(path, text))
    plain = _unfolded(text)
    if plain != text:
        found += [finding for finding in _matched(path, plain) if finding.rule not in {seen.rule for seen in found}]
    for hidden in encoded.payloads(text):
        found += [_hidden(finding) for finding in _matched(path, hidden) if finding.level is Level.CRITICAL]
    found += _invisible(path, text)
    if is_prose(path):
        found += [_steering(path, threat, line) for threat, line in steering(text)]
    proven = [rule for rule, proof in secrets.shapes(text) if proof and rule != "private_key"]
    found += [Finding(rule, "credentials", Level.HIGH, path, 0, "a credential in the text") for rule in proven]
    return found


def _matched(path: str, text: str) -> Iterator[Finding]:
    lowered = text.lower()
    for rule in rules():
        if any(anchor in lowered for anchor in rule.anchors):
            at = _first(rule, text, prose=is_prose(path))
            if at is not None:
                yield Finding(rule.id, rule.category, rule.level, path, text.count("\n", 0, at) + 1, rule.what)


def _first(rule: Rule, text: str, *, prose: bool) -> int | None:
    for match in rule.pattern.finditer(text):
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        line = text[start : end if end >= 0 else len(text)]
        warned = prose and warns_before(text[start : match.start()])
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

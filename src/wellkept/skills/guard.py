"""The guard: inspects every file of a skill with the rules of `guard_rules.toml` and the threat scanner."""

import re
import stat
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path, PurePosixPath

from msgspec import Struct

from wellkept.core.text import resource_text
from wellkept.languages.language import detect
from wellkept.security import secrets, unicode
from wellkept.security.scan import Finding as Threat
from wellkept.security.scan import Scope, Severity, scan
from wellkept.skills.document import Field, Frontmatter, read_frontmatter
from wellkept.skills.roots import MAIN, files_of, is_text, read_regular


class Level(StrEnum):
    """The severity of one finding."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"


class Danger(StrEnum):
    """The verdict on a whole skill."""

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
    """What happens with a skill."""

    ALLOW = "allow"
    ASK = "ask"
    BLOCK = "block"


_POLICIES = {
    Trust.BUNDLED: (Policy.ALLOW, Policy.ALLOW, Policy.ALLOW),
    Trust.TRUSTED: (Policy.ALLOW, Policy.ASK, Policy.BLOCK),
    Trust.COMMUNITY: (Policy.ALLOW, Policy.ASK, Policy.BLOCK),
    Trust.AGENT: (Policy.ALLOW, Policy.ALLOW, Policy.ASK),
}


class Finding(Struct, frozen=True):
    """One rule that matched in one file; never quotes the file."""

    rule: str
    category: str
    level: Level
    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.level} · {self.path}:{self.line} · {self.what} [{self.rule}]"


class Report(Struct, frozen=True):
    """Everything the guard found in a skill."""

    findings: tuple[Finding, ...]

    @property
    def danger(self) -> Danger:
        """Return the verdict: a critical finding means dangerous, a high one caution."""
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
    """Return the policy for a skill from a source of `trust` with the verdict `danger`."""
    safe, caution, dangerous = _POLICIES[trust]
    return {Danger.SAFE: safe, Danger.CAUTION: caution, Danger.DANGEROUS: dangerous}[danger]


class Rule(Struct, frozen=True):
    """One row of guard_rules.toml."""

    id: str
    category: str
    level: Level
    what: str
    anchors: tuple[str, ...]
    """Lower-case literals; the pattern is tried only when the text contains one of them."""
    pattern: re.Pattern[str]
    unless: re.Pattern[str] | None
    """A pattern that makes the matched line harmless."""
    examples: tuple[str, ...]
    harmless: tuple[str, ...]
    is_command: bool = False
    """Whether the pattern describes one command, so that in prose it must lie within one passage of code or text."""


@cache
def rules() -> tuple[Rule, ...]:
    """Return the rules of `guard_rules.toml`, compiled."""
    rows = tomllib.loads(resource_text("wellkept.skills", "guard_rules.toml"))["rule"]
    flags = re.IGNORECASE | re.MULTILINE
    return tuple(
        Rule(
            row["id"], row["category"], Level(row["level"]), row["what"], tuple(row["anchors"]),
            re.compile(row["pattern"], flags), re.compile(row["unless"], flags) if "unless" in row else None,
            tuple(row["examples"]), tuple(row["harmless"]), bool(row.get("command")),
        )
        for row in rows
    )  # fmt: skip


_SUFFIXES = frozenset({".md", ".markdown", ".txt", ".rst", ""})
_STEERING = frozenset(
    (
        "instruction_override",
        "role_hijack",
        "deception",
        "system_prompt_override",
        "hidden_html",
        "mixed_script",
        "obfuscation",
    )
)
_WARNING = (
    r"\b(never(?! mind)|do not|don't|must not|should not|shouldn't|avoid|refuse|reject|prevent|block|detect|beware"
    r"|look for|signs? of|against|instead of|protect|attackers?|malicious|untrusted|such as|e\.g\.|for example"
    r"|instructions? (that|which)|(stop|refuse|decline|halt) if asked|if asked to|attempts? to|phrases? like"
    r"|if (a|the|any|some) [^.;]{0,30}(says?|tells?|asks?|wants?|tries))\b"
)
_WARNS = re.compile(_WARNING + r"[^.;]{0,60}$", re.IGNORECASE)
_IN_SENTENCE = re.compile(_WARNING, re.IGNORECASE)
_END_OF_SENTENCE = re.compile(r"[.!?;][\"')*_]*\s")
_QUOTED = re.compile(r"\"[^\"]{3,300}\"|`[^`]{3,300}`|\u201c[^\u201d]{3,300}\u201d")
_ASKS_FIRST = re.compile(
    r"\b(never|not|n't|no|without)\b.{0,80}\b(without|unless|until|before)\b.{0,40}\b(ask|tell|inform|show|confirm|notif|approv)"
    r"|user interface|\b(secrets?|passwords?|tokens?|stack traces?|raw|internal)\b.{0,30}\bto (the )?(end )?users?\b",
    re.IGNORECASE,
)
_HIDES = re.compile(
    r"\b(do not|don't|never|must not|should not|shouldn't|without|avoid)\s+(ever\s+|even\s+|explicitly\s+)?"
    r"(tell|mention|inform|notify|show|reveal|disclos|say|alert|let|ask|warn|report|acknowledg|confirm|display)"
    r"|\b(hid(e|den|ing)|conceal\w*|secret(ly)?|covert(ly)?|silent(ly)?|subtl[ey]|quiet(ly)?|undetect\w*|unnotic\w*)\b"
    r"|\b(users?|persons?|humans?|owners?|operators?|anyone)\b[^.]{0,20}\b(must|should|may|can|need)\s?(not|n't|never)\s+"
    r"(know|be told|be aware|find out|learn)|\b(pretend|lie|deny|claim|mislead|deceiv)",
    re.IGNORECASE,
)
_DELIMITERS = re.compile(r"<\|[^|>\n]{1,30}\|>|</?system(-\w+)?>|\[/?INST\]|<</?SYS>>", re.IGNORECASE)
_GERUNDS = re.compile(r"\b(ignor|disregard|forgett|overrid|bypass|skipp)ing\b", re.IGNORECASE)
_MENTIONED = re.compile(r"\b(?:could|might|may) be:?\s+[\"'`]?$", re.IGNORECASE)
_PATTERN_LITERAL = re.compile(r"^\s{0,40}\(?r(['\"])[^\n]{0,200}[|\\*+?][^\n]{0,200}\1[),\s]{0,8}$")
_WHOSE = re.compile(
    r"\b(all|any|every|their|his|her|user'?s?|person'?s?|contents?|files?|history|conversations?|memory)\b",
    re.IGNORECASE,
)
_PLAIN_OVERRIDE = re.compile(
    r"\boverrid(?:e|es|den)\b(?!\s+(?:all|any|the|your|every|previous|prior|earlier|system|safety|security"
    r"|instructions|this|these|active|mode|protocol|command)\b|\s*:)",
    re.IGNORECASE,
)
_YIELDS = re.compile(
    r"\b((?:conventions?|templates?|styles?|preferences?|requirements?|standards?|formatting|requests?)"
    r"(?:\s+(?:always|usually|generally|can|may|should|must|will|take precedence and))?)\s+overrides?"
    r"(?=\s+(?:these|this|the above)\s+(?:guidelines?|rules?|defaults?|instructions?|conventions?|recommendations?)\b)",
    re.IGNORECASE,
)
"""A skill that lets what it finds in a project take precedence over its own text."""
_OPTION = re.compile(
    r"^([\s>*#/|-]*[`\"']{0,3}\w[\w.-]{0,60}[`\"']{0,3}\s*[:|]\s*)skips? all (?:permission |confirmation )?prompts\b",
    re.IGNORECASE | re.MULTILINE,
)
"""The description of a named mode of a program."""
_FORWARD = re.compile(r"\bthe following(?= \w+ (?:is|are)\b)", re.IGNORECASE)
_STATELESS = re.compile(r"[^.!?]*\bstateless\b[^.!?]*", re.IGNORECASE)
_RECIPIENT = re.compile(r"\bto (?!the (?:api|model)\b)", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://|\w@\w|\b\d{1,3}(?:\.\d{1,3}){3}\b")
_BARE_ADDRESS = re.compile(r"https?://[^\s\"'()]+|[\w.+-]+@[\w-]+\.[\w.]+")
_MACHINE_SIGN = re.compile(r"[=(){}\[\]<>$\\_|;\"`]|\w[.:/@]\w|^--?\w")
_STYLE_OBJECT = re.compile(r"\b(?:opacity|display|visibility)\s*:\s*[\w.\"']+(?=\s*[,}])")


def is_prose(path: str) -> bool:
    """Whether a file is prose, where a warning against something is harmless, and not a script."""
    return PurePosixPath(path).suffix.lower() in _SUFFIXES


def steering(text: str) -> Iterator[tuple[Threat, int]]:
    """Yield threats in text that a model will read, with their line, except where the text warns against them."""
    # a style object is not hidden text, and "override" with an ordinary object is not an instruction
    text = _FORWARD.sub("these", _OPTION.sub(r"\1without questions", _YIELDS.sub(r"\1 replace", text)))
    text = _STYLE_OBJECT.sub("", _PLAIN_OVERRIDE.sub("replace", text))
    lines = [*_read_as_prose(text)]
    whole = "".join(f"{line.words}\n\n" if line.is_alone else f"{line.words}\n" for line in lines)
    suspected = {found.rule: found for found in scan(whole, scope=Scope.SKILL).findings if _steers(found)}
    if not suspected:
        return
    located: set[str] = set()
    reported: set[str] = set()
    for number, line in enumerate(lines, 1):
        for found in scan(line.words, scope=Scope.SKILL).findings if line.words.strip() else ():
            if found.rule in suspected:
                located.add(found.rule)
                if found.rule not in reported and not _warns(line, found):
                    reported.add(found.rule)
                    yield found, number
    yield from ((found, 0) for rule, found in suspected.items() if rule not in located)


class _Line(Struct, frozen=True):
    """One line of a text that a model will read."""

    raw: str
    words: str
    """What the line says in words; the line itself outside of a block of code."""
    is_alone: bool
    """Whether no sentence goes on from it to the next line."""


def _read_as_prose(text: str) -> Iterator[_Line]:
    """Yield the lines with what they say in words.

    Names and values of a program are no words of a sentence, so an `email` beside a `password` in a block of code
    asks for nothing; what a block of code or a table says in words counts as everywhere.
    """
    is_in_block = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            is_in_block = not is_in_block
            yield _Line(line, line, is_alone=True)
        elif is_in_block:
            tokens = line.split()
            words = [token for token in tokens if not _is_machine(token)]
            is_code = len(words) < len(tokens)
            yield _Line(line, " ".join(words) if is_code else line, is_alone=is_code)
        else:
            yield _Line(line, line, is_alone=line.lstrip().startswith("|"))


def _is_machine(token: str) -> bool:
    """Whether a token in a block of code belongs to the program; addresses and delimiters also steer a reader."""
    bare = token.strip("\"'`,.;:!?()")
    if _BARE_ADDRESS.fullmatch(bare) or _DELIMITERS.search(token):
        return False
    return _MACHINE_SIGN.search(bare) is not None or token.endswith(('":', "':"))


def warns_before(text: str) -> bool:
    """Whether the words before a passage warn against it, or only say that it may occur."""
    return _WARNS.search(text) is not None or _MENTIONED.search(text) is not None


def _warns(line: _Line, found: Threat) -> bool:
    """Whether a line warns against the threat in it or only mentions it."""
    words = line.words
    if found.category == "deception":
        return _ASKS_FIRST.search(words) is not None or (_is_english(words) and _HIDES.search(words) is None)
    names_nobody = _is_english(words) and _WHOSE.search(words) is None
    if found.rule == "exfil_prose" and (names_nobody or _is_about_requests(words)):
        return True
    if _PATTERN_LITERAL.match(line.raw) or _is_caused_by(_GERUNDS, words, found):
        return True
    if not _DELIMITERS.match(line.raw.lstrip(" \t>*#-\"'")) and _is_caused_by(_DELIMITERS, words, found):
        return True
    if _IN_SENTENCE.search(words) and _is_caused_by(_QUOTED, words, found):
        return True  # a warning is about what its line quotes, wherever it stands
    before = [_END_OF_SENTENCE.split(part)[-1] for part in _words_before(words, found)]
    return bool(before) and all(map(_IN_SENTENCE.search, before))


def _is_english(line: str) -> bool:
    """Whether English words may decide about a line; in other languages, none of them says anything."""
    return all(sign.isascii() for sign in line if sign.isalpha()) and detect(line) in {"en", None}


def _words_before(line: str, found: Threat) -> Iterator[str]:
    """Yield the words before each occurrence of a threat, from left to right; the scanner gives no position."""
    words = line.split()
    begin = 0
    for _ in range(_MOST_OCCURRENCES):
        if not _is_in(words[begin:], found):
            return
        rest = words[begin:]
        end = bisect_left(range(1, len(rest) + 1), True, key=lambda size: _is_in(rest[:size], found)) + 1
        first = rest[:end]
        start = bisect_left(range(1, end), True, key=lambda skipped: not _is_in(first[skipped:], found))
        yield " ".join(words[: begin + start])
        begin += end
    yield ""  # nobody warns against the same thing so often


def _is_in(words: Sequence[str], found: Threat) -> bool:
    return found.rule in {one.rule for one in scan(" ".join(words), scope=Scope.SKILL).findings}


def _is_about_requests(line: str) -> bool:
    """Whether a line says what every request to a stateless API contains, and names no other recipient."""
    sentence = _STATELESS.search(line)
    return sentence is not None and _RECIPIENT.search(sentence[0]) is None and _ADDRESS.search(line) is None


def _is_caused_by(mark: re.Pattern[str], line: str, found: Threat) -> bool:
    """Whether the finding disappears without the words that `mark` matches."""
    without = mark.sub(" ", line)
    return without != line and found.rule not in {one.rule for one in scan(without, scope=Scope.SKILL).findings}


def _steers(found: Threat) -> bool:
    # commands are left to the guard's own rules, which know what a procedure may contain
    return found.severity is Severity.BLOCK and (found.category in _STEERING or found.rule == "exfil_prose")


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
_FENCE = re.compile(r"^\s{0,8}(?:```|~~~)", re.MULTILINE)
_INLINE_CODE = re.compile(r"`+([^`\n]+)`+")
_CONTINUED = re.compile(r"\\\n[ \t]*")
_SPLIT_WORD = re.compile(r"(?<=\w)(?:''|\"\"|\\(?=[a-z]))(?=\w)", re.IGNORECASE)
_IFS = re.compile(r"\$\{?IFS\}?(?:\$9)?")
_MOST_FINDINGS = 60
_MOST_OCCURRENCES = 12


def inspect_folder(folder: Path) -> Report:
    """Inspect a folder on disk."""
    texts: dict[str, bytes] = {}
    found: list[Finding] = []
    for path, status in files_of(folder):
        if stat.S_ISLNK(status.st_mode):
            found.append(_link_finding(folder, path))
        elif not stat.S_ISREG(status.st_mode):
            found.append(Finding("special_file", "path_traversal", Level.CRITICAL, path, 0, "a device, pipe or socket"))
        else:
            data = read_regular(folder / path, most_bytes=16 * 1_048_576)
            if data is None:
                found.append(Finding("unreadable", "obfuscation", Level.HIGH, path, 0, "a file that cannot be read"))
            else:
                texts[path] = data
    return Report((*found, *inspect(texts).findings))


def _link_finding(folder: Path, path: str) -> Finding:
    try:
        stays = (folder / path).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        stays = False
    what = "a symbolic link" if stays else "a symbolic link that leaves the folder"
    return Finding("symlink", "symlink", Level.HIGH if stays else Level.CRITICAL, path, 0, what)


def inspect(contents: Mapping[str, bytes]) -> Report:
    """Inspect files given as bytes by relative path."""
    found: list[Finding] = []
    for path, data in sorted(contents.items()):
        # two letters are not enough: plain text may begin with MZ
        magic = data.startswith(_PROGRAM_MARKS) and (not data.startswith(b"MZ") or b"\0" in data[:256])
        if magic or (PurePosixPath(path).suffix.lower() in _PROGRAM_SUFFIXES and not is_text(data)):
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


def inspect_text(path: str, text: str) -> list[Finding]:
    """Inspect one text, including encoded payloads and shell text that hides a command."""
    found = list(_match_rules(path, text))
    plain = _undo_shell_tricks(text)
    if plain != text:
        found += [finding for finding in _match_rules(path, plain) if finding.rule not in {seen.rule for seen in found}]
    for hidden in unicode.payloads(text):
        found += [_as_hidden(finding) for finding in _match_rules(path, hidden) if finding.level is Level.CRITICAL]
    found += _find_invisible(path, text)
    if is_prose(path):
        found += [
            Finding(threat.rule, threat.category, Level.CRITICAL, path, line, "text that would steer the agent")
            for threat, line in steering(text)
        ]
    proven = [rule for rule, proof in secrets.shapes(text) if proof and rule != "private_key"]
    found += [Finding(rule, "credentials", Level.HIGH, path, 0, "a credential in the text") for rule in proven]
    return found


def _match_rules(path: str, text: str) -> Iterator[Finding]:
    lowered = text.lower()
    for rule in rules():
        if any(anchor in lowered for anchor in rule.anchors):
            at = _first_match(rule, text, prose=is_prose(path))
            if at is not None:
                yield Finding(rule.id, rule.category, rule.level, path, text.count("\n", 0, at) + 1, rule.what)


def _first_match(rule: Rule, text: str, *, prose: bool) -> int | None:
    for match in rule.pattern.finditer(text):
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        line = text[start : end if end >= 0 else len(text)]
        warned = prose and warns_before(text[start : match.start()])
        if prose and rule.is_command and not _is_one_command(rule, line, text[:start]):
            continue
        if not warned and (rule.unless is None or not rule.unless.search(line)):
            return match.start()
    return None


def _is_one_command(rule: Rule, line: str, before: str) -> bool:
    """Whether the match in a line of prose lies within one of its parts: code, a cell, or the text around them."""
    if len(_FENCE.findall(before)) % 2:
        return True  # a block of code
    cells = line.split("|") if line.lstrip().startswith("|") else [line]
    parts = [part for cell in cells for part in (*_INLINE_CODE.findall(cell), _INLINE_CODE.sub(" ", cell))]
    return any(rule.pattern.search(part) for part in parts)


def _undo_shell_tricks(text: str) -> str:
    """Undo shell tricks that split a word without changing the command."""
    return _SPLIT_WORD.sub("", _IFS.sub(" ", _CONTINUED.sub(" ", text)))


def _as_hidden(finding: Finding) -> Finding:
    what = f"hidden in an encoding: {finding.what}"
    return Finding("encoded_payload", "obfuscation", Level.CRITICAL, finding.path, finding.line, what)


def _find_invisible(path: str, text: str) -> Iterator[Finding]:
    for point, in_word in unicode.invisible(text):
        level = Level.CRITICAL if in_word else Level.HIGH
        yield Finding("invisible_unicode", "invisible_unicode", level, path, 0, f"the invisible character {point}")
    for point in unicode.controls("\n".join((text, *_fields(path, text)))):
        yield Finding("control_character", "obfuscation", Level.HIGH, path, 0, f"the control character {point}")


def _fields(path: str, text: str) -> Iterator[str]:
    """Yield the decoded fields of a SKILL.md: YAML can write a control character as an escape."""
    head = read_frontmatter(text) if PurePosixPath(path).name == MAIN else None
    if isinstance(head, Frontmatter):
        yield from _strings(dict(head.fields))


def _strings(value: Field) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    else:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


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


def abilities(contents: Mapping[str, bytes]) -> tuple[str, ...]:
    """Describe in plain words what the scripts in `contents` may do; no verdict depends on it."""
    text = "\n".join(data.decode("utf-8", "replace") for path, data in contents.items() if not is_prose(path))
    return tuple(words for words, pattern in _ABILITIES if pattern.search(text))

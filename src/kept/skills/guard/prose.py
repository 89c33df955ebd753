"""Prose of a skill that would steer an agent, told apart from prose that only speaks of such things."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from kept.security.scan import Finding as Threat
from kept.security.scan import Scope, Severity, scan

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
_WARNS = re.compile(
    r"\b(never(?! mind)|do not|don't|must not|should not|shouldn't|avoid|refuse|reject|prevent|block|detect|beware"
    r"|look for|signs? of|against|instead of|protect|attackers?|malicious|untrusted|such as|e\.g\.|for example"
    r"|instructions? (that|which)|(stop|refuse|decline|halt) if asked|if asked to|attempts? to|phrases? like"
    r"|if (a|the|any|some) [^.;]{0,30}(says?|tells?|asks?|wants?|tries))\b[^.;]{0,60}$",
    re.IGNORECASE,
)
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
_STYLE_OBJECT = re.compile(r"\b(?:opacity|display|visibility)\s*:\s*[\w.\"']+(?=\s*[,}])")


def is_prose(path: str) -> bool:
    """Whether a file is read as prose, where a warning against something is harmless; a script is not."""
    return PurePosixPath(path).suffix.lower() in _SUFFIXES


def steering(text: str) -> Iterator[tuple[Threat, int]]:
    """Yield what the threat scanner says of text that a model will read, with its line; warnings against it aside."""
    # a style object in code and a value that is overridden are no hidden text and no order
    text = _STYLE_OBJECT.sub("", _PLAIN_OVERRIDE.sub("replace", text))
    suspected = {found.rule: found for found in scan(text, scope=Scope.SKILL).findings if _steers(found)}
    if not suspected:
        return
    located: set[str] = set()
    told: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        for found in scan(line, scope=Scope.SKILL).findings if line.strip() else ():
            if found.rule in suspected:
                located.add(found.rule)
                if found.rule not in told and not _warns(line, found):
                    told.add(found.rule)
                    yield found, number
    yield from ((found, 0) for rule, found in suspected.items() if rule not in located)


def warns_before(text: str) -> bool:
    """Tell whether the words before something speak against it."""
    return _WARNS.search(text) is not None


def _warns(line: str, found: Threat) -> bool:
    """Tell whether a line speaks against what the scanner found in it, or only about it; it does not say where."""
    if found.category == "deception":
        return _ASKS_FIRST.search(line) is not None or _HIDES.search(line) is None
    if found.rule == "exfil_prose" and _WHOSE.search(line) is None:
        return True
    if _PATTERN_LITERAL.match(line) or _only_by(_GERUNDS, line, found):
        return True
    if not _DELIMITERS.match(line.lstrip(" \t>*#-\"'")) and _only_by(_DELIMITERS, line, found):
        return True
    words = line.split()
    return any(warns_before(" ".join(words[:place])) for place in range(1, min(len(words), 40)))


def _only_by(mark: re.Pattern[str], line: str, found: Threat) -> bool:
    """Tell whether the scanner's finding goes away with the words that `mark` finds."""
    without = mark.sub(" ", line)
    return without != line and found.rule not in {one.rule for one in scan(without, scope=Scope.SKILL).findings}


def _steers(found: Threat) -> bool:
    # commands are judged by the guard's own rules, which know what a procedure may say
    return found.severity is Severity.BLOCK and (found.category in _STEERING or found.rule == "exfil_prose")

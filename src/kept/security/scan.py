"""The threat scanner: what a text would do to the agent that reads it."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kept.security import encoded, secrets, unicode
from kept.security.credentials import SHAPES
from kept.security.skeleton import passages
from kept.security.table import Rule, Scope, Severity, Table, table

__all__ = ["Finding", "Scope", "Severity", "Verdict", "rule_ids", "scan"]

_HAN = re.compile("[\u3400-\u9fff]+")
_PERSONA = "persona"
_LONG = 700
"""Weak signals meet by chance in a long text, so that it needs more of them."""
_PERSONA_SHORT = (3, 6, 1)
_PERSONA_LONG = (4, 8, 2)
"""The weights that hold and that block, and how many signals it takes."""
_KEY_WORD = 4
"""Shorter words fold from ordinary Russian or Greek ones."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that matched."""

    rule: str
    category: str
    severity: Severity
    detail: str | None = None
    """What matched, where naming it is safe (a code point, the signals); never the text."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Everything found in one text."""

    findings: tuple[Finding, ...]

    @property
    def blocked(self) -> bool:
        """Tell whether the text is an attack."""
        return any(finding.severity is Severity.BLOCK for finding in self.findings)

    @property
    def held(self) -> bool:
        """Tell whether a person must look at the text first; false for a blocked one."""
        return bool(self.findings) and not self.blocked

    @property
    def verdict(self) -> str:
        """Return `clean`, `hold` or `block`."""
        return "block" if self.blocked else "hold" if self.findings else "clean"

    @property
    def rules(self) -> tuple[str, ...]:
        """Return the ids of the rules that matched."""
        return tuple(dict.fromkeys(finding.rule for finding in self.findings))


def scan(text: str, *, scope: Scope = Scope.MEMORY, allow: Collection[str] = ()) -> Verdict:
    """Return what the rules of `scope` find in `text`, the `allow`ed rules left out."""
    rules = table()
    found = [*_unicode(text, rules), *_matches(text, rules, scope)]
    for payload in encoded.payloads(text):
        found.extend(_hidden(payload, rules, scope))
    for rule, certain in secrets.shapes(text):
        found.append(Finding(rule, "credentials", Severity.BLOCK if certain else Severity.HOLD))
    kept = dict.fromkeys(finding for finding in found if finding.rule not in allow)
    return Verdict(tuple(kept))


def rule_ids() -> frozenset[str]:
    """Return every id that a finding can carry, so that a person's `--allow` can be checked."""
    built_in = {"invisible_unicode", "mixed_script", "flood", "encoded_payload", _PERSONA}
    return frozenset({*built_in, *(rule.id for rule in table().rules), *(shape.rule for shape in SHAPES)})


def _unicode(text: str, rules: Table) -> Iterator[Finding]:
    for point, in_word in unicode.invisible(text):
        severity = Severity.BLOCK if in_word else Severity.HOLD
        yield Finding("invisible_unicode", "invisible_unicode", severity, point)
    for word, mixed in unicode.lookalike_words(text):
        if len(word) >= _KEY_WORD and word.isascii() and rules.lexicon.is_key(word):
            detail = "mixed scripts" if mixed else "look-alike letters"
            yield Finding("mixed_script", "mixed_script", Severity.BLOCK, detail)


def _matches(text: str, rules: Table, scope: Scope) -> Iterator[Finding]:
    folded = _folded(text, rules)
    present = rules.anchors_in(folded)
    structured = _structured(rules, scope, folded)
    signals: list[Rule] = []
    for rule in rules.rules:
        if scope not in rule.scopes:
            continue
        hit = rule.id in structured or _written(rule, folded, present)
        if hit is None:
            yield Finding("flood", "obfuscation", Severity.HOLD, rule.id)
        elif hit:
            signals.append(rule)
            yield from _named(rule)
    yield from _persona(signals, _PERSONA_LONG if len(text) > _LONG else _PERSONA_SHORT)


def _folded(text: str, rules: Table) -> str:
    folded = unicode.fold(text)
    return folded if folded.isascii() else _HAN.sub(lambda run: _in_english(run[0], rules), folded)


def _in_english(run: str, rules: Table) -> str:
    for word, english in rules.translations:
        if word in run:
            run = run.replace(word, f" {english} ")
    return run


def _named(rule: Rule) -> Iterator[Finding]:
    if rule.severity is not None:
        yield Finding(rule.id, rule.category, rule.severity)


def _structured(rules: Table, scope: Scope, folded: str) -> set[str]:
    """Return the ids of the rules of which a structure is found."""
    found: set[str] = set()
    keyed = rules.keyed[scope]
    nothing: frozenset[int] = frozenset()
    for passage in passages(rules.lexicon.skeleton(folded)):
        holds = rules.lexicon.holds(passage)
        for place in nothing.union(*[keyed[char] for char in keyed.keys() & set(passage)]):
            needs, structure, rule = rules.structures[place]
            if needs & holds == needs and rule not in found and structure.matches(passage):
                found.add(rule)
    return found


def _written(rule: Rule, folded: str, present: frozenset[str]) -> bool | None:
    """Tell whether an expression of `rule` is found; None when one could not be tried everywhere."""
    flooded = False
    for pattern in rule.texts:
        match pattern.matches(folded, present):
            case True:
                return True
            case None:
                flooded = True
    return None if flooded else False


def _persona(matched: list[Rule], bars: tuple[int, int, int]) -> Iterator[Finding]:
    """Yield the jailbreak persona that weak signals add up to."""
    hold, block, least = bars
    signals = [rule.id for rule in matched if rule.weight > 0]
    weight = sum(rule.weight for rule in matched)
    if weight >= hold and len(signals) >= least:
        severity = Severity.BLOCK if weight >= block else Severity.HOLD
        yield Finding(_PERSONA, "role_hijack", severity, ", ".join(signals))


def _hidden(payload: str, rules: Table, scope: Scope) -> Iterator[Finding]:
    """Yield what a decoded payload would have been blocked for."""
    for finding in _matches(payload, rules, scope):
        if finding.severity is Severity.BLOCK:
            yield Finding("encoded_payload", "obfuscation", Severity.BLOCK, finding.rule)
            yield finding

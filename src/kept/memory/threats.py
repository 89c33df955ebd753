"""The scanner's objection to a text, and what a person's word lets pass."""

from collections.abc import Callable, Iterable, Sequence

from kept.core.errors import Reason, Refused
from kept.security.scan import scan


def objection(text: str, allow: frozenset[str] = frozenset()) -> Refused | None:
    """Return why the scanner refuses a text, None when it is clean but for the rules in `allow`."""
    verdict = scan(text, allow=allow)
    if verdict.verdict == "clean":
        return None
    rules: list[str] = sorted({finding.rule for finding in verdict.findings})
    named = ", ".join(
        f"{finding.rule} ({finding.detail})" if finding.detail else finding.rule for finding in verdict.findings
    )
    if verdict.blocked:
        return Refused(
            Reason.BLOCKED,
            f"The content matches threat rules: {named}.",
            "Do not store it. State the bare fact without instructions, secrets or hidden characters.",
            {"rules": rules},
        )
    return Refused(
        Reason.HELD,
        f"The content looks like an order or a risk, not a fact: {named}.",
        "Rephrase it as a declarative fact, or leave it to the user's approval.",
        {"rules": rules},
    )


def named_rules(refused: Refused) -> frozenset[str]:
    """Return the scanner rules that a refusal names."""
    rules = refused.detail.get("rules", ())
    return frozenset(str(rule) for rule in rules) if isinstance(rules, list | tuple) else frozenset()


def held_rules(texts: Iterable[str]) -> frozenset[str] | Refused:
    """Return the rules that only hold these texts: a person's yes lets them pass, but never one that blocks."""
    rules: frozenset[str] = frozenset()
    for text in texts:
        refused = objection(text)
        if refused is not None and refused.reason is Reason.BLOCKED:
            return refused
        if refused is not None:
            rules |= named_rules(refused)
    return rules


def safe_entries(entries: Sequence[str], allowed: Callable[[str], frozenset[str]]) -> list[str]:
    """Return the entries with each one that a block rule matches replaced by a marker naming the rule.

    `allowed` gives the rules that a person has let pass for an entry; it is asked only when needed.
    """
    return [_safe(entry, allowed) for entry in entries]


def _safe(entry: str, allowed: Callable[[str], frozenset[str]]) -> str:
    verdict = scan(entry)
    if not verdict.blocked:
        return entry
    rules = sorted({finding.rule for finding in verdict.findings if finding.severity == "block"} - allowed(entry))
    return f"[BLOCKED: this entry matches {', '.join(rules)}; see it with `kept memory show --raw`]" if rules else entry

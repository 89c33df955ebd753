"""What the threat scanner says about entries: refuse them at a write, mask them in what a model sees."""

from collections.abc import Callable, Iterable, Sequence

from kept.core.errors import Reason, Refused
from kept.security.scan import scan


def check_text(text: str, allow: frozenset[str] = frozenset()) -> Refused | None:
    """Return why the scanner refuses a text, None when only rules in `allow` match."""
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


def rules_in(refused: Refused) -> frozenset[str]:
    """Return the scanner rules that a refusal names."""
    rules = refused.detail.get("rules", ())
    return frozenset(str(rule) for rule in rules) if isinstance(rules, list | tuple) else frozenset()


def rules_to_approve(texts: Iterable[str]) -> frozenset[str] | Refused:
    """Return the rules that hold these texts, or the refusal of a text that is blocked.

    A person's approval lets held texts pass; it never lets a blocked one pass.
    """
    rules: frozenset[str] = frozenset()
    for text in texts:
        refused = check_text(text)
        if refused is not None and refused.reason is Reason.BLOCKED:
            return refused
        if refused is not None:
            rules |= rules_in(refused)
    return rules


def mask_threats(entries: Sequence[str], allowed: Callable[[str], frozenset[str]]) -> list[str]:
    """Return the entries with a marker in place of each one that a block rule matches.

    `allowed` returns the rules that a person has allowed for an entry; it is called only for entries with a match.
    """
    return [_mask(entry, allowed) for entry in entries]


def _mask(entry: str, allowed: Callable[[str], frozenset[str]]) -> str:
    verdict = scan(entry)
    if not verdict.blocked:
        return entry
    rules = sorted({finding.rule for finding in verdict.findings if finding.severity == "block"} - allowed(entry))
    return f"[BLOCKED: this entry matches {', '.join(rules)}; see it with `kept memory show --raw`]" if rules else entry

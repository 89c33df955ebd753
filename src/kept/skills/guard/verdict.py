"""Findings of the guard, the verdict that follows from them, and the policy for each source."""

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that matched in one file; never quotes the file."""

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

"""What the guard finds, how bad it is, and what is done with a skill of which it was found."""

from dataclasses import dataclass
from enum import StrEnum


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

"""The guard's rules: `rules.toml`, compiled."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache

from kept.core.text import resource_text
from kept.skills.guard.verdict import Level


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of rules.toml."""

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
    rows = tomllib.loads(resource_text("kept.skills.guard", "rules.toml"))["rule"]
    flags = re.IGNORECASE | re.MULTILINE
    return tuple(
        Rule(
            row["id"], row["category"], Level(row["level"]), row["what"], tuple(row["anchors"]),
            re.compile(row["pattern"], flags), re.compile(row["unless"], flags) if "unless" in row else None,
            tuple(row["examples"]), tuple(row["harmless"]),
        )
        for row in rows
    )  # fmt: skip

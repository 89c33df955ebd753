"""What a skill needs of the place where it runs."""

import re
import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kept.skills.document import Document, words
from kept.skills.frontmatter import Field
from kept.skills.index import Skill

_PLATFORMS = {"darwin": "macos", "mac": "macos", "osx": "macos", "win32": "windows", "win": "windows"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Readiness:
    """What is missing before the skill can do its work."""

    environment_variables: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Tell whether nothing is missing."""
        return not self.environment_variables and not self.commands


def fits(skill: Skill, *, tools: Collection[str] | None, platform: str = sys.platform) -> bool:
    """Tell whether the skill can be used here; `tools` is None where they are not known."""
    facts = skill.facts
    if facts.platforms and _named(platform) not in {_named(name) for name in facts.platforms}:
        return False
    if tools is None:
        return True
    if not set(facts.requires_tools) <= set(tools):
        return False
    return not facts.fallback_for_tools or not set(facts.fallback_for_tools) <= set(tools)


def _named(platform: str) -> str:
    name = platform.strip().lower()
    return _PLATFORMS.get(name, name)


def readiness(document: Document, environ: Mapping[str, str]) -> Readiness:
    """Return which environment variables and commands the document asks for and are not there."""
    prerequisites = document.looked_up("prerequisites")
    needs = prerequisites if isinstance(prerequisites, dict) else {}
    variables = [
        *_variables(document.looked_up("required_environment_variables")),
        *_variables(needs.get("env_vars", "")),
    ]
    commands = [*words(needs.get("commands", "")), *words(needs.get("bins", ""))]
    return Readiness(
        tuple(name for name in dict.fromkeys(variables) if not environ.get(name)),
        tuple(name for name in dict.fromkeys(commands) if shutil.which(name, path=environ.get("PATH")) is None),
    )


def _variables(value: Field) -> list[str]:
    """Return names of variables; other agents write them as texts or as maps with a `name`."""
    if isinstance(value, list):
        named = [item.get("name", "") if isinstance(item, dict) else item for item in value]
        return [name for name in named if isinstance(name, str) and _VARIABLE.fullmatch(name)]
    return [name for name in words(value) if _VARIABLE.fullmatch(name)]

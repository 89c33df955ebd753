"""A library in a home of its own, with a clock that tests can turn."""

from datetime import UTC, datetime

import pytest

from wellkept.core.clock import FixedClock
from wellkept.core.tools import ToolContext
from wellkept.skills.library import SkillLibrary
from wellkept.skills.settings import SkillSettings
from wellkept.skills.tool import SkillTools


@pytest.fixture
def clock():
    return FixedClock(datetime(2026, 1, 1, 12, tzinfo=UTC))


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "home" / "skills"
    place.mkdir(parents=True)
    return place


@pytest.fixture
def library(folder, clock):
    return SkillLibrary(folder, settings=SkillSettings(bundled=False), clock=clock)


@pytest.fixture
def tools(library):
    return SkillTools(library)


@pytest.fixture
def call(tools):
    """Call a tool as the agent would."""
    by_name = {tool.schema.name: tool for tool in tools.tools()}

    def called(name, context=None, /, **arguments):
        return by_name[name].call(arguments, context or ToolContext(session_id="s1"))

    return called


@pytest.fixture
def write_skill():
    """Put a SKILL.md into a folder as another program would."""

    def written(
        folder, name, description="Do a thing. Use when asked.", body="# Steps\n\n1. Do it\n", *, head="", place=""
    ):
        target = folder / place / name
        target.mkdir(parents=True, exist_ok=True)
        (target / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n{head}---\n\n{body}")
        return target

    return written

"""What a skill needs of the place where it runs."""

import pytest

from wellkept.skills.document import Document, parse
from wellkept.skills.index import Facts, Skill, fits
from wellkept.skills.library import Readiness, readiness
from wellkept.skills.roots import Kind, Root


def document(head):
    found = parse(f"---\nname: a-skill\ndescription: Does it\n{head}---\n\n# x\n", "a-skill")
    assert isinstance(found, Document)
    return found


@pytest.mark.parametrize(
    "head",
    [
        "required_environment_variables: [MY_KEY]\n",
        "required_environment_variables: MY_KEY, not a name\n",
        "required_environment_variables:\n  - name: MY_KEY\n    prompt: which?\n  - name: [a, b]\n  - prompt: no name\n",
        "prerequisites:\n  env_vars: [MY_KEY, '1BAD']\n",
        "metadata:\n  hermes:\n    required_environment_variables: [MY_KEY]\n",
    ],
)
def test_variables_are_found_however_an_agent_writes_them(head):
    """As a list, as words, as maps with a name; what cannot name a variable is passed over."""
    assert readiness(document(head), {}).environment_variables == ("MY_KEY",)
    assert readiness(document(head), {"MY_KEY": "x"}).ready
    assert readiness(document(head), {"MY_KEY": ""}).environment_variables == ("MY_KEY",)


def test_commands_are_looked_for_where_the_environment_says(tmp_path):
    """A command counts as there when `PATH` leads to it."""
    program = tmp_path / "frobnicate"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    needs = document("prerequisites:\n  commands: [frobnicate]\n  bins: [no-such-program]\n")

    assert readiness(needs, {"PATH": str(tmp_path)}) == Readiness((), ("no-such-program",))
    assert readiness(needs, {"PATH": "/nowhere"}).commands == ("frobnicate", "no-such-program")


@pytest.mark.parametrize(
    ("facts", "tools", "is_offered"),
    [
        ({}, {"terminal"}, True),
        ({"platforms": ("linux", "macos")}, None, True),
        ({"platforms": ("win32",)}, None, False),
        ({"requires_tools": ("terminal",)}, {"terminal", "memory"}, True),
        ({"requires_tools": ("terminal",)}, {"memory"}, False),
        ({"requires_tools": ("terminal",)}, None, True),
        ({"fallback_for_tools": ("web",)}, {"web"}, False),
        ({"fallback_for_tools": ("web", "browser")}, {"web"}, True),
    ],
)
def test_a_skill_is_offered_where_it_can_be_used(tmp_path, facts, tools, is_offered):
    """Platform and tools decide; a fallback steps aside only for all that it stands in for."""
    skill = Skill("a-skill", "", str(tmp_path), Root(tmp_path, Kind.HOME), Facts("a-skill", "Does it", **facts))

    assert fits(skill, tools=tools, platform="linux") is is_offered

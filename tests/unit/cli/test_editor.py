"""Commands that open an editor, where there is no terminal to open one in."""

import pytest


@pytest.mark.parametrize("command", [("memory", "edit"), ("skills", "create", "a-demo")])
def test_no_editor_is_started_without_a_terminal(run, monkeypatch, command):
    """A script gets the way without an editor and exit 2, not a vi that nobody sees."""
    for name in ("EDITOR", "VISUAL"):
        monkeypatch.delenv(name, raising=False)

    ran = run(*command)

    assert ran.code == 2
    assert "no terminal" in ran.err
    assert "next:" in ran.err


def test_a_skill_that_is_not_there_is_a_mistake_of_the_caller(run):
    """Exit 2, the nearest name, and a command that a person can type."""
    ran = run("skills", "show", "write-skill")

    assert ran.code == 2
    assert "did you mean 'write-a-skill'?" in ran.err
    assert "kept skills list" in ran.err

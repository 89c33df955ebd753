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


def test_a_template_that_was_not_changed_makes_no_skill(run, monkeypatch):
    """As with a commit message: leaving the editor without a word writes nothing."""
    monkeypatch.setenv("EDITOR", "true")
    made = run("skills", "create", "water-plants")

    assert made.code == 1
    assert "no skill was created" in made.err
    assert "water-plants" not in run("skills", "list").out


def test_a_skill_that_is_refused_leaves_the_text_that_was_typed(run, monkeypatch, tmp_path):
    """The file of the editor stays and is named."""
    monkeypatch.setenv("EDITOR", "sed -i s/1./Look-at-the-soil/")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    refused = run("skills", "create", "Bad Name!")

    (file,) = tmp_path.glob("kept-skill-*.md")
    assert refused.code == 1
    assert f"your text is in {file}" in refused.err
    assert "Look-at-the-soil" in file.read_text()

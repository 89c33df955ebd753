"""Passages leave a skill, its archive and its versions; the skill can still be loaded, and its history undone."""

import pytest

from wellkept.skills.changes import Author, Create, Edit, WriteFile
from wellkept.skills.document import Document, read_skill
from wellkept.skills.editor import SkillEditor, undo
from wellkept.skills.forgetting import NO_DESCRIPTION, find_passages, forget_passages, rewrite
from wellkept.skills.library import SkillLibrary
from wellkept.storage.texts import Texts

WORD = Texts(["Quixotopia"])
STEPS = "---\nname: go\ndescription: Go there. Use when asked.\n---\n\n# Steps\n\n1. Walk to Quixotopia\n2. Rest\n"
PERSON = Author("person", reason="because of quixotopia")


@pytest.fixture
def editor(tmp_path):
    return SkillEditor(SkillLibrary(tmp_path / "skills"))


def everything(editor):
    return b"".join(path.read_bytes() for path in editor.home.rglob("*") if path.is_file()).lower()


def test_a_passage_leaves_the_skill_and_every_version(editor):
    """The current file, older ones, support files, the reasons of versions and the index."""
    editor.apply(Create("go", STEPS), PERSON)
    editor.apply(Edit("go", STEPS.replace("Rest", "Look at Quixotopia")), PERSON)
    editor.apply(WriteFile("go", "references/map.md", "north\nQUIXOTOPIA\n"), PERSON)
    (found,) = find_passages(editor, WORD)

    forget_passages(editor, WORD)

    assert (found.name, len(found.files), found.lines) == ("go", 2, 3)
    assert b"quixotopia" not in everything(editor)
    assert (editor.home / "go" / "SKILL.md").read_text() == STEPS.replace("1. Walk to Quixotopia\n2. Rest\n", "")
    assert find_passages(editor, WORD) == []


def test_the_history_of_a_skill_still_works(editor):
    """No change from outside is recorded, and older versions can be read."""
    editor.apply(Create("go", STEPS), PERSON)
    editor.apply(Edit("go", STEPS.replace("Rest", "Sleep")), PERSON)

    forget_passages(editor, WORD)
    editor.apply(Edit("go", STEPS.replace("1. Walk to Quixotopia\n", "1. Fly\n")), Author("person"))

    versions = editor.library.versions
    assert [version.action for version in versions.of("go")] == ["create", "edit", "edit"]
    first = versions.of("go")[0]
    assert versions.content("go", first.after["SKILL.md"]) == STEPS.replace("1. Walk to Quixotopia\n", "").encode()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("description: Go to Quixotopia. Use when asked.", NO_DESCRIPTION),
        ("description: >\n  Go to\n  Quixotopia now.\n  Use when asked.", "Go to Use when asked."),
    ],
)
def test_a_description_that_goes_leaves_a_neutral_one(editor, line, expected):
    """A skill without a description could not be loaded."""
    text = f"---\nname: go\n{line}\nlicense: MIT\n---\n\n# Steps\n\n1. Walk\n"
    rest = rewrite("SKILL.md", text.encode(), folder="go", texts=WORD)
    (editor.home / "go").mkdir(parents=True)
    (editor.home / "go" / "SKILL.md").write_bytes(rest)

    document = read_skill(editor.home / "go")

    assert isinstance(document, Document)
    assert document.description == expected
    assert document.fields["license"] == "MIT"
    assert "1. Walk" in document.body
    assert b"quixotopia" not in rest.lower()


def test_an_archived_skill_and_a_recorded_binary_lose_it_too(editor):
    """A file that is not text keeps it where it is, so that the report can name it, but not in the versions."""
    editor.apply(Create("go", STEPS), PERSON)
    editor.archive("go", PERSON)
    binary = editor.home / "ride" / "assets" / "a.bin"
    editor.apply(Create("ride", STEPS.replace("name: go", "name: ride")), PERSON)
    binary.parent.mkdir()
    binary.write_bytes(b"\0\0Quixotopia\xff")
    editor.apply(WriteFile("ride", "references/b.md", "b"), PERSON)

    forget_passages(editor, WORD)

    assert b"quixotopia" not in (editor.home / ".archive" / "go" / "SKILL.md").read_bytes().lower()
    held = [path for path in editor.home.rglob("*") if path.is_file() and b"quixotopia" in path.read_bytes().lower()]
    assert held == [binary]


def test_an_undo_says_what_was_forgotten(editor):
    """A change of which nothing is left is refused and not recorded; another leaves the forgotten lines out."""
    editor.apply(Create("go", STEPS.replace("1. Walk to Quixotopia\n", "")), PERSON)
    editor.apply(Edit("go", STEPS), PERSON)
    editor.apply(Edit("go", STEPS.replace("1. Walk to Quixotopia\n", "1. Fly\n")), PERSON)
    forget_passages(editor, WORD)

    refused = undo(editor, "go", PERSON, number=2)
    undone = undo(editor, "go", PERSON)

    assert "was forgotten" in refused.error
    assert undone.message == "Change 3 (edit) of 'go' undone, without the lines that were forgotten."
    assert [version.action for version in editor.library.versions.of("go")] == ["create", "edit", "edit", "undo"]

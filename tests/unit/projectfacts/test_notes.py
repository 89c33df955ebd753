"""The note beside an entry in a prompt."""

import pytest

from wellkept.projectfacts.check import Finding, Verdict, check_entries
from wellkept.projectfacts.notes import note_entries, strip_notes, write_note
from wellkept.projectfacts.remembered import Remembered, load_remembered

from .conftest import prose


@pytest.mark.parametrize(("finding", "note"), [
    (Finding("src/a.py", Verdict.GONE), "[checked: src/a.py is gone]"),
    (Finding("src/a.py", Verdict.RENAMED, "src/b.py"), "[checked: src/a.py is now src/b.py]"),
    (Finding("django 4.2", Verdict.DIFFERS, "5.0.2"), "[checked: django 4.2: the lock file has another version]"),
    (Finding("port 8000", Verdict.CHANGED), "[checked: port 8000 was changed]"),
    (Finding("src/a.py", Verdict.CHANGED, is_file=True), ""),
    (Finding("src/a.py", Verdict.HOLDS), ""),
])  # fmt: skip
def test_a_note_is_short_and_quotes_no_file(finding, note):
    """Neither the version of the lock file nor the new value of a setting."""
    assert write_note([finding]) == note


@pytest.mark.parametrize("name", ["a\nb.py", "a[b].py", "a\x1b[31m.py", "文.py", "x" * 100, "<b>.py"])
def test_a_strange_new_name_is_not_repeated(name):
    """A stranger chose it, and a model would read it."""
    assert write_note([Finding("src/a.py", Verdict.RENAMED, name)]) == "[checked: src/a.py was renamed]"


def test_notes_can_be_stripped():
    """So that a page is the same page whatever happened to its project."""
    page = "one [checked: make a is gone; b is now c]\n§\ntwo"

    assert strip_notes(page) == "one\n§\ntwo"


def test_only_entries_that_changed_get_a_note(repo):
    """A page on which everything holds has none."""
    repo.commit({"src/a.py": prose("a"), "src/b.py": prose("b")})
    repo.commit({"src/b.py": None})

    notes = note_entries(repo.root, {"see src/a.py": None, "see src/b.py": None}, Remembered())
    assert set(notes) <= {"see src/b.py"}


def test_what_is_remembered_holds_no_text(repo):
    """Digests and commits only; and it is the same after it was stored."""
    repo.commit({"src/orchard.py": prose("a")})
    repo.commit({"src/orchard.py": None})
    remembered = check_entries(repo.root, {"see src/orchard.py": 1.0}).remembered
    data = remembered.dump()

    assert b"orchard" not in data
    assert load_remembered(data) == remembered


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b'{"head": 1, "steps": []}', b'{"head": "../x", "steps": {}}',
                                  b'{"head": "%s", "steps": {"a": ["../../x"]}}' % (b"0" * 40)])  # fmt: skip
def test_damaged_memory_is_none(data):
    """The next check looks for itself."""
    assert load_remembered(data) == Remembered()

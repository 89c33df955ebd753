"""A rollback that ended in the middle continues where it ended."""

import pytest

from wellkept.core.errors import StorageError
from wellkept.skills.changes import Author, Create, Edit
from wellkept.skills.curator.backup import Backups
from wellkept.skills.curator.curator import Curator
from wellkept.skills.document import compose
from wellkept.skills.editor import SkillEditor
from wellkept.skills.library import SkillLibrary
from wellkept.skills.settings import SkillSettings
from wellkept.storage.locks import hold_lock

NAMES = ("alpha", "beta", "gamma")


class Ended(BaseException):
    """Simulates the end of the process."""


def text(name, step):
    return compose(name, f"Do {name}. Use when asked.", f"# {name}\n\n1. {step}\n")


@pytest.fixture
def editor(tmp_path):
    editor = SkillEditor(SkillLibrary(tmp_path / "skills", settings=SkillSettings(bundled=False)))
    for name in NAMES:
        editor.apply(Create(name, text(name, "Old")), Author("agent"))
    return editor


@pytest.fixture
def backups(editor):
    backups = Backups(editor, editor.library.clock, kept=2)
    backups.take()
    for name in NAMES:
        editor.apply(Edit(name, text(name, "New")), Author("agent"))
    return backups


def steps(editor):
    return ["Old" in (editor.home / name / "SKILL.md").read_text() for name in NAMES]


def end_after(monkeypatch, count):
    """End the process when `count` skills were put back, or, with -1, before the present state was backed up."""
    real, done = SkillEditor.place_files, []

    def place_files(*args, **options):
        if len(done) >= count:
            raise Ended
        done.append(1)
        return real(*args, **options)

    def take(*args, **options):
        raise Ended

    monkeypatch.setattr(SkillEditor, "place_files", place_files)
    if count < 0:
        monkeypatch.setattr(Backups, "take", take)


@pytest.mark.parametrize("count", [-1, 0, 1, 2])
@pytest.mark.parametrize("named", [True, False])
def test_the_same_command_completes_it(editor, backups, monkeypatch, count, named):
    """It restores the backup that was meant, not its own copy of the state before, and says what differed."""
    chosen = backups.names()[-1]
    end_after(monkeypatch, count)
    with pytest.raises(Ended):
        backups.roll_back(chosen if named else None)
    monkeypatch.undo()

    done = backups.roll_back(chosen if named else None)

    assert (done.backup, done.restored) == (chosen, NAMES)
    assert steps(editor) == [True, True, True]
    assert backups.unfinished() is None
    back = backups.roll_back()
    assert back.restored == NAMES
    assert steps(editor) == [False, False, False]


def test_another_backup_takes_its_place(editor, backups, monkeypatch):
    """A person who names another backup after an interrupted rollback gets that one."""
    newer = backups.take()
    end_after(monkeypatch, 1)
    with pytest.raises(Ended):
        backups.roll_back(backups.names()[0])
    monkeypatch.undo()

    backups.roll_back(newer)

    assert steps(editor) == [False, False, False]
    assert backups.unfinished() is None


def test_the_backup_that_is_restored_is_not_pruned(editor, backups):
    """The copy of the state before never pushes out the backup that is wanted."""
    oldest = backups.names()[0]
    backups.take()

    backups.roll_back(oldest)

    assert steps(editor) == [True, True, True]
    assert oldest in backups.names()


def test_it_is_left_to_a_process_that_is_at_it(editor, backups, monkeypatch):
    """A second process neither waits for a running rollback nor joins in."""
    end_after(monkeypatch, 1)
    with pytest.raises(Ended):
        backups.roll_back()
    monkeypatch.undo()
    curator = Curator(editor)

    with hold_lock(editor.home / ".curator" / "run.lock"):
        assert curator.finish_rollback() is None

    assert steps(editor) == [True, False, False]
    assert curator.finish_rollback().restored == NAMES
    assert curator.finish_rollback() is None


def test_a_damaged_journal_is_no_rollback(editor, backups):
    """A journal that cannot be read, or names a backup that is gone, is ignored."""
    journal = editor.home / ".curator" / "rollback.json"
    for content in (b"{", b"[]", b'{"backup": "gone.tar.gz", "before": "x"}'):
        journal.write_bytes(content)

        assert backups.unfinished() is None


def test_a_backup_that_cannot_be_read_begins_nothing(editor, backups):
    """The error comes before the journal is written."""
    (editor.home / ".curator" / "backups" / backups.names()[0]).write_bytes(b"no archive")

    with pytest.raises(StorageError):
        backups.roll_back()

    assert backups.unfinished() is None

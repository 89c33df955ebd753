"""Profile commands that end in the middle leave the old state or the new one, and the active profile exists."""

from pathlib import Path

import pytest

from wellkept.config.home import active_profile, choose_profile
from wellkept.core.errors import NotFound, StorageError
from wellkept.operations import profiles
from wellkept.storage.files import SCRATCH_FOLDER


class Ended(BaseException):
    """Simulates the end of the process: nothing after it runs, not even a cleanup that writes."""


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "home"
    profiles.create_profile(root, "work")
    (root / "profiles" / "work" / "note").write_text("a fact of work")
    profiles.use_profile(root, "work")
    return root


def end_at_rename(monkeypatch, *, before):
    """End the process at the rename of a folder, before or after it."""
    real = Path.replace

    def replace(own, target):
        if own.is_dir():
            if not before:
                real(own, target)
            monkeypatch.setattr(profiles, "settle_active_profile", lambda _root: None)
            raise Ended
        return real(own, target)

    monkeypatch.setattr(Path, "replace", replace)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_rename_that_ends_at_any_moment_leaves_an_active_profile(root, monkeypatch, before):
    """The folder and the choice change together: the active profile is the old or the new one, with its files."""
    end_at_rename(monkeypatch, before=before)
    with pytest.raises(Ended):
        profiles.rename_profile(root, "work", "job")
    monkeypatch.undo()

    assert active_profile(root) == ("work" if before else "job")
    assert (profiles.find_profile(root, active_profile(root)).path / "note").read_text() == "a fact of work"
    if before:
        profiles.rename_profile(root, "work", "job")
    assert [one.name for one in profiles.list_profiles(root) if one.is_active] == ["job"]


def test_a_rename_that_ended_does_not_choose_a_later_profile_of_that_name(root, monkeypatch):
    """After an interrupted rename to `job`, a new profile `job` does not become active by itself."""
    end_at_rename(monkeypatch, before=True)
    with pytest.raises(Ended):
        profiles.rename_profile(root, "work", "job")
    monkeypatch.undo()

    profiles.create_profile(root, "job")

    assert active_profile(root) == "work"


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_deletion_that_ends_at_any_moment_leaves_all_or_nothing(root, monkeypatch, before):
    """The profile is whole and active, or gone, with the default one active."""
    end_at_rename(monkeypatch, before=before)
    with pytest.raises(Ended):
        profiles.delete_profile(root, "work")
    monkeypatch.undo()

    if before:
        assert active_profile(root) == "work"
        assert (root / "profiles" / "work" / "note").exists()
    else:
        assert active_profile(root) == "default"
        with pytest.raises(NotFound):
            profiles.find_profile(root, "work")


def test_a_refused_rename_leaves_everything(root, monkeypatch):
    """When the folder cannot be renamed, the old profile stays active."""

    real = Path.replace

    def refuse(own, target):
        if own.is_dir():
            raise OSError(5, "Input/output error")
        return real(own, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(StorageError):
        profiles.rename_profile(root, "work", "job")
    monkeypatch.undo()

    assert active_profile(root) == "work"
    assert (root / "active_profile").read_text() == "work\n"


def test_an_active_profile_that_was_removed_by_hand_is_named(root):
    """A missing profile is an error with its name, not silently the default one."""
    choose_profile(root, "gone")

    assert active_profile(root) == "gone"


def test_a_copy_contains_no_scratch_folder(root):
    """What another process is making is not a part of the profile."""
    (root / SCRATCH_FOLDER / "1-abcd").mkdir(parents=True)  # process 1 lives
    (root / "note").write_text("a fact")

    copy = profiles.clone_profile(root, "default", "copy")

    assert sorted(path.name for path in copy.path.iterdir()) == ["note"]

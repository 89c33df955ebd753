"""Temporary files and scratch folders that a killed process left."""

import os
import subprocess
import sys
from pathlib import Path

from wellkept.storage.files import (
    SCRATCH_FOLDER,
    is_alive,
    open_scratch,
    remove_unfinished,
    temporary_name,
    write_atomically,
)


def dead_pid():
    return int(
        subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True).stdout
    )


def test_a_write_removes_what_killed_writers_left_beside_it(tmp_path):
    """Temporary files of dead processes go, whatever they were for; those of living ones stay."""
    ours = temporary_name(tmp_path / "other")
    theirs = ours.with_name(ours.name.replace(str(os.getpid()), str(dead_pid())))
    ours.write_text("a")
    theirs.write_text("b")

    write_atomically(tmp_path / "file", b"text")

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([ours.name, "file"])


def test_scratch_folders_of_dead_processes_are_removed(tmp_path):
    """A living process keeps its own; an empty parent goes too."""
    left = tmp_path / SCRATCH_FOLDER / f"{dead_pid()}-abcd" / "profile"
    left.mkdir(parents=True)
    with open_scratch(tmp_path) as folder:
        remove_unfinished(tmp_path)

        assert list(folder.parent.iterdir()) == [folder]

    assert not (tmp_path / SCRATCH_FOLDER).exists()
    remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_replaced_is_not_reported_as_failed(tmp_path, monkeypatch):
    """When the rename has happened, removing a temporary file that is gone cannot fail the write."""

    def refuse(own, *, missing_ok=False):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "unlink", refuse)

    write_atomically(tmp_path / "file", b"text")

    assert (tmp_path / "file").read_bytes() == b"text"


def test_a_process_is_alive_until_it_has_ended():
    """Also one of another user, and an id that no process can have is not."""
    assert is_alive(os.getpid())
    assert is_alive(1)
    assert not is_alive(dead_pid())
    assert not is_alive(2**70)

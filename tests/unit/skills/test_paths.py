"""Paths inside a skill: nothing leads out, nothing hangs, on any platform."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.errors import Refused
from wellkept.skills.roots import read_regular, refuse_path, support_file

HOSTILE = [
    "", " ", ".", "..", "../x", "references/../../x", "/etc/passwd", "//etc/passwd", "~/x", "~root/x", "C:/x", "C:\\x", "\\\\host\\x",
    "references\\x", "references/..\\..\\x", "references//x", "references/./x", "references/x/", "con", "references/CON", "scripts/aux.txt",
    "scripts/NUL.md", "scripts/com1", "scripts/lpt9.txt", "scripts/x.", "scripts/x ", "scripts/ x", "scripts/a:b", "scripts/a*b", "scripts/a?b",
    "scripts/a\0b", "scripts/a\nb", "scripts/\u202etxt", "scripts/e\u0301", "a/b/c/d/e/f/g", ".env", "scripts/.hidden", "-rf", "scripts/-rf",
    "scripts/" + "x" * 300, "%2e%2e/x\\", "references/\u2024\u2024/x\x7f",
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE)
def test_hostile_paths_are_refused_for_reading_and_writing(tmp_path, path):
    """The spelling alone is enough to refuse, with a remedy."""
    for write in (True, False):
        refused = support_file(tmp_path, path, write=write)
        assert isinstance(refused, Refused)
        assert refused.remedy


@given(st.text(max_size=40))
def test_an_accepted_path_stays_inside(tmp_path, path):
    """Whatever is accepted lies below the folder."""
    found = support_file(tmp_path, path, write=True)

    if not isinstance(found, Refused):
        assert found.resolve().is_relative_to(tmp_path.resolve())
        assert found != tmp_path


@pytest.mark.parametrize(
    "path", ["SKILL.md", "skill.md", "Skill.MD", "references/SKILL.md", "notes.md", "other/x.md", "scripts"]
)
def test_only_support_folders_are_written(tmp_path, path):
    """SKILL.md has its own actions, and files lie in the format's folders."""
    assert isinstance(support_file(tmp_path, path, write=True), Refused)


def test_a_link_is_not_followed_out(tmp_path):
    """A link in any part of the path is refused for writing, and for reading when it leaves."""
    skill = tmp_path / "skill"
    (skill / "references").mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (skill / "references" / "out.md").symlink_to(tmp_path / "secret")
    (skill / "assets").symlink_to(tmp_path)
    (skill / "references" / "real.md").write_text("y")
    (skill / "references" / "in.md").symlink_to("real.md")
    (skill / "references" / "loop.md").symlink_to("loop.md")

    for path in ("references/out.md", "assets/secret", "references/loop.md"):
        assert isinstance(support_file(skill, path, write=False), Refused)
        assert isinstance(support_file(skill, path, write=True), Refused)
    assert isinstance(support_file(skill, "references/in.md", write=True), Refused)
    assert not isinstance(support_file(skill, "references/in.md", write=False), Refused)


def test_a_name_that_differs_by_case_is_refused(tmp_path):
    """On a case-blind file system it would be another file's twin."""
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "Api.md").write_text("x")

    assert isinstance(support_file(tmp_path, "references/api.md", write=True), Refused)
    assert isinstance(support_file(tmp_path, "References/new.md", write=True), Refused)


def test_a_pipe_or_folder_is_no_file(tmp_path):
    """Reading never waits for a pipe that took a file's place."""
    (tmp_path / "scripts" / "sub").mkdir(parents=True)
    os.mkfifo(tmp_path / "scripts" / "pipe")

    assert isinstance(support_file(tmp_path, "scripts/pipe", write=False), Refused)
    assert isinstance(support_file(tmp_path, "scripts/sub", write=False), Refused)
    assert read_regular(tmp_path / "scripts" / "pipe") is None
    assert read_regular(tmp_path / "scripts") is None
    assert read_regular(tmp_path / "none") is None


def test_ordinary_paths_are_accepted():
    """What people write passes."""
    for path in (
        "references/api.md",
        "scripts/check.py",
        "assets/a b.png",
        "templates/übersicht.md",
        "references/a/b/c/d/e.md",
    ):
        assert refuse_path(path) is None

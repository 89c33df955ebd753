"""Paths that must stay inside their root."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.errors import UsageError
from wellkept.security.paths import inside


def test_a_plain_path_is_resolved_below_the_root(tmp_path: Path) -> None:
    """What stays inside comes back absolute."""
    assert inside(tmp_path, "notes/a.md") == (tmp_path / "notes" / "a.md").resolve()
    assert inside(tmp_path, Path("a") / ".hidden") == (tmp_path / "a" / ".hidden").resolve()


@pytest.mark.parametrize(
    "path",
    [
        "../x", "a/../../x", "a/..", "/etc/passwd", "~/x", "", "  ", "a\0b", "C:\\x", "c:x", "\\\\host\\share", "..\\x",
        "a\\..\\..\\x", "con", "NUL.txt", "sub/Aux", "com1.log", "LPT9", "a/prn .txt",
    ],
)  # fmt: skip
def test_a_path_that_could_leave_is_refused(tmp_path: Path, path: str) -> None:
    """Traversal, absolute forms, NUL and device names, on every platform."""
    with pytest.raises(UsageError):
        inside(tmp_path, path)


def test_a_symlink_out_is_refused(tmp_path: Path) -> None:
    """A link that leaves the root is followed before it is judged."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")

    with pytest.raises(UsageError, match="outside"):
        inside(root, "out/file")
    with pytest.raises(UsageError):
        inside(root, "loop/file")


def test_a_root_that_is_itself_a_link_is_fine(tmp_path: Path) -> None:
    """The root is resolved too, so that a linked home works."""
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "real")

    assert inside(tmp_path / "home", "a") == (tmp_path / "real" / "a").resolve()


@given(st.text(max_size=40))
def test_an_accepted_path_is_below_the_root(text: str) -> None:
    """Whatever is accepted cannot point elsewhere."""
    root = Path("/nowhere/root")
    try:
        found = inside(root, text)
    except UsageError:
        return

    assert found.is_relative_to(root.resolve())

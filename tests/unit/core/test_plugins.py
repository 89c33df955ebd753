"""Plugins in folders."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from wellkept.core.plugins import entry_points, import_package, packages


def package(folder: Path, body: str = "") -> Path:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(body)
    return folder


def test_only_packages_are_found_by_name(tmp_path: Path) -> None:
    """A file, a folder without code and a place that is not there bring none."""
    package(tmp_path / "b")
    package(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.py").write_text("")

    assert [path.name for path in packages(tmp_path)] == ["a", "b"]
    assert packages(tmp_path / "nowhere") == []


def test_a_package_is_imported_with_its_parts(tmp_path: Path) -> None:
    """Although it is on no import path, it can import the modules beside it."""
    place = package(tmp_path / "whole", "from .part import VALUE")
    (place / "part.py").write_text("VALUE = 7")

    assert import_package(place).VALUE == 7


def test_a_package_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """The next attempt starts over."""
    place = package(tmp_path / "leaves_at_import", "raise SystemExit('no')")

    with pytest.raises(SystemExit):
        import_package(place)

    assert not [name for name in sys.modules if name.startswith("kept_plugins.") and "leaves_at_import" in name]


def test_a_group_that_nobody_offers_is_empty() -> None:
    """A missing group is not an error."""
    assert entry_points("wellkept.nothing_of_this_name") == []


def test_a_package_that_is_installed_meanwhile_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the present and the former name of the group; one that is removed is gone, without a new process."""
    monkeypatch.syspath_prepend(str(tmp_path))
    os.utime(tmp_path, (1, 1))
    assert entry_points("wellkept.tried") == []
    info = tmp_path / "some-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[wellkept.tried]\nb = some:B\n[kept.tried]\na = some:A\nb = some:Former\n")

    assert [point.value for point in entry_points("wellkept.tried")] == ["some:A", "some:B"]
    assert [point.value for point in entry_points("wellkept.tried")] == ["some:A", "some:B"]
    shutil.rmtree(info)
    os.utime(tmp_path, (2, 2))
    assert entry_points("wellkept.tried") == []

"""Facts about how this program was installed."""

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from wellkept.core import installation
from wellkept.core.installation import find_program, name_install

CHECKOUT = Path(__file__).parents[3]


def environment(home: Path, *paths: Path) -> dict[str, str]:
    return {**os.environ, "KEPT_HOME": str(home), "PYTHONPATH": os.pathsep.join(map(str, paths))}


def run(words: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wellkept", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True)


def add_foreign_package(site: Path) -> None:
    """Lay out a package of somebody else that is called `kept`, as pip would install it."""
    (site / "kept").mkdir(parents=True)
    (site / "kept" / "__init__.py").write_text("raise SystemExit('a stranger ran')\n")
    info = site / "kept-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kept\nVersion: 9.9\n")


def test_hints_name_the_checkout_that_is_installed() -> None:
    """A name on the index may be somebody else's."""
    assert json.loads(distribution("wellkept").read_text("direct_url.json") or "{}")["url"].startswith("file:")
    assert name_install("gateway") == f"pip install '{CHECKOUT}[gateway]'"


def test_a_wheel_is_named_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was installed from a wheel gets its extras from that wheel, and what came from an index from the index."""
    info = tmp_path / "wellkept-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wellkept\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(installation, "__file__", str(tmp_path / "wellkept" / "core" / "installation.py"))
    assert name_install("vectors") == "pip install 'wellkept[vectors]'"

    (info / "direct_url.json").write_text(json.dumps({"url": "file:///a%20b/wellkept-1.0-py3-none-any.whl"}))

    assert name_install("vectors") == "pip install '/a b/wellkept-1.0-py3-none-any.whl[vectors]'"


def test_a_foreign_package_changes_nothing(tmp_path: Path) -> None:
    """Memory works beside it, and doctor names it."""
    add_foreign_package(tmp_path / "site")
    env = environment(tmp_path / "home", tmp_path / "site")
    for words in (["memory", "add", "The heron is grey"], ["sessions", "list"]):
        assert "stranger" not in run(words, env).stderr

    report = run(["doctor", "--offline"], env)

    assert "the package `kept` in this environment is somebody else's" in report.stdout


def test_a_foreign_script_is_not_written_into_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Services and connected agents start this program, whatever the script `kept` is."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert find_program() == (str(tmp_path / "python"), "-m", "wellkept")

    (tmp_path / "kept").write_text("#!/usr/bin/python3\nfrom kept.app.cli import main\n")
    (tmp_path / "wellkept").write_text("#!/usr/bin/python3\nfrom wellkept.cli.entry import main\n")

    assert find_program() == (str(tmp_path / "wellkept"),)


def test_both_scripts_start_this_program() -> None:
    """`uvx wellkept` runs the script that is called like the distribution."""
    points = {point.name: point.value for point in distribution("wellkept").entry_points}
    assert points == {"kept": "wellkept.cli.entry:main", "wellkept": "wellkept.cli.entry:main"}

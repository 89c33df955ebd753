"""Skills under fault: processes that write at once, processes that die, disks that refuse."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from skills_ref.validator import validate
from tests import forks

from wellkept.core.tools import ToolContext
from wellkept.skills.changes import Author, Changed, Create
from wellkept.skills.document import compose
from wellkept.skills.editor import SkillEditor, undo
from wellkept.skills.library import SkillLibrary
from wellkept.skills.settings import SkillSettings
from wellkept.skills.tool import SkillTools

WRITER = Path(__file__).with_name("skills_writer.py")
ROUNDS = 200 if os.environ.get("KEPT_HEAVY") == "1" else 8


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "skills"
    editor = SkillEditor(SkillLibrary(folder, settings=SkillSettings(bundled=False)))
    editor.apply(Create("shared", compose("shared", "Shared by many. Use when asked.", "# Log\n\nEND\n")), Author())
    return folder


def library(home):
    return SkillLibrary(home, settings=SkillSettings(bundled=False, versions_kept=5_000, lock_timeout_seconds=30))


def start(home, mark, rounds):
    return forks.Popen(
        [sys.executable, str(WRITER), str(home), mark, str(rounds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def test_two_processes_editing_one_skill_lose_nothing(home):
    """Every acknowledged patch is in the file, and each has its version."""
    writers = [start(home, mark, 15) for mark in ("one", "two")]
    said = [line for writer in writers for line in writer.communicate(timeout=100)[0].split() if line != "ready"]

    text = (home / "shared" / "SKILL.md").read_text()

    assert len(said) == 30
    assert all(text.count(f"{mark}\n") == 1 for mark in said)
    assert len([one for one in library(home).versions.of("shared") if one.action == "patch"]) == 30
    assert library(home).usage.of("shared").patch_count == 30
    assert validate(home / "shared") == []


def test_a_killed_writer_loses_nothing(home):
    """kill -9 at any moment: every acknowledged patch is there, the file is whole, the record agrees and undo works."""
    chance = random.Random(11)
    for round_number in range(ROUNDS):
        writer = start(home, f"r{round_number}", 1_000)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        first = writer.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.1))
        writer.kill()
        said = [*first.split(), *writer.stdout.read().split()]
        writer.wait()
        writer.stdout.close()
        text = (home / "shared" / "SKILL.md").read_text()
        assert all(f"{mark}\n" in text for mark in said), round_number
        assert text.endswith("END\n")
        editor = SkillEditor(library(home))
        with editor.lock("shared"):
            pass
        standing = [one for one in editor.library.versions.of("shared") if not one.voided]
        assert standing[-1].id == editor.library.version(editor.library.skill("shared"))
    assert validate(home / "shared") == []
    before = (home / "shared" / "SKILL.md").read_text()
    assert isinstance(undo(SkillEditor(library(home)), "shared", Author()), Changed)
    assert len((home / "shared" / "SKILL.md").read_text()) < len(before)
    assert [
        path for path in (home / "shared").iterdir() if path.name != "SKILL.md" and ".kept-tmp-" not in path.name
    ] == []


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/dev/full").exists(), reason="needs a way to refuse writes")
def test_a_home_that_cannot_be_written_still_serves_skills(tmp_path):
    """Reading continues; a view says that it was not counted, a change is refused with the reason."""
    home = tmp_path / "skills"
    place = home / "readable"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(compose("readable", "Read me. Use when asked.", "# x\n"))
    (home / ".usage.json").mkdir()
    (home / ".versions").write_text("a file stands here")
    tools = {tool.schema.name: tool for tool in SkillTools(library(home)).tools()}

    viewed = tools["skill_view"].call({"name": "readable"}, ToolContext())
    changed = tools["skill_manage"].call(
        {"action": "patch", "name": "readable", "old_string": "# x", "new_string": "# y"}, ToolContext()
    )

    assert viewed["success"] is True
    assert "not counted" in viewed["warnings"][0]
    assert changed["success"] is False
    assert changed["remedy"]
    assert "# x" in (place / "SKILL.md").read_text()


def test_a_use_record_lost_in_a_crash_costs_only_the_count(home):
    """The crash came between the file and the usage record: the skill is whole and the count continues."""
    (home / ".usage.json").unlink()

    view = SkillTools(library(home)).tools()[1]

    assert view.call({"name": "shared"}, ToolContext())["success"] is True
    assert library(home).usage.of("shared").use_count == 1

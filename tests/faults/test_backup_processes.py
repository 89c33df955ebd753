"""Backups with real processes: four of them write, the disk is full, the restore is killed."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests import forks

from wellkept.app import open_app
from wellkept.backup.backup import create_backup
from wellkept.backup.restore import apply_restore, open_restore
from wellkept.core.errors import Refused
from wellkept.memory.page import Target, page_hash
from wellkept.skills.versions import state_of

WRITER = Path(__file__).with_name("backup_writer.py")
HEAVY = os.environ.get("KEPT_HEAVY") == "1"
ROUNDS = 15 if HEAVY else 2


@pytest.fixture
def writers(home):
    """Four processes that write to the home, each at its third round."""
    open_app(str(home), environ={}).close()
    started = [
        forks.Popen([sys.executable, str(WRITER), str(home), name], stdout=subprocess.PIPE, text=True)
        for name in ("ant", "bee", "cat", "dog")
    ]
    for process in started:
        while process.stdout.readline().strip() != "3":
            assert process.poll() is None
    yield started
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def restore(home, file):
    app = open_app(str(home), environ={})
    with open_restore(app.caller(), file) as opened:
        assert not isinstance(opened, Refused)
        apply_restore(app.caller(), opened)
    app.close()


def check_moment(home):
    """A page has the hash that its newest ledger row names, a session its messages without a gap, a skill its version."""
    app = open_app(str(home), environ={})
    space = app.owner
    newest = space.memory.ledger.newest(Target.MEMORY)
    assert newest.page_after == page_hash(tuple(space.memory.entries("memory")))
    for name in ("ant", "bee", "cat", "dog"):
        said = [message.message.content for message in space.sessions.messages(f"session-{name}")]
        assert said == [f"{name} {number}" for number in range(1, len(said) + 1)]
        versions = space.skill_tools.library.versions.of(f"skill-{name}")
        assert dict(state_of(home / "skills" / f"skill-{name}").files) == dict(versions[-1].after)
        known = [
            row.step.after for row in space.memory.ledger.rows(Target.MEMORY) if (row.step.after or "").startswith(name)
        ]
        # the message of a round is stored before its entry, and the entry before its version
        assert len(said) - 1 <= len(known) <= len(said)
        assert len(known) - 1 <= versions[-1].number <= len(known)
    app.close()


@pytest.mark.timeout(900 if HEAVY else 120)
def test_a_backup_while_four_processes_write_is_of_one_moment(writers, home, tmp_path):
    """Restored into an empty folder, everything agrees, and the restored bytes are those of the archive."""
    for number in range(ROUNDS):
        app = open_app(str(home), environ={})
        made = create_backup(app.caller(), tmp_path / f"{number}.tar.gz")
        app.close()
        assert all(process.poll() is None for process in writers)
        restore(tmp_path / "restored", made.file)
        unpacked = tmp_path / "unpacked"
        unpacked.mkdir()
        subprocess.run(["tar", "xzf", str(made.file), "-C", str(unpacked)], check=True)
        for name in ("memories/MEMORY.md", "memories/ledger.db", "state.db", "skills/skill-ant/SKILL.md"):
            assert (tmp_path / "restored" / name).read_bytes() == (unpacked / "home" / name).read_bytes(), name

        check_moment(tmp_path / "restored")

        for folder in (tmp_path / "restored", unpacked):
            shutil.rmtree(folder)


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def test_a_disk_that_takes_no_more_leaves_no_partial_file(home, tmp_path):
    """A limit on file sizes simulates a full disk: a clear error, and nothing of the backup stays."""
    environment = {**os.environ, "KEPT_HOME": str(home)}
    kept = [sys.executable, "-m", "wellkept"]
    forks.run([*kept, "run", "hello"], env=environment, check=True, capture_output=True)
    (tmp_path / "target").mkdir()

    done = forks.run(
        [*kept, "backup", str(tmp_path / "target" / "a.tar.gz")],
        env=environment, capture_output=True, text=True, check=False, preexec_fn=limit_file_size,
    )  # fmt: skip

    assert (done.returncode, "Traceback" in done.stderr) == (74, False), done.stderr
    assert "next:" in done.stderr
    assert list((tmp_path / "target").iterdir()) == []

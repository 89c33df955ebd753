"""The curator runs by itself after a talk, when a week has passed and nobody was at work for two hours."""

import json
import os
import time
from datetime import UTC, datetime, timedelta

import pytest

STEPS = "---\nname: old-steps\ndescription: Do the old steps. Use when asked.\n---\n\n# Steps\n\n1. Go\n"


@pytest.fixture
def unused(kept, home, work):
    """A skill that nobody used for a hundred days."""
    (work / "draft.md").write_text(STEPS)
    assert kept("skills", "create", "old-steps", "-f", "draft.md").code == 0
    _aged(home, 100)
    return home / "skills" / "old-steps" / "SKILL.md"


def _aged(home, days):
    usage = home / "skills" / ".usage.json"
    rows = json.loads(usage.read_text())
    moment = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    for row in rows.values():
        row.update({key: moment for key in row if key.endswith("_at") and row[key]})
    usage.write_text(json.dumps(rows))


def test_it_runs_after_a_chat_and_can_be_undone(kept, home, unused):
    """The person reads what went to the archive, and brings it back with one command."""
    ran = kept("chat", stdin="hello\n")

    assert "archived because they were unused: old-steps" in ran.err
    assert not unused.exists()
    assert kept("curator", "rollback", "--yes").code == 0
    assert unused.read_text() == STEPS


def test_it_waits_while_somebody_is_at_work_and_until_a_week_has_passed(kept, home, unused):
    """Neither a talk a moment ago nor a run of yesterday is followed by another run."""
    state = home / "skills" / ".curator" / "state.json"
    state.parent.mkdir(exist_ok=True)
    state.write_text(json.dumps({"last_run_at": (datetime.now(UTC) - timedelta(days=1)).isoformat()}))
    kept("chat", stdin="hello\n")
    state.write_text(json.dumps({"last_run_at": (datetime.now(UTC) - timedelta(days=8)).isoformat()}))
    kept("run", "hello again")

    assert unused.exists()


@pytest.mark.parametrize("setting", ["paused", "disabled", "incognito"])
def test_it_can_be_kept_from_running(kept, home, unused, setting):
    """Paused, switched off, or in a talk that leaves no trace."""
    if setting == "paused":
        kept("curator", "pause")
    elif setting == "disabled":
        kept("config", "set", "curator.enabled", "false")
    kept("chat", *(["--incognito"] if setting == "incognito" else []), stdin="hello\n")

    assert unused.exists()


def test_a_skill_put_there_by_hand_is_not_archived_for_the_age_of_its_file(kept, home):
    """A folder copied from elsewhere keeps old times; the curator counts from when it first saw it."""
    file = home / "skills" / "old-steps" / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(STEPS)
    long_ago = time.time() - 400 * 86_400
    os.utime(file, (long_ago, long_ago))

    kept("chat", stdin="hello\n")

    assert file.exists()
    assert "old-steps" in (home / "skills" / ".usage.json").read_text()

"""The curator over simulated time: stale, archived, back on use, and everything undone by a rollback."""

import os
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.clock import FixedClock
from wellkept.core.errors import NotFound
from wellkept.core.tools import ToolContext
from wellkept.skills.changes import Author, Create, Delete, WriteFile
from wellkept.skills.curator.curator import Candidate, Curator, decide
from wellkept.skills.document import compose
from wellkept.skills.editor import SkillEditor
from wellkept.skills.hub.hub import Hub
from wellkept.skills.library import SkillLibrary
from wellkept.skills.roots import Kind, Root
from wellkept.skills.settings import CuratorSettings, SkillSettings
from wellkept.skills.tool import SkillTools
from wellkept.skills.usage import Outcome, Status, Use

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock():
    return FixedClock(START)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "skills"


@pytest.fixture
def editor(home, clock, tmp_path):
    home.mkdir()
    roots = (Root(home, Kind.HOME), Root(tmp_path / "external", Kind.EXTERNAL))
    settings = SkillSettings(bundled=False, pinned_by_schedule=["scheduled"])
    return SkillEditor(SkillLibrary(home, roots=roots, settings=settings, clock=clock))


@pytest.fixture
def curator(editor):
    return Curator(editor)


def make(editor, name, category=""):
    editor.apply(
        Create(name, compose(name, f"Do {name}. Use when asked.", f"# {name}\n\n1. Go\n"), category), Author("agent")
    )


def state(editor, name):
    return editor.library.usage.of(name).state


def everything(home):
    return {
        path.relative_to(home).as_posix(): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and not path.relative_to(home).parts[0].startswith(".")
    }


def test_thirty_days_make_stale_ninety_archive_and_use_brings_back(editor, curator, clock, home):
    """The whole life of a skill that nobody uses, and its return with its category."""
    make(editor, "rarely", "ops")
    clock.forward(days=29, hours=23)
    assert curator.run().moves == ()
    clock.forward(hours=1)
    curator.run()
    assert state(editor, "rarely") is Status.STALE
    clock.forward(days=59)
    assert curator.run().moves == ()
    clock.forward(days=1)
    curator.run()
    assert state(editor, "rarely") is Status.ARCHIVED
    assert (home / ".archive" / "ops" / "rarely" / "SKILL.md").exists()
    assert editor.library.skill("rarely") is None

    answer = SkillTools(editor.library).tools()[1].call({"name": "rarely"}, ToolContext())

    assert answer["success"] is True
    assert state(editor, "rarely") is Status.ACTIVE
    assert (home / "ops" / "rarely" / "SKILL.md").exists()
    assert curator.run().moves == ()


def test_a_stale_skill_that_is_used_is_active_again(editor, curator, clock):
    """One use resets the count of days."""
    make(editor, "sometimes")
    clock.forward(days=40)
    curator.run()
    editor.library.usage.record_view("sometimes", used=True)

    assert state(editor, "sometimes") is Status.ACTIVE
    clock.forward(days=29)
    assert curator.run().moves == ()


def test_what_is_protected_is_never_touched(editor, curator, clock, home, tmp_path):
    """Pinned, hub-installed, external and scheduled skills stay, whatever their age."""
    for name in ("pinned", "scheduled", "plain"):
        make(editor, name)
    editor.library.usage.pin("pinned", pinned=True)
    package = tmp_path / "package" / "from-hub"
    package.mkdir(parents=True)
    (package / "SKILL.md").write_text(compose("from-hub", "Do it. Use when asked.", "# x\n"))
    hub = Hub(editor)
    hub.install(hub.prepare(str(package)))
    external = tmp_path / "external" / "outside"
    external.mkdir(parents=True)
    (external / "SKILL.md").write_text(compose("outside", "Do it. Use when asked.", "# x\n"))
    clock.forward(days=400)

    report = curator.run()

    assert [move.name for move in report.moves] == ["plain"]
    assert sorted(skill.name for skill in editor.library.skills()) == ["from-hub", "outside", "pinned", "scheduled"]
    assert curator.protected_skills() == {
        "from-hub": "hub",
        "outside": "external",
        "pinned": "pinned",
        "scheduled": "schedule",
    }


def test_a_rollback_restores_bytes_and_categories(editor, curator, clock, home):
    """After a run, edits and a move by hand, everything is as the backup has it; what is new stays."""
    make(editor, "old-one", "ops")
    editor.apply(WriteFile("old-one", "scripts/deep/a.sh", "#!/bin/sh\necho a\n"), Author())
    make(editor, "used", "data")
    clock.forward(days=100)
    editor.library.usage.record_view("used", used=True)
    before, usage = everything(home), editor.library.usage.read()
    report = curator.run()
    assert [move.becomes for move in report.moves] == [Status.ARCHIVED]
    (home / "data" / "used" / "SKILL.md").write_text("ruined")
    make(editor, "newer")

    done = curator.roll_back(report.backup)

    after = everything(home)
    assert {path: data for path, data in after.items() if not path.startswith("newer/")} == before
    assert "newer/SKILL.md" in after
    assert set(done.restored) == {"old-one", "used"}
    assert {name: use for name, use in editor.library.usage.read().items() if name != "newer"} == usage
    assert not (home / ".archive" / "ops" / "old-one").exists()


def test_a_rollback_can_be_rolled_back(editor, curator, clock, home):
    """The state before a rollback is backed up too."""
    make(editor, "one")
    first = curator.backups.take()
    (home / "one" / "SKILL.md").write_text(compose("one", "Other. Use when asked.", "# y\n"))
    changed = everything(home)
    clock.forward(seconds=1)
    curator.roll_back(first)

    curator.roll_back()

    assert everything(home) == changed


def test_a_rollback_names_only_what_it_put_back(editor, curator, home):
    """A skill that is as the backup has it is left alone, and gets no version."""
    make(editor, "same")
    make(editor, "changed")
    backup = curator.backups.take()
    (home / "changed" / "SKILL.md").write_text(compose("changed", "Other. Use when asked.", "# y\n"))

    done = curator.roll_back(backup)

    assert done.restored == ("changed",)
    assert [version.action for version in editor.library.versions.of("same")] == ["create"]


def test_five_backups_are_kept(editor, curator, clock):
    """The oldest go first; an unknown one is an error with the names."""
    make(editor, "one")
    for _ in range(7):
        clock.forward(days=1)
        curator.backups.take()

    assert len(curator.backups.names()) == 5
    with pytest.raises(NotFound, match="no backup"):
        curator.roll_back("nothing.tar.gz")


def test_a_dry_run_changes_nothing(editor, curator, clock, home):
    """It says what would be done."""
    make(editor, "one")
    clock.forward(days=100)
    editor.library.skills()
    before = sorted(path.as_posix() for path in home.rglob("*"))

    report = curator.run(dry_run=True)

    assert [move.name for move in report.moves] == ["one"]
    assert state(editor, "one") is Status.ACTIVE
    assert sorted(path.as_posix() for path in home.rglob("*")) == before


def test_the_report_is_kept_and_names_what_got_worse(editor, curator, clock):
    """Moves, backup and flagged skills, for people and programs."""
    make(editor, "one")
    for version, failed in (("v1", 0), ("v2", 1)):
        editor.library.outcomes.add(
            [Outcome("one", version, "s", turn, tool_errors=failed, finished=True) for turn in range(3)]
        )
    clock.forward(days=31)

    curator.run()

    report = curator.report()
    assert report is not None
    assert (report.moves[0].name, report.flagged) == ("one", ("one",))
    assert "one: active → stale (31 days without use)" in report.as_text()
    assert report.as_json()["backup"] == report.backup


def test_it_is_due_weekly_and_only_when_nobody_works(editor, clock):
    """Seven days and two idle hours; paused means never."""
    curator = Curator(editor)
    assert curator.due(None)
    curator.run()
    assert not curator.due(None)
    clock.forward(days=7)
    assert not curator.due(clock.now() - timedelta(minutes=119))
    assert curator.due(clock.now() - timedelta(hours=2))
    curator.pause(paused=True)
    assert not curator.due(None)
    curator.pause(paused=False)
    assert curator.due(None)
    assert not Curator(editor, CuratorSettings(enabled=False)).due(None)


def test_a_hand_made_skill_counts_from_its_files_time(editor, curator, clock, home):
    """Never-used skills younger than thirty days stay."""
    (home / "mine").mkdir()
    (home / "mine" / "SKILL.md").write_text(compose("mine", "Do it. Use when asked.", "# x\n"))
    clock.moment = datetime.now(UTC) + timedelta(days=29)
    assert curator.plan() == []
    clock.forward(days=2)
    assert [move.becomes for move in curator.plan()] == [Status.STALE]


@given(st.lists(st.tuples(st.floats(0, 400), st.sampled_from(list(Status)[:2])), max_size=20))
def test_the_decision_depends_on_the_days_alone(rows):
    """Whatever the state was, the number of idle days decides what it becomes."""
    known = [
        Candidate(f"s{place}", Use(state=was), START - timedelta(days=days)) for place, (days, was) in enumerate(rows)
    ]

    moves = {move.name: move.becomes for move in decide(known, START, CuratorSettings())}

    for item, (_days, was) in zip(known, rows, strict=True):
        idle = (START - item.since) / timedelta(days=1)
        expected = Status.ARCHIVED if idle >= 90 else Status.STALE if idle >= 30 else Status.ACTIVE
        assert moves.get(item.name, was) is expected


def test_a_skill_placed_by_hand_is_given_its_time(curator, editor, home, clock):
    """However old its file is, the time without use starts at the curator's first automatic run."""
    (home / "old-one").mkdir()
    (home / "old-one" / "SKILL.md").write_text(compose("old-one", "Do it. Use when asked.", "# x\n"))
    long_ago = (START - timedelta(days=400)).timestamp()
    os.utime(home / "old-one" / "SKILL.md", (long_ago, long_ago))

    report = curator.run_if_due()

    assert report.moves == ()
    clock.forward(days=91)
    assert [move.name for move in curator.run_if_due().moves] == ["old-one"]


def test_only_what_the_curator_archived_comes_back_by_use(editor, home):
    """A skill that a person deleted stays deleted, even when the agent asks for it."""
    make(editor, "deleted")
    editor.apply(Delete("deleted"), Author("person"))
    tools = SkillTools(editor.library)
    view = next(tool for tool in tools.tools() if tool.schema.name == "skill_view")

    assert view.call({"name": "deleted"}, ToolContext(session_id="s"))["success"] is False
    assert not (home / "deleted").exists()

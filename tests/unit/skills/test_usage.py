"""Usage and outcomes: counted once, never in the way, kept aside when damaged."""

import json

import pytest

from wellkept.core.errors import StorageError
from wellkept.skills.usage import Outcome, OutcomeLog, Status, UsageFile, Use


@pytest.fixture
def usage(folder, clock):
    return UsageFile(folder, clock)


def test_the_file_is_sorted_and_readable(usage, folder):
    """People and other programs read it."""
    usage.record_creation("b", by="agent")
    usage.record_view("a", used=True)

    rows = json.loads((folder / ".usage.json").read_text())

    assert list(rows) == ["a", "b"]
    assert rows["a"]["use_count"] == 1
    assert rows["b"]["created_by"] == "agent"


@pytest.mark.parametrize(
    "text", ["{", "[]", "nonsense", "3", "\udcff".encode("utf-8", "surrogateescape").decode("latin-1")]
)
def test_a_damaged_file_reads_as_empty_and_is_kept_aside(usage, folder, text):
    """The bytes stay for a person, the work continues."""
    (folder / ".usage.json").write_text(text)

    assert usage.read() == {}
    usage.record_view("a", used=True)

    assert usage.of("a").use_count == 1
    [aside] = folder.glob(".usage.json.corrupt-*")
    assert aside.read_text() == text


def test_single_fields_that_make_no_sense_take_their_default(usage, folder):
    """One bad value does not cost the record."""
    (folder / ".usage.json").write_text(
        '{"a": {"use_count": "many", "pinned": true, "state": "odd", "view_count": 4}, "b": 3}'
    )

    assert usage.read() == {"a": Use(pinned=True, view_count=4)}


def test_looks_uses_and_changes_are_counted_apart(usage):
    """Viewing a file is not a use; each counter starts at 0 and grows by 1."""
    usage.record_creation("a", by="agent")
    usage.record_view("a", used=False)
    usage.record_view("a", used=True)
    usage.record_patch("a")
    usage.record_patch("a")

    use = usage.of("a")
    assert (use.view_count, use.use_count, use.patch_count) == (2, 1, 2)


def test_a_failed_write_is_an_error(usage, folder):
    """A count that could not be written is not reported as written."""
    (folder / ".usage.json").mkdir()

    with pytest.raises(StorageError):
        usage.record_view("a", used=True)


def test_a_use_wakes_a_stale_skill(usage):
    """Used again means active."""
    usage.change({"a": lambda use: Use(state=Status.STALE)})

    usage.record_view("a", used=False)
    assert usage.of("a").state is Status.STALE
    usage.record_view("a", used=True)
    assert usage.of("a").state is Status.ACTIVE


def outcome(version, *, turn, failed=False):
    return Outcome("s", version, "session", turn, tool_errors=int(failed), finished=True)


def test_a_version_that_fails_more_than_the_one_before_is_flagged(folder, clock):
    """Three turns each are enough to compare; a version that came back is the newest again."""
    log = OutcomeLog(folder, clock)
    log.add([outcome("v1", turn=turn) for turn in range(3)])
    log.add([outcome("v2", turn=turn, failed=turn > 3) for turn in range(3, 6)])

    assert log.stats()["s"].flagged == "v2"
    assert [rate.rate for rate in log.stats()["s"].versions] == [0.0, pytest.approx(2 / 3)]
    log.add([outcome("v1", turn=9)])
    assert log.stats()["s"].flagged is None
    assert log.stats(min_uses=5)["s"].flagged is None


def test_a_correction_makes_the_turn_before_a_failure(folder, clock):
    """The person's next message may say that it went badly."""
    log = OutcomeLog(folder, clock)
    log.add([outcome("v1", turn=1), outcome("v1", turn=2)])
    log.correct("session", 2)

    assert [row.failed for row in log.rows()] == [False, True]


def test_a_row_cut_short_costs_only_itself(folder, clock):
    """The next append begins a line of its own."""
    log = OutcomeLog(folder, clock)
    log.add([outcome("v1", turn=1)])
    with (folder / ".outcomes.jsonl").open("a") as file:
        file.write('{"skill": "s", "ver')
    log.add([outcome("v1", turn=2)])

    assert [row.turn for row in log.rows()] == [1, 2]


def test_old_rows_are_trimmed(folder, clock):
    """The file does not grow without end."""
    log = OutcomeLog(folder, clock)
    log.add([outcome("v1", turn=turn) for turn in range(10)])
    log.trim(most=4)

    assert [row.turn for row in log.rows()] == [6, 7, 8, 9]


def test_a_turn_with_skills_leaves_a_row_for_each(call, tools, library):
    """The version that was read is the version that is judged."""
    call("skill_manage", action="create", name="a-skill", description="Does it", content="# x\n")
    version = call("skill_view", name="a-skill")["version"]

    assert tools.settle("s1", turn=3, tool_errors=1, finished=True) == ["a-skill"]
    assert tools.settle("s1", turn=4, tool_errors=0, finished=True) == []

    [row] = library.outcomes.rows()
    assert (row.skill, row.version, row.turn, row.failed) == ("a-skill", version, 3, True)


def test_two_versions_are_compared_only_after_enough_turns(folder, clock):
    """One bad turn of a new version is not a verdict on it."""
    log = OutcomeLog(folder, clock)
    log.add([outcome("v1", turn=turn) for turn in range(3)])
    log.add([outcome("v2", turn=turn, failed=True) for turn in range(3, 5)])

    assert log.stats(min_uses=3)["s"].flagged is None
    assert log.stats(min_uses=2)["s"].flagged == "v2"

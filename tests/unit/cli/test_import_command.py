"""`kept import`: found, previewed, stored, reported; a second run adds nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import forks

from wellkept import imports
from wellkept.app import open_app

CORPUS = Path(__file__).parents[2] / "corpora" / "transcripts"


@pytest.fixture
def person(tmp_path):
    """A person with the history of Claude Code and Codex."""
    folder = tmp_path / "person"
    shutil.copytree(CORPUS / "claude-code", folder / ".claude")
    shutil.copytree(CORPUS / "codex", folder / ".codex")
    return folder


def test_alone_it_lists_what_is_on_this_machine(run, person):
    """With counts and places, and nothing is stored."""
    listed = json.loads(run("import", "--json").out)
    counts = {one["source"]: (one["transcripts"], one["new"]) for one in listed}

    assert {name: pair for name, pair in counts.items() if pair != (0, 0)} == {"claude-code": (3, 3), "codex": (1, 1)}
    assert "opencode" in counts
    assert str(person / ".codex") in run("import").out
    assert json.loads(run("sessions", "list", "--json").out) == []


def test_a_dry_run_stores_nothing(run, person, home):
    """The counts are those of the import that follows."""
    preview = json.loads(run("import", "claude-code", "--dry-run", "--json").out)
    stored = json.loads(run("import", "claude-code", "--yes", "--json").out)

    assert preview["sessions"] == stored["sessions"] == {"new": 3, "updated": 0, "unchanged": 0, "skipped": 0}
    assert preview["messages"] == stored["messages"]
    assert stored["messages"] == {"user": 6, "assistant": 8, "tool_calls": 3, "tool_results": 3}
    assert (preview["report"], preview["dry_run"]) == (None, True)
    assert json.loads(Path(stored["report"]).read_text())["import_id"] == stored["import_id"]
    assert Path(stored["report"]).is_relative_to(home / "migration" / "claude-code")


def test_a_second_run_adds_nothing(run, person):
    """All sources at once; the second time everything is known."""
    first = json.loads(run("import", "all", "--yes", "--json").out)
    second = json.loads(run("import", "all", "--yes", "--json").out)

    assert [one["sessions"]["new"] for one in first] == [3, 1]
    assert [one["sessions"] for one in second] == [
        {"new": 0, "updated": 0, "unchanged": 3, "skipped": 0},
        {"new": 0, "updated": 0, "unchanged": 1, "skipped": 0},
    ]
    assert {one["report"] for one in second} == {None}


def test_what_was_imported_is_found_by_source_and_project(run, person):
    """Filters work on sessions of other programs; sub-agents are hidden unless asked for."""
    run("import", "all", "--yes")
    by_source = json.loads(run("sessions", "search", "vault", "--source", "claude-code", "--json").out)
    by_project = json.loads(run("sessions", "search", "heron", "--project", "/home/sam/project", "--json").out)
    elsewhere = json.loads(run("sessions", "search", "heron", "--project", "/somewhere", "--json").out)
    sources = {one["source"] for one in json.loads(run("sessions", "list", "--json").out)}

    assert by_source["sessions"]
    assert by_project["sessions"]
    assert not elsewhere["sessions"]
    assert sources == {"claude-code", "codex"}


def test_without_a_terminal_it_asks_for_consent(run, person):
    """The preview is shown, nothing is stored, and the next step is named."""
    done = run("import", "codex")

    assert done.code == 2
    assert "would be imported" in done.out
    assert "--yes" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("import", "nobody"), 2, "use one of: claude-code, codex, opencode, openclaw"),
        (("import", "opencode", "--yes"), 1, "opencode"),
        (("import", "codex", "--source", "/nowhere", "--yes"), 1, "/nowhere"),
        (("import", "--source", "/nowhere"), 2, "--source needs the name"),
    ],
)
def test_bad_input_is_explained(run, person, arguments, code, words):
    """Unknown names, and places without transcripts."""
    done = run(*arguments)
    as_json = run(*arguments, "--json")

    assert done.code == as_json.code == code
    assert words in done.err
    assert json.loads(as_json.out)["error"]


def test_problems_are_reported_and_do_not_end_the_import(run, person):
    """A damaged archive and broken lines are named, the rest is stored."""
    (rollout,) = (person / ".codex").rglob("*.jsonl")
    rollout.with_name("rollout-2020.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd and nothing else")
    with rollout.open("a") as file:
        file.write("{broken\n")
        file.write('{"type": "of_tomorrow", "payload": {"text": "Hello"}}\n')
    ended = run("import", "codex", "--yes", "--json")
    done = json.loads(ended.out)

    assert ended.code == 3
    assert (done["complete"], done["unknown"]) == (False, {"row 'of_tomorrow'": 1})
    assert done["sessions"] == {"new": 1, "updated": 0, "unchanged": 0, "skipped": 1}
    assert any("cannot be unpacked" in one["what"] for one in done["problems"])
    assert {"where": str(rollout), "what": "unknown row 'of_tomorrow'"} in done["problems"]
    assert done["left_out"]["broken line"] == 1


def test_an_import_that_the_disk_refuses_in_part_does_not_end_as_a_success(run, person, home):
    """The rest is stored and reported; the same command stores what is missing."""
    (person / ".claude" / "CLAUDE.md").write_text("- I deploy on Fridays.\n")
    page = home / "memories" / "MEMORY.md"
    page.mkdir(parents=True)  # cannot be read or replaced
    (home / "memories" / "USER.md").mkdir()

    refused = run("import", "claude-code", "--yes", "--no-backup", "--json")
    for folder in (page, home / "memories" / "USER.md"):
        folder.rmdir()
    again = run("import", "claude-code", "--yes", "--no-backup", "--json")

    assert (refused.code, json.loads(refused.out)["sessions"]["new"]) == (74, 3)
    assert "the same command stores the rest" in refused.err
    assert (again.code, json.loads(again.out)["entries"]["added"]) == (0, 1)


def test_only_what_changed_since_a_date_is_imported(run, person):
    """Transcripts that are older stay where they are; a date that cannot be read is an error."""
    (rollout,) = (person / ".codex").rglob("*.jsonl")
    os.utime(rollout, (1_700_000_000, 1_700_000_000))
    old = run("import", "codex", "--since", "yesterday", "--yes")
    all_of_it = run("import", "codex", "--since", "2023-01-01", "--yes", "--json")
    wrong = run("import", "codex", "--since", "whenever", "--yes")

    assert (old.code, wrong.code) == (1, 2)
    assert json.loads(all_of_it.out)["sessions"]["new"] == 1


def test_another_user_imports_into_their_own_space(run, person):
    """`--as` stores for that user alone."""
    run("user", "create", "kim")
    run("--as", "kim", "import", "codex", "--yes")

    assert json.loads(run("sessions", "list", "--json").out) == []
    assert len(json.loads(run("--as", "kim", "sessions", "list", "--json").out)) == 1


def test_a_watch_follows_a_growing_transcript(home, person):
    """New lines, a rotated file and a new file are captured at the next step."""
    app = open_app(str(home), None)
    caller = app.caller()
    watch = imports.run.Watch(caller, ["codex"], person / ".codex")
    (rollout,) = (person / ".codex").rglob("*.jsonl")
    whole = rollout.read_bytes().splitlines(keepends=True)
    rollout.write_bytes(b"".join(whole[:9]))
    first = watch.step()
    rollout.write_bytes(b"".join(whole))
    second = watch.step()
    rollout.rename(rollout.with_name("rollout-rotated.jsonl"))
    rotated = watch.step()

    assert [added for _, _, added in first + second] == [1, 6]
    assert rotated == watch.step() == []
    app.close()


def test_the_watching_command_follows_until_it_is_stopped(run, home, person):
    """As a process: a line per change, seconds after it was written; Ctrl-C ends it without an error."""
    (rollout,) = (person / ".codex").rglob("*.jsonl")
    whole = rollout.read_bytes().splitlines(keepends=True)
    rollout.write_bytes(b"".join(whole[:9]))
    command = [sys.executable, "-m", "wellkept", "--home", str(home), "import", "codex", "--watch", "--no-backup"]
    with forks.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as watch:
        try:
            told = [next(line for line in watch.stdout if "watching codex" in line)]
            rollout.write_bytes(b"".join(whole))
            told.append(next(line for line in watch.stdout if "messages from" in line))
            watch.send_signal(signal.SIGINT)
            code = watch.wait(60)
        finally:
            watch.kill()

    assert told[1].startswith("codex: 6 messages")
    assert code == 130
    assert len(json.loads(run("import", "list", "--json").out)) == 2

"""`kept backup` and `kept restore` as people and scripts use them."""

import json
import tarfile

import pytest

SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python has it from 3.11.4 on


@pytest.fixture
def stored(run, home, tmp_path):
    """A home with an entry and a conversation."""
    line = {"session_id": "one", "role": "user", "content": "the server is heron", "timestamp": 1_700_000_000.0}
    (tmp_path / "lines.jsonl").write_text(json.dumps(line) + "\n")
    assert run("memory", "add", "likes tea").code == 0
    assert run("sessions", "import", str(tmp_path / "lines.jsonl")).code == 0
    return home


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """The next commands use an empty home."""

    def change():
        monkeypatch.setenv("KEPT_HOME", str(tmp_path / "empty"))
        return tmp_path / "empty"

    return change


def test_a_home_goes_into_a_file_and_comes_back(run, stored, elsewhere, tmp_path):
    """With one command each, and the same answers afterwards."""
    made = run("backup", str(tmp_path / "a.gz"), "--verify", "--json")
    before = run("sessions", "export", "--raw").out
    empty = elsewhere()
    shown = run("restore", str(tmp_path / "a.gz"), "--dry-run", "--json")

    assert (made.code, json.loads(made.out)["verified"], json.loads(made.out)["parts"]["sessions"]) == (0, True, 1)
    assert (shown.code, json.loads(shown.out)["dry_run"]) == (0, True)
    assert not (empty / "state.db").exists()
    done = run("restore", str(tmp_path / "a.gz"), "--yes", "--json")
    assert (done.code, json.loads(done.out)["changed"]) == (0, True)
    assert run("sessions", "export", "--raw").out == before
    assert "likes tea" in run("memory", "show").out
    again = run("restore", str(tmp_path / "a.gz"))
    assert (again.code, "nothing was changed" in again.out) == (0, True)


def test_without_a_terminal_a_restore_needs_yes(run, stored, elsewhere, tmp_path):
    """And changes nothing before."""
    run("backup", str(tmp_path / "a.gz"))
    empty = elsewhere()

    ran = run("restore", str(tmp_path / "a.gz"))

    assert (ran.code, "--yes" in ran.err) == (2, True)
    assert not (empty / "memories").exists()


def test_a_passphrase_comes_from_the_environment(run, stored, elsewhere, tmp_path, monkeypatch):
    """A wrong one is one line with exit code 2; none is asked for where nobody can answer."""
    monkeypatch.setenv("WORDS", "open sesame")
    path = str(tmp_path / "a.age")
    assert run("backup", path, "--encrypt", "--passphrase-env", "WORDS").code == 0
    elsewhere()
    monkeypatch.setenv("OTHER", "close sesame")

    wrong = run("restore", path, "--passphrase-env", "OTHER", "--yes", "--json")
    unset = run("restore", path, "--passphrase-env", "NONE", "--verify", "--json")
    unasked = run("restore", path, "--verify", "--json")

    assert (wrong.code, unset.code, unasked.code) == (2, 2, 2)
    assert [set(json.loads(ran.out)) for ran in (wrong, unset, unasked)] == [{"error", "next"}] * 3
    assert [line for line in wrong.err.splitlines() if "passphrase is wrong" in line] == wrong.err.splitlines()[:1]
    assert run("restore", path, "--passphrase-env", "WORDS", "--yes").code == 0
    assert "likes tea" in run("memory", "show").out


def test_a_damaged_backup_is_refused_with_the_name_of_what_is_damaged(run, stored, elsewhere, tmp_path):
    """Nothing is restored from it."""
    path = tmp_path / "a.gz"
    run("backup", str(path))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)
    empty = elsewhere()

    for words in (("--verify",), ("--yes",)):
        ran = run("restore", str(path), *words, "--json")
        assert (ran.code, set(json.loads(ran.out))) == (74, {"error", "next"})
        assert any(name in json.loads(ran.out)["error"] for name in ("home/", "manifest.json"))
    assert not (empty / "memories").exists()


@pytest.mark.parametrize("words", [("restore", "none"), ("backup", "none/a.gz"), ("backup", "--encrypt")])
def test_wrong_usage_says_what_to_do(run, stored, words):
    """As JSON too."""
    ran = run(*words, "--json")

    assert ran.code in {1, 2}
    assert {"error", "next"} <= set(json.loads(ran.out))


def test_a_restore_that_was_killed_is_completed_by_the_next_command(run, stored, elsewhere, tmp_path):
    """Whichever that is; here the state right after the rename that announces it."""
    run("backup", str(tmp_path / "a.gz"))
    empty = elsewhere()
    folder = empty / "restoring"
    folder.mkdir(parents=True)
    with tarfile.open(tmp_path / "a.gz", "r:gz") as tar:
        tar.extractall(folder, **SAFELY)
    plan = {"file": "a.gz", "caller": "owner", "created": "2026-01-01T00:00:00.000Z", "user": "owner"}
    plan |= {"settings": False, "include_forgotten": False, "is_fresh": True, "outside": {}}
    (folder / "restore.json").write_text(json.dumps(plan))

    ran = run("memory", "show")

    assert "likes tea" in ran.out
    assert "completed the interrupted restore" in ran.err
    assert not folder.exists()


def test_another_user_has_a_backup_of_their_own(run, stored, tmp_path):
    """With nothing of the owner."""
    run("user", "create", "ann")
    run("--as", "ann", "memory", "add", "a fact of ann")

    made = run("--as", "ann", "backup", str(tmp_path / "ann.gz"), "--json")

    assert json.loads(made.out)["parts"] == {
        "users": 1, "pages": 1, "skills": 0, "settings": 0, "sessions": 0, "messages": 0, "receipts": 0,
    }  # fmt: skip

"""`kept claw`: the migration from OpenClaw with its options and report, and tidying up after it."""

import http.server
import json
import threading

import pytest

from wellkept.cli.main import COMMANDS


@pytest.fixture
def openclaw(tmp_path):
    """A home of OpenClaw with a bit of everything."""
    root = tmp_path / "person" / ".openclaw"
    rows = [
        {"type": "session", "id": "s-1", "timestamp": "2026-06-26T10:00:00.000Z", "cwd": "/home/sam"},
        {"type": "message", "id": "a1", "timestamp": "2026-06-26T10:00:01.000Z", "message": {"role": "user", "content": "Hi"}},
    ]  # fmt: skip
    files = {
        "openclaw.json": '{"gateway": {"port": 1}, agents: {defaults: {model: "openai/gpt-6"}}, /* x */}',
        "agents/main/sessions/s-1.jsonl": "\n".join(map(json.dumps, rows)) + "\n",
        "workspace/MEMORY.md": "## People\n\n- Ada lives in Rome.\n",
        "workspace/USER.md": "- Sam likes tea\n",
        "workspace/SOUL.md": "You are kind.\n",
        "workspace/AGENTS.md": "Answer briefly.\n",
        "workspace/memory/2026-06-26.md": "- Booked a train\n",
        "workspace/skills/tea/SKILL.md": "---\nname: tea\ndescription: How to make tea.\n---\nBoil water.\n",
        ".env": "OPENAI_API_KEY=sk-proj-not-a-real-one\nSOME_PASSWORD=hunter2\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def snapshot(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_everything_comes_over(run, openclaw, home):
    """Pages, notes, skills, conversations, persona and model; the source stays as it is, and no credential comes."""
    before = snapshot(openclaw)
    report = json.loads(run("claw", "migrate", "--yes", "--json").out)
    shown = run("memory", "show").out

    assert (report["sessions"]["new"], report["entries"]["added"], report["skills"]["added"]) == (1, 3, 1)
    assert report["problems"] == []
    assert "Ada lives in Rome" in shown
    assert "Booked a train" in shown
    assert (home / "SOUL.md").read_text() == "You are kind.\n"
    assert "openai/gpt-6" in (home / "config.yaml").read_text()
    assert not (home / ".env").exists()
    assert snapshot(openclaw) == before
    assert {item["where"] for item in report["leftovers"]} >= {"workspace/AGENTS.md", "config/agents.json"}


def test_the_report_is_printed_and_stored_and_a_second_run_adds_nothing(run, openclaw, home):
    """It ends by saying when imported memory appears."""
    first = run("claw", "migrate", "--yes")
    again = json.loads(run("import", "openclaw", "--yes", "--json").out)
    (stored,) = (home / "migration" / "openclaw").glob("*/report.json")

    assert str(stored) in first.out
    assert "new sessions" in (first.out + first.err).strip().splitlines()[-1]
    assert again["import_id"] is None
    assert (again["sessions"]["new"], again["entries"]["added"], again["skills"]["added"]) == (0, 0, 0)
    assert openclaw.is_dir()


def test_the_preset_user_data_takes_no_settings(run, openclaw, home):
    """Not even the model."""
    del openclaw
    report = json.loads(run("claw", "migrate", "--preset", "user-data", "--yes", "--json").out)

    assert report["entries"]["added"] == 3
    assert "settings" not in report
    assert not (home / "config.yaml").exists()


def test_credentials_need_an_option_and_are_never_shown(run, openclaw, home):
    """The preview lists the names that it takes and those that it looks for."""
    del openclaw
    preview = run("claw", "migrate", "--migrate-secrets", "--dry-run")
    run("claw", "migrate", "--migrate-secrets", "--yes")

    assert "OPENAI_API_KEY from .env" in preview.err
    assert "ANTHROPIC_API_KEY" in preview.err
    assert "sk-proj" not in preview.err + preview.out
    assert 'OPENAI_API_KEY="sk-proj-not-a-real-one"' in (home / ".env").read_text()
    assert "hunter2" not in (home / ".env").read_text()


def test_instructions_go_to_the_folder_that_is_named(run, openclaw, tmp_path):
    """With --workspace-target."""
    del openclaw
    run("claw", "migrate", "--workspace-target", str(tmp_path / "project"), "--yes")

    assert (tmp_path / "project" / "AGENTS.md").read_text() == "Answer briefly.\n"


def test_a_dry_run_stores_nothing(run, openclaw, home):
    """Neither memory nor files."""
    del openclaw
    done = run("claw", "migrate", "--dry-run")

    assert "would be imported" in done.out
    assert not (home / "SOUL.md").exists()
    assert not (home / "migration").exists()
    assert "Ada" not in run("memory", "show").out


@pytest.mark.parametrize("arguments", [("claw", "migrate"), ("claw", "cleanup")])
def test_without_a_source_the_places_are_named(run, home, arguments):
    """Nothing is written, and the exit code is 1."""
    done, as_json = run(*arguments, "--yes"), run(*arguments, "--yes", "--json")

    assert done.code == as_json.code == 1
    assert all(name in done.err for name in (".openclaw", ".clawdbot", ".moltbot"))
    assert set(json.loads(as_json.out)) >= {"error", "next"}
    assert not (home / "migration").exists()


@pytest.mark.parametrize(
    "options", [("--preset", "everything"), ("--skill-conflict", "maybe"), ("--source", "/nowhere/at/all")]
)
def test_bad_options_are_explained(run, openclaw, options):
    """With what to do instead."""
    del openclaw
    done = run("claw", "migrate", *options, "--yes", "--json")

    assert done.code in {1, 2}
    assert json.loads(done.out)["next"]


def test_a_cleanup_renames_and_says_how_to_undo_it(run, openclaw):
    """Nothing is deleted; a second one gets a number."""
    before = {path.relative_to(openclaw): data for path, data in snapshot(openclaw).items()}
    (openclaw.parent / ".clawdbot").mkdir()
    preview = run("claw", "cleanup", "--dry-run")
    assert openclaw.is_dir()
    done = json.loads(run("claw", "cleanup", "--yes", "--json").out)
    moved = openclaw.with_name(".openclaw.pre-migration")

    assert str(moved) in preview.out
    assert [item["from"] for item in done["renamed"]] == [str(openclaw), str(openclaw.with_name(".clawdbot"))]
    assert done["renamed"][0]["undo"] == f"mv {moved} {openclaw}"
    assert {path.relative_to(moved): data for path, data in snapshot(moved).items()} == before
    openclaw.mkdir()
    assert openclaw.with_name(".openclaw.pre-migration-2").name in run("claw", "cleanup", "--yes").out


def test_a_cleanup_asks_first(run, openclaw):
    """Without a terminal and --yes nothing happens."""
    done = run("claw", "cleanup")

    assert done.code == 2
    assert openclaw.is_dir()


def test_a_cleanup_never_moves_the_home_of_kept(run, openclaw, monkeypatch):
    """A home inside of OpenClaw's folder would be gone."""
    monkeypatch.setenv("KEPT_HOME", str(openclaw / "kept"))
    done = run("claw", "cleanup", "--yes", "--json")

    assert done.code == 1
    assert "own home" in json.loads(done.out)["error"]
    assert openclaw.is_dir()


def test_the_command_is_in_the_help():
    """As every command."""
    assert "claw" in COMMANDS


def test_a_dry_run_in_a_new_home_leaves_nothing(run, openclaw, home):
    """Not even an empty database; neither does the list of what can be imported."""
    report = json.loads(run("claw", "migrate", "--dry-run", "--json").out)
    listed = run("import", "--json")

    assert (report["sessions"]["new"], report["entries"]["added"]) == (1, 3)
    assert any(one["source"] == "openclaw" and one["new"] == 1 for one in json.loads(listed.out))
    assert [path.name for path in home.rglob("*") if path.is_file() and path.parent.name != "logs"] == []


def test_the_printed_report_has_the_counts_of_the_json(run, openclaw, home):
    """What did not fit the page is in the archive, and is not counted as an entry of the page."""
    (openclaw / "workspace" / "MEMORY.md").write_text(
        "".join(f"- Fact number {n} of the archive\n" for n in range(200))
    )
    printed = run("claw", "migrate", "--yes")
    (stored,) = (home / "migration" / "openclaw").glob("*/report.json")
    entries = json.loads(stored.read_text())["entries"]
    rows = {line.split()[0]: line.split()[1:] for line in printed.out.splitlines() if line.startswith("  ")}

    assert entries["archived"] > 100
    assert int(rows["entries"][0]) == entries["added"]
    assert int(rows["archived"][0]) == entries["archived"]


def test_a_running_gateway_of_kept_is_named(run, openclaw, home):
    """Its open conversations do not see what is imported."""

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = b'{"ok": true, "version": "0.1.0"}'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        run("config", "set", "serve.port", str(port))
        running = json.loads(run("claw", "migrate", "--dry-run", "--json").out)
        server.shutdown()
    stopped = json.loads(run("claw", "migrate", "--dry-run", "--json").out)

    assert any(f"port {port}" in warning for warning in running["warnings"])
    assert not any("gateway of kept" in warning for warning in stopped["warnings"])

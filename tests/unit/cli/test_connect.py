"""`kept connect` and `kept disconnect`: what is written where, and that it can be taken out again."""

import json
import os
import pty
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from wellkept.connect.clients import CLIENTS

CODEX_SETTINGS = '# mine\nmodel = "gpt"\nnotify = [\n  "notify-send", # note\n]\n\n[mcp_servers.other]\ncommand = "o"\n'
VSCODE_SETTINGS = '{\n\t"servers": {\n\t\t"a": {"type": "http"} // keep\n\t},\n\t"inputs": [],\n}\n'
OPENCODE_SETTINGS = '{\r\n  // theme\r\n  "theme": "x",\r\n  "mcp": {"other": {"type": "local"}}\r\n}'
CURSOR_HOOKS = '{"version": 1, "hooks": {"stop": [{"command": "mine"}]}}'


@pytest.fixture
def person(tmp_path, monkeypatch):
    """A person with settings of their own in every client."""
    person = tmp_path / "person"
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.platform", "linux")
    files = {
        ".claude/settings.json": '{"hooks": {}}',
        ".codex/config.toml": CODEX_SETTINGS,
        ".config/opencode/opencode.jsonc": OPENCODE_SETTINGS,
        ".gemini/settings.json": "{}",
        ".cursor/hooks.json": CURSOR_HOOKS,
        ".cursor/mcp.json": "",
        ".config/Claude/claude_desktop_config.json": '{"mcpServers": {}}\n',
        ".config/Code/User/mcp.json": VSCODE_SETTINGS,
    }
    for name, text in files.items():
        path = person / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return person


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


def test_a_dry_run_names_every_file_and_writes_nothing(run, person, home):
    """Each change is shown with its lines; the home is not even created."""
    before = everything(person)
    ran = run("connect", *CLIENTS, "--dry-run", "--json")
    shown = json.loads(ran.out)

    assert ran.code == 0
    assert everything(person) == before
    assert not home.exists()
    assert [one["client"] for one in shown["clients"]] == list(CLIENTS)
    files = {file["path"]: file for one in shown["clients"] for file in one["files"]}
    assert files[str(person / ".codex/config.toml")]["action"] == "change"
    assert files[str(person / ".codex/hooks.json")]["action"] == "create"
    assert any("mcp_servers.kept" in line for line in files[str(person / ".codex/config.toml")]["diff"])


def test_disconnect_restores_every_byte(run, person):
    """All clients are connected, twice; the second time nothing changes, and afterwards all is as it was."""
    before = everything(person)
    assert run("connect", "--yes").code == 0
    connected = everything(person)
    again = json.loads(run("connect", *CLIENTS, "--yes", "--json").out)

    assert everything(person) == connected
    assert not any(one["changed"] for one in again["clients"])
    assert run("disconnect", *CLIENTS).code == 0
    assert everything(person) == before


def test_only_our_parts_are_removed_from_files_that_were_edited_since(run, person):
    """What people and clients added meanwhile stays; what was ours goes."""
    run("connect", *CLIENTS, "--yes")
    codex, hooks = person / ".codex/config.toml", person / ".codex/hooks.json"
    codex.write_text(codex.read_text() + '\n[hooks.state."x"]\ntrusted_hash = "abc"\n')
    value = json.loads(hooks.read_text())
    value["hooks"]["Stop"].insert(0, {"hooks": [{"type": "command", "command": "mine"}]})
    hooks.write_text(json.dumps(value))
    vscode = person / ".config/Code/User/mcp.json"
    vscode.write_text(vscode.read_text().replace('"inputs": []', '"inputs": [1]'))
    opencode = person / ".config/opencode/opencode.jsonc"
    opencode.write_bytes(opencode.read_bytes().replace(b'"x"', b'"y"'))

    assert run("disconnect", *CLIENTS).code == 0

    settings = tomllib.loads(codex.read_text())
    assert settings["notify"] == ["notify-send"]
    assert settings["mcp_servers"] == {"other": {"command": "o"}}
    assert settings["hooks"] == {"state": {"x": {"trusted_hash": "abc"}}}
    assert json.loads(hooks.read_text()) == {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}}
    assert vscode.read_text() == VSCODE_SETTINGS.replace('"inputs": []', '"inputs": [1]')
    assert b"kept" not in opencode.read_bytes()
    assert b"// theme" in opencode.read_bytes()


@pytest.mark.parametrize(
    ("client", "name", "data"),
    [
        ("codex", ".codex/config.toml", b"a = \n"),
        ("codex", ".codex/hooks.json", b'{"hooks": {} // no comments here\n}'),
        ("codex", ".codex/hooks.json", b'{"hooks": []}'),
        ("opencode", ".config/opencode/opencode.jsonc", b"{"),
        ("cursor", ".cursor/mcp.json", b"\xff\xfe{}"),
        ("vscode", ".config/Code/User/mcp.json", b"[]"),
        ("claude-desktop", ".config/Claude/claude_desktop_config.json", b'{"mcpServers": {"a": 1},}'),
    ],
)
def test_a_file_that_cannot_be_parsed_is_refused_and_untouched(run, person, client, name, data):
    """Exit 2, the name of the file, and no file of the client is changed."""
    (person / name).write_bytes(data)
    before = everything(person)
    ran = run("connect", client, "--yes", "--json")

    assert ran.code == 2
    assert name in json.loads(ran.out)["error"]
    assert json.loads(ran.out)["next"].startswith("repair the file")
    assert everything(person) == before


def test_an_unknown_client_is_answered_with_the_list(run, person):
    """Exit 2, on connect and disconnect."""
    for command in (("connect", "emacs"), ("disconnect", "emacs")):
        ran = run(*command)

        assert ran.code == 2
        assert all(name in ran.err for name in CLIENTS)


def test_without_a_name_what_is_installed_is_connected(run, tmp_path, monkeypatch):
    """Nothing found says where it looked; one folder found connects that one."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    nothing = run("connect", "--yes")
    (tmp_path / "person/.claude").mkdir(parents=True)
    found = run("connect", "--yes", "--json")

    assert nothing.code == 1
    assert ".claude" in nothing.err
    assert "'opencode'" in nothing.err
    assert [one["client"] for one in json.loads(found.out)["clients"]] == ["claude-code"]


def test_without_a_terminal_nothing_is_written_unasked(run, person):
    """There is nobody to ask: exit 2, and what would be written is shown."""
    before = everything(person)
    ran = run("connect", "codex")

    assert ran.code == 2
    assert "mcp_servers.kept" in ran.err
    assert everything(person) == before


def test_a_project_has_files_of_its_own(run, person, tmp_path, monkeypatch):
    """`--project` writes below the repository, and only there; disconnect takes out both."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "src").mkdir()
    monkeypatch.chdir(project / "src")
    before = everything(person)
    names = [name for name, client in CLIENTS.items() if client.has_projects]
    ran = run("connect", *names, "--project", "--yes")

    assert ran.code == 0, ran.err
    assert everything(person) == before
    assert (project / ".claude/skills/kept/hooks/hooks.json").is_file()
    assert "notify" not in (project / ".codex/config.toml").read_text()
    assert run("connect", "claude-desktop", "--project", "--yes").code == 2
    assert run("disconnect", *names, "--project").code == 0
    assert sorted(path.name for path in project.iterdir()) == [".git", "src"]


def test_print_shows_what_to_add_by_hand(run, person):
    """The text of each file as it would be alone; nothing is written."""
    before = everything(person)
    ran = run("connect", "codex", "vscode", "--print", "--json")

    texts = {Path(file["path"]).name: file["text"] for file in json.loads(ran.out)["files"]}
    assert tomllib.loads(texts["config.toml"])["mcp_servers"]["kept"]["args"][-1] == "mcp"
    assert json.loads(texts["mcp.json"])["servers"]["kept"]["type"] == "stdio"
    assert everything(person) == before


def test_repair_writes_the_new_place_of_kept(run, person, home, monkeypatch):
    """Status names the missing program and the remedy; repair replaces it everywhere, and nothing is left of the old."""
    run("connect", *CLIENTS, "--yes")
    record = home / "connect/record.json"
    program = json.loads(record.read_text())["connections"][0]["command"][0]
    for path in [record, *(Path(name) for name in everything(person))]:
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(program.encode(), b"/gone/kept"))
    status = {one["client"]: one for one in json.loads(run("connect", "status", "--json").out)}

    assert "/gone/kept" in status["codex"]["errors"][0]
    assert status["codex"]["next"] == "kept connect --repair"
    assert run("connect", "--repair", "--yes").code == 0
    assert not any(b"/gone/kept" in data for data in everything(person).values())
    assert json.loads(run("connect", "status", "--json").out)[1]["errors"] == []


def test_options_are_recorded_and_status_has_one_object_per_client(run, person, home):
    """Recall and capture are read by the hook, so that no command line changes with them."""
    run("connect", "codex", "--recall", "start", "--no-capture", "--yes")
    status = json.loads(run("connect", "status", "--json").out)

    (connection,) = json.loads((home / "connect/record.json").read_text())["connections"]
    assert (connection["recall"], connection["capture"]) == ("start", False)
    assert [one["client"] for one in status] == list(CLIENTS)
    assert set(status[1]) >= {
        *("client", "installed", "version", "connected", "trusted"),
        *("last_event", "last_captured", "lag_seconds", "errors", "next"),
    }
    assert (status[1]["connected"], status[1]["trusted"]) == (True, False)
    assert run("connect", "codex", "--recall", "often", "--yes").code == 2


def test_pause_and_resume_are_remembered(run, person, home):
    """Both say whether something changed; status leads to resume."""
    run("connect", "codex", "--yes")

    assert json.loads(run("connect", "pause", "--json").out) == {"paused": True, "changed": True}
    assert json.loads(run("connect", "pause", "--json").out) == {"paused": True, "changed": False}
    assert json.loads(run("connect", "status", "--json").out)[1]["next"] == "kept connect resume"
    assert json.loads(run("connect", "resume", "--json").out) == {"paused": False, "changed": True}
    assert run("connect", "pause", "codex").code == 2


def test_a_link_to_a_settings_file_stays_a_link(run, person, tmp_path):
    """Settings that are kept elsewhere and linked are written through the link."""
    real = tmp_path / "dotfiles.toml"
    real.write_text('model = "gpt"\n')
    linked = person / ".codex/config.toml"
    linked.unlink()
    linked.symlink_to(real)
    run("connect", "codex", "--yes")

    assert linked.is_symlink()
    assert "mcp_servers.kept" in real.read_text()
    run("disconnect", "codex")
    assert linked.is_symlink()
    assert real.read_text() == 'model = "gpt"\n'


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_without_permission_is_named(run, person):
    """Exit 74 with the path."""
    (person / ".codex").chmod(0o500)
    ran = run("connect", "codex", "--yes")
    (person / ".codex").chmod(0o700)

    assert ran.code == 74
    assert ".codex" in ran.err


def test_hints_lead_to_the_same_home_profile_and_user(run, person, home, tmp_path):
    """On stdout, on stderr and in JSON; a hint about profiles names the home only."""
    place = str(tmp_path / "a home")
    run("--home", place, "profile", "create", "work")
    shown = run("--home", place, "-p", "work", "connect", "status")
    told = json.loads(run("--home", place, "-p", "work", "connect", "status", "--json").out)
    missing = run("--home", place, "-p", "nope", "connect", "status", "--json")

    assert f"next: kept --home '{place}' -p work connect claude-code" in shown.out
    assert told[0]["next"] == f"kept --home '{place}' -p work connect claude-code"
    assert f"`kept --home '{place}' profile create nope` creates it" in missing.err
    assert json.loads(missing.out)["next"].startswith(f"`kept --home '{place}' profile create nope`")
    assert "next: kept connect claude-code" in run("connect", "status").out


def test_disconnect_takes_the_options_of_connect(run, person):
    """`--yes`, `--dry-run`, `--project` and `--json` mean the same; at a terminal it asks."""
    before = everything(person)
    run("connect", "codex", "--yes")
    shown = json.loads(run("disconnect", "codex", "--dry-run", "--json").out)
    assert (shown["dry_run"], shown["clients"][0]["changed"]) == (True, True)

    assert json.loads(run("disconnect", "codex", "--yes", "--json").out)["dry_run"] is False
    assert everything(person) == before


def test_disconnect_asks_at_a_terminal(run, person):
    """What a person does not agree to stays."""
    run("connect", "codex", "--yes")
    connected = everything(person)
    ours, theirs = pty.openpty()
    os.write(ours, b"n\n")
    command = [sys.executable, "-m", "wellkept", "disconnect", "codex"]
    ran = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=False)

    assert (ran.returncode, everything(person)) == (1, connected)
    assert "remove this?" in ran.stderr
    assert "nothing was changed" in ran.stderr


def test_a_bare_disconnect_restores_every_client(run, person):
    """A script has to agree, because it names none."""
    before = everything(person)
    run("connect", "codex", "claude-code", "--yes")
    unasked = run("disconnect")
    connected = everything(person)
    done = run("disconnect", "--yes")

    assert unasked.code == 2
    assert connected != before
    assert done.code == 0
    assert everything(person) == before


def test_what_leaves_the_machine_is_said_before_anything_is_written(run, person, home):
    """What is stored and where, what is added, and who gets it; less if less is chosen."""
    all_of_it = run("connect", "codex")
    little = run("connect", "codex", "--no-capture", "--recall", "off")
    tools_alone = run("connect", "vscode")

    assert str(home) in all_of_it.err
    assert "up to three passages" in all_of_it.err
    assert "leaves this machine" in all_of_it.err
    assert "Nothing of what these agents do is stored. Nothing is added" in little.err
    assert "Nothing of what these agents do is stored" in tools_alone.err


def write_history(person):
    rows = [
        {"timestamp": "2026-11-19T05:38:41Z", "type": "session_meta", "payload": {"id": "t-1", "source": "cli"}},
        {
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": "The gate is called stoat-8"},
        },
    ]
    path = person / ".codex" / "sessions" / "rollout-2026-11-19T05-38-41-t-1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_connect_offers_what_was_said_before(run, person):
    """Counted and named; imported with `--import`, not mentioned with `--no-import`."""
    write_history(person)
    told = run("connect", "codex", "--yes", "--json")
    run("disconnect", "--yes")
    named = run("connect", "codex", "--yes")
    silent = run("connect", "codex", "--no-import", "--yes")
    done = run("connect", "codex", "--import", "--yes", "--json")
    again = json.loads(run("connect", "codex", "--import", "--yes", "--json").out)

    assert [(one["source"], one["new"]) for one in json.loads(told.out)["history"]] == [("codex", 1)]
    assert json.loads(told.out)["imported"] == []
    assert "1 conversation from before can be imported: kept import codex" in named.err
    assert "from before" not in silent.err
    assert json.loads(done.out)["imported"][0]["sessions"]["new"] == 1
    assert again["history"] == []
    assert "stoat-8" in run("sessions", "search", "stoat-8").out


def test_status_speaks_of_time_as_people_do(run, person, home):
    """Not as a time stamp, and with the command that the person types."""
    run("connect", "claude-code", "--yes")
    shown = run("connect", "status").out
    (home / "connect" / "health-claude-code.json").write_text(json.dumps({"last_event": time.time() - 130}))
    later = run("connect", "status").out

    assert "start `claude` once" in shown
    assert "last event 2 minutes ago" in later


def test_claude_code_loads_two_tools_at_once_and_the_others_when_they_are_needed(run, person):
    """The tools say so themselves; the server as a whole does not."""
    run("connect", "claude-code", "--yes")
    (server,) = json.loads(next(person.rglob(".mcp.json")).read_text())["mcpServers"].values()

    assert "alwaysLoad" not in server

"""A pipe in the place of a file: every command ends, and says what is in the way."""

import json
import os
import re
import sys

import pytest
from tests import forks

from wellkept.operations.doctor import check_special_files

PLACES = ("memories/MEMORY.md", "memories/USER.md", "config.yaml", ".env", "state.db", "memories/ledger.db", "SOUL.md")
COMMANDS = (
    ["memory", "show"],
    ["memory", "add", "likes tea"],
    ["sessions", "list"],
    ["run", "hello"],
    ["config", "show"],
)


DRIVER = """
import json, sys
from wellkept.cli import main, terminal
for arguments in json.loads(sys.argv[1]):
    terminal.invocation = main.terminal.invocation = terminal.Invocation()
    sys.argv = ["kept", *arguments]
    try:
        main.main()
    except SystemExit as left:
        print(f"<{left.code or 0}>", file=sys.stderr, flush=True)
"""
"""One process for all commands: each start of Python takes a quarter of a second."""


def _run(*commands):
    """Return the exit code and the messages of each command."""
    program = [sys.executable, "-c", DRIVER, json.dumps(commands)]
    done = forks.run(program, capture_output=True, timeout=60, check=True)
    return [(int(code), err) for err, code in re.findall(r"(.*?)<(\d+)>\n", done.stderr.decode(), re.DOTALL)]


@pytest.mark.parametrize("place", PLACES)
def test_a_pipe_in_the_place_of_a_file_does_not_hang(home, place):
    """Nothing waits for a writer that never comes; where the file is needed, the error names it."""
    (home / place).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(home / place)

    ran = _run(*COMMANDS)

    assert len(ran) == len(COMMANDS)
    assert not [err for _, err in ran if "this is a bug" in err or "Traceback" in err]
    assert all("pipe" in err for code, err in ran if code != 0), ran
    assert any(code for code, _ in ran) or place in {"SOUL.md", "memories/ledger.db"}


def test_a_pipe_in_the_place_of_the_log_does_not_hang(home):
    """A log that cannot be written does not stop a command."""
    (home / "logs").mkdir(parents=True)
    os.mkfifo(home / "logs" / "kept.log")

    assert _run(["memory", "add", "likes tea"])[0][0] == 0


def test_settings_can_be_switched_off_with_the_null_device(home):
    """A link to the null device is an empty file."""
    home.mkdir(parents=True, exist_ok=True)
    (home / ".env").symlink_to(os.devnull)

    assert _run(["memory", "show"])[0][0] == 0


@pytest.mark.parametrize("place", ["skills/.usage.json", "SOUL.md"])
def test_the_doctor_names_a_pipe_that_only_some_commands_read(home, place):
    """The home is not in order, although most commands work."""
    (home / place).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(home / place)

    ((_, err), (_, checked)) = _run(["skills", "list"], ["doctor", "--offline"])

    assert "this is a bug" not in err + checked
    assert [check.said for check in check_special_files(home)] == [f"{home / place} is a pipe or a device, not a file"]

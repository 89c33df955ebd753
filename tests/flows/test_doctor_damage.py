"""The doctor on a store with one damaged message: it names it, and does not say that all is well."""

import json
import os
import sys
from pathlib import Path

from tests import forks

KEPT = Path(sys.executable).with_name("kept")


def run(home, *arguments, given=""):
    environment = {**os.environ, "KEPT_HOME": str(home), "HOME": str(home.parent)}
    return forks.run([str(KEPT), *arguments], env=environment, input=given, capture_output=True, text=True, check=False)


def damage(path, text):
    """Change one byte of a stored text to one that no text contains."""
    data = bytearray(path.read_bytes())
    place = data.find(text)
    assert place >= 0
    data[place] = 0xFF
    path.write_bytes(data)


def test_a_damaged_message_is_named_and_all_is_not_in_order(tmp_path):
    """Everything else works; the damaged text is shown as damaged."""
    home = tmp_path / "home"
    run(home, "chat", given="The port is 5433.\nLook, a cat called Zorro!\n/quit\n")
    assert "Everything is in order." in run(home, "doctor", "--offline").stdout
    damage(home / "state.db", b"Zorro")

    told, answer = run(home, "doctor", "--offline"), json.loads(run(home, "doctor", "--offline", "--json").stdout)

    assert "is damaged" in told.stdout
    assert "Everything is in order." not in told.stdout
    assert "with 1 warning" in told.stdout
    assert answer["warnings"] == 1
    assert "5433" in run(home, "sessions", "search", "port").stdout
    assert "[damaged: Look, a cat called" in run(home, "sessions", "search", "cat called").stdout

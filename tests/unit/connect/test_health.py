"""The health of connected agents: a file that only its owner can read."""

import os
from pathlib import Path

from wellkept.connect.record import Health, load_health, save_health


def test_others_cannot_read_it_whatever_the_umask(tmp_path: Path) -> None:
    """An error in it may quote a path or a text."""
    before = os.umask(0)
    try:
        save_health(tmp_path, "codex", Health().after_error("it failed", 1.0))
    finally:
        os.umask(before)

    assert (tmp_path / "health-codex.json").stat().st_mode & 0o777 == 0o600
    assert load_health(tmp_path, "codex").errors == ((1.0, "it failed"),)

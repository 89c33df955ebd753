"""Options with numbers that nobody means, closed streams, and arguments in a locale that lacks their letters."""

import os
import subprocess
import sys

import pytest

HUGE = "99999999999999999999"


@pytest.mark.parametrize(
    "command",
    [
        ["sessions", "list", "-n", HUGE],
        ["sessions", "search", "word", "-n", HUGE],
        ["sessions", "show", "any", "--first", HUGE],
        ["sessions", "show", "any", "--last", HUGE],
        ["sessions", "prune", "--max-mb", "inf", "--dry-run"],
        ["sessions", "prune", "--max-mb", "nan", "--dry-run"],
        ["sessions", "prune", "--days", "nan", "--dry-run"],
        ["usage", "--days", HUGE],
        ["usage", "--days", "9999999"],
        ["providers", "stats", "--days", HUGE],
    ],
)
def test_a_number_beyond_all_measure_is_wrong_usage(run, command):
    """It is told as a slip of the person, never as a bug of the program."""
    ran = run(*command)

    assert ran.code == 2
    assert "bug" not in ran.err


@pytest.mark.parametrize(("closed", "command"), [("<&-", "chat"), (">&-", "run hello"), ("<&- >&- 2>&-", "run hello")])
def test_a_closed_stream_is_an_empty_one(tmp_path, closed, command):
    """Some schedulers close them; no file of the home gets the number of one, and with it the output."""
    environment = {**os.environ, "KEPT_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    line = f"{sys.executable} -m wellkept {command} {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=environment, timeout=60, check=False)

    assert (done.returncode, "bug" in done.stderr) == (0, False), done


def test_an_argument_in_utf_8_is_read_in_every_locale(tmp_path):
    """Python gives its bytes as surrogates where the locale has no such letters."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = {**os.environ, **plain, "KEPT_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    for word, code in (("Grüße".encode(), 0), (b"Gr\xfc\xdfe", 2)):
        done = subprocess.run(
            [sys.executable, "-m", "wellkept", "memory", "add", word], capture_output=True, env=environment, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == code, done

    assert (tmp_path / "home" / "memories" / "MEMORY.md").read_text(encoding="utf-8") == "Grüße"

"""Options with numbers that nobody means, and a process without standard input."""

import sys

import pytest

from kept.cli import main

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


def test_a_closed_standard_input_is_empty(monkeypatch, capsys):
    """A scheduler that closes it (`<&-`) starts a chat that ends at once."""
    monkeypatch.setattr(sys, "argv", ["kept", "chat"])
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(SystemExit) as left:
        main.main()

    assert not left.value.code
    assert "bug" not in capsys.readouterr().err

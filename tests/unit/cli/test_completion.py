"""Completion as the shells ask for it."""

import sys

import pytest


@pytest.fixture
def completed(run, monkeypatch):
    """Return what the shell is offered for the last of these words; other commands are not loaded for that."""

    def completed(*words):
        monkeypatch.setenv("_KEPT_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["kept", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        monkeypatch.delitem(sys.modules, "wellkept.cli.commands.skills", raising=False)
        offered = run().out.split()
        assert "wellkept.cli.commands.skills" not in sys.modules
        monkeypatch.delenv("_KEPT_COMPLETE")
        return offered

    return completed


def test_names_and_options_are_completed(completed):
    """Commands, their subcommands, options and fixed values."""
    assert completed("me") == ["memory"]
    assert {"show", "undo", "pending"} <= set(completed("memory", ""))
    assert completed("memory", "show", "--tar") == ["--target"]
    assert completed("memory", "show", "--target", "") == ["memory", "user", "project"]
    assert completed("-p", "default", "memory", "sna") == ["snapshot"]


def test_settings_profiles_and_rules_are_completed(completed, run):
    """What a person would have to look up first."""
    run("profile", "create", "work")

    assert completed("config", "set", "memory.over") == ["memory.overflow"]
    assert completed("profile", "use", "") == ["default", "work"]
    assert completed("-p", "w") == ["work"]
    assert completed("memory", "add", "--allow", "prompt_i") == ["prompt_injection"]


def test_the_version_is_an_option_too(run):
    """As with other programs."""
    assert run("--version").out.startswith("kept ")

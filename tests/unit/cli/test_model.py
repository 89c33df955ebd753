"""`kept model` as a person runs it: a process, a home, a server."""

import json
import os
import subprocess
import sys
from datetime import date

import pytest
from tests import forks

from wellkept.llm.scripted import Says
from wellkept.testing.loopback import Status
from wellkept.testing.loopback_servers import LoopbackAnthropic, LoopbackOpenAI


def kept(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return forks.run(
        [sys.executable, "-m", "wellkept", *arguments],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, **variables},
        timeout=60,
    )


def test_list_says_what_is_used_and_what_is_missing():
    """Every way is listed with its reason; a key opens one."""
    listed = json.loads(kept("model", "list", "--json", OPENROUTER_API_KEY="k").stdout)

    by_provider = {offer["name"].partition("/")[0]: offer for offer in listed["offers"]}
    assert listed["chosen"].startswith("openrouter/")
    assert by_provider["openrouter"]["available"]
    assert "ANTHROPIC_API_KEY is not set" in by_provider["anthropic"]["why"]
    assert date.fromisoformat(listed["prices_checked"])


def test_set_writes_the_setting_and_auto_takes_it_back(home):
    """The choice is kept in the settings file and can be undone; a wrong name changes nothing."""
    assert kept("model", "set", "openai/gpt-x").returncode == 0
    assert "openai/gpt-x" in (home / "config.yaml").read_text()
    wrong = kept("model", "set", "nobody/x")
    assert (wrong.returncode, "kept model list" in wrong.stderr) == (2, True)
    assert "openai/gpt-x" in kept("model", "list").stdout
    assert kept("model", "set", "auto").returncode == 0

    assert "openai/gpt-x" not in kept("model", "list").stdout


@pytest.mark.parametrize(("kind", "name"), [(LoopbackOpenAI, "openai/m"), (LoopbackAnthropic, "anthropic/claude-m")])
def test_test_makes_one_call(kind, name):
    """One tiny call through the real SDK, with time, tokens and the caching line."""
    with kind([Says("ready")]) as server:
        shown = kept("model", "test", name, "--json", **server.environment)

    answer = json.loads(shown.stdout)
    assert (answer["answer"], answer["model"], answer["input_tokens"]) == ("ready", name, 100)
    assert len(server.requests) == 1
    assert ("ENABLED" in answer["prompt_caching"]) is ("claude" in name)


def test_a_failing_test_is_one_line_and_the_next_step():
    """A wrong key ends with the exit code of model errors and names the variable."""
    with LoopbackAnthropic([Status(401)]) as server:
        failed = kept("model", "test", "anthropic/claude-m", **server.environment)

    assert failed.returncode == 69
    assert failed.stdout == ""
    assert "check ANTHROPIC_API_KEY" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_without_a_model_there_is_nothing_to_test():
    """The extractive assistant has no endpoint to test, and the line says how to get one."""
    nothing = kept("model", "test", "extractive")

    assert (nothing.returncode, "kept model list" in nothing.stderr) == (2, True)

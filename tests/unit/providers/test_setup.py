"""Setting a provider up."""

import json
import os
import time
from dataclasses import dataclass
from typing import Annotated, Literal
from unittest.mock import patch

import pytest

from wellkept.config.settings import read_secrets, set_secret
from wellkept.core.errors import Refused
from wellkept.core.settings import Between
from wellkept.providers.base import StartContext
from wellkept.providers.config import Answers, declared_fields, questions, resolve_answers, save, try_provider
from wellkept.providers.loading import set_variables
from wellkept.providers.manager import chosen_names
from wellkept.providers.plugins import Found, Manifest, manifest_of, missing
from wellkept.testing.provider_contract import RecordingProvider


@pytest.fixture(autouse=True)
def _own_environment():
    """Variables that setup puts into the process are gone after the test."""
    with patch.dict(os.environ):
        yield


SCHEMA = [
    {"key": "mode", "description": "Where", "default": "cloud", "choices": ["cloud", "local"]},
    {
        "key": "api_key",
        "description": "Key",
        "secret": True,
        "env_var": "MINE_API_KEY",
        "url": "https://example.org",
        "required": True,
        "when": {"mode": "cloud"},
    },
    {"key": "port", "description": "Port", "default": 8000, "when": {"mode": "local"}},
    {"key": "verbose", "description": "Talk", "default": False},
    "garbage",
    {"description": "no key"},
]


class Configured(RecordingProvider):
    def get_config_schema(self):
        return SCHEMA


@pytest.fixture
def fields():
    return declared_fields(Configured())


def test_unusable_declarations_are_passed_over(fields):
    """Four questions remain of six declarations."""
    assert [field.key for field in fields] == ["mode", "api_key", "port", "verbose"]


def test_answers_are_typed_like_their_defaults_and_split_by_secrecy(fields):
    """Secrets go under their variable; a question whose condition does not hold is not asked."""
    cloud = resolve_answers(fields, {"api_key": "k1", "verbose": "yes", "port": "1"}, environ={})
    local = resolve_answers(fields, {"mode": "local", "port": "9"}, environ={})

    assert cloud == Answers({"mode": "cloud", "verbose": True}, {"MINE_API_KEY": "k1"})
    assert local == Answers({"mode": "local", "port": 9, "verbose": False}, {})


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"mode": "moon", "api_key": "k"}, "moon"),
        ({}, "api_key"),
        ({"mode": "local", "port": "x"}, "port"),
        ({"api_key": "k", "verbose": "maybe"}, "verbose"),
    ],
)
def test_a_wrong_or_missing_answer_is_refused_with_the_next_step(fields, given, word):
    """The setting is named, and what is accepted."""
    refused = resolve_answers(fields, given, environ={})

    assert isinstance(refused, Refused)
    assert word in refused.error
    assert refused.remedy


def test_a_required_secret_may_stand_in_the_environment(fields):
    """It is not asked for again, and not written again."""
    assert resolve_answers(fields, {}, environ={"MINE_API_KEY": "set"}) == Answers(
        {"mode": "cloud", "verbose": False}, {}
    )


def test_secrets_go_to_the_secrets_file_and_the_rest_to_the_providers_file(tmp_path):
    """The secrets file is private, and the other file holds no secret."""
    env = tmp_path / ".env"
    save(
        Configured("mine"),
        Answers({"mode": "cloud"}, {"MINE_API_KEY": "k1"}),
        home=tmp_path,
        save_secret=lambda key, value: set_secret(env, key, value),
    )

    assert read_secrets(env) == {"MINE_API_KEY": "k1"}
    assert env.stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "mine.json").read_text()) == {"mode": "cloud"}


def test_a_provider_is_tried_before_it_is_switched_on(tmp_path):
    """Started, asked, shut down."""
    provider = RecordingProvider()

    assert try_provider(provider, StartContext(kept_home=str(tmp_path))) is None
    assert [call.hook for call in provider.calls] == ["is_available", "initialize", "prefetch", "shutdown"]


def test_a_provider_that_fails_its_trial_is_refused(tmp_path, monkeypatch):
    """Unavailable, raising or hanging: each is a reason, none is an exception."""
    monkeypatch.setattr("wellkept.providers.config.TEST_SECONDS", 0.2)
    missing, raising, hanging = RecordingProvider(), RecordingProvider(), RecordingProvider()
    missing.available = False
    raising.faults["initialize"] = lambda: (_ for _ in ()).throw(ConnectionError("refused"))
    hanging.faults["prefetch"] = lambda: time.sleep(1)
    context = StartContext(kept_home=str(tmp_path))

    assert "not available" in try_provider(missing, context).error
    assert "refused" in try_provider(raising, context).error
    assert "0.2 s" in try_provider(hanging, context).error


def test_declared_variables_are_lent_to_the_process(monkeypatch):
    """Only those that the provider declares, and never over what is set."""
    monkeypatch.delenv("MINE_API_KEY", raising=False)
    monkeypatch.delenv("OTHER_KEY", raising=False)
    set_variables(Configured(), {"MINE_API_KEY": "from file", "OTHER_KEY": "x"})

    assert os.environ["MINE_API_KEY"] == "from file"
    assert "OTHER_KEY" not in os.environ


@pytest.mark.parametrize(
    ("setting", "names"),
    [(None, []), ("", []), ("  ", []), ("builtin", []), ("a", ["a"]), (["a", "b", "a"], ["a", "b"]), ([], [])],
)
def test_the_choice_is_read_from_the_setting(setting, names):
    """Null, empty and `builtin` mean built-in memory only."""
    assert chosen_names(setting) == names


@pytest.mark.parametrize("garbage", ["", "[1, 2]", "{pip_dependencies: 7, external_dependencies: x}", "a: [b"])
def test_a_manifest_that_says_nothing_is_empty(tmp_path, garbage):
    """Whatever it contains, the plugin can still be chosen."""
    (tmp_path / "plugin.yaml").write_text(garbage)

    assert manifest_of(Found("x", "folder", str(tmp_path))) == Manifest()


def test_packages_and_programs_of_a_plugin(tmp_path):
    """What is missing is named; what looks like an option or a path is never passed to an installer."""
    (tmp_path / "plugin.yaml").write_text(
        "pip_dependencies: ['pytest>=1', 'surely-not-installed>=2', '--index-url=http://evil', 7]\n"
        "external_dependencies: [{name: brv, install: npm i -g brv, check: brv --version}, garbage]\n"
    )
    manifest = manifest_of(Found("x", "folder", str(tmp_path)))

    assert missing(manifest.requirements) == ["surely-not-installed>=2"]
    assert manifest.hints == ("needs brv; install: npm i -g brv; check: brv --version",)


def test_what_setup_asks_is_read_from_the_settings():
    """Defaults and choices come from the dataclass, the questions from a table beside it."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Own:
        mode: Literal["cloud", "local"] = "cloud"
        quiet: bool = False
        limit: Annotated[int, Between(1, 9)] = 6

    asked = questions(Own, {"mode": "Where it runs", "quiet": "Say less", "limit": "How many"})

    assert [(each["key"], each["default"], each["choices"]) for each in asked] == [
        ("mode", "cloud", ["cloud", "local"]),
        ("quiet", False, [False, True]),
        ("limit", 6, []),
    ]

"""What Hermes has besides conversations, and where each of it goes."""

import json

import pytest

from wellkept.formats.hermes import Hermes
from wellkept.formats.port import (
    Caution,
    Document,
    Leftover,
    MemoryFile,
    Problem,
    Request,
    Secret,
    Setting,
    SkillFolder,
)
from wellkept.memory.page import Target


@pytest.fixture
def write(tmp_path):
    """Writes a file of the home."""

    def write(name, text):
        path = tmp_path / "hermes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write


@pytest.fixture
def assets(tmp_path):
    """Lists the assets of a kind."""

    def assets(kind, **options):
        given = {name.replace("_", "-"): value for name, value in options.items()}
        request = Request({}, tmp_path / "kept", given)
        return [one for one in Hermes().list_assets(tmp_path / "hermes", request) if isinstance(one, kind)]

    return assets


def test_pages_are_split_at_their_separators(write, assets):
    """Those of all profiles, the default one first; entries may have several lines, and § inside of a line is text."""
    write("memories/MEMORY.md", "The printer is marmot.\n§\nTwo lines\nof § one entry\n§\n\n")
    write("memories/USER.md", "Sam")
    write("profiles/work/memories/MEMORY.md", "Deploy on Fridays")

    assert [(one.name, one.target, one.entries) for one in assets(MemoryFile)] == [
        ("memories/MEMORY.md", Target.MEMORY, ("The printer is marmot.", "Two lines\nof § one entry")),
        ("memories/USER.md", Target.USER, ("Sam",)),
        ("profiles/work/memories/MEMORY.md", Target.MEMORY, ("Deploy on Fridays",)),
    ]


def test_skills_come_with_their_use(write, assets):
    """Categories are kept; what came with Hermes and what is hidden is left out."""
    for place in ("tea", "kitchen/soup", "shipped", ".archive/old"):
        write(f"skills/{place}/SKILL.md", "---\nname: x\ndescription: y\n---\n")
    write("skills/.usage.json", json.dumps({"tea": {"use_count": 3, "pinned": True}, "soup": 7}))
    write("skills/.bundled_manifest", "shipped:0123\n")

    assert [(one.name, one.category, dict(one.use)) for one in assets(SkillFolder)] == [
        ("soup", "kitchen", {}), ("tea", "", {"use_count": 3, "pinned": True}),
    ]  # fmt: skip


def test_shared_settings_and_models_are_taken(write, assets):
    """Only those that mean the same here; unknown providers have no name here."""
    config = (
        "model: {default: anthropic/claude-opus-4.6, provider: openrouter, api_key: sk-1}\n"
        "memory: {memory_char_limit: 3000, provider: honcho, user_profile_enabled: false}\ncompression: {threshold: 0.7}\n"
    )
    write("config.yaml", config)

    assert {one.key: one.value for one in assets(Setting)} == {
        "model.default": "openrouter/anthropic/claude-opus-4.6", "memory.memory_char_limit": "3000",
        "memory.user_profile_enabled": "false", "compression.threshold": "0.7",
    }  # fmt: skip


@pytest.mark.parametrize("config", ["model: [", "- a\n- b\n", "model: loop\n", "", "\tx: 1"])
def test_a_configuration_of_another_shape_is_no_error(write, assets, config):
    """Broken YAML is a problem, anything else is nothing."""
    write("config.yaml", config)

    assert assets(Setting) == []
    assert len(assets(Problem)) <= 1


def test_persona_goes_to_the_home_unless_it_is_the_first_one(write, assets, tmp_path):
    """Those of other profiles go to the archive, and instructions where they are asked for."""
    write("SOUL.md", "You are Hermes Agent, an intelligent AI assistant created by Nous Research. You are helpful.")
    assert assets(Document) == []

    write("SOUL.md", "You are kind.")
    write("AGENTS.md", "Answer briefly.")
    write("profiles/work/SOUL.md", "You are strict.")
    asked = assets(Document, workspace_target=str(tmp_path / "project"))
    assert [(one.name, one.path) for one in assets(Document)] == [("SOUL.md", tmp_path / "kept" / "SOUL.md")]
    assert asked[1].path == tmp_path / "project" / "AGENTS.md"
    assert [one.name for one in assets(Leftover)] == ["AGENTS.md", "profiles/work/SOUL.md"]


def test_credentials_only_when_asked_for_and_from_the_list(write, assets):
    """The preview names them and never shows a value."""
    write(".env", "OPENAI_API_KEY=sk-1\nTELEGRAM_BOT_TOKEN=2\nMEM0_API_KEY='m0'\n")

    assert assets(Secret) == assets(Caution) == []
    assert {one.name: one.value for one in assets(Secret, migrate_secrets="yes")} == {
        "OPENAI_API_KEY": "sk-1", "MEM0_API_KEY": "m0",
    }  # fmt: skip
    (caution,) = assets(Caution, migrate_secrets="yes")
    assert "OPENAI_API_KEY from .env" in caution.text
    assert "sk-1" not in caution.text


def test_a_running_gateway_is_reported(write, assets):
    """By the process that its file names."""
    import os

    write("gateway.pid", json.dumps({"pid": os.getpid()}))
    assert [one.text for one in assets(Caution)] == ["Hermes is running: what it writes meanwhile is left out"]

    write("gateway.pid", json.dumps({"pid": 2**30}))
    assert assets(Caution) == []

"""What OpenClaw has besides conversations, and where each of it goes."""

import json
from pathlib import Path

import pytest

from wellkept.formats.openclaw import OpenClaw, remove_template
from wellkept.formats.openclaw_config import find_running, is_openclaw, parse_json5
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

NO_GATEWAY = 1
"""A port on which nobody answers."""


@pytest.fixture
def configure(openclaw):
    """Writes the configuration; the gateway has a port that nobody uses."""

    def configure(**values):
        openclaw.write("openclaw.json", json.dumps({"gateway": {"port": NO_GATEWAY}, **values}))

    configure()
    return configure


@pytest.fixture
def assets(openclaw, configure, tmp_path):
    """Lists the assets of a kind."""
    del configure

    def assets(kind, **options):
        given = {name.replace("_", "-"): value for name, value in {"preset": "full", **options}.items()}
        request = Request({"HOME": str(tmp_path)}, tmp_path / "kept", given)
        return [one for one in OpenClaw().list_assets(openclaw.path, request) if isinstance(one, kind)]

    return assets


def skill(openclaw, place):
    openclaw.write(f"{place}/SKILL.md", "---\nname: tea\ndescription: Tea.\n---\nBoil.")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, "x // y"]}',
        '{// a comment\n"a": [1, "x // y",],}',
        "{a: [1, 'x // y'], /* more\n comments */}",
        '\ufeff{a: [ 1 , "x // y" ]}\n',
    ],
)  # fmt: skip
def test_configurations_are_json5(text):
    """Comments, trailing commas, bare keys and single quotes."""
    assert parse_json5(text) == {"a": [1, "x // y"]}


def test_quotes_inside_of_quotes_survive():
    """A text in single quotes may hold double ones."""
    assert parse_json5("""{a: 'say "hi"', b: 'it\\'s', c: true, d: null, e: -1.5e3}""") == {
        "a": 'say "hi"', "b": "it's", "c": True, "d": None, "e": -1500.0,
    }  # fmt: skip


def test_all_workspaces_are_read(openclaw, configure, assets, tmp_path):
    """The configured ones, those of all agents, and the usual places; each once."""
    elsewhere = tmp_path / "notes"
    for place in ("workspace", "workspace.default", "workspace-main", "workspace-work"):
        openclaw.write(f"{place}/MEMORY.md", f"- From {place}.")
    for folder, text in ((elsewhere, "elsewhere"), (tmp_path / "clawd", "the old place"), (tmp_path / "own", "own")):
        folder.mkdir()
        (folder / "MEMORY.md").write_text(f"- From {text}.")
    configure(
        agents={
            "defaults": {"workspace": "~/notes"},
            "list": [{"id": "own", "workspace": str(tmp_path / "own")}, {"id": "main", "workspace": "~/notes"}, 7],
        }
    )
    found = assets(MemoryFile)

    assert [one.text for one in found] == [
        "- From elsewhere.", "- From own.", "- From workspace.", "- From workspace.default.", "- From workspace-main.",
        "- From workspace-work.", "- From the old place.",
    ]  # fmt: skip
    assert len({one.name for one in found}) == len(found)


def test_memory_files_go_to_their_pages(openclaw, assets):
    """Curated memory first, then notes, the newest first; what is derived is left out."""
    openclaw.write("workspace/MEMORY.md", "## People\n\n- Ada lives in Rome.")
    openclaw.write("workspace/USER.md", "- **Name:** Sam")
    openclaw.write("workspace/IDENTITY.md", "- **Name:** Clawdia")
    openclaw.write("workspace/memory/2026-06-25.md", "- Bought milk")
    openclaw.write("workspace/memory/2026-06-26-trip.md", "- Booked a train")
    openclaw.write("workspace/memory/people.md", "- Bob likes tea")
    openclaw.write("workspace/memory/.dreams/x.md", "derived")
    openclaw.write("workspace/DREAMS.md", "derived")

    assert [(one.name, one.target, one.heading) for one in assets(MemoryFile)] == [
        ("workspace/MEMORY.md", Target.MEMORY, ""),
        ("workspace/USER.md", Target.USER, ""),
        ("workspace/IDENTITY.md", Target.MEMORY, "Identity of the assistant"),
        ("workspace/memory/2026-06-26-trip.md", Target.MEMORY, "2026-06-26-trip"),
        ("workspace/memory/2026-06-25.md", Target.MEMORY, "2026-06-25"),
        ("workspace/memory/people.md", Target.MEMORY, "people"),
    ]


def test_what_openclaw_filled_a_workspace_with_is_not_memory(openclaw, assets):
    """Empty forms, hints and examples are left out, and what a person wrote between them stays."""
    form = "# IDENTITY.md - Who Am I?\n\n_Fill this in during your first conversation. Make it yours._\n\n- **Name:**\n"
    openclaw.write("workspace/IDENTITY.md", form + "  _(pick something you like)_\n- **Emoji:** 🦞\n")
    openclaw.write(
        "workspace/USER.md", "# USER.md - User Model\n\n## Directives\n\n- Prefer ...\n\n```json\n{\n}\n```\n"
    )

    assert [(one.name, one.text) for one in assets(MemoryFile)] == [("workspace/IDENTITY.md", "- **Emoji:** 🦞")]
    assert remove_template("# Mine\n\n```\ncode\n```") == "# Mine\n\n```\ncode\n```"


def test_persona_and_instructions(openclaw, assets, tmp_path):
    """SOUL.md goes to the home, AGENTS.md where it is asked for; those of other agents to the archive."""
    for place in ("workspace", "workspace-work"):
        openclaw.write(f"{place}/SOUL.md", "You are kind.")
        openclaw.write(f"{place}/AGENTS.md", "Answer briefly.")
        openclaw.write(f"{place}/TOOLS.md", "The camera is in the hall.")
    asked = assets(Document, workspace_target=str(tmp_path / "project"))

    assert [(one.name, one.path) for one in assets(Document, preset="user-data")] == [
        ("workspace/SOUL.md", tmp_path / "kept" / "SOUL.md")
    ]
    assert [one.path for one in asked][1] == tmp_path / "project" / "AGENTS.md"
    assert [one.name for one in assets(Leftover, preset="user-data")] == [
        "workspace/AGENTS.md", "workspace/TOOLS.md", "workspace-work/SOUL.md", "workspace-work/AGENTS.md",
        "workspace-work/TOOLS.md",
    ]  # fmt: skip


def test_settings_are_created_if_they_are_missing(assets, tmp_path):
    """With the preset that takes settings, and never over a file that is there."""
    assert [one.path.name for one in assets(Document)] == ["config.yaml"]
    assert assets(Document, preset="user-data") == []

    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "config.yaml").write_text("model: {}\n")
    assert assets(Document) == []


def test_skills_of_all_workspaces_are_found(openclaw, assets):
    """And those that belong to no agent."""
    for place in ("workspace/skills/tea", "workspace-work/skills/coffee", "skills/milk", "workspace/skills/.hidden"):
        skill(openclaw, place)

    assert [one.name for one in assets(SkillFolder)] == ["tea", "coffee", "milk"]


def test_a_model_is_found_by_the_name_that_the_person_gave_it(configure, assets):
    """OpenClaw's catalogue of models has the name as an alias."""
    models = {"anthropic/claude-opus-4-6": {"alias": "Claude Opus 4.6"}, "openai/gpt-6": {}}
    configure(agents={"defaults": {"model": {"primary": "Claude Opus 4.6"}, "models": models}})

    assert [(one.key, one.value) for one in assets(Setting)] == [("model.default", "anthropic/claude-opus-4-6")]


def test_model_names_are_settings_and_the_rest_is_in_the_archive(openclaw, configure, assets):
    """Only models of endpoints that kept knows; no credential is in any file."""
    configure(
        agents={
            "defaults": {"model": {"primary": "anthropic/claude-opus-4-5", "fallbacks": ["openai/gpt-6", "odd/x"]}}
        },
        channels={"telegram": {"botToken": "123:secret-bot", "allowFrom": ["+49"]}, "slack": {"appToken": "xapp-1"}},
        memory={"search": {"provider": "qmd", "apiKey": "memory-secret"}},
        models={"providers": {"odd": {"baseUrl": "http://127.0.0.1:1", "apiKey": "odd-secret"}}},
        env={"OPENAI_API_KEY": "env-secret"},
    )
    openclaw.write("memory/main.sqlite", b"index")
    openclaw.write("cron/jobs.json", '{"jobs": [{"message": "Tell the news"}]}')
    left = {one.name: one for one in assets(Leftover)}

    assert [(one.key, one.value) for one in assets(Setting)] == [
        ("model.default", "anthropic/claude-opus-4-5"), ("model.fallbacks", '["openai/gpt-6"]'),
    ]  # fmt: skip
    assert {"config/channels.json", "config/memory.json", "memory/main.sqlite", "cron/jobs.json"} <= set(left)
    assert "config/env.json" not in left
    everything = b"".join(one.content for one in left.values() if isinstance(one.content, bytes))
    assert b"+49" in everything
    assert b"secret" not in everything
    assert b"xapp-1" not in everything


def test_the_preset_user_data_takes_no_settings(openclaw, configure, assets):
    """Pages, notes, skills and persona only."""
    configure(agents={"defaults": {"model": "openai/gpt-6"}}, channels={"x": {}})
    openclaw.write("workspace/MEMORY.md", "- A fact")

    assert assets(Setting, preset="user-data") == assets(Leftover, preset="user-data") == []
    assert len(assets(MemoryFile, preset="user-data")) == 1
    assert assets(Setting) != []


def test_credentials_only_when_asked_for_and_from_the_list(openclaw, configure, assets):
    """The preview names what is taken and what is looked for, never a value."""
    configure(
        env={"vars": {"OPENROUTER_API_KEY": "sk-or-1", "AWS_SECRET_ACCESS_KEY": "aws"}},
        models={"providers": {"openai": {"apiKey": "${OPENAI_API_KEY}"}}},
    )
    openclaw.write(".env", 'export ANTHROPIC_API_KEY="sk-ant-1" # mine\nMY_PASSWORD=hunter2\nHONCHO_API_KEY=hch # x\n')
    profiles = {
        "a": {"type": "api_key", "provider": "openai", "key": "sk-openai"},
        "b": {"type": "oauth", "access": "x"},
    }
    openclaw.write("agents/main/agent/auth-profiles.json", json.dumps({"profiles": profiles}))
    (caution,) = [one for one in assets(Caution, migrate_secrets="yes") if "credentials" in one.text]

    assert assets(Secret) == []
    assert {one.name: one.value for one in assets(Secret, migrate_secrets="yes")} == {
        "ANTHROPIC_API_KEY": "sk-ant-1", "HONCHO_API_KEY": "hch", "OPENROUTER_API_KEY": "sk-or-1",
        "OPENAI_API_KEY": "sk-openai",
    }  # fmt: skip
    assert "ANTHROPIC_API_KEY from .env" in caution.text
    assert "sk-" not in caution.text
    assert "sk-" not in repr(assets(Secret, migrate_secrets="yes"))


def test_a_configuration_that_cannot_be_read_is_a_problem(openclaw, assets):
    """The usual workspaces are read all the same."""
    openclaw.write("openclaw.json", "{broken")
    openclaw.write("workspace/MEMORY.md", "- A fact")

    assert [one.where for one in assets(Problem)] == ["openclaw.json"]
    assert len(assets(MemoryFile)) == 1


def test_a_running_gateway_is_reported():
    """By its port, or by its process."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert find_running({"gateway": {"port": port}}) == f"a gateway answers on port {port}"


@pytest.mark.parametrize(
    ("command", "is_theirs"),
    [
        ("openclaw-gateway", True),
        ("node\0/usr/lib/node_modules/openclaw/openclaw.mjs\0gateway", True),
        ("/opt/node\0/home/sam/.npm/bin/clawdbot\0gateway", True),
        ("openclaw", True),
        ("vim\0openclaw.json", False),
        ("python3\0/usr/bin/kept\0import\0openclaw", False),
        ("node\0/srv/app/server.js\0--name=openclaw", False),
        ("", False),
    ],
)
def test_processes_of_openclaw_are_recognised(command, is_theirs):
    """What it is called, not what it is given."""
    assert is_openclaw(command.encode()) is is_theirs


def test_roots_are_the_usual_places_and_profiles(tmp_path):
    """A chosen folder replaces them."""
    (tmp_path / ".openclaw-dev").mkdir()
    found = OpenClaw().find_roots({"HOME": str(tmp_path)})

    assert [path.name for path in found] == [".openclaw", ".clawdbot", ".moltbot", ".openclaw-dev"]
    assert OpenClaw().find_roots({"HOME": "/x", "OPENCLAW_STATE_DIR": "/y"}) == [Path("/y")]

"""Memory files of coding agents: which are found, and the entries that their Markdown becomes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.formats.agent_files import expand_imports
from wellkept.formats.claude_code import ClaudeCode
from wellkept.formats.codex import Codex
from wellkept.formats.markdown import parse_entries
from wellkept.formats.opencode import Opencode
from wellkept.formats.port import MemoryFile, Request, SkillFolder
from wellkept.memory.page import Target


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("---\nname: x\n---\nBody", ["Body"]),
        ("# A\n## B\n- one\n- two", ["A › B: one", "A › B: two"]),
        ("# A\nfirst\nparagraph\n\nsecond", ["A: first paragraph", "A: second"]),
        ("# A\n## B\nb\n# C\nc", ["A › B: b", "C: c"]),
        ("Title\n=====\ntext", ["Title: text"]),
        ("- a:\n  - b\n  - c", ["a: b", "a: c"]),
        ("- a\n  - b", ["a", "a: b"]),
        ("- a\n  continued", ["a continued"]),
        ("1. a\n2) b\n* c\n+ d", ["a", "b", "c", "d"]),
        (
            "Run:\n```sh\nmake\n\n- not an item\n# not a heading\n```\nend",
            ["Run:\n```sh\nmake\n\n- not an item\n# not a heading\n```", "end"],
        ),
        ("```\nnever closed\n- x", ["```\nnever closed\n- x"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |", ["| a | b |\n|---|---|\n| 1 | 2 |"]),
        ("<!-- a\n- b\n-->text\n\n***\n\n> quoted", ["text", "quoted"]),
        ("- [x] done\n- @docs/more.md\n\n@other.md\n\nsee @mention", ["done", "see @mention"]),
        ("same\n\nsame", ["same"]),
        ("a\n\n§\n\nb", ["a", "b"]),
        ("\ufeff- a\r\n- b\r\n", ["a", "b"]),
        ("", []),
    ],
)
def test_markdown_becomes_entries(text, entries):
    """Items and paragraphs separately with their heading path, code and tables whole."""
    assert parse_entries(text) == entries


def test_a_heading_precedes_the_path():
    """Such as the date of a daily note."""
    assert parse_entries("## Work\n- met Ana", "2026-11-01") == ["2026-11-01 › Work: met Ana"]


@pytest.mark.parametrize("title", ["MEMORY.md - Long-Term Memory", "Memory", "USER.md"])
def test_a_title_that_only_names_the_file_is_no_part_of_an_entry(title):
    """It would take the place of facts on the page; any other title gives them their meaning."""
    assert parse_entries(f"# {title}\n\n## Tyler\n- likes tea\n") == ["Tyler: likes tea"]
    assert parse_entries("# Harbour\n\n- likes tea\n") == ["Harbour: likes tea"]
    assert parse_entries(f"# Harbour\n\n- a\n\n# {title}\n- b\n")[1] == f"{title}: b"


@given(st.text(alphabet="ab#-*>`~|\n\t 1.:@§", max_size=200))
def test_any_text_can_be_parsed(text):
    """No text raises, no entry is empty, and none is there twice."""
    entries = parse_entries(text)

    assert all(entry.strip() for entry in entries)
    assert len(set(entries)) == len(entries)


def list_files(source, root, environ=None, home=None):
    request = Request(environ or {}, home or root)
    return list(source.list_assets(root, request))


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def claude(tmp_path):
    """A configuration of Claude Code with one project."""
    config, project = tmp_path / ".claude", tmp_path / "project"
    write(config / "CLAUDE.md", "- of the person\n@rules/inside.md\n@../outside.md\n@/etc/hostname")
    write(config / "rules" / "inside.md", "- a rule")
    write(tmp_path / "outside.md", "- from outside")
    write(project / "CLAUDE.md", "- of the project")
    write(config / "projects" / "-p" / "1.jsonl", json.dumps({"type": "user", "cwd": str(project)}) + "\n")
    memory = config / "projects" / "-p" / "memory"
    write(memory / "MEMORY.md", "- [Tea](tea.md) — likes\n\n## Facts\n- a fact")
    write(memory / "tea.md", "---\nname: tea\nmetadata:\n  node_type: memory\n  type: user\n---\nLikes tea.")
    write(memory / "build.md", "---\nname: b\ntype: feedback\n---\nUse make.\n\n**Why:** it is quick")
    write(config / "skills" / "deploy" / "SKILL.md", "x")
    return config


def test_files_of_claude_code(claude, tmp_path):
    """Those of the person, of projects, and what it wrote itself; the index is not a fact."""
    found = list_files(ClaudeCode(), claude / "projects")
    files = {asset.name: asset for asset in found if isinstance(asset, MemoryFile)}
    project = str(tmp_path / "project")
    targets = {name.rpartition("/")[2]: (file.target, file.folder) for name, file in files.items()}

    assert parse_entries(files["CLAUDE.md"].text) == ["of the person", "a rule"]
    assert parse_entries(files[f"{project}/CLAUDE.md"].text) == ["of the project"]
    assert parse_entries(files["projects/-p/memory/MEMORY.md"].text) == ["Facts: a fact"]
    assert targets["tea.md"][0] is Target.USER
    assert targets["build.md"] == (Target.PROJECT, project)
    assert files[f"{project}/CLAUDE.md"].target is Target.PROJECT
    assert [asset.name for asset in found if isinstance(asset, SkillFolder)] == ["deploy"]
    assert list_files(ClaudeCode(), claude) == found


def test_imports_stay_inside_the_folder(tmp_path):
    """A link that leads outside is outside; a circle ends."""
    write(tmp_path / "in" / "a.md", "@b.md\n@link.md\n@../out.md\nsee @b.md here")
    write(tmp_path / "in" / "b.md", "b\n@a.md")
    write(tmp_path / "out.md", "secret")
    (tmp_path / "in" / "link.md").symlink_to(tmp_path / "out.md")
    text = expand_imports((tmp_path / "in" / "a.md").read_text(), tmp_path / "in", tmp_path / "in")

    assert "secret" not in text
    assert text.startswith("b\n")
    assert "see @b.md here" in text


def test_files_of_codex(tmp_path):
    """AGENTS.md and memories; what is derived goes to the archive; never auth.json."""
    root, project = tmp_path / ".codex", tmp_path / "project"
    write(root / "AGENTS.md", "- agents")
    write(root / "auth.json", "{}")
    write(root / "memories" / "MEMORY.md", "- a memory")
    write(root / "memories" / "rollout_summaries" / "s.md", "- a summary")
    write(project / "AGENTS.md", "- of the project")
    meta = {"type": "session_meta", "payload": {"id": "t", "cwd": str(project)}}
    write(root / "sessions" / "2026" / "rollout-1.jsonl", json.dumps(meta) + "\n")
    files = {asset.name: asset for asset in list_files(Codex(), root)}

    assert {name: file.is_archive for name, file in files.items()} == {
        "AGENTS.md": False,
        "memories/MEMORY.md": False,
        "memories/rollout_summaries/s.md": True,
        f"{project}/AGENTS.md": False,
    }
    write(root / "AGENTS.override.md", "- instead")
    assert "instead" in next(asset.text for asset in list_files(Codex(), root) if asset.name == "AGENTS.md")


def test_rules_of_opencode(tmp_path):
    """Of the person, and of the projects that its sessions name."""
    data, project = tmp_path / "data" / "opencode", tmp_path / "project"
    environ = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    write(tmp_path / "config" / "opencode" / "AGENTS.md", "- rules")
    write(project / "AGENTS.md", "- of the project")
    write(data / "storage" / "session" / "p" / "s.json", json.dumps({"id": "s", "directory": str(project)}))
    found = list_files(Opencode(), data, environ)

    assert [(asset.name, asset.target) for asset in found] == [
        ("AGENTS.md", Target.MEMORY),
        (f"{project}/AGENTS.md", Target.PROJECT),
    ]
    assert list_files(Opencode(), tmp_path, environ) == []


def test_a_huge_file_is_reported(tmp_path):
    """Nobody curated a file of that size."""
    root = tmp_path / ".codex"
    write(root / "memories" / "MEMORY.md", "x" * 1_000_001)
    (problem,) = list_files(Codex(), root)

    assert "longer than" in problem.what

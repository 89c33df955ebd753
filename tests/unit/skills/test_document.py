"""Documents: lenient in reading, strict in writing, the official validator as the judge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skills_ref.validator import validate

from wellkept.core.errors import Refused
from wellkept.skills.document import DERIVED, BadFrontmatter, Document, list_items, normalize, parse
from wellkept.skills.roots import bundled_folder

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)

HERMES = """---
name: gif-search
description: Search GIFs and send them
version: 1.1.0
author: somebody
platforms: [linux, macos]
prerequisites:
  env_vars: [TENOR_KEY]
  commands: [curl, jq]
metadata:
  hermes:
    tags: [GIF, Media]
    related_skills: [stickers]
    requires_tools: [terminal]
---

# GIF search
"""


def written(tmp_path, name, text):
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    return validate(folder)


def test_a_skill_of_another_agent_loads():
    """Fields that only other agents have are understood where they stand."""
    document = parse(HERMES, "gif-search")

    assert isinstance(document, Document)
    assert document.tags == ("GIF", "Media")
    assert list_items(document.lookup("platforms")) == ("linux", "macos")
    assert list_items(document.lookup("requires_tools")) == ("terminal",)


def test_foreign_fields_move_below_metadata_when_written(tmp_path):
    """What kept writes has only the format's own fields at the top, and means the same."""
    text = normalize(HERMES, "gif-search")

    assert isinstance(text, str)
    assert written(tmp_path, "gif-search", text) == []
    again = parse(text, "gif-search")
    assert isinstance(again, Document)
    assert again.tags == ("GIF", "Media")
    assert list_items(again.lookup("platforms")) == ("linux", "macos")
    assert again.lookup("version") == "1.1.0"


def test_a_strict_head_keeps_its_bytes():
    """A head that every reader takes is not rewritten, comments included."""
    text = "---\n# mine\nname: a-skill\ndescription: Does it\n---\n\n# Body\n"

    assert normalize(text, "a-skill") == text


@given(texts, texts, st.dictionaries(texts.filter(bool), texts, max_size=3))
def test_the_official_validator_takes_whatever_is_written(tmp_path, description, body, extra):
    """Every text that strict writing lets through is valid for the public format."""
    from wellkept.skills.document import render_frontmatter

    text = normalize(render_frontmatter({"name": "a-skill", "description": description, **extra}) + body, "a-skill")

    if isinstance(text, str):
        assert written(tmp_path, "a-skill", text) == []
        again = parse(text, "a-skill")
        assert isinstance(again, Document)


@pytest.mark.parametrize(
    "text",
    [
        "no head at all",
        "---\nname: a-skill\n---\nbody",
        "---\nname: a-skill\ndescription: x\n---\n",
        "---\nname: other\ndescription: x\n---\nbody",
        "---\nname: a-skill\ndescription: " + "x" * 1_025 + "\n---\nbody",
        "---\nname: a-skill\ndescription: x\ncompatibility: " + "x" * 501 + "\n---\nbody",
        "---\nname: a-skill\ndescription: [unclosed\n---\nbody",
        "---\nname: a-skill\ndescription: x\n---\n" + "y" * 100_001,
    ],
)
def test_what_is_wrong_is_refused_with_a_remedy(text):
    """A refusal says what to write instead."""
    refused = normalize(text, "a-skill")

    assert isinstance(refused, Refused)
    assert refused.error
    assert refused.remedy


def test_a_name_that_differs_from_its_folder_is_a_warning():
    """The skill loads under its own name, and doctor tells."""
    document = parse("---\nname: one\ndescription: x\n---\nbody", "two")

    assert isinstance(document, Document)
    assert document.name == "one"
    assert any("differs" in warning for warning in document.warnings)


@pytest.mark.parametrize(
    "text",
    ["---\nname: a\n---\nx", "---\nname: a\ndescription: ~\n---\nx", "---\n: :\n---\nx", "---\nx", "", "```\nx\n```"],
)
def test_without_a_description_nothing_loads(text):
    """A skill that cannot be described is a problem with a fix."""
    assert isinstance(parse(text, "a"), BadFrontmatter)


def test_a_published_skill_may_be_longer_than_what_is_written():
    """It loads with a warning; kept itself writes no such file."""
    text = f"---\nname: a\ndescription: x\n---\n{'word ' * 21_000}"
    document = parse(text, "a")
    written = normalize(text, "a")

    assert isinstance(document, Document)
    assert any("105,0" in warning for warning in document.warnings)
    assert isinstance(written, Refused)


def test_without_frontmatter_name_and_description_are_derived_and_marked():
    """From the folder, the title and the first sentence; an invalid folder name is a problem."""
    text = "# Rotate keys\n\n> A note\n\nRotate the API keys of a service. Then test it.\n"
    document = parse(text, "rotate-keys")

    assert isinstance(document, Document)
    assert document.name == "rotate-keys"
    assert document.description == f"Rotate keys: Rotate the API keys of a service. {DERIVED}"
    assert document.body == text.strip()
    assert any("derived" in warning for warning in document.warnings)
    assert isinstance(parse(text, "Rotate Keys"), BadFrontmatter)


def test_headings_leave_code_out():
    """A comment in a shell block is not a heading."""
    document = parse("---\nname: a\ndescription: x\n---\n# One\n```sh\n# not\n```\n## Two\n", "a")

    assert isinstance(document, Document)
    assert document.headings == ("One", "Two")


@pytest.mark.parametrize("folder", sorted(bundled_folder().iterdir()), ids=lambda path: path.name)
def test_bundled_skills_are_valid(folder):
    """The official validator accepts every skill that comes with kept."""
    assert validate(folder) == []

"""Edits of TOML texts: our part changes, nothing else does."""

import tomllib

import pytest

from wellkept.connect import toml_text
from wellkept.connect.written_parts import COMMENT, NotEditable, TomlCommand, TomlTable, put_parts, take_parts_out

TRAPS = '''# mine
name = "x" # notify = ["no"]
text = """
notify = ["inside a text"]
[mcp_servers.kept]
"""
notify = [
  "a", # first
  "b",
]

[mcp_servers.other]
command = "o"
notify = ["not this one"]
'''


def test_a_value_is_found_behind_every_trap():
    """Comments, texts over several lines and tables of the same name are not taken for the value."""
    edited = toml_text.set_value(TRAPS, "notify", ["kept", "a", "b"])

    assert edited == TRAPS.replace('notify = [\n  "a", # first\n  "b",\n]', 'notify = ["kept", "a", "b"]')


def test_a_new_value_stands_before_every_table():
    """A root value below a table header would belong to that table."""
    edited = toml_text.set_value("[a]\nb = 1\n", "notify", ["k"], comment="why")

    assert edited == '# why\nnotify = ["k"]\n[a]\nb = 1\n'
    assert toml_text.remove_value(edited, "notify", comment="why") == "[a]\nb = 1\n"


@pytest.mark.parametrize("text", ["", "a = 1", "a = 1\n", "[x]\ny = 2\n", TRAPS, "a = 1\r\n[x]\r\n"])
def test_a_table_is_added_and_removed_without_a_trace(text):
    """The text afterwards holds the same values, and the same bytes but for a line end at the end."""
    edited = toml_text.add_table(text, ("mcp_servers", "kept"), {"command": "/k", "args": ["m"]}, comment=COMMENT)

    assert tomllib.loads(edited.replace("\r\n", "\n"))["mcp_servers"]["kept"] == {"command": "/k", "args": ["m"]}
    assert toml_text.remove_table(edited, ("mcp_servers", "kept"), comment=COMMENT) in {text, text + "\n"}


def test_sub_tables_that_the_client_added_go_with_the_table():
    """Codex adds tables below ours; without ours they would be an error."""
    text = '[mcp_servers.kept]\ncommand = "k"\n[mcp_servers.kept.tools.memory]\napproval = "auto"\n[b]\nc = 1\n'

    assert toml_text.remove_table(text, ("mcp_servers", "kept"), comment=COMMENT) == "[b]\nc = 1\n"


@pytest.mark.parametrize(
    "text", ["a = ", "[a", "a = 1\na = 2\n", 'mcp_servers = {x = {command = "y"}}\n', "mcp_servers = 1\n"]
)
def test_what_cannot_be_edited_is_refused(tmp_path, text):
    """A text that is broken, or holds the table in a form that cannot be added to, raises and is not changed."""
    part = TomlTable(tmp_path / "c.toml", ("mcp_servers", "kept"), {"command": "k"})

    with pytest.raises(NotEditable):
        put_parts(text, [part])


def test_an_existing_command_is_chained_and_given_back(tmp_path):
    """The old command is appended to ours; a second connect, from another place, does not chain ours."""
    part = TomlCommand(tmp_path / "c.toml", "notify", ("/k", "hook", "codex-notify"))
    moved = TomlCommand(tmp_path / "c.toml", "notify", ("/moved/k", "--home", "/h", "hook", "codex-notify"))

    first = put_parts('notify = ["old", "x"]\n', [part])
    second = put_parts(first, [moved])

    assert tomllib.loads(first)["notify"] == ["/k", "hook", "codex-notify", "old", "x"]
    assert tomllib.loads(second)["notify"] == ["/moved/k", "--home", "/h", "hook", "codex-notify", "old", "x"]
    assert take_parts_out(second, [moved], "") == 'notify = ["old", "x"]\n'

"""The graph of the MCP memory server, read and written."""

import json

from hypothesis import given
from hypothesis import strategies as st

from wellkept.app import open_app
from wellkept.formats.mcp_memory import Graph, McpMemory, build_graph
from wellkept.formats.port import MemoryFile, Problem, Request
from wellkept.memory.page import Add, Target
from wellkept.operations.memory import edit_entry
from wellkept.operations.users import export_graph

SERVER_FILE = """\
{"type":"entity","name":"default_user","entityType":"person","observations":["Speaks German","Lives in Oslo"]}
{"type":"entity","name":"Marmot","entityType":"printer","observations":["Stands in the cellar"]}
{"type":"relation","from":"default_user","to":"Marmot","relationType":"owns"}"""
"""As version 2026 of the server wrote it: no line break at the end."""


def assets(path, tmp_path):
    return list(McpMemory().list_assets(path, Request({}, tmp_path)))


def entries(found):
    return {one.target: list(one.entries) for one in found if isinstance(one, MemoryFile)}


def test_a_file_of_the_server_becomes_entries(tmp_path):
    """What is known of the person goes to the page about the person."""
    path = tmp_path / "memory.jsonl"
    path.write_text(SERVER_FILE)

    assert entries(assets(path, tmp_path)) == {
        Target.USER: ["default_user (person): Speaks German", "default_user (person): Lives in Oslo"],
        Target.MEMORY: ["Marmot (printer): Stands in the cellar", "default_user → owns → Marmot"],
    }
    assert entries(assets(tmp_path, tmp_path)) == entries(assets(path, tmp_path))


def test_other_forms_are_read(tmp_path):
    """One pretty-printed object, records without a type, an entity many times, relations to nothing, headers."""
    path = tmp_path / "memory.json"
    whole = {
        "entities": [
            {"name": "A", "entityType": "x", "observations": ["one", "two"]},
            {"name": "A", "entityType": "y", "observations": ["two", "three", 4, ""]},
            {"name": "B"},
        ],
        "relations": [{"from": "A", "to": "nobody", "relationType": "knows"}],
    }
    path.write_text('{"type": "_aim", "source": "mcp-knowledge-graph"}\n' + json.dumps(whole, indent=2))

    assert entries(assets(path, tmp_path)) == {
        Target.MEMORY: ["A (x): one", "A (x): two", "A (x): three", "A → knows → nobody"]
    }


def test_what_is_no_record_is_named(tmp_path):
    """The others are read; a file that is none at all is a problem, and so is one that is missing."""
    path = tmp_path / "memory.jsonl"
    path.write_text(SERVER_FILE.replace('"relation"', '"future"') + '\n{"broken": \n')
    found = assets(path, tmp_path)

    assert [one.what for one in found if isinstance(one, Problem)] == [
        "neither an entity nor a relation",
        "the file is cut off here",
    ]
    assert len(entries(found)[Target.USER]) == 2
    assert isinstance(assets(tmp_path / "nothing", tmp_path)[0], Problem)


def test_pages_become_a_graph_and_come_back(home, tmp_path):
    """Entries about nothing in particular are observations of their page."""
    app = open_app(str(home), None)
    caller = app.caller()
    told = ["Marmot (printer): Stands in the cellar", "Sam → owns → Marmot", "Tests run with make test."]
    for text in told:
        edit_entry(caller, Add(text))
    edit_entry(caller, Add("Prefers tea."), Target.USER)
    records = list(export_graph(caller).lines)
    app.close()
    path = tmp_path / "memory.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records))

    assert {record["name"]: record["observations"] for record in records if record["type"] == "entity"} == {
        "Marmot": ["Stands in the cellar"],
        "Sam": [],
        "memory": ["Tests run with make test."],
        "user": ["Prefers tea."],
    }
    back = entries(assets(path, tmp_path))
    assert (set(back[Target.MEMORY]), back[Target.USER]) == (set(told), ["Prefers tea."])


plain = st.text(st.characters(categories=("L", "N", "P", "Zs")), min_size=1, max_size=20).map(str.strip).filter(bool)


@given(st.lists(plain, max_size=8))
def test_every_entry_survives_the_way_there_and_back(texts):
    """Whatever an entry looks like."""
    graph = Graph()
    for record in build_graph([("memory", texts)]).lines():
        assert graph.take(record)

    assert {entry for listed in graph.entries().values() for entry in listed} == set(texts)

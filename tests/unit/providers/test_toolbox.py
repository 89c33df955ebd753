"""Tools that providers declare, and what they answer."""

import json

import pytest

from wellkept.providers.content import MAX_ANSWER_CHARS, is_search, tool_answer, tool_schemas

GOOD = {"name": "x_search", "description": "d", "parameters": {"type": "object", "properties": {}}}


def test_both_common_forms_of_a_schema_are_understood():
    """A bare schema, and the one that chat endpoints use."""
    schemas = list(tool_schemas("p", [GOOD, {"type": "function", "function": {**GOOD, "name": "x_add"}}]))

    assert [schema.name for schema in schemas] == ["x_search", "x_add"]
    assert {schema.toolset for schema in schemas} == {"memory"}


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        7,
        "text",
        {"name": "x"},
        [None],
        [{"name": "no spaces allowed"}],
        [{"name": 7}],
        [{**GOOD, "parameters": [1]}],
        [{**GOOD, "parameters": {"x": object()}}],
    ],
)
def test_garbage_schemas_are_skipped(garbage, caplog):
    """Nothing unusable reaches a model, and the log says so."""
    assert list(tool_schemas("p", garbage)) == []
    assert "provider p" in caplog.text


def test_a_search_tool_is_known_by_its_name():
    """With several providers these give way to one neutral tool."""
    names = ["honcho_search", "hindsight_recall", "brv_query", "fact_store", "mem0_add"]
    found = [
        schema.name for schema in tool_schemas("p", [{**GOOD, "name": name} for name in names]) if is_search(schema)
    ]

    assert found == ["honcho_search", "hindsight_recall", "brv_query"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1, 2]", {"result": [1, 2]}),
        (None, {"success": False, "error": "p answered with NoneType, not with JSON text"}),
        ("{broken", {"success": False, "error": "p answered with text that is not JSON", "text": "{broken"}),
    ],
)
def test_an_answer_is_always_an_object(text, answer):
    """What is not JSON becomes an error that the model can read."""
    assert tool_answer("p", text) == answer


def test_a_huge_answer_is_refused():
    """The context is not filled by one tool."""
    answer = tool_answer("p", json.dumps("x" * MAX_ANSWER_CHARS))

    assert answer["success"] is False
    assert len(json.dumps(answer)) < 500


def test_deeply_nested_json_is_an_error_not_a_crash():
    """A parser's limit is the provider's fault."""
    assert tool_answer("p", "[" * 50_000)["success"] is False

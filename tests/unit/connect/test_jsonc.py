"""Edits of JSON texts: our part changes, nothing else does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.connect import jsonc

words = st.text('abc"\\/é\u2028 {}[],:#', max_size=6)
leaves = st.none() | st.booleans() | st.integers(-5, 5) | words
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))
objects = st.dictionaries(words, values, max_size=4)
indents = st.sampled_from([None, 0, 1, 2, 4, "\t"])


@given(objects, indents, st.lists(words, min_size=1, max_size=3), values)
def test_a_member_is_set_and_the_rest_stays(start, indent, keys, value):
    """The parsed result is the old object with the one value, however the text was laid out."""
    text = json.dumps(start, indent=indent)
    wanted = json.loads(text)
    inner = wanted
    for key in keys[:-1]:
        if not isinstance(inner.setdefault(key, {}), dict):
            with pytest.raises(jsonc.NotJson):
                jsonc.set_member(text, keys, value)
            return
        inner = inner[key]
    inner[keys[-1]] = value

    assert json.loads(jsonc.set_member(text, keys, value)) == wanted


@given(objects, indents, words, values)
def test_a_new_member_can_be_removed_again(start, indent, key, value):
    """Removing what was added gives the same values."""
    start.pop(key, None)
    text = json.dumps(start, indent=indent)

    edited = jsonc.remove_member(jsonc.set_member(text, ("k", key), value), ("k", key)) if "k" not in start else text

    assert {name: each for name, each in json.loads(edited).items() if name != "k"} == start


@given(st.lists(values, max_size=3), indents, values)
def test_an_item_is_appended_and_removed(items, indent, value):
    """An item is added at the end; removing it leaves the others."""
    text = json.dumps({"list": items}, indent=indent)

    added = jsonc.append_item(text, ("list",), value)
    removed = jsonc.remove_item(added, ("list",), value)

    assert json.loads(added) == {"list": [*items, value]}
    assert json.loads(removed) == {"list": [item for item in items if item != value]}


def test_comments_and_last_commas_stay_where_they_are():
    """A comment after the last member stays beside it, and one inside another object is not touched."""
    text = '// top\n{\n    "a": 1, /* one */\n    "b": {"c": [1, 2,],}, // last\n    // end\n}\n'

    edited = jsonc.set_member(text, ("mcp", "kept"), {"x": 1}, comments=True)

    assert edited == (
        '// top\n{\n    "a": 1, /* one */\n    "b": {"c": [1, 2,],}, // last\n    // end\n'
        '    "mcp": {\n        "kept": {\n            "x": 1\n        }\n    }\n}\n'
    )
    assert "// last" in jsonc.remove_member(edited, ("mcp",), comments=True)
    assert jsonc.parse(jsonc.remove_member(edited, ("b",), comments=True), comments=True).value == {
        "a": 1,
        "mcp": {"kept": {"x": 1}},
    }


def test_line_ends_and_tabs_are_those_of_the_file():
    """A file with CRLF and tabs keeps them in the new lines."""
    edited = jsonc.set_member('{\r\n\t"a": 1\r\n}\r\n', ("k",), {"x": 1})

    assert edited == '{\r\n\t"a": 1,\r\n\t"k": {\r\n\t\t"x": 1\r\n\t}\r\n}\r\n'


def test_a_comment_between_members_survives_the_removal_of_the_first():
    """A comment before the next member belongs to that member."""
    text = '{\n  "kept": 1,\n  // mine\n  "a": 2\n}'

    assert jsonc.remove_member(text, ("kept",), comments=True) == '{\n  // mine\n  "a": 2\n}'


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"a"}', '{"a": }', '{"a": 1,}', '{"a": 1} x', "{'a': 1}", '{"a": nan}', '{"a": "\n"}', "[" * 500],
)
def test_what_is_no_json_is_refused(text):
    """A broken text raises, with the line."""
    with pytest.raises(jsonc.NotJson, match="line"):
        jsonc.parse(text)


def test_deep_nesting_is_refused_instead_of_exhausting_the_stack():
    """No settings file has thousands of brackets."""
    with pytest.raises(jsonc.NotJson, match="nesting"):
        jsonc.parse('{"a":' * 5_000)


@given(st.text(max_size=40))
def test_any_text_is_parsed_as_the_standard_parser_does(text):
    """Without comments, what we accept is what JSON accepts."""
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    try:
        found = jsonc.parse(text).value
    except jsonc.NotJson:
        found = None

    assert found == (expected if isinstance(expected, dict) else None)

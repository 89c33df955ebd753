"""Any JSON of any type in any field of any route: never an internal error, always a problem that names the field."""

import copy
import json
import os
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import serve

IS_HEAVY = bool(os.environ.get("KEPT_HEAVY"))
VALUES = [None, True, -1, 2**63, 1e308, "", "\ud800\x00x", [], [[]], {}, {"type": []}]
TEXTS = ["", "-1", str(2**63), "1e400", "nan", "\x00", "%", "..", "\"'*:^("]
PROGRAM = os.environ.get("KEPT_SCHEMATHESIS") or shutil.which("schemathesis")
"""Read here, because a test has no variables of kept."""
QUIET = {"KEPT_SERVE__REQUESTS_PER_MINUTE": "1000000"}
CONVERSATION = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "hello"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    {"role": "user", "content": [{"type": "text", "text": "and now?"}]},
]
BODIES = {
    "/v1/chat/completions": {
        "model": "kept/incognito",
        "messages": CONVERSATION,
        "tools": [{"type": "function", "function": {"name": "weather", "description": "", "parameters": {}}}],
        "stream": False,
        "stream_options": {"include_usage": False},
        "max_completion_tokens": 9,
    },
    "/v1/responses": {
        "model": "kept/incognito",
        "instructions": "be brief",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"role": "user", "content": "and now?"},
        ],
        "tools": [{"type": "function", "name": "weather", "description": "", "parameters": {}}],
        "stream": False,
        "max_output_tokens": 9,
    },
    "/v1/messages": {
        "model": "kept/incognito",
        "system": [{"type": "text", "text": "be brief"}],
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "it is sunny"}]},
            {"role": "user", "content": [{"type": "text", "text": "and now?"}]},
        ],
        "tools": [{"name": "weather", "description": "", "input_schema": {}}],
        "stream": False,
        "max_tokens": 9,
    },
}


def choose(values, turn):
    """Return all values in the heavy form, else two of them; over many fields each has its turn."""
    return values if IS_HEAVY else [values[turn % len(values)], values[(turn + len(values) // 2) % len(values)]]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    """A server and a client of its owner that may ask as often as it likes."""
    with serve(tmp_path_factory.mktemp("fuzzed") / "home", QUIET) as served:
        token = served.token("owner", "read", "write", "admin")
        with served.client(token) as client:
            yield client


def ask(client, method, url, body=None, params=None):
    """Return the answer to a request; the body may hold half a surrogate pair."""
    content = json.dumps(body) if body is not None or method != "GET" else None
    return client.request(method, url, params=params, content=content, headers={"Content-Type": "application/json"})


def list_operations(document):
    """Yield method, path with its parameters filled in, parameters and body schema of every operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parameters = operation.get("parameters", [])
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            schema = resolve(document, content["schema"]) if content else None
            yield method.upper(), path, parameters, schema


def resolve(document, schema):
    """Follow a reference into the document."""
    name = schema.get("$ref", "").removeprefix("#/components/schemas/")
    return document["components"]["schemas"][name] if name else schema


def make_example(document, schema):
    """Return a small valid value of a schema."""
    schema = resolve(document, schema)
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return make_example(document, schema["anyOf"][0])
    if schema.get("type") == "object":
        names = schema.get("properties", {})
        return {name: make_example(document, names[name]) for name in schema.get("required", ())}
    return {"array": [], "boolean": False, "integer": 1, "number": 1}.get(schema.get("type"), "x")


def fill_path(document, path, parameters):
    """Return a path with an example for each of its parameters, and the required query."""
    query = {}
    for one in parameters:
        example = make_example(document, one["schema"])
        if one["in"] == "path":
            path = path.replace("{" + one["name"] + "}", str(example))
        elif one["in"] == "query" and one.get("required"):
            query[one["name"]] = example
    return path, query


def accepts(schema, document, kind):
    """Whether a schema takes values of a JSON type; one without a type takes all."""
    schema = resolve(document, schema)
    found = [resolve(document, one) for one in schema.get("anyOf", [schema])]
    return any(one.get("type", kind) == kind for one in found)


def check(answer, what):
    """Assert what holds for every answer."""
    assert answer.status_code < 500, (what, answer.text)
    if answer.status_code >= 400 and answer.request.url.path.startswith("/v1/") and "error" in answer.json():
        assert answer.json()["error"]["message"], what
    elif answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json", what
        assert answer.json()["detail"], what


def test_every_field_of_every_body(fuzzed):
    """A value of a wrong type is answered with 400 and the name of its field."""
    document = fuzzed.get("/api/openapi.json").json()
    tried = 0
    for method, path, parameters, schema in list_operations(document):
        if schema is None:
            continue
        url, query = fill_path(document, path, parameters)
        example = {**make_example(document, schema), **({"stream": False} if path == "/api/chat" else {})}
        for turn, (name, inner) in enumerate(schema["properties"].items(), tried):
            for value in choose(VALUES, turn):
                what = (method, path, name, value)
                answer = ask(fuzzed, method, url, {**example, name: value}, query)
                check(answer, what)
                kind = {dict: "object", list: "array"}.get(type(value))
                if kind and not accepts(inner, document, kind):
                    assert answer.status_code == 400, what
                    assert name in answer.json()["detail"], what
                tried += 1
        for value in choose(VALUES, tried):
            check(ask(fuzzed, method, url, value, query), (method, path, value))
    assert tried > 40  # the document describes the bodies


def test_every_parameter_of_every_route(fuzzed):
    """Text that is no number, numbers that are too large, control characters, and the name of nothing."""
    document = fuzzed.get("/api/openapi.json").json()
    for turn, (method, path, parameters, schema) in enumerate(list_operations(document)):
        if path in BODIES or path == "/mcp":
            continue
        body = None if schema is None else make_example(document, schema)
        url, query = fill_path(document, path, parameters)
        body = {**body, "stream": False} if path == "/api/chat" else body
        check(ask(fuzzed, method, url, body, query), (method, path))
        for one in parameters:
            for value in choose(TEXTS, turn):
                what = (method, path, one["name"], value)
                if one["in"] == "query":
                    answer = ask(fuzzed, method, url, body, {**query, one["name"]: value})
                elif one["in"] == "path":
                    quoted = "".join(f"%{byte:02x}" for byte in value.encode())
                    answer = ask(fuzzed, method, path.replace("{" + one["name"] + "}", quoted), body)
                else:
                    continue
                check(answer, what)


def list_places(value, place=()):
    """Yield the place of every value inside a JSON value."""
    yield place
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from list_places(inner, (*place, key))


def put(value, place, new):
    """Return a value with another one at a place."""
    if not place:
        return new
    changed = copy.copy(value)
    changed[place[0]] = put(value[place[0]], place[1:], new)
    return changed


@pytest.mark.parametrize("path", BODIES)
def test_every_value_of_the_compatible_apis(fuzzed, path):
    """Objects with the wrong inside, at any depth; the error is in the form of the API and names the field."""
    for turn, place in enumerate(list_places(BODIES[path])):
        for value in choose(VALUES, turn):
            answer = ask(fuzzed, "POST", path, put(BODIES[path], place, value))
            check(answer, (path, place, value))
            if answer.status_code == 400:
                named = answer.json()["error"]["message"].partition(":")[0]
                assert named.split(".")[0] in {*BODIES[path], "body"}, (place, value, named)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(
    max_examples=400 if IS_HEAVY else 30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_random_values_in_random_places(fuzzed, data):
    """The same with values nobody thought of."""
    path = data.draw(st.sampled_from(sorted(BODIES)))
    place = data.draw(st.sampled_from(list(list_places(BODIES[path]))))
    check(ask(fuzzed, "POST", path, put(BODIES[path], place, data.draw(JSON))), (path, place))


@pytest.mark.heavy
@pytest.mark.timeout(1_800)
def test_schemathesis_finds_no_internal_error(home):
    """Over the whole document. The program is named by KEPT_SCHEMATHESIS, or found on the path."""
    if PROGRAM is None:
        pytest.skip("schemathesis is not installed: pip install schemathesis, in an environment of its own")
    with serve(home, QUIET) as served:
        token = served.token("owner", "read", "write", "admin")
        command = [
            PROGRAM, "run", f"{served.url}/api/openapi.json", "-H", f"Authorization: Bearer {token}",
            "--checks", "not_a_server_error", "--phases", "examples,coverage,fuzzing", "--max-examples", "20",
            "--request-timeout", "60", "--suppress-health-check", "all", "--seed", "1",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

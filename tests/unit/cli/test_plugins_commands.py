"""`kept plugins`: every kind of plugin in one list, without an import."""

import json

import pytest

PROVIDER = """
import sys
print("IMPORTED", file=sys.stderr)
from wellkept.providers.base import MemoryProvider
class Mine(MemoryProvider):
    name = "own-name"
    def is_available(self): return True
    def initialize(self, session_id, **context): pass
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
    def prefetch(self, query, *, session_id=""): return ""
"""
ENGINE = "from wellkept.context.summarising import Compressor\nclass Mine(Compressor):\n    name = 'brief'\n"
MANIFEST = "name: own-name\nversion: 1.2\ndescription: A notebook\npip_dependencies: [surely-not-installed]\n"


@pytest.fixture
def plugins(home):
    """Good and bad plugins of both kinds."""
    files = {
        "notes/__init__.py": PROVIDER,
        "notes/plugin.yaml": MANIFEST,
        "broken/__init__.py": "# MemoryProvider\nclass (:",
        "newer/__init__.py": PROVIDER.replace("own-name", "newer"),
        "newer/plugin.yaml": "port: 7\n",
        "no-init/provider.py": "x = 1",
        "mem0/__init__.py": PROVIDER,
        "context_engine/brief/__init__.py": ENGINE,
        "context_engine/empty/x.py": "",
    }
    for path, text in files.items():
        target = home / "plugins" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return home / "plugins"


def test_every_plugin_is_listed_with_its_state(run, plugins):
    """A line each for what is broken, and nothing is imported."""
    run("config", "set", "memory.provider", "own-name")
    done = run("plugins", "list", "--json")
    listed = {(each["kind"], each["name"], each["origin"]): each for each in json.loads(done.out)}
    states = {key: (each["state"], each["note"]) for key, each in listed.items()}

    assert states["provider", "notes", "folder"] == ("in use", "")
    assert states["provider", "holographic", "bundled"] == ("available", "")
    assert states["provider", "mem0", "folder"][0] == "hidden"
    assert states["provider", "no-init", "folder"] == ("broken", "it has no __init__.py")
    assert "line 2" in states["provider", "broken", "folder"][1]
    assert "version 7" in states["provider", "newer", "folder"][1]
    assert states["context engine", "brief", "folder"] == ("available", "")
    assert states["context engine", "compressor", "bundled"] == ("in use", "")
    assert states["context engine", "empty", "folder"] == ("broken", "it has no __init__.py")
    assert "IMPORTED" not in done.err + done.out
    assert "notes" in run("plugins", "list").out


def test_a_plugin_is_shown_with_what_it_may_do(run, plugins):
    """By its folder or by its own name."""
    shown = json.loads(run("plugins", "show", "own-name", "--json").out)

    assert (shown["name"], shown["own_name"], shown["version"]) == ("notes", "own-name", "1.2")
    assert shown["path"] == str(plugins / "notes")
    assert shown["may"] == ["adds recalled text to requests", "offers tools to the agent"]
    assert shown["missing_packages"] == ["surely-not-installed"]
    assert "separate process" in shown["runs"]
    assert "inside kept" in run("plugins", "show", "holographic").out
    assert "A notebook" in run("plugins", "show", "notes").out


def test_a_plugin_of_one_large_module_is_read_whole(run, plugins):
    """It is not called broken because a scan stops in the middle of a line, and what it may do is listed."""
    module = plugins / "notes" / "__init__.py"
    module.write_text(f"# MemoryProvider\nTEXT = [\n{'    1,' * 40_000}\n]\n{PROVIDER}")
    shown = json.loads(run("plugins", "show", "notes", "--json").out)

    assert (shown["state"], shown["note"]) == ("available", "")
    assert shown["may"] == ["adds recalled text to requests", "offers tools to the agent"]


def test_a_disabled_plugin_is_not_used_until_it_is_enabled(run, plugins):
    """Provider and engine; a second time changes nothing."""
    run("config", "set", "memory.provider", "notes")
    done = json.loads(run("plugins", "disable", "own-name", "--json").out)
    again = json.loads(run("plugins", "disable", "notes", "--json").out)
    used = run("run", "hello")
    run("plugins", "disable", "brief")
    states = {each["name"]: each["state"] for each in json.loads(run("plugins", "list", "--json").out)}

    assert (done, again["changed"]) == ({"name": "notes", "enabled": False, "changed": True}, False)
    assert "disabled" in used.err
    assert "kept plugins enable notes" in used.err
    assert (states["notes"], states["brief"]) == ("disabled", "disabled")
    assert run("plugins", "enable", "notes").out == "notes is enabled\n"
    assert run("plugins", "enable", "notes").out == "notes was already enabled\n"
    assert "disabled" not in run("run", "hello").err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("show", "nots"), 2, "did you mean 'notes'?"),
        (("disable", "nothing-like-it"), 2, "kept plugins list"),
        (("enable", "nothing-like-it"), 2, "kept plugins list"),
        (("disable", "compressor"), 1, "kept context use"),
    ],
)
def test_bad_names_are_explained(run, plugins, arguments, code, said):
    """With the next step, also in JSON."""
    plain = run("plugins", *arguments)
    as_json = run("plugins", *arguments, "--json")

    assert plain.code == as_json.code == code
    assert said in plain.err
    assert said in json.loads(as_json.out)["next"]

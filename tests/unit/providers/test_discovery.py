"""Discovery of providers."""

import sys

import pytest

from wellkept.core.errors import ConfigError, NotFound, ProviderError
from wellkept.providers.base import MemoryProvider, StartContext
from wellkept.providers.hooks import call_hook, close_provider
from wellkept.providers.loading import PluginPolicy, load
from wellkept.providers.manager import chosen_names
from wellkept.providers.plugins import discover, manifest_of
from wellkept.testing.provider_contract import eventually

REGISTERING = """
from agent.memory_provider import MemoryProvider

class Mine(MemoryProvider):
    name = "NAME"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): self.home = kwargs["hermes_home"]
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **kwargs): return "{}"
    def on_memory_write(self, action, target, content): pass

def register(ctx):
    ctx.register_hook("whatever", print)
    ctx.register_memory_provider(Mine())
"""
DEFINING = REGISTERING.partition("def register(ctx)")[0]


def plugin(plugins, name, source, about=None):
    folder = plugins / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(source.replace("NAME", name))
    if about is not None:
        (folder / "plugin.yaml").write_text(about)


@pytest.mark.parametrize("source", [REGISTERING, DEFINING], ids=["register", "subclass"])
def test_a_plugin_of_another_agent_loads_unchanged(tmp_path, source):
    """Through `register(ctx)` or its first subclass; the foreign module exists only while it loads."""
    plugin(tmp_path, "mine", source)

    provider = load("mine", tmp_path)

    assert provider.name == "mine"
    assert isinstance(provider, MemoryProvider)
    # a call of another test that hangs in this process delays it
    eventually(lambda: not {"agent", "agent.memory_provider"} & set(sys.modules))


def test_nothing_is_imported_that_was_not_chosen(tmp_path):
    """Plugins are recognised by their text; one that would do harm on import stays asleep."""
    plugin(tmp_path, "trap", f"raise SystemExit('imported')\n{DEFINING}", "description: do not wake\n")
    plugin(tmp_path, "other", "print('no memory here')")
    plugin(tmp_path, "mine", REGISTERING)

    found = discover(tmp_path)
    load("mine", tmp_path)

    assert [name for name, each in found.items() if each.kind == "folder"] == ["mine", "trap"]
    assert manifest_of(found["trap"]).description == "do not wake"


def test_every_bundled_provider_says_what_it_is(tmp_path):
    """Its manifest lies in its folder, as a plugin's does."""
    bundled = [each for each in discover(tmp_path).values() if each.kind == "bundled"]

    assert bundled
    assert all(manifest_of(each).description for each in bundled)


def test_a_bundled_provider_wins_over_a_folder(tmp_path, caplog):
    """A plugin cannot take a bundled name."""
    plugin(tmp_path, "holographic", "raise SystemExit\n" + DEFINING)

    assert discover(tmp_path)["holographic"].kind == "bundled"
    assert type(load("holographic", tmp_path)).__name__ == "HolographicProvider"
    assert "hidden" in caplog.text


def test_the_reserved_name_is_passed_over(tmp_path):
    """`builtin` is built-in memory."""
    plugin(tmp_path, "builtin", REGISTERING)

    assert "builtin" not in discover(tmp_path)


def test_an_entry_point_is_found(tmp_path, monkeypatch):
    """An installed package brings a provider under its entry point's name."""
    site = tmp_path / "site"
    (site / "thirdparty-1.0.dist-info").mkdir(parents=True)
    (site / "thirdparty-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: thirdparty\nVersion: 1.0\n"
    )
    (site / "thirdparty-1.0.dist-info" / "entry_points.txt").write_text(
        "[wellkept.memory_providers]\npointed = thirdparty_memory:Mine\n"
    )
    (site / "thirdparty_memory.py").write_text(DEFINING.replace("NAME", "pointed"))
    monkeypatch.syspath_prepend(str(site))

    assert discover(tmp_path / "none")["pointed"].kind == "entry point"
    assert load("pointed", tmp_path / "none").name == "pointed"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("# MemoryProvider\nraise RuntimeError('broken')", ProviderError),
        ("# MemoryProvider\nthis is not python", ProviderError),
        ("# MemoryProvider\n", ProviderError),
        ("# register_memory_provider\ndef register(ctx): pass", ProviderError),
        ("# register_memory_provider\ndef register(ctx): ctx.register_memory_provider(7)", ProviderError),
    ],
)
def test_a_broken_plugin_is_one_clear_error(tmp_path, source, error):
    """It names the plugin and what to do; nothing else breaks."""
    plugin(tmp_path, "mine", source)

    with pytest.raises(error, match="mine") as caught:
        load("mine", tmp_path)
    assert caught.value.remedy


def test_an_unknown_provider_names_the_known_ones(tmp_path):
    """The next step is in the error."""
    with pytest.raises(NotFound) as caught:
        load("nope", tmp_path)
    assert "holographic" in caught.value.remedy


HELPED = """
from . import helper
from .inner import deep
from agent.memory_provider import MemoryProvider
class Mine(MemoryProvider):
    @property
    def name(self) -> str:
        return "called-otherwise"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): self.given = kwargs
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **kwargs):
        from .inner.deep import word
        from tools.registry import tool_error
        from plugins.memory.called_otherwise_not import nothing
    def prefetch(self, query, **kwargs):
        from .inner.deep import word
        from hermes_constants import get_hermes_home
        from agent.message_content import flatten_message_text
        import importlib
        importlib.import_module("plugins.memory.called-otherwise.helper")
        return f"{word} {helper.WORD} {get_hermes_home()} {flatten_message_text([{'type': 'text', 'text': 'x'}])}"
"""


@pytest.fixture(params=["on", "off"])
def opened(request, tmp_path):
    """Loads a plugin in its own process, and in this one."""
    providers = []

    def load_it(name):
        policy = PluginPolicy(isolate=request.param, start_seconds=20)
        providers.append(load(name, tmp_path / "plugins", {}, policy))
        return providers[-1]

    yield load_it
    for each in providers:
        close_provider(each)


def write(folder, files):
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def test_a_plugin_may_have_submodules_and_another_name(tmp_path, opened):
    """Relative imports and Hermes' names work when it loads and when it runs; it is found by both names."""
    write(
        tmp_path / "plugins" / "some-folder",
        {
            "__init__.py": HELPED,
            "helper.py": "WORD = 'help'",
            "inner/__init__.py": "from .. import helper",
            "inner/deep.py": "word = 'deep'",
        },
    )
    provider = opened("called-otherwise")
    recalled = call_hook(provider, "prefetch", ("q",), {"session_id": "s"})

    assert recalled == f"deep help {tmp_path} x"
    assert discover(tmp_path / "plugins")["some-folder"].alias == "called-otherwise"
    assert chosen_names("called-otherwise", tmp_path / "plugins") == ["some-folder"]
    eventually(lambda: not {"agent", "tools", "plugins", "hermes_constants"} & set(sys.modules))


def test_a_plugin_of_hermes_gets_the_context_that_hermes_passes(tmp_path, opened):
    """At a terminal: no user, the workspace `hermes`, nothing that is empty; another user is named."""
    source = HELPED.replace("from . import helper\n", "").replace("from .inner import deep\n", "")
    told = "return ' '.join(f'{k}={v}' for k, v in sorted(self.given.items()) if 'home' not in k)"
    write(
        tmp_path / "plugins" / "moved",
        {
            "__init__.py": source.replace(
                "        from .inner.deep import word\n        from hermes", f"        {told}\n        from hermes"
            )
        },
    )
    provider = opened("moved")

    def start_for(user):
        context = StartContext(kept_home=str(tmp_path), user_id=user, agent_workspace="/work/project")
        call_hook(provider, "initialize", ("s",), context.keywords())
        return call_hook(provider, "prefetch", ("q",), {})

    common = "agent_context=primary agent_identity=default agent_workspace=hermes platform=cli"
    assert start_for("owner") == common
    assert start_for("anna") == f"{common} user_id=anna"


def test_an_installed_package_of_the_same_name_is_never_hidden(tmp_path, monkeypatch):
    """Its modules are used, and only what it lacks is answered by us."""
    eventually(lambda: "agent" not in sys.modules)
    site = tmp_path / "site"
    write(
        site,
        {"agent/__init__.py": "REAL = True", "agent/message_content.py": "def flatten_message_text(c): return 'real'"},
    )
    monkeypatch.syspath_prepend(str(site))
    source = HELPED.replace("from . import helper\n", "").replace("from .inner import deep\n", "")
    body = "        import agent\n        from agent.message_content import flatten_message_text as f\n        return f'{agent.REAL} {f([])}'"
    start = source.index("        from .inner.deep import word\n        from hermes")
    write(tmp_path / "plugins" / "mixed", {"__init__.py": source[:start] + body})

    provider = load("mixed", tmp_path / "plugins")

    assert call_hook(provider, "prefetch", ("q",), {}) == "True real"
    for name in [each for each in sys.modules if each == "agent" or each.startswith("agent.")]:
        monkeypatch.delitem(sys.modules, name)


BAD = {
    "a syntax error": ({"__init__.py": "# MemoryProvider\nclass (:"}, "SyntaxError"),
    "a newer port": ({"__init__.py": REGISTERING.replace("NAME", "bad"), "plugin.yaml": "port: 2\n"}, "version 2"),
    "no provider": ({"__init__.py": "# MemoryProvider\nx = 1"}, "neither register"),
    "a taken name in register": ({"__init__.py": REGISTERING.replace('"NAME"', '"a/b"')}, "slash"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_plugin_is_one_line_and_the_rest_works(tmp_path, opened, case):
    """Also in its own process."""
    files, said = BAD[case]
    write(tmp_path / "plugins" / "bad", files)
    write(tmp_path / "plugins" / "good", {"__init__.py": REGISTERING.replace("NAME", "good")})
    write(tmp_path / "plugins" / "no-init", {"provider.py": "MemoryProvider"})

    with pytest.raises(ProviderError, match=said) as caught:
        opened("bad")

    assert "\n" not in caught.value.message
    assert opened("good").name == "good"
    assert "no-init" not in discover(tmp_path / "plugins")


def test_of_two_classes_the_first_is_used_and_the_author_told(tmp_path, caplog):
    """A base class that was only imported does not count."""
    two = DEFINING.replace("NAME", "two") + DEFINING.replace("class Mine", "class Other").replace("NAME", "three")
    write(
        tmp_path / "plugins" / "two",
        {"__init__.py": f"from wellkept.providers.holographic import HolographicProvider\n{two}"},
    )

    assert load("two", tmp_path / "plugins").name == "two"
    assert "Mine is used and Other is not" in caplog.text


def test_a_disabled_plugin_is_not_loaded(tmp_path):
    """The remedy is the command that enables it."""
    write(tmp_path / "plugins" / "good", {"__init__.py": REGISTERING.replace("NAME", "good")})

    with pytest.raises(ConfigError, match="disabled") as caught:
        load("good", tmp_path / "plugins", {}, PluginPolicy(disabled=frozenset({"good"})))
    assert "kept plugins enable good" in caught.value.remedy

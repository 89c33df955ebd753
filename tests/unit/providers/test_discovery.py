"""Discovery of providers."""

import sys

import pytest

from kept.core.errors import NotFound, ProviderError
from kept.providers.base import MemoryProvider
from kept.providers.loading import load
from kept.providers.plugins import discover, manifest_of

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
    assert "agent" not in sys.modules
    assert "agent.memory_provider" not in sys.modules


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
        "[kept.memory_providers]\npointed = thirdparty_memory:Mine\n"
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

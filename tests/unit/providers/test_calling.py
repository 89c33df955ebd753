"""How hooks are called."""

import gc
import sys
from types import ModuleType

from wellkept.providers.base import MemoryProvider
from wellkept.providers.hooks import accepted_keywords, call_hook, overrides


class Old:
    """Written before there was metadata, and without the base class."""

    def on_memory_write(self, action, target, content):
        return ("old", action, target, content)


class Positional:
    def on_memory_write(self, action, target, content, extra):
        return ("positional", extra)


class New:
    def on_memory_write(self, action, target, content, metadata=None):
        return ("new", metadata)

    def initialize(self, session_id, **context):
        return (session_id, context)

    def prefetch(self, query):
        return query


WRITE = ("add", "memory", "text")


def test_a_hook_gets_only_the_keywords_it_names():
    """Extra keywords are left out instead of raising."""
    assert accepted_keywords(lambda a, *, b=0: None, {"b": 1, "c": 2}) == {"b": 1}
    assert accepted_keywords(lambda **all_of_them: None, {"b": 1, "c": 2}) == {"b": 1, "c": 2}
    assert call_hook(New(), "prefetch", ("q",), {"session_id": "s"}) == "q"


def test_a_keyword_that_an_argument_fills_already_is_left_out():
    """`initialize(session_id, **context)` is not given the session id twice."""
    assert call_hook(New(), "initialize", ("s",), {"session_id": "s", "platform": "cli"}) == ("s", {"platform": "cli"})


def test_a_three_argument_memory_write_hook_works():
    """Plugins that know no metadata are still told of writes."""
    assert call_hook(Old(), "on_memory_write", WRITE, {"metadata": {"ledger_id": 1}}) == ("old", *WRITE)


def test_metadata_reaches_hooks_that_take_it():
    """By name, or as the fourth argument under another name."""
    assert call_hook(New(), "on_memory_write", WRITE, {"metadata": {"ledger_id": 1}}) == ("new", {"ledger_id": 1})
    assert call_hook(Positional(), "on_memory_write", WRITE, {"metadata": {"ledger_id": 1}}) == (
        "positional",
        {"ledger_id": 1},
    )


def test_a_hook_of_the_base_class_does_not_count_as_offered():
    """Only a provider's own hook is worth a thread and an audit row."""

    class Minimal(MemoryProvider):
        def prefetch(self, query, *, session_id=""):
            return ""

    assert overrides(Minimal(), "prefetch")
    assert not overrides(Minimal(), "sync_turn")


def test_a_hook_may_end_while_another_thread_imports():
    """The garbage collector simulates the other thread: it adds a module wherever all modules could be listed."""
    added = []

    def add_module(phase, _info):
        if phase == "start":
            added.append(f"imported_meanwhile_{len(added)}")
            sys.modules[added[-1]] = ModuleType(added[-1])

    threshold = gc.get_threshold()
    gc.callbacks.append(add_module)
    gc.set_threshold(1)
    try:
        answers = [call_hook(New(), "prefetch", ("q",), {}) for _ in range(20)]
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(add_module)
        for name in added:
            del sys.modules[name]

    assert answers == ["q"] * 20
    assert added

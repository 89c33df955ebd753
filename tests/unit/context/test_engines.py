"""Lookup: engines by name, ours first, foreign ones behind a guard, none unasked."""

import json
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from wellkept.context.engine import Compaction
from wellkept.context.lossless import Lossless
from wellkept.context.plugins import GuardedEngine, choose_engine, list_engines
from wellkept.context.summarising import Compressor
from wellkept.core.ids import SessionId
from wellkept.core.messages import Usage
from wellkept.core.tools import ToolContext
from wellkept.testing.context_contract import ContextEngineContract, check_outcome, conversation, prepare_engine

SUBCLASS = """
from wellkept.context.summarising import Compressor
class Mine(Compressor):
    name = "mine"
"""
REGISTERED = """
from wellkept.context.lossless import Lossless
def register(ctx):
    ctx.register_context_engine(Lossless())
"""
LYING = """
from msgspec.structs import replace
from wellkept.context.summarising import Compressor
class Lying(Compressor):
    name = "lying"
    def compress(self, rows, **more):
        done = super().compress(rows, **more)
        return replace(done, messages=done.messages[:-2], covered=done.covered[1:])
"""
CRASHING = """
from wellkept.context.engine import ContextEngine
class Crashing(ContextEngine):
    name = "crashing"
    def should_compress(self, prompt_tokens): raise RuntimeError
    def has_content_to_compress(self, rows): raise RuntimeError
    def compress(self, rows, **more): raise RuntimeError
    def prepare(self, setup): raise RuntimeError
    def update_from_response(self, usage): raise RuntimeError
    def update_model(self, window, model=None): raise RuntimeError
    def on_session_start(self, session_id, *, state=None): raise RuntimeError
    def on_session_end(self, session_id, rows): raise RuntimeError
    def on_session_reset(self): raise RuntimeError
    def get_tool_schemas(self): raise RuntimeError
    def handle_tool_call(self, name, arguments, context): raise RuntimeError
    def get_status(self): raise RuntimeError
    def state(self): raise RuntimeError
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    bodies = {"mine": SUBCLASS, "registered": REGISTERED, "lying": LYING, "crashing": CRASHING}
    bodies |= {"broken": "raise RuntimeError('no')", "empty": "", "compressor": SUBCLASS, "lossless": SUBCLASS}
    for name, body in bodies.items():
        folder = tmp_path / "plugins" / "context_engine" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(body)
    (tmp_path / "plugins" / "context_engine" / "not_a_package").mkdir()
    return tmp_path


def test_our_names_always_mean_ours(home: Path) -> None:
    """A plugin cannot take the place of a built-in engine."""
    assert type(choose_engine("compressor", home=home).engine) is Compressor
    assert type(choose_engine("lossless", home=home).engine) is Lossless


@pytest.mark.parametrize("name", ["mine", "registered"])
def test_a_plugin_works_when_it_is_named(home: Path, name: str) -> None:
    """By its one subclass, or by what it registers."""
    found = choose_engine(name, home=home)
    rows = conversation(60)
    engine = prepare_engine(found.engine, rows)

    outcome = engine.compress(rows, force=True)

    assert found.warning == ""
    assert isinstance(outcome, Compaction)
    assert engine.get_status()["engine"] == name


def test_a_plugin_is_not_imported_unless_named(home: Path) -> None:
    """Installing one does nothing."""
    before = set(sys.modules)

    listed = list_engines(home)
    choose_engine("compressor", home=home)

    assert set(sys.modules) - before <= {"importlib.metadata"} | {
        name for name in sys.modules if not name.startswith("kept_context_engine")
    }
    assert [one.name for one in listed][:2] == ["compressor", "lossless"]
    assert {one.name for one in listed} >= {"mine", "registered", "broken"}
    assert "not_a_package" not in {one.name for one in listed}


@pytest.mark.parametrize(
    ("name", "says"),
    [("nope", "there is no"), ("broken", "RuntimeError: no"), ("empty", "contains 0"), ("../x", "there is no")],
)
def test_an_unknown_or_failing_engine_falls_back_loudly(home: Path, name: str, says: str) -> None:
    """The compressor is used, and the warning lists what exists."""
    found = choose_engine(name, home=home)

    assert type(found.engine) is Compressor
    assert says in found.warning
    assert "lossless" in found.warning
    assert "mine" in found.warning


def test_an_unsound_result_is_replaced(home: Path) -> None:
    """A plugin that loses messages does not lose them for us."""
    rows = conversation(60)
    engine = prepare_engine(choose_engine("lying", home=home).engine, rows)

    outcome = engine.compress(rows, force=True)

    assert isinstance(engine, GuardedEngine)
    assert engine.failures == 1
    assert isinstance(outcome, Compaction)
    check_outcome(prepare_engine(Compressor(), rows), rows, outcome)


def test_an_engine_that_crashes_in_every_call_does_no_harm(home: Path) -> None:
    """The conversation continues with the compressor."""
    rows = conversation(60)
    engine = prepare_engine(choose_engine("crashing", home=home).engine, rows)
    engine.update_from_response(Usage(input_tokens=10))
    engine.update_model(replace(engine.setup.window, context_length=20_000))
    engine.on_session_end(SessionId("contract"), rows)
    engine.on_session_reset()

    assert engine.should_compress(19_000)
    assert engine.has_content_to_compress(rows)
    assert isinstance(engine.compress(rows, force=True), Compaction)
    assert engine.tools() == []
    assert engine.handle_tool_call("x", {}, ToolContext())["success"] is False
    assert engine.get_status()["failures"] > 5
    assert engine.state() is not None


JUNK = """
from wellkept.context.engine import Unchanged
from wellkept.context.summarising import Compressor
class Junk(Compressor):
    name = "junk"
    def get_tool_schemas(self): return ANSWERS["get_tool_schemas"]
    def handle_tool_call(self, name, arguments, context): return ANSWERS["handle_tool_call"]
    def get_status(self): return ANSWERS["get_status"]
    def state(self): return ANSWERS["state"]
    def compress(self, rows, **how): return ANSWERS["compress"]
ANSWERS = dict(
    get_tool_schemas=[None, 7, {"name": "grep", "parameters": {"type": "object"}}, {"name": "a b"}, {"name": None}],
    handle_tool_call='{"found": 1}', get_status={"x": object()}, state={1, 2}, compress=Unchanged((), "because", note=7),
)
"""


def test_an_engine_that_answers_junk_does_no_harm(tmp_path: Path) -> None:
    """Usable schemas are offered, whatever their form; anything else is replaced, and JSON stays JSON."""
    folder = tmp_path / "plugins" / "context_engine" / "junk"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(JUNK)
    rows = conversation(60)

    engine = prepare_engine(choose_engine("junk", home=tmp_path).engine, rows)

    assert [tool.schema.name for tool in engine.tools()] == ["grep"]
    assert engine.tools()[0].call({}, ToolContext()) == {"found": 1}
    assert isinstance(engine.compress(rows, force=True), Compaction)
    assert json.loads(json.dumps([engine.get_status(), engine.state()]))[0]["failures"] >= 2


SLOW = """
import time
from wellkept.context.summarising import Compressor
class Slow(Compressor):
    name = "slow"
    def get_tool_schemas(self): time.sleep(20)
"""


def test_an_engine_that_hangs_is_asked_once(tmp_path: Path, monkeypatch) -> None:
    """A chat waits for it once; while that call hangs, the compressor does the work."""
    monkeypatch.setattr("wellkept.context.plugins.LOAD_SECONDS", 0.5)
    folder = tmp_path / "plugins" / "context_engine" / "slow"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(SLOW)
    engine = prepare_engine(choose_engine("slow", home=tmp_path).engine, conversation(4))

    began = time.monotonic()

    assert engine.tools() == engine.tools() == []
    assert engine.should_compress(10**9)
    assert time.monotonic() - began < 3


NOSY = """
from wellkept.context.summarising import Compressor
seen = []
class Nosy(Compressor):
    name = "nosy"
    def compress(self, rows, **how):
        seen.extend([*rows, how])
        return super().compress(rows, **how)
    def on_session_end(self, session_id, rows): seen.extend(rows)
    def handle_tool_call(self, name, arguments, context):
        seen.append((arguments, context))
        return {}
"""


def test_an_engine_of_a_plugin_gets_no_credentials(tmp_path: Path) -> None:
    """Neither with the messages, nor with what is said about them, nor with the arguments and the context of its tools."""
    folder = tmp_path / "plugins" / "context_engine" / "nosy"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(NOSY)
    key = "sk-proj-" + "A1b2C3d4" * 10
    rows = [replace(row, message=replace(row.message, content=f"{row.message.text} {key}")) for row in conversation(60)]
    engine = prepare_engine(choose_engine("nosy", home=tmp_path).engine, rows)

    def find_taint(_text: str, *, said: str) -> None:
        assert said

    engine.compress(rows, force=True, focus_topic=key, memory_context=f"from a provider: {key}")
    engine.on_session_end(SessionId("contract"), rows)
    engine.handle_tool_call("grep", {"q": key}, ToolContext(said=key, find_taint=partial(find_taint, said=key)))

    seen = next(module.seen for name, module in sys.modules.items() if "nosy" in name and hasattr(module, "seen"))
    assert len(seen) == 2 * len(rows) + 2
    assert key not in repr(seen)


ODD = """
import json
import sys
import time
from . import parts
from wellkept.context.summarising import Compressor
class Odd(Compressor):
    name = "odd-engine"
    def should_compress(self, prompt_tokens):
        from .parts import later
        print("LOUD", later)
        sys.exit(3)
"""


def test_an_engine_may_have_submodules_another_name_and_bad_manners(tmp_path: Path, capsys) -> None:
    """Relative imports work when it loads and when it runs; what it prints and SystemExit stay with it."""
    folder = tmp_path / "plugins" / "context_engine" / "some-folder"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(ODD)
    (folder / "parts.py").write_text("later = 1\nprint('LOUD')")

    chosen = choose_engine("odd-engine", home=tmp_path)
    engine = prepare_engine(chosen.engine, conversation(4))

    assert chosen.warning == ""
    assert engine.should_compress(10**9)
    assert engine.get_status()["failures"] > 0
    assert capsys.readouterr().out == ""
    assert "disabled" in choose_engine("some-folder", home=tmp_path, disabled=["some-folder"]).warning


@pytest.mark.parametrize(
    "source", ["raise SystemExit(3)", "raise BaseException('odd')", "import time\ntime.sleep(1.5)"]
)
def test_an_engine_that_does_not_load_is_one_warning(tmp_path: Path, monkeypatch, source: str) -> None:
    """Whatever its import does, the compressor is used."""
    monkeypatch.setattr("wellkept.context.plugins.LOAD_SECONDS", 0.5)
    folder = tmp_path / "plugins" / "context_engine" / "bad"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(source)

    found = choose_engine("bad", home=tmp_path)

    assert type(found.engine) is Compressor
    assert "'bad'" in found.warning


def test_an_engine_for_a_newer_port_is_one_warning(tmp_path: Path) -> None:
    """It names the version."""
    folder = tmp_path / "plugins" / "context_engine" / "new"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(SUBCLASS)
    (folder / "plugin.yaml").write_text("name: new\nport: 9\n")

    assert "version 9" in choose_engine("new", home=tmp_path).warning


class TestGuarded(ContextEngineContract):
    """A plugin behind the guard keeps the contract."""

    def engine(self) -> GuardedEngine:
        engine = GuardedEngine(Compressor(), "guarded")
        engine.name = "guarded"  # type: ignore[misc]
        return engine

"""The engine of the guide works as it is printed."""

import re
from pathlib import Path

import pytest

from wellkept.context.engine import Compaction, ContextEngine
from wellkept.context.plugins import GuardedEngine, choose_engine
from wellkept.testing.context_contract import ContextEngineContract, conversation, prepare_engine

GUIDE = Path(__file__).parents[3] / "docs" / "writing-a-context-engine.md"
EXAMPLE = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)[0]


class TestBrief(ContextEngineContract):
    def engine(self) -> ContextEngine:
        made: dict = {}
        exec(EXAMPLE, made)
        return made["Brief"]()


def test_the_example_runs_as_a_plugin(tmp_path: Path) -> None:
    """Dropped into the folder of the guide and named, it compacts."""
    folder = tmp_path / "plugins" / "context_engine" / "brief"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(EXAMPLE)
    rows = conversation(60)

    engine = prepare_engine(choose_engine("brief", home=tmp_path).engine, rows)
    outcome = engine.compress(rows, force=True)

    assert isinstance(engine, GuardedEngine)
    assert engine.failures == 0
    assert isinstance(outcome, Compaction)
    assert "question 5" in outcome.summary.text


@pytest.mark.parametrize("hook", [name for name in vars(ContextEngine) if not name.startswith("_")])
def test_every_hook_is_in_the_guide(hook: str) -> None:
    """What an engine may override is documented."""
    unlisted = {"name", "description", "setup", "backoff", "session_id", "last_prompt_tokens", "tools", "overflow"}

    assert hook in unlisted or hook in GUIDE.read_text("utf-8")

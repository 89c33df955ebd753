"""`kept providers` and provider tools, as a person runs them."""

import json
import os
from unittest.mock import patch

import pytest

from wellkept.testing.provider_contract import Bench

BROKEN = """
from agent.memory_provider import MemoryProvider
class Broken(MemoryProvider):
    name = "broken"
    def is_available(self): return True
    def initialize(self, session_id, **context): raise ConnectionError("the server is down")
    def get_tool_schemas(self): return [{"name": "broken_search", "description": "d", "parameters": {"type": "object"}}]
    def handle_tool_call(self, name, args, **context): return "{}"
    def sync_turn(self, user, assistant, *, session_id=""): pass
    def get_config_schema(self): return [{"key": "api_key", "description": "Key", "secret": True, "env_var": "BROKEN_KEY", "required": True}]
"""


@pytest.fixture(autouse=True)
def _own_environment():
    """Variables that setup puts into the process are gone after the test."""
    with patch.dict(os.environ):
        yield


@pytest.fixture
def broken(home):
    folder = home / "plugins" / "broken"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(BROKEN)


def test_setup_configures_tries_and_switches_on(run, home):
    """Answers go to the provider's file, and its tools work from then on."""
    done = run("providers", "setup", "holographic", "--set", "hrr_weight=0.5")

    assert done.code == 0, done.err
    assert json.loads((home / "holographic.json").read_text())["hrr_weight"] == 0.5
    assert json.loads(run("providers", "status", "--json").out)["provider"] == ["holographic"]
    assert (
        json.loads(run("tool", "fact_store", '{"action": "add", "content": "Deploys run on Tuesday"}').out)["success"]
        is True
    )


def test_writes_to_the_pages_are_mirrored_and_removed_there(run):
    """A write by any command reaches the provider the next time it runs."""
    run("providers", "setup", "holographic")
    run("memory", "add", "Anna prefers oolong tea")
    mirrored = json.loads(run("tool", "fact_store", '{"action": "search", "query": "What tea does Anna prefer?"}').out)
    run("memory", "remove", "oolong")
    after = json.loads(run("tool", "fact_store", '{"action": "list"}').out)

    assert [each["content"] for each in mirrored["results"]] == ["Anna prefers oolong tea"]
    assert after["results"] == []


@pytest.mark.parametrize(
    "arguments", [("nope",), ("holographic", "--set", "nope=1"), ("holographic", "--set", "hrr_dim"), ()]
)
def test_setup_without_what_it_needs_names_the_next_step(run, arguments):
    """Unknown provider, unknown answer, no answer, no name without a terminal: exit 2 and one instruction."""
    done = run("providers", "setup", *arguments)

    assert done.code == 2
    assert "next:" in done.err


def test_a_wrong_answer_changes_nothing(run, home):
    """The setting and what it accepts are named."""
    done = run("providers", "setup", "holographic", "--set", "hrr_dim=huge")

    assert done.code == 1
    assert "hrr_dim" in done.err
    assert not (home / "holographic.json").exists()


def test_a_provider_that_cannot_start_is_not_switched_on(run, home, broken, monkeypatch):
    """Its secret is kept privately, the trial fails, and built-in memory stays alone."""
    monkeypatch.delenv("BROKEN_KEY", raising=False)
    without = run("providers", "setup", "broken")
    done = run("providers", "setup", "broken", "--set", "api_key=abc")

    assert (without.code, done.code) == (1, 1)
    assert "the server is down" in done.err
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert json.loads(run("providers", "status", "--json").out)["provider"] == []


KEYED = """
import os
from agent.memory_provider import MemoryProvider
class Keyed(MemoryProvider):
    name = "keyed"
    def is_available(self): return os.environ.get("KEYED_KEY") == "new"
    def initialize(self, session_id, **context): pass
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
    def get_config_schema(self): return [{"key": "api_key", "description": "Key", "secret": True, "env_var": "KEYED_KEY", "required": True}]
"""


def test_a_provider_finds_the_key_that_was_just_given_and_later_in_the_file(run, home):
    """Setup tries it with the answer, not with what stood there before; status and doctor find it in `.env`."""
    folder = home / "plugins" / "keyed"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(KEYED)
    (home / ".env").write_text("KEYED_KEY=old\n")
    done = run("providers", "setup", "keyed", "--set", "api_key=new")
    status = json.loads(run("providers", "status", "--json").out)["active"][0]

    assert done.code == 0, done.err
    assert "KEYED_KEY" not in os.environ  # it is set in the process of the plugin only
    assert (status["available"], status["problem"]) == (True, None)
    assert "✓ provider keyed: available" in run("doctor", "--offline").out


UNTOLD = """
from wellkept.providers.base import MemoryProvider
class Untold(MemoryProvider):
    name = "untold"
    def is_available(self): return True
    def initialize(self, session_id, **context): pass
    def get_config_schema(self): raise LookupError("no schema")
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
"""


def test_a_provider_that_cannot_name_its_settings_is_said_and_survived(run, home):
    """Its error is one line in the status, and tools of our own continue."""
    folder = home / "plugins" / "untold"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(UNTOLD)
    run("config", "set", "memory.provider", "untold")
    used = run("tool", "memory", '{"action": "add", "target": "memory", "content": "x"}')

    assert used.code == 0
    assert "LookupError: no schema" in used.err
    assert "LookupError: no schema" in run("providers", "status").out


def test_status_shows_a_configured_provider_that_fails(run, broken):
    """Loudly, with the last error and the missing variable; other tools continue."""
    run("config", "set", "memory.provider", "broken")
    used = run("tool", "broken_search", "{}")
    status = json.loads(run("providers", "status", "--json").out)["active"][0]

    assert used.code == 2
    assert "not in use" in used.err
    assert "there is no tool 'broken_search'" in used.err
    assert "the server is down" in status["last_error"]
    assert (status["health"], status["missing_variables"]) == ("failing", ["BROKEN_KEY"])
    assert "the server is down" in run("providers", "status").out
    assert run("tool", "memory", '{"action": "add", "target": "memory", "content": "x"}').code == 0


def test_a_provider_tells_of_itself_in_its_status(run):
    """Facts of the provider's own stand in the status, before and after it holds any."""
    run("config", "set", "memory.provider", "holographic")
    before = run("providers", "status").out
    run("tool", "fact_store", '{"action": "add", "content": "The build runs on Mondays"}')

    assert "facts: 0" in before
    assert json.loads(run("providers", "status", "--json").out)["active"][0]["facts"] == {"facts": 1}


def test_doctor_looks_at_the_providers(run):
    """A configured provider that is not there is an illness with a next step; one that works is well."""
    run("config", "set", "memory.provider", "nope")
    ill = run("doctor", "--offline")
    run("config", "set", "memory.provider", "holographic")
    well = run("doctor", "--offline")

    assert ill.code == 1
    assert "✗ provider nope: there is no memory provider 'nope'" in ill.out
    assert well.code == 0
    assert "✓ provider holographic: available" in well.out


def test_an_unknown_provider_in_the_configuration_is_said_and_survived(run):
    """One clear line with the next step; the pages work."""
    run("config", "set", "memory.provider", "nope")
    done = run("tool", "memory", '{"action": "add", "target": "memory", "content": "x"}')

    assert done.code == 0
    assert "'nope'" in done.err
    assert "kept providers off" in done.err


def test_off_goes_back_to_the_pages(run):
    """Twice is as good as once."""
    run("providers", "setup", "holographic")

    assert run("providers", "off").code == 0
    assert run("providers", "off").code == 0
    assert json.loads(run("providers", "status", "--json").out)["provider"] == []
    assert run("tool", "fact_store", '{"action": "list"}').code == 2


def test_the_outbox_can_be_seen_retried_and_dropped(run, home, broken):
    """What waits for a provider that is down is in a person's hands."""
    from wellkept.providers.loading import load
    from wellkept.providers.writes import FinishedTurn

    bench = Bench(home)
    manager = bench.manager(load("broken", home / "plugins"))
    bench.settle(manager, FinishedTurn(session_id="s1", key="1", user="q", assistant="a"))
    bench.close()
    (item,) = json.loads(run("providers", "outbox", "--json").out)["items"]

    assert (item["hook"], item["session_id"], item["provider"]) == ("sync_turn", "s1", "broken")
    assert "1 waiting" in run("providers", "outbox").out
    assert "1 due now" in run("providers", "outbox", "retry", "--provider", "broken").out
    assert run("providers", "outbox", "drop", "--id", "99", "--yes").code == 2
    assert run("providers", "outbox", "drop").code == 2
    assert "1 dropped" in run("providers", "outbox", "drop", "--id", str(item["id"]), "--yes").out
    assert "the outbox is empty" in run("providers", "outbox").out


def test_stats_show_what_a_provider_is_worth(run):
    """Calls, hit rate, latency and cost."""
    assert "no provider" in run("providers", "stats").out
    run("providers", "setup", "holographic")
    run("tool", "fact_store", '{"action": "list"}')
    (stats,) = json.loads(run("providers", "stats", "--json").out)

    assert stats["provider"] == "holographic"
    assert stats["calls"] > 0
    assert stats["failures"] == 0


def test_the_memory_group_has_the_same_commands(run):
    """`kept memory setup`, `status` and `off` do the same."""
    assert run("memory", "setup", "holographic").code == 0
    assert json.loads(run("memory", "status", "--json").out)["provider"] == ["holographic"]
    assert run("memory", "off").code == 0


COMMANDING = """
from wellkept.providers.base import CommandAnswer, MemoryProvider, ProviderCommand
class Commanding(MemoryProvider):
    name = "commanding"
    def is_available(self): return True
    def initialize(self, session_id, **context): self.home = context["kept_home"]
    def get_tool_schemas(self): return []
    def get_commands(self):
        return [
            ProviderCommand("home", "Where it lives.", lambda words: CommandAnswer(" ".join([self.home, *words]), {"at": self.home})),
            ProviderCommand("fail", "Fails.", lambda words: 1 / 0),
            ProviderCommand("facts", "Facts elsewhere.", lambda words: CommandAnswer("none", [])),
        ]
"""


@pytest.fixture
def commanding(home):
    folder = home / "plugins" / "commanding"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(COMMANDING)


def test_a_provider_in_use_brings_its_commands(run, home, commanding):
    """They are listed and run while it is in use, with the home it belongs to; `--json` gives the value."""
    run("config", "set", "memory.provider", "commanding")

    assert "commanding.home" in run("providers", "do").out
    assert run("providers", "do", "home", "and", "more").out.strip() == f"{home} and more"
    assert json.loads(run("providers", "do", "home", "--json").out) == {"at": str(home)}


def test_commands_of_a_provider_that_is_not_in_use_are_not_there(run, commanding):
    """Installed is not in use."""
    assert run("providers", "do", "home").code == 1
    run("providers", "setup", "holographic")

    refused = run("providers", "do", "home")

    assert refused.code == 2
    assert "holographic.facts" in refused.err


def test_a_command_of_a_provider_that_fails_is_one_line(run, commanding):
    """What a plugin raises is named, with its command."""
    run("config", "set", "memory.provider", "commanding")
    failed = run("providers", "do", "fail")

    assert failed.code != 0
    assert "commanding.fail failed: ZeroDivisionError" in failed.err
    assert "Traceback" not in failed.err


def test_a_command_of_two_providers_is_said_with_its_provider(run, commanding):
    """With two in use the full name decides."""
    run("config", "set", "memory.provider", '["holographic", "commanding"]')

    assert run("providers", "do", "facts").code == 2
    assert run("providers", "do", "commanding.facts").out.strip() == "none"


def test_facts_are_shown_at_the_terminal(run):
    """The fact store answers words, lists what is newest, and names what cannot both be true."""
    run("providers", "setup", "holographic")
    for fact in ("Anna prefers oolong tea", "The server runs on port 8080", "The server runs on port 9090"):
        run("tool", "fact_store", json.dumps({"action": "add", "content": fact}))

    assert "Anna prefers oolong tea" in run("providers", "do", "facts", "which", "tea?").out
    assert run("providers", "do", "facts").out.count("trust") == 3
    assert run("providers", "do", "contradictions").out.count("The server runs on port") == 2


UNNAMED = """
class Unnamed:
    name = "unnamed"
    def is_available(self): return True
    def initialize(self, session_id, **context): pass
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
    def sync_turn(self, user, assistant, *, session_id=""): pass
def register(context): context.register_memory_provider(Unnamed())
"""


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        (BROKEN.replace("broken", "unnamed"), 0, "has no commands"),
        (
            COMMANDING.replace("commanding", "unnamed").replace(
                "return [\n", "raise OSError('gone')\n        return [\n"
            ),
            69,
            "OSError: gone",
        ),
        (UNNAMED, 0, "has no commands"),
    ],
)
def test_a_provider_without_commands_or_with_broken_ones_is_told_in_a_line(run, home, source, code, said):
    """A plugin that has none says so, one that cannot name them is named."""
    folder = home / "plugins" / "unnamed"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(source)
    run("config", "set", "memory.provider", "unnamed")

    asked = run("providers", "do")

    assert (asked.code, "Traceback" in asked.err) == (code, False), asked.err
    assert said in asked.out + asked.err


def test_blank_words_ask_for_all_facts(run):
    """Nothing but spaces is not a question."""
    run("providers", "setup", "holographic")

    assert run("providers", "do", "facts", " ").out.strip() == "no facts"


def test_a_round_trip_stores_recalls_and_removes(run):
    """It says what it did, and leaves nothing behind."""
    done = run("providers", "test", "holographic", "--json")
    answer = json.loads(done.out)

    assert done.code == 0
    assert (answer["provider"], answer["ok"]) == ("holographic", True)
    assert [step["step"] for step in answer["steps"]] == [
        "available", "start", "store", "recall", "remove", "gone", "stop",
    ]  # fmt: skip
    assert all(step["ok"] and step["ms"] >= 0 for step in answer["steps"])
    assert "kestrel" not in run("providers", "do", "facts", "kestrel").out


def test_a_round_trip_that_fails_says_where(run, home, monkeypatch):
    """The exit code is that of a failed memory; nothing else is tried after a start that failed."""
    monkeypatch.setattr("wellkept.providers.trial.RECALL_SECONDS", 0.1)
    folder = home / "plugins" / "deaf"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "from wellkept.providers.base import MemoryProvider\n"
        "class Deaf(MemoryProvider):\n"
        "    name = 'deaf'\n"
        "    def is_available(self): return True\n"
        "    def initialize(self, session_id, **context): pass\n"
        "    def get_tool_schemas(self): return []\n"
        "    def handle_tool_call(self, name, args, **context): return '{}'\n"
        "    def on_memory_write(self, action, target, content, metadata=None): pass\n"
        "    def prefetch(self, query, *, session_id=''): return 'nothing'\n"
    )
    done = run("providers", "test", "deaf")

    assert done.code == 69
    assert "FAIL recall" in done.out
    assert "ok   remove" in done.out
    assert run("providers", "test", "nobody").code == 2

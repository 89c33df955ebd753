"""Plugins in a process of their own: what they do there, and what they cannot do to this one."""

import json
import logging
import os
import signal
import time
from pathlib import Path

import pytest

from wellkept.core.errors import ProviderError
from wellkept.core.tools import ToolContext
from wellkept.providers import running
from wellkept.providers.base import CommandAnswer, ForgetRequest, StartContext
from wellkept.providers.child import HOOKS
from wellkept.providers.hooks import call_hook, close_provider, overrides
from wellkept.providers.isolation import decode, encode
from wellkept.providers.loading import PluginPolicy, PluginSource, load
from wellkept.providers.plugins import find_commands, run_command
from wellkept.providers.status import status_of
from wellkept.testing.provider_contract import eventually

BASE = """
import os, sys, threading, time, warnings, logging
from wellkept.providers.base import MemoryProvider, ProviderCommand, CommandAnswer
{top}
class Mine(MemoryProvider):
    name = "mine"
    def __init__(self): {init}
    def is_available(self): return True
    def initialize(self, session_id, **context):
        self.session_id, self.home = session_id, context["kept_home"]
        {initialize}
    def get_tool_schemas(self):
        return [{{"name": "mine_search", "description": "d", "parameters": {{"type": "object", "properties": {{}}}}}}]
    def handle_tool_call(self, name, args, **context): return '{{"pid": %d}}' % os.getpid()
    def prefetch(self, query, *, session_id=""):
        {prefetch}
        return f"recalled for {{query}} in {{self.session_id}}"
    def sync_turn(self, user, assistant, *, session_id="", idempotency_key=""):
        {sync}
        with open(self.home + "/synced", "a") as file: file.write(f"{{user}}|{{assistant}}|{{idempotency_key}}\\n")
    def on_memory_write(self, action, target, content): pass
    def forget_content(self, request): return len(request.texts)
    def get_commands(self): return [ProviderCommand("echo", "Repeats.", lambda words: CommandAnswer(" ".join(words), list(words)))]
"""


def write_plugin(home, name="mine", *, source=None, files=None, **parts):
    folder = home / "plugins" / name
    folder.mkdir(parents=True)
    parts = {"top": "", "init": "pass", "initialize": "pass", "prefetch": "pass", "sync": "pass"} | parts
    (folder / "__init__.py").write_text(BASE.format(**parts) if source is None else source)
    for path, text in (files or {}).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture
def open_plugin(tmp_path):
    opened = []

    def open_it(name="mine", isolate="on", seconds=20.0):
        policy = PluginPolicy(isolate=isolate, start_seconds=seconds)
        opened.append(load(name, tmp_path / "plugins", {}, policy))
        return opened[-1]

    yield open_it
    for provider in opened:
        close_provider(provider)


def start(provider, home, session="s1"):
    call_hook(provider, "initialize", (session,), StartContext(kept_home=str(home)).keywords())


def test_hooks_run_in_the_other_process(tmp_path, open_plugin):
    """Arguments, answers, commands and our own values cross the boundary; signatures are respected there."""
    write_plugin(tmp_path)
    provider = open_plugin()
    start(provider, tmp_path)

    assert str(os.getpid()) not in provider.handle_tool_call("mine_search", {})
    assert provider.prefetch("tea", session_id="s1") == "recalled for tea in s1"
    assert call_hook(provider, "forget_content", (ForgetRequest(texts=("a", "b")),), {"session_id": "x"}) == 2
    call_hook(provider, "on_memory_write", ("add", "user", "x"), {"metadata": {}, "idempotency_key": "k"})
    assert overrides(provider, "sync_turn")
    assert not overrides(provider, "on_delegation")
    (offered,) = find_commands([provider])
    assert run_command(offered, ["a", "b"], StartContext(kept_home=str(tmp_path))) == CommandAnswer("a b", ["a", "b"])


def test_values_cross_unchanged():
    """Text of any kind, nested values, and the two dataclasses of the port."""
    for value in ("ä\ud800\n", [1, {"a": None}], ForgetRequest(texts=("x",), everything=True), CommandAnswer("a", [1])):
        assert decode(encode(value)) == value
    with pytest.raises(TypeError, match="bytes"):
        encode({"a": b"x"})


def test_output_and_warnings_go_to_the_log(tmp_path, open_plugin, capfd, caplog):
    """Whether by print, by the descriptor, by a child program or by a warning."""
    caplog.set_level(logging.INFO, "wellkept")
    shout = (
        'print("by print"); os.write(1, b"by descriptor\\n"); os.system("echo by program"); warnings.warn("by warning")'
    )
    write_plugin(tmp_path, top=shout, prefetch='print("in a hook"); logging.getLogger("x").error("in its log")')
    provider = open_plugin()
    start(provider, tmp_path)
    provider.prefetch("q")

    words = ("by print", "by descriptor", "by program", "by warning", "in a hook", "in its log")
    eventually(lambda: all(each in caplog.text for each in words))
    assert capfd.readouterr() == ("", "")


# some of them sleep for a minute; a loaded machine takes seconds to start a process
@pytest.mark.parametrize("most", [40, pytest.param(10, marks=pytest.mark.speed)])
@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("top", "os._exit(3)"),
        ("top", "raise SystemExit(3)"),
        ("top", "raise BaseException('odd')"),
        ("top", "raise KeyboardInterrupt"),
        ("top", "time.sleep(60)"),
        ("top", "os.kill(os.getpid(), 9)"),
        ("init", "os._exit(3)"),
        ("init", "raise SystemExit(3)"),
        ("init", "time.sleep(60)"),
    ],
)
def test_a_plugin_that_does_not_load_is_one_error_in_time(tmp_path, open_plugin, part, code, most):
    """Import and constructor have a limit, and may end their process as they like."""
    write_plugin(tmp_path, **{part: code})
    began = time.monotonic()

    with pytest.raises(ProviderError, match="'mine' cannot be loaded") as caught:
        open_plugin(seconds=3.0)

    assert time.monotonic() - began < most
    assert "\n" not in caught.value.message


def test_a_process_that_dies_fails_one_call_and_comes_back(tmp_path, open_plugin):
    """The next call starts another one, initialised for the session that is current by then."""
    write_plugin(tmp_path, prefetch='query == "die" and os._exit(7)')
    provider = open_plugin()
    start(provider, tmp_path)
    call_hook(provider, "on_memory_write", ("add", "user", "x"), {})
    first = provider.process_id

    with pytest.raises(ProviderError, match="exit code 7"):
        provider.prefetch("die")
    assert provider.prefetch("tea") == "recalled for tea in s1"
    assert provider.process_id not in {first, None}
    os.kill(provider.process_id, signal.SIGKILL)
    eventually(lambda: provider.process_id is None)
    assert provider.prefetch("tea") == "recalled for tea in s1"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs environments in files")
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_program_in_a_session_of_its_own_does_not_outlive_the_plugin(tmp_path, open_plugin, is_killed):
    """It left the process group; it is found by its environment, also after its parent has ended."""
    code = (
        "import subprocess; p = subprocess.Popen(['sleep', '600'], start_new_session=True); "
        'open(self.home + "/daemon", "w").write(str(p.pid))'
    )
    write_plugin(tmp_path, initialize=code)
    provider = open_plugin()
    start(provider, tmp_path)
    eventually(lambda: (tmp_path / "daemon").exists() and (tmp_path / "daemon").read_text())
    daemon = int((tmp_path / "daemon").read_text())
    assert _lives(daemon)

    if is_killed:
        os.kill(provider.process_id, signal.SIGKILL)
    close_provider(provider)

    eventually(lambda: not _lives(daemon))


EVERY_HOOK = """
import json, pathlib
from wellkept.providers.base import MemoryProvider
class Mine(MemoryProvider):
    name = "mine"
def recording(hook):
    def record(self, *args, **keywords):
        with (pathlib.Path(__file__).parent.parent.parent / "calls").open("a") as file:
            file.write(json.dumps([hook, args, keywords], default=lambda request: list(request.texts)) + "\\n")
    return record
for hook in HOOKS:
    setattr(Mine, hook, recording(hook))
"""
KEY = "sk-proj-" + "A1b2C3d4" * 10


@pytest.mark.parametrize("isolate", ["on", "off"])
def test_every_hook_gets_its_arguments_without_credentials(tmp_path, open_plugin, isolate):
    """Texts, lists, objects and titles; ids stay, and so do the answers to the questions of the plugin itself."""
    answers = {"check_config", "save_config"}
    hooks = [hook for hook in HOOKS if hook not in {*answers, "get_config_schema", "get_commands"}]
    write_plugin(tmp_path, source=EVERY_HOOK.replace("HOOKS", repr([*hooks, *answers])))
    provider = open_plugin(isolate=isolate)

    for hook in hooks:
        texts = (f"use {KEY}", {"deep": [{"content": KEY}]}, "add")
        named = {"metadata": {"before": KEY}, "user_name": KEY, "session_title": KEY, "session_id": "s", "chat_id": "c"}
        call_hook(provider, hook, texts, named)
    call_hook(provider, "save_config", ({"api_key": KEY}, str(tmp_path)), {})
    call_hook(provider, "forget_content", (ForgetRequest(texts=(KEY, f"mine is {KEY}")),), {})

    lines = (tmp_path / "calls").read_text().splitlines()
    assert [hook for hook, *_ in map(json.loads, lines)] == [*hooks, "save_config", "forget_content"]
    saved = lines.pop(-2)
    assert KEY in saved
    assert KEY not in "".join(lines)
    assert json.loads(lines[-1])[1] == [["mine is [redacted:openai_key]"]]
    assert all('"chat_id": "c"' in line for line in lines[:-1])


def test_threads_and_forks_do_not_outlive_the_plugin(tmp_path, open_plugin):
    """A thread that never ends, and a fork that holds every descriptor: closing takes no time, and both are gone."""
    fork = 'open(self.home + "/fork", "w").write(str(os.getpid())) if (pid := os.fork()) == 0 else None; '
    code = f"threading.Thread(target=time.sleep, args=(600,), daemon=False).start(); {fork}pid == 0 and time.sleep(600)"
    write_plugin(tmp_path, initialize=code)
    provider = open_plugin()
    start(provider, tmp_path)
    eventually(lambda: (tmp_path / "fork").exists() and (tmp_path / "fork").read_text())
    forked = int((tmp_path / "fork").read_text())
    began = time.monotonic()

    close_provider(provider)

    assert time.monotonic() - began < 60  # the thread sleeps ten times as long
    eventually(lambda: not _lives(forked))
    with pytest.raises(ProviderError):
        provider.prefetch("q")


def _lives(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_error_keeps_its_kind_and_whether_it_is_final(tmp_path, bench, open_plugin):
    """The guard sees what it would see without the boundary."""
    refuse = "from wellkept.providers.base import Rejected; raise Rejected('too long')"
    write_plugin(tmp_path, sync=refuse, prefetch="raise ConnectionError('refused')")
    manager = bench.manager(open_plugin(), start_timeout_seconds=20)
    manager.recall("q", session_id="s1", turn=1)
    (status,) = manager.status()

    assert status.health.last_error == "prefetch raised ConnectionError: refused"


@pytest.mark.parametrize("isolate", ["on", "off"])
def test_the_whole_life_behind_the_manager(tmp_path, bench, open_plugin, isolate):
    """Tools, recall, sync and the end are the same in both ways to run a plugin."""
    write_plugin(tmp_path)
    provider = open_plugin(isolate=isolate)
    manager = bench.manager(provider, start_timeout_seconds=20)

    assert manager.recall("tea", session_id="s1", turn=1) == "recalled for tea in s1"
    (tool,) = manager.tools()
    assert tool.schema.name == "mine_search"
    assert "pid" in tool.call({}, ToolContext())
    manager.turn_finished("hello", "hi", session_id="s1", key="1")
    process = provider.process_id if isolate == "on" else None
    manager.close()
    assert process is None or not _lives(process)
    assert (tmp_path / "synced").read_text() == "hello|hi|turn:s1:1\n"
    assert manager.status()[0].problem is None


def test_a_plugin_may_log_where_no_app_has_set_up_the_log(monkeypatch):
    """What kept logs about it is not taken for another record of the plugin."""
    monkeypatch.setattr(logging.getLogger("wellkept"), "propagate", True)
    told = []
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    running.listen("mine", told.append)

    with running.plugin_code("mine"):
        logging.getLogger("mine").warning("store failed")

    assert told == ["store failed"]


@pytest.mark.parametrize("isolate", ["on", "off"])
def test_an_error_that_a_plugin_swallows_is_reported(tmp_path, bench, open_plugin, isolate):
    """Delivered, but the status says that the plugin logged an error; also one that a thread logs afterwards."""
    later = "threading.Thread(target=self.late).start()"
    source = BASE.format(
        top="",
        init="pass",
        initialize="pass",
        prefetch=later,
        sync="logging.getLogger('mine').warning('store failed: %s', 'down')",
    )
    source += "    def late(self): time.sleep(0.3); logging.getLogger('mine').error('index broken')\n"
    write_plugin(tmp_path, source=source)
    manager = bench.manager(open_plugin(isolate=isolate), start_timeout_seconds=20)

    def status():
        bench.audit.flush()
        source_of = PluginSource(tmp_path / "plugins", {}, PluginPolicy())
        (chosen,) = status_of(["mine"], source_of, outbox=bench.outbox, audit=bench.audit).chosen
        return chosen

    assert status().condition in {"ok", "not called yet"}
    manager.turn_finished("hello", "hi", session_id="s1")
    eventually(lambda: status().swallowed == 1)
    assert status().condition == "logs errors"
    assert status().health.last_error == "sync_turn returned, but the plugin logged: store failed: down"
    manager.recall("q", session_id="s1", turn=1)
    eventually(lambda: status().swallowed == 2)
    assert "index broken" in status().health.last_error
    assert status().queue.delivered == 1


def test_nothing_is_ok_before_a_call_succeeded(tmp_path, bench, open_plugin):
    """That it is available says nothing about its back end."""
    write_plugin(tmp_path)
    source = PluginSource(tmp_path / "plugins", {}, PluginPolicy(isolate="on", start_seconds=20))

    def condition():
        return status_of(["mine"], source, outbox=bench.outbox, audit=bench.audit).chosen[0].condition

    assert condition() == "not called yet"
    bench.manager(open_plugin(), start_timeout_seconds=20).close()
    assert condition() == "ok"

"""ByteRover: a `brv` of ours that prints what the real one prints, which `make test-providers` runs."""

import json
import os
import stat
import sys
import time

import pytest

from wellkept.core.errors import ConfigError, ProviderError
from wellkept.providers.base import ForgetRequest, Rejected, StartContext
from wellkept.providers.byterover import ByteRoverProvider
from wellkept.providers.trial import run_trial
from wellkept.testing.provider_contract import ProviderContract

PROGRAM = '''#!PYTHON
"""Like brv: searches the Markdown below .brv/context-tree, prints events, and exits with 0 whatever happens."""
import json, os, pathlib, sys, time
state = pathlib.Path(os.environ["FAKE_BRV"])
mode = json.loads((state / "mode.json").read_text())
command, words = sys.argv[1], sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
with (state / "calls.jsonl").open("a") as log:
    log.write(json.dumps([command, os.getcwd(), words]) + "\\n")
time.sleep(mode.get("seconds", 0))
def event(success=True, **data):
    print(json.dumps({"command": command, "data": data, "success": success, "timestamp": "x"}), flush=True)
def stop(said):
    event(False, error=said, status="error")
    sys.exit(0)
if mode.get("garbage"):
    print(mode["garbage"]); sys.exit(0)
if mode.get("error"):
    stop(mode["error"])
tree = pathlib.Path(".brv/context-tree")
if command == "status":
    event(authStatus="not_logged_in", cliVersion="3.14.0")
elif command == "providers":
    event(activeModel=mode.get("model", ""), providerId="openai-compatible" if mode.get("model") else "")
elif command == "search":
    wanted = set(" ".join(words).lower().replace("?", "").split())
    files = [each for each in sorted(tree.rglob("*.md")) if wanted & set(each.read_text().lower().replace(".", "").split())]
    event(results=[{"path": str(each.relative_to(tree)), "excerpt": each.read_text()[:20]} for each in files], status="completed")
elif not mode.get("model"):
    stop('No provider connected. Run "brv providers connect byterover"')
elif command == "query":
    event(event="thinking")
    event(event="completed", result="The answer of the model", matchedDocs=[])
elif command == "curate":
    event(event="thinking")
    if mode.get("curate_error"):
        event(False, event="error", message=mode["curate_error"], status="error")
    else:
        tree.mkdir(parents=True, exist_ok=True)
        with (tree / "curated.md").open("a") as file:
            file.write(" ".join(words) + "\\n\\n")
        event(event="completed", status="completed")
'''


class FakeBrv:
    """The program, and what it was called with."""

    def __init__(self, folder):
        folder.mkdir(parents=True)
        self.folder = folder
        self.program = folder / "brv"
        self.program.write_text(PROGRAM.replace("PYTHON", sys.executable, 1))
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)
        self.set()

    def set(self, **mode):
        (self.folder / "mode.json").write_text(json.dumps(mode))

    def calls(self, command):
        file = self.folder / "calls.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [words for name, _, words in map(json.loads, lines) if name == command]

    def texts(self, home):
        return [each.read_text().strip() for each in sorted(home.rglob("context-tree/**/*.md"))]


@pytest.fixture
def brv(tmp_path, monkeypatch):
    fake = FakeBrv(tmp_path / "fake")
    monkeypatch.setenv("FAKE_BRV", str(fake.folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return fake


def settings_of(brv):
    return {"command": str(brv.program), "timeout_seconds": 60}


def start(home, brv, *, settings=None, **context):
    (home / "byterover.json").write_text(json.dumps({**settings_of(brv), **(settings or {})}))
    provider = ByteRoverProvider()
    provider.initialize("s1", **{**StartContext(kept_home=str(home)).keywords(), **context})
    return provider


class TestContract(ProviderContract):
    @pytest.fixture(autouse=True)
    def _program(self, brv, tmp_path, monkeypatch):
        self.brv, self.home = brv, tmp_path
        monkeypatch.setenv("PATH", f"{brv.folder}:{os.environ['PATH']}")
        (tmp_path / "byterover.json").write_text(json.dumps(settings_of(brv)))

    def provider(self):
        return ByteRoverProvider()

    def known(self, provider, text):
        return text in self.brv.texts(self.home)


def test_a_round_trip(tmp_path, brv):
    """Stored, recalled, removed, gone: all without a model."""
    start(tmp_path, brv)
    trial = run_trial(ByteRoverProvider(), StartContext(kept_home=str(tmp_path), user_id="trial"))

    assert trial.ok, trial.steps
    assert brv.texts(tmp_path) == []


@pytest.mark.parametrize(
    ("mode", "kind", "message", "remedy"),
    [
        ({"error": "the daemon is gone"}, ProviderError, "the daemon is gone", "brv status"),
        ({"error": "No provider connected. Run x"}, ProviderError, "No provider connected", "brv providers connect"),
        ({"error": "context exceeds the limit"}, Rejected, "exceeds", "size"),
        ({"garbage": "Welcome to brv!"}, ProviderError, "answered without JSON", "brv --version"),
        ({"garbage": '{"success": true, "data": {"event": "error", "message": "late"}}'}, ProviderError, "late", "outbox"),
        ({"garbage": "[1]"}, ProviderError, "without JSON", "brv --version"),
    ],
)  # fmt: skip
def test_an_error_that_exits_with_0_is_an_error(tmp_path, brv, mode, kind, message, remedy):
    """Only what the program prints tells."""
    provider = start(tmp_path, brv)
    provider.add_entry("user", "Likes oolong tea")
    brv.set(**mode)
    with pytest.raises(ProviderError) as caught:
        provider.prefetch("oolong")
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert remedy in caught.value.remedy
    assert provider.get_status()["reachable"] is False


def test_a_failed_curate_keeps_the_turn_in_the_outbox(tmp_path, brv):
    """The program says success for the first event and exits with 0; a later repeat is accepted."""
    provider = start(tmp_path, brv)
    brv.set(model="m", curate_error="Response parsing failed")
    with pytest.raises(ProviderError, match="Response parsing failed"):
        provider.sync_turn("my dog is called Rex", "nice", session_id="s1", idempotency_key="k")
    brv.set(model="m")
    provider.sync_turn("my dog is called Rex", "nice", session_id="s1", idempotency_key="k")

    assert "Rex" in provider.prefetch("dog called")
    assert len(brv.calls("curate")) == 2


def test_without_a_model_turns_are_kept_as_said_once(tmp_path, brv):
    """The search finds them at once; a repeat has the same name; a model that is disconnected later loses nothing."""
    provider = start(tmp_path, brv)
    for _ in range(2):
        provider.sync_turn("my dog is called Rex", "nice", session_id="s1", idempotency_key="k1")
    later = start(tmp_path, brv)
    brv.set(model="m")
    assert later._curates()
    brv.set()
    later.sync_turn("tea at four", "ok", session_id="s1", idempotency_key="k2")

    assert sorted(brv.texts(tmp_path)) == [
        "user: my dog is called Rex\n\nassistant: nice",
        "user: tea at four\n\nassistant: ok",
    ]
    assert "Rex" in provider.prefetch("dog called")


def test_messages_are_saved_before_a_compaction(tmp_path, brv):
    """Where a model sorts the turns, the wording would be lost; where turns are kept as said there is nothing to do."""
    messages = [
        {"role": "user", "content": "my dog is called Rex"},
        {"role": "assistant", "content": None},
        {"role": "tool", "content": "hidden"},
    ]
    as_said = start(tmp_path, brv)
    assert as_said.on_pre_compress(messages) == ""
    assert brv.texts(tmp_path) == []
    brv.set(model="m")
    sorted_by_model = start(tmp_path, brv)
    sorted_by_model.on_pre_compress(messages)
    sorted_by_model.on_pre_compress(messages)

    assert brv.texts(tmp_path) == ["user: my dog is called Rex"]
    assert sorted_by_model.forget_content(ForgetRequest(session_ids=("s1",))).removed == 1


def test_a_program_that_hangs_is_stopped(tmp_path, brv):
    """At the time-out of the settings, with one line; nothing of it goes on."""
    provider = start(tmp_path, brv, settings={"timeout_seconds": 1})
    provider.add_entry("user", "Likes oolong tea")
    brv.set(seconds=60)
    began = time.monotonic()
    with pytest.raises(ProviderError, match="did not answer within 1 s"):
        provider.prefetch("oolong")
    assert time.monotonic() - began < 30


def test_forgetting_cuts_what_the_program_wrote_and_its_records(tmp_path, brv):
    """Files of ours go, of the program's own the paragraphs and lines; other users keep theirs."""
    mine, other = start(tmp_path, brv), start(tmp_path, brv, user_id="anna")
    for provider in (mine, other):
        provider.add_entry("user", "the code is HERON")
        provider.add_entry("user", "Owns a red bicycle")
    (mine.tree.root / "topic.md").write_text("The heron is grey.\n\nTea at four.\n")
    mine.tree.logs.mkdir(parents=True)
    (mine.tree.logs / "index.jsonl").write_text('{"q": "heron"}\n{"q": "tea"}\n')
    (mine.tree.logs / "task.json").write_text('{"content": "HERON"}')
    request = ForgetRequest(texts=("heron",))

    forgotten = mine.forget_content(request)

    assert (forgotten.removed, "3 files that ByteRover wrote" in forgotten.note) == (4, True)
    assert not mine.holds_content(request)
    assert other.holds_content(request)
    assert (mine.tree.root / "topic.md").read_text() == "Tea at four.\n"
    assert (mine.tree.logs / "index.jsonl").read_text() == '{"q": "tea"}\n'
    assert not (mine.tree.logs / "task.json").exists()
    mine.forget_content(ForgetRequest(everything=True))
    assert not list(mine.tree.files())


def test_tools(tmp_path, brv):
    """With a model its answer and the documents, which are never older than the tree; without one the documents."""
    provider = start(tmp_path, brv)
    call = lambda name, **args: json.loads(provider.handle_tool_call(name, args))  # noqa: E731 - short calls
    assert call("brv_curate", content="likes oolong tea")["curated"] is False
    assert call("brv_query", query="oolong")["documents"] == ["likes oolong tea"]
    assert call("brv_status")["model"] == "none"
    brv.set(model="m")
    provider = start(tmp_path, brv)
    assert call("brv_curate", content="--owns a bicycle")["curated"] is True
    answer = call("brv_query", query="--owns a bicycle")
    assert (answer["answer"], "--owns a bicycle" in answer["documents"]) == ("The answer of the model", True)
    assert (call("brv_status")["model"], call("brv_status")["documents"]) == ("m", 2)


def test_a_path_outside_the_tree_is_not_read(tmp_path, brv):
    """What the program answers is untrusted."""
    provider = start(tmp_path, brv)
    provider.add_entry("user", "Likes oolong tea")
    (tmp_path / "secret.md").write_text("secret")
    found = {"path": "../../../../secret.md", "excerpt": "an excerpt"}
    brv.set(garbage=json.dumps({"success": True, "data": {"results": [found]}}))
    assert provider.prefetch("secret") == "- an excerpt"


def test_without_the_program_it_is_not_available(tmp_path, monkeypatch):
    """Said without starting anything."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not ByteRoverProvider().is_available(kept_home=str(tmp_path))
    provider = ByteRoverProvider()
    provider.initialize("s1", kept_home=str(tmp_path))
    with pytest.raises(ProviderError, match="npm install -g byterover-cli"):
        provider.brv.run("status", seconds=1)
    with pytest.raises(ConfigError, match=r"'brv' is not installed.*npm install"):
        provider.check_config({}, ())


def test_users_and_profiles_have_folders_of_their_own(tmp_path, brv):
    """One does not find what another one said."""
    mine, other, work = (
        start(tmp_path, brv),
        start(tmp_path, brv, user_id="anna"),
        start(tmp_path, brv, agent_identity="work"),
    )
    mine.sync_turn("my dog is called Rex", "nice", session_id="s1")
    assert "Rex" in mine.prefetch("dog called")
    assert other.prefetch("dog called") == work.prefetch("dog called") == ""

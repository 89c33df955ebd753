"""Mem0: the platform and a self-hosted server as doubles, the library itself where it is installed."""

import json
import threading

import pytest

from wellkept.core.errors import ConfigError, ProviderError
from wellkept.providers.base import ForgetRequest, StartContext
from wellkept.providers.mem0 import Mem0Provider
from wellkept.providers.trial import run_trial
from wellkept.testing.http_double import Fault, HttpDouble
from wellkept.testing.provider_contract import ProviderContract

KEY = "m0-0123456789abcdef"


class Mem0Double(HttpDouble):
    """Both HTTP editions over one set of memories; search is by shared words, as a stand-in for vectors."""

    def __init__(self):
        super().__init__()
        self.memories = {}
        self.pending = []
        """What the platform has accepted and not processed yet."""
        self.is_slow = False
        self.route("GET", "/v1/ping/", lambda _: (200, {"org_id": "o", "project_id": "p", "user_email": "e@x"}))
        self.route("POST", "/v3/memories/add/", self._add_later)
        self.route("POST", "/v3/memories/search/", self._search)
        self.route("POST", "/v3/memories/", self._list)
        self.route("PUT", "/v1/memories/([^/]+)/", self._update)
        self.route("DELETE", "/v1/memories/([^/]+)/", self._delete)
        self.route("POST", "/memories", self._add)
        self.route("POST", "/search", self._search)
        self.route("GET", "/memories", self._get)
        self.route("PUT", "/memories/([^/]+)", self._update)
        self.route("DELETE", "/memories/([^/]+)", self._delete)

    def check(self, request):
        given = request.headers.get("authorization", "").removeprefix("Token ") or request.headers.get("x-api-key")
        return None if given == KEY else (401, {"detail": "Invalid API key."})

    def texts(self):
        return [each["memory"] for each in self.memories.values()]

    def process(self):
        for body in self.pending:
            self._store(body)
        self.pending.clear()

    def _store(self, body):
        made = []
        for message in body["messages"]:
            if message["content"] and (message["role"] == "user" or not body.get("infer", True)):
                identity = f"id-{len(self.memories) + 1}-{len(made)}"
                self.memories[identity] = {
                    "id": identity,
                    "memory": message["content"],
                    "user_id": body["user_id"],
                    "metadata": body.get("metadata") or {},
                }
                made.append({"id": identity, "memory": message["content"], "event": "ADD"})
        return made

    def _add(self, request):
        return 200, {"results": self._store(request.body)}

    def _add_later(self, request):
        self.pending.append(request.body)
        if not self.is_slow:
            self.process()
        return 200, {"message": "queued", "status": "PENDING", "event_id": "e"}

    def _of(self, user):
        return [each for each in self.memories.values() if each["user_id"] == user]

    def _search(self, request):
        wanted = set(request.body["query"].lower().split())
        found = [
            {**each, "score": len(wanted & set(each["memory"].lower().split())) / 10}
            for each in self._of(request.body["filters"]["user_id"])
        ]
        found = sorted((each for each in found if each["score"]), key=lambda each: -each["score"])
        return 200, {"results": found[: request.body.get("top_k") or 10]}

    def _list(self, request):
        found = self._of(request.body["filters"]["user_id"])
        return 200, {"count": len(found), "next": None, "previous": None, "results": found}

    def _get(self, request):
        return 200, {"results": self._of(request.query["user_id"])}

    def _update(self, request):
        if request.groups[0] not in self.memories:
            return 404, {"detail": "not found"}
        self.memories[request.groups[0]]["memory"] = request.body["text"]
        return 200, {"id": request.groups[0]}

    def _delete(self, request):
        return (200, {}) if self.memories.pop(request.groups[0], None) else (404, {"detail": "not found"})


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setenv("MEM0_API_KEY", KEY)
    with Mem0Double() as running:
        yield running


@pytest.fixture(params=["platform", "self-hosted"])
def mode(request):
    return request.param


def start(home, double, mode, **context):
    values = {"mode": mode, "base_url": double.url, **context.pop("settings", {})}
    (home / "mem0.json").write_text(json.dumps(values))
    provider = Mem0Provider()
    provider.initialize("s1", **{**StartContext(kept_home=str(home)).keywords(), **context})
    return provider


class Mem0Contract(ProviderContract):
    mode = ""

    @pytest.fixture(autouse=True)
    def _server(self, double, tmp_path):
        self.double = double
        (tmp_path / "mem0.json").write_text(json.dumps({"mode": self.mode, "base_url": double.url}))

    def provider(self):
        return Mem0Provider()

    def known(self, provider, text):
        return text in self.double.texts()


class TestPlatform(Mem0Contract):
    mode = "platform"


class TestServer(Mem0Contract):
    mode = "self-hosted"


def test_a_round_trip(tmp_path, double, mode):
    """Stored, recalled, removed, gone."""
    (tmp_path / "mem0.json").write_text(json.dumps({"mode": mode, "base_url": double.url}))
    trial = run_trial(Mem0Provider(), StartContext(kept_home=str(tmp_path), user_id="trial"))

    assert trial.ok, trial.steps
    assert double.texts() == []


def test_users_and_profiles_are_kept_apart(tmp_path, double, mode):
    """Nobody is recalled, or can delete, what is another's."""
    mine = start(tmp_path, double, mode)
    mine.sync_turn("my dog is called Rex", "nice", session_id="s1", idempotency_key="k")
    others = start(tmp_path, double, mode, user_id="anna"), start(tmp_path, double, mode, agent_identity="work")
    identity = next(iter(double.memories))

    assert "Rex" in mine.prefetch("what is my dog called")
    for other in others:
        assert other.prefetch("what is my dog called") == ""
        answer = json.loads(other.handle_tool_call("mem0_delete", {"id": identity}))
        assert answer["success"] is False
    assert len(double.memories) == 1
    assert json.loads(mine.handle_tool_call("mem0_delete", {"id": identity}))["success"] is True
    assert not double.memories


def test_secrets_and_recalled_text_do_not_leave(tmp_path, double, mode):
    """What was recalled is never sent back as new."""
    provider = start(tmp_path, double, mode)
    recalled = "<memory-context>\n[System note: recalled memory follows.]\n\n- likes tea\n</memory-context>"
    provider.sync_turn(f"{recalled}\nmy key is sk-proj-{'a1B2' * 12}", "ok", session_id="s1")
    provider.prefetch(f"{recalled} hello there")

    sent = json.dumps([request.body for request in double.requests])
    assert "likes tea" not in sent
    assert "a1B2a1B2" not in sent


def test_a_write_that_is_still_processed_is_found_later(tmp_path, double):
    """The platform works in the background; nobody waits for it."""
    double.is_slow = True
    provider = start(tmp_path, double, "platform")
    provider.sync_turn("I moved to Graz", "noted", session_id="s1")

    assert provider.prefetch("where did I move") == ""
    double.process()
    assert "Graz" in provider.prefetch("where did I move to")


def test_an_entry_that_is_removed_at_once_does_not_appear_later(tmp_path, double):
    """The platform stores in the background; a remove before that would find nothing to delete."""
    double.is_slow = True
    provider = start(tmp_path, double, "platform")
    later = threading.Timer(0.7, double.process)
    later.start()
    provider.on_memory_write("add", "user", "Likes oolong tea", {"ledger_id": 1})
    provider.on_memory_write("remove", "user", "Likes oolong tea", {"ledger_id": 2, "before": "Likes oolong tea"})
    later.join()
    double.process()

    assert double.memories == {}
    assert "may appear later" in provider.forget_content(ForgetRequest(texts=("oolong",))).note


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(401, b'{"detail": "expired"}'), "401: expired"),
        (Fault(429, b"{}"), "429"),
        (Fault(502, b"<html>"), "502"),
        (Fault(200, b"<html>", "text/html"), "instead of JSON"),
        (Fault(200, b'{"results": "odd"}'), None),
        (Fault(200, b"[1, 2]"), None),
    ],
)
def test_faults_are_one_line_or_nothing(tmp_path, double, mode, fault, message):
    """An odd shape gives no results, an error says what to do."""
    provider = start(tmp_path, double, mode)
    double.faults = [fault]
    if message is None:
        assert provider.prefetch("hello there") == ""
    else:
        with pytest.raises(ProviderError, match=message):
            provider.prefetch("hello there")
    double.faults = [fault]
    answer = json.loads(provider.handle_tool_call("mem0_search", {"query": "x"}))
    assert answer["success"] is (message is None)


def test_the_status_makes_a_real_call(tmp_path, double, mode):
    """It says ok only after one."""
    provider = start(tmp_path, double, mode)
    assert provider.get_status()["reachable"] is True
    double.outage = Fault(503)
    assert provider.get_status() == {"reachable": False, "error": "mem0 answered 503: down"}
    double.stop()
    assert "cannot be reached" in provider.get_status()["error"]


def test_wrong_arguments_are_answered(tmp_path, double, mode):
    """A model learns which argument is wrong."""
    provider = start(tmp_path, double, mode)
    for name, arguments, text in (
        ("mem0_search", {}, "give `query`"),
        ("mem0_search", {"query": 3}, "`query` must be of type string"),
        ("mem0_search", {"query": "x", "limit": True}, "`limit` must be of type integer"),
        ("mem0_add", {"content": "x", "foo": 1}, "no argument `foo`"),
        ("mem0_update", {"id": "nobody", "content": "x"}, "no memory 'nobody'"),
        ("mem0_nothing", {}, "has no tool"),
    ):
        answer = json.loads(provider.handle_tool_call(name, arguments))
        assert answer["success"] is False
        assert text in answer["error"]


def test_the_tools_work_together(tmp_path, double, mode):
    """Add, search, update, list, delete."""
    provider = start(tmp_path, double, mode)

    def call(name, **arguments):
        answer = json.loads(provider.handle_tool_call(name, arguments))
        assert answer["success"] is True, answer
        return answer

    call("mem0_add", content="Deploys run on Tuesday")
    call("mem0_conclude", content="Prefers short answers")
    (found,) = call("mem0_search", query="when do deploys run", limit=1)["results"]
    call("mem0_update", id=found["id"], content="Deploys run on Friday")
    assert {each["memory"] for each in call("mem0_profile")["memories"]} == {
        "Deploys run on Friday",
        "Prefers short answers",
    }
    call("mem0_delete", id=found["id"])
    assert double.texts() == ["Prefers short answers"]


def test_nothing_is_written_in_other_contexts(tmp_path, double, mode):
    """A scheduled run reads only."""
    provider = start(tmp_path, double, mode, agent_context="cron")
    provider.sync_turn("a", "b", session_id="s1")
    assert json.loads(provider.handle_tool_call("mem0_add", {"content": "x"}))["success"] is False
    assert [request for request in double.requests if "add" in request.path or request.path == "/memories"] == []


def test_settings_that_make_no_sense_are_refused(tmp_path):
    """With the accepted values."""
    (tmp_path / "mem0.json").write_text('{"mode": "cloud"}')
    with pytest.raises(Exception, match=r"mode.*|platform"):
        Mem0Provider().initialize("s1", kept_home=str(tmp_path))
    (tmp_path / "mem0.json").write_text('{"mode": "self-hosted", "base_url": "localhost:80"}')
    with pytest.raises(ConfigError, match=r"base_url cannot be 'localhost:80'.*http://127.0.0.1:8000"):
        Mem0Provider().initialize("s1", kept_home=str(tmp_path))


def test_what_is_forgotten_is_gone_for_this_user_only(tmp_path, double, mode):
    """By text, by session, and everything."""
    mine, other = start(tmp_path, double, mode), start(tmp_path, double, mode, user_id="anna")
    for provider in (mine, other):
        provider.sync_turn("the code is HERON", "ok", session_id="s1")
        provider.sync_turn("tea at four", "ok", session_id="s2")
        provider.sync_turn("plain words", "ok", session_id="s3")
    words, session = ForgetRequest(texts=("heron",)), ForgetRequest(session_ids=("s2",))

    assert mine.holds_content(words)
    assert mine.forget_content(words).removed == 1
    assert not mine.holds_content(words)
    assert mine.forget_content(session).removed >= 1
    assert "plain words" in mine.prefetch("plain words")
    assert mine.forget_content(ForgetRequest(everything=True)).removed >= 1
    assert not mine.holds_content(ForgetRequest(everything=True))
    assert other.holds_content(words)
    assert other.holds_content(session)

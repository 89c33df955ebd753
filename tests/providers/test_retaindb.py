"""RetainDB: a double that answers in the shapes of the real server, cloud and local."""

import json

import pytest

from wellkept.core.errors import ProviderError
from wellkept.providers.base import ForgetRequest, StartContext
from wellkept.providers.retaindb import RetainDBProvider
from wellkept.providers.trial import run_trial
from wellkept.testing.http_double import Fault, HttpDouble
from wellkept.testing.provider_contract import ProviderContract

KEY = "rdb_0123456789abcdef0123"


class RetainDBDouble(HttpDouble):
    """Memories by user; a write is listed twice until `index` is called, as the server does it."""

    def __init__(self):
        super().__init__()
        self.memories = {}
        self.is_local = False
        self.has_pending = False
        self.ingest_errors = []
        self.route("POST", "/v1/memory", self._add)
        self.route("POST", "/v1/memory/search", self._search)
        self.route("POST", "/v1/context/query", self._context)
        self.route("GET", "/v1/memory/profile/([^/]+)", self._profile)
        self.route("POST", "/v1/memory/ingest/session", self._ingest)
        self.route("DELETE", "/v1/memory/([^/]+)", self._delete)

    def check(self, request):
        keys = {request.headers.get("x-api-key"), request.headers.get("authorization", "").removeprefix("Bearer ")}
        return None if keys == {KEY} else (401, {"error": {"code": "UNAUTHORIZED", "message": "bad key"}})

    def texts(self):
        return [each["content"] for each in self.memories.values()]

    def _put(self, body, content):
        identity = f"mem-{len(self.requests)}-{len(self.memories)}"
        self.memories[identity] = {
            "id": identity,
            "content": content,
            "type": body.get("memory_type", "factual"),
            "user_id": body["user_id"],
            "project": body["project"],
            "session_id": body.get("session_id"),
        }
        return identity

    def _add(self, request):
        identity = self._put(request.body, request.body["content"])
        return 200, {
            "success": True,
            "memory_id": identity,
            "memory": self.memories[identity],
            "semantic_status": "pending",
        }

    def _of(self, user, project):
        found = [each for each in self.memories.values() if (each["user_id"], each["project"]) == (user, project)]
        if self.has_pending:
            found += [{**each, "id": f"pending:{each['id']}"} for each in found]
        return found

    def _search(self, request):
        wanted = set(request.body["query"].lower().split())
        found = [
            each
            for each in self._of(request.body["user_id"], request.body["project"])
            if wanted & set(each["content"].lower().split())
        ][: request.body["top_k"]]
        if self.is_local:
            return 200, {"results": [{**each, "score": 0.5} for each in found]}
        return 200, {"results": [{"memory": each, "similarity": 0.9} for each in found], "count": len(found)}

    def _context(self, request):
        texts = [each["content"] for each in self._of(request.body["user_id"], request.body["project"])]
        return 200, {"context": "\n".join(f"[Type: memory]\n{text}" for text in texts), "results": [], "meta": {}}

    def _profile(self, request):
        found = self._of(request.groups[0], request.query["project"])
        return 200, {"user_id": request.groups[0], "memories": found, "count": len(found)}

    def _ingest(self, request):
        if any("timestamp" not in each for each in request.body["messages"]):
            return 400, {"error": {"code": "INVALID", "message": "timestamp is required"}}
        if not self.ingest_errors:
            for each in request.body["messages"]:
                if each["role"] == "user":
                    self._put(request.body, each["content"])
        return 200, {"success": True, "errors": self.ingest_errors}

    def _delete(self, request):
        found = self.memories.pop(request.groups[0], None)
        return (200, {"success": True}) if found else (404, {"code": "NOT_FOUND"})


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setenv("RETAINDB_API_KEY", KEY)
    with RetainDBDouble() as running:
        yield running


def start(home, double, *, settings=None, **context):
    (home / "retaindb.json").write_text(json.dumps({"base_url": double.url, **(settings or {})}))
    provider = RetainDBProvider()
    provider.initialize("s1", **{**StartContext(kept_home=str(home)).keywords(), **context})
    return provider


class TestContract(ProviderContract):
    @pytest.fixture(autouse=True)
    def _server(self, double, tmp_path):
        self.double = double
        (tmp_path / "retaindb.json").write_text(json.dumps({"base_url": double.url}))

    def provider(self):
        return RetainDBProvider()

    def known(self, provider, text):
        return text in self.double.texts()


@pytest.mark.parametrize("is_local", [False, True])
def test_a_round_trip(tmp_path, double, is_local):
    """Both shapes of a search answer are read."""
    double.is_local = is_local
    start(tmp_path, double)
    trial = run_trial(RetainDBProvider(), StartContext(kept_home=str(tmp_path), user_id="trial"))

    assert trial.ok, trial.steps
    assert double.texts() == []


def test_a_memory_that_is_pending_is_shown_once(tmp_path, double):
    """The server lists it under both ids until it is indexed."""
    double.has_pending = True
    provider = start(tmp_path, double)
    provider.handle_tool_call("retaindb_remember", {"content": "likes oolong tea", "type": "preference"})

    assert provider.prefetch("oolong tea").count("oolong") == 1
    assert len(json.loads(provider.handle_tool_call("retaindb_profile", {}))["memories"]) == 1
    found = json.loads(provider.handle_tool_call("retaindb_search", {"query": "oolong"}))["results"]
    assert [each["type"] for each in found] == ["preference"]
    assert json.loads(provider.handle_tool_call("retaindb_forget", {"id": found[0]["id"]}))["success"] is True
    assert double.texts() == []


def test_an_ingest_that_says_success_and_stores_nothing_is_an_error(tmp_path, double):
    """So the write stays in the outbox."""
    provider = start(tmp_path, double)
    double.ingest_errors = ["Ingestion failed: Unknown argument"]
    with pytest.raises(ProviderError, match="stored nothing of a turn: Ingestion failed"):
        provider.sync_turn("my dog is called Rex", "nice", session_id="s1")
    double.ingest_errors = []
    provider.sync_turn("my dog is called Rex", "nice", session_id="s1")
    assert "Rex" in provider.prefetch("dog called")


def test_text_that_did_not_change_is_not_sent_again(tmp_path, double):
    """A replace by the same text stores nothing."""
    provider = start(tmp_path, double)
    provider.on_memory_write("add", "user", "Likes tea", {"ledger_id": 1})
    provider.on_memory_write("replace", "user", "Likes tea", {"ledger_id": 2, "before": "Likes tea"})

    assert double.texts() == ["Likes tea"]
    assert [each.path for each in double.requests].count("/v1/memory") == 1


def test_users_and_profiles_are_kept_apart(tmp_path, double):
    """In recall, and when an id is named."""
    mine, other = start(tmp_path, double), start(tmp_path, double, user_id="anna")
    mine.sync_turn("my dog is called Rex", "nice", session_id="s1")
    (identity,) = double.memories

    assert other.prefetch("dog called") == ""
    assert "context" in json.loads(mine.handle_tool_call("retaindb_context", {"query": "dog"}))
    assert json.loads(other.handle_tool_call("retaindb_forget", {"id": identity}))["success"] is False


def test_what_is_forgotten_is_gone_for_this_user_only(tmp_path, double):
    """By text, by session, and everything."""
    mine, other = start(tmp_path, double), start(tmp_path, double, user_id="anna")
    for provider in (mine, other):
        provider.sync_turn("the code is HERON", "ok", session_id="s1")
        provider.sync_turn("tea at four", "ok", session_id="s2")
    words = ForgetRequest(texts=("heron",))

    assert mine.forget_content(words) == 1
    assert not mine.holds_content(words)
    assert mine.forget_content(ForgetRequest(session_ids=("s2",))) == 1
    assert other.forget_content(ForgetRequest(everything=True)) == 2
    assert double.texts() == []


def test_errors_and_odd_answers(tmp_path, double):
    """One line, or nothing."""
    provider = start(tmp_path, double)
    double.outage = Fault(404, b'{"code": "NOT_FOUND"}')
    with pytest.raises(ProviderError, match="404: NOT_FOUND"):
        provider.prefetch("hello")
    for body in (b'{"results": {}}', b'{"results": [{"memory": 7}]}', b"7"):
        double.outage = Fault(200, body)
        assert provider.prefetch("hello") == ""
    double.outage = Fault(503)
    assert provider.get_status()["reachable"] is False


def test_secrets_and_recalled_text_do_not_leave(tmp_path, double):
    """What was recalled is never sent back as new."""
    provider = start(tmp_path, double)
    recalled = "<memory-context>\n[System note: recalled memory follows.]\n\n- likes tea\n</memory-context>"
    provider.sync_turn(f"{recalled}\nhello, key sk-proj-{'a1B2' * 12}", "ok", session_id="s1")

    sent = json.dumps([request.body for request in double.requests])
    assert "likes tea" not in sent
    assert "a1B2a1B2" not in sent

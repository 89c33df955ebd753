"""OpenViking: a double in the shapes of the real server, which `make test-providers` runs."""

import json
import re

import pytest

from wellkept.core.errors import ProviderError
from wellkept.providers.base import ForgetRequest, StartContext
from wellkept.providers.openviking import OpenVikingProvider
from wellkept.providers.openviking import provider as provider_module
from wellkept.providers.trial import run_trial
from wellkept.testing.http_double import Fault, HttpDouble
from wellkept.testing.provider_contract import ProviderContract

KEY = "ov_0123456789abcdef0123"
MEMORY = re.compile(r"viking://user/[^/]+/(peers/[^/]+/)?memories/.+")


class OpenVikingDouble(HttpDouble):
    """Files by address, sessions by user. An address without the user is a resource, which no memory search finds."""

    def __init__(self):
        super().__init__()
        self.files = {}
        self.sessions = {}
        self.tasks = {}
        self.task_status = "completed"
        a = "/api/v1"
        self.route("GET", "/health", lambda _: (200, {"status": "ok", "version": "0.5.2", "auth_mode": "dev"}))
        self.route("POST", f"{a}/content/write", self._write)
        self.route("GET", f"{a}/content/(read|abstract|overview)", self._read)
        self.route("GET", f"{a}/fs/(ls|tree)", self._browse)
        self.route("DELETE", f"{a}/fs", self._delete)
        self.route("POST", f"{a}/search/find", self._find)
        self.route("POST", f"{a}/search/grep", self._grep)
        self.route("POST", f"{a}/sessions/([^/]+)/messages/batch", self._add)
        self.route("GET", f"{a}/sessions/([^/]+)/context", self._context)
        self.route("POST", f"{a}/sessions/([^/]+)/commit", self._commit)
        self.route("GET", f"{a}/sessions", self._list)
        self.route("DELETE", f"{a}/sessions/([^/]+)", self._drop)
        self.route("GET", f"{a}/tasks/([^/]+)", self._task)
        self.route("POST", f"{a}/resources", lambda r: ok({"root_uri": f"{r.body['parent']}/page"}))

    def check(self, request):
        if request.path == "/health" or request.headers.get("x-api-key") == KEY:
            return None
        return 401, {"status": "error", "error": {"code": "UNAUTHENTICATED", "message": "invalid key"}}

    def texts(self):
        said = [each["content"] for messages in self.sessions.values() for each in messages]
        return list(self.files.values()) + said

    def _write(self, request):
        self.files[request.body["uri"]] = request.body["content"]
        return ok({"uri": request.body["uri"]})

    def _read(self, request):
        text = self.files.get(request.query["uri"])
        return missing("File not found") if text is None else ok(text)

    def _browse(self, request):
        below = [uri for uri in self.files if uri.startswith(f"{request.query['uri']}/")]
        return ok([{"uri": uri, "isDir": False, "abstract": self.files[uri]} for uri in below])

    def _delete(self, request):
        self.files.pop(request.query["uri"], None)
        return ok({"uri": request.query["uri"]})

    def _find(self, request):
        wanted = set(request.body["query"].lower().replace("?", "").split())
        found = [
            {"uri": uri, "abstract": text, "score": 0.8 if wanted & set(text.lower().rstrip(".").split()) else 0.1}
            for uri, text in self.files.items()
            if MEMORY.fullmatch(uri)
        ]
        # the real server also returns files that describe folders, and those of other users
        found.append({"uri": "viking://user/default/memories/.overview.md", "abstract": "User's storage", "score": 0.5})
        return ok({"memories": found, "resources": [], "skills": [], "total": len(found)})

    def _grep(self, request):
        pattern = re.compile(request.body["pattern"], re.IGNORECASE)
        root = request.body["uri"]
        found = [{"uri": uri} for uri, text in self.files.items() if uri.startswith(root) and pattern.search(text)]
        for (user, session), messages in self.sessions.items():
            uri = f"viking://user/{user}/sessions/{session}/messages.jsonl"
            if uri.startswith(root) and any(pattern.search(each["content"]) for each in messages):
                found.append({"uri": uri})
        return ok({"matches": found})

    def _key(self, request):
        return request.headers["x-openviking-user"], request.groups[0]

    def _add(self, request):
        self.sessions.setdefault(self._key(request), []).extend(request.body["messages"])
        return ok({"added": len(request.body["messages"])})

    def _context(self, request):
        if self._key(request) not in self.sessions:
            return missing("Session not found")
        messages = [
            {"role": each["role"], "turn_id": each["turn_id"], "parts": [{"type": "text", "text": each["content"]}]}
            for each in self.sessions[self._key(request)]
        ]
        return ok({"messages": messages})

    def _commit(self, request):
        if self._key(request) not in self.sessions:
            return missing("Session not found")
        user, session = self._key(request)
        for number, each in enumerate(self.sessions[user, session]):
            if each["role"] == "user" and self.task_status == "completed":
                self.files[f"viking://user/{user}/memories/{session}-{number}.md"] = each["content"]
        return ok({"status": "accepted", "task_id": "t1", "archived": True})

    def _list(self, request):
        user = request.headers["x-openviking-user"]
        return ok([{"session_id": session} for owner, session in self.sessions if owner == user])

    def _drop(self, request):
        found = self.sessions.pop(self._key(request), None)
        return missing("Session not found") if found is None else ok({})

    def _task(self, request):
        del request
        return ok({"status": self.task_status, "error": "the model answered nonsense"})


def ok(result):
    return 200, {"status": "ok", "result": result, "error": None}


def missing(message):
    return 404, {"status": "error", "result": None, "error": {"code": "NOT_FOUND", "message": message}}


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setenv("OPENVIKING_API_KEY", KEY)
    monkeypatch.setattr(provider_module, "_POLL_SECONDS", 0.01)
    with OpenVikingDouble() as running:
        yield running


def settings_of(double):
    return {"base_url": double.url}


def start(home, double, *, settings=None, **context):
    (home / "openviking.json").write_text(json.dumps({**settings_of(double), **(settings or {})}))
    provider = OpenVikingProvider()
    provider.initialize("s1", **{**StartContext(kept_home=str(home)).keywords(), **context})
    return provider


class TestContract(ProviderContract):
    @pytest.fixture(autouse=True)
    def _server(self, double, tmp_path):
        self.double = double
        (tmp_path / "openviking.json").write_text(json.dumps(settings_of(double)))

    def provider(self):
        return OpenVikingProvider()

    def known(self, provider, text):
        return text in self.double.texts()


def test_a_round_trip(tmp_path, double):
    """Stored, recalled, removed, gone."""
    start(tmp_path, double)
    trial = run_trial(OpenVikingProvider(), StartContext(kept_home=str(tmp_path), user_id="trial"))

    assert trial.ok, trial.steps
    assert double.texts() == []


def test_memories_are_stored_under_the_user_so_that_a_search_finds_them(tmp_path, double):
    """An address without the user would make a resource of it."""
    provider = start(tmp_path, double)
    provider.on_memory_write("add", "user", "Likes oolong tea", {"ledger_id": 1})
    provider.handle_tool_call("viking_remember", {"content": "Owns a red bicycle"})

    assert all(uri.startswith(f"viking://user/{provider.scope}/peers/kept/memories/") for uri in double.files)
    assert "oolong" in provider.prefetch("oolong tea")
    assert "bicycle" in provider.prefetch("red bicycle")


def test_a_search_that_finds_other_users_is_narrowed(tmp_path, double):
    """Without authentication the server searches everybody's memories; folders' descriptions are no memories."""
    mine, other = start(tmp_path, double), start(tmp_path, double, user_id="anna")
    other.on_memory_write("add", "user", "Likes oolong tea", {"ledger_id": 1})
    (theirs,) = double.files

    assert mine.prefetch("oolong tea") == ""
    assert json.loads(mine.handle_tool_call("viking_search", {"query": "oolong"}))["results"] == []
    for tool in ("viking_read", "viking_forget", "viking_browse"):
        assert json.loads(mine.handle_tool_call(tool, {"uri": theirs}))["success"] is False
        assert json.loads(mine.handle_tool_call(tool, {"uri": f"{mine.api.home}/../x"}))["success"] is False
    assert theirs in double.files


def test_a_repeated_turn_is_found_by_its_id(tmp_path, double):
    """And turns keep their order."""
    provider = start(tmp_path, double)
    for number in (1, 1, 2, 2):
        provider.sync_turn(f"question {number}", "ok", session_id="s1", idempotency_key=f"turn:{number}")
    (messages,) = double.sessions.values()
    assert [each["content"] for each in messages] == ["question 1", "ok", "question 2", "ok"]


def test_the_end_of_a_session_has_memories_extracted(tmp_path, double):
    """So does a compaction, without waiting; an extraction that failed is an error with the next step."""
    provider = start(tmp_path, double)
    provider.sync_turn("my dog is called Rex", "nice", session_id="s1", idempotency_key="k")
    assert provider.prefetch("dog called") == ""
    provider.on_session_end([], session_id="s1")
    assert "Rex" in provider.prefetch("dog called")
    assert provider.on_pre_compress([]) == ""
    provider.on_session_end([], session_id="a session that nobody knows")
    double.task_status = "failed"
    with pytest.raises(ProviderError, match=r"the model answered nonsense.*check the model"):
        provider.on_session_end([], session_id="s1")


def test_forgetting_deletes_files_and_whole_sessions_and_says_so(tmp_path, double):
    """OpenViking deletes no single message."""
    mine, other = start(tmp_path, double), start(tmp_path, double, user_id="anna")
    for provider in (mine, other):
        provider.on_memory_write("add", "user", "the code is HERON (really?)", {"ledger_id": 1})
        provider.sync_turn("heron (really?) again", "ok", session_id="s1")
        provider.sync_turn("tea at four", "ok", session_id="s2")
    request = ForgetRequest(texts=("Heron (really?)",))

    forgotten = mine.forget_content(request)

    assert (forgotten.removed, "1 whole sessions" in forgotten.note) == (2, True)
    assert not mine.holds_content(request)
    assert other.holds_content(request)
    assert mine.forget_content(ForgetRequest(session_ids=("s2", "unknown"))).removed == 1
    assert other.forget_content(ForgetRequest(everything=True)).removed == 3
    assert double.texts() == []


def test_tools(tmp_path, double):
    """Tiered reads, folders, a resource from the web."""
    provider = start(tmp_path, double)
    call = lambda name, **args: json.loads(provider.handle_tool_call(name, args))  # noqa: E731 - short calls
    uri = call("viking_remember", content="likes oolong tea")["uri"]

    assert call("viking_search", query="oolong")["results"][0]["uri"] == uri
    assert call("viking_read", uri=uri)["text"] == "likes oolong tea"
    call("viking_read", uri=uri, tier="abstract")
    assert double.requests[-1].path.endswith("/content/abstract")
    assert call("viking_browse", deep=True)["entries"][0]["uri"] == uri
    assert double.requests[-1].path.endswith("/fs/tree")
    assert call("viking_add_resource", url="https://example.org/x", reason="docs")["uri"].endswith("/resources/page")
    assert "web address" in call("viking_add_resource", url="/etc/passwd")["error"]
    assert call("viking_forget", uri=uri)["success"] is True
    assert double.files == {}


def test_knobs(tmp_path, double):
    """Limit, threshold and characters of a recall."""
    provider = start(tmp_path, double, settings={"recall_limit": 3, "score_threshold": 0.05, "recall_max_chars": 200})
    for number in range(9):
        provider.handle_tool_call("viking_remember", {"content": f"fact {number} " + "x" * 50})
    recalled = provider.prefetch("nothing alike")

    assert 0 < len(recalled) <= 200
    assert double.requests[-1].body["limit"] == 3
    assert start(tmp_path, double).prefetch("nothing alike") == ""


def test_answers_without_the_envelope_are_errors(tmp_path, double):
    """And so is an error with status 200."""
    provider = start(tmp_path, double)
    for body, word in ((b"[]", "envelope"), (b'{"status": "error", "error": {"message": "busy"}}', "busy")):
        double.outage = Fault(200, body)
        with pytest.raises(ProviderError, match=word):
            provider.prefetch("hello")
        assert provider.get_status()["reachable"] is False

"""Honcho: a double of its API, version 3, which the vendor's own client accepts."""

import json

import pytest

from wellkept.core.errors import ProviderError
from wellkept.providers.base import ForgetRequest, StartContext
from wellkept.providers.honcho import HonchoProvider
from wellkept.providers.trial import run_trial
from wellkept.testing.http_double import Fault, HttpDouble
from wellkept.testing.provider_contract import ProviderContract

KEY = "hch-v3-0123456789abcdef"
NOW = "2026-11-17T00:00:00Z"
W = "/v3/workspaces/([^/]+)"


class HonchoDouble(HttpDouble):
    """Workspaces, peers, sessions, messages, conclusions; the deriver runs when `derive` is called."""

    def __init__(self):
        super().__init__()
        self.workspaces, self.peers, self.sessions = set(), set(), {}
        self.messages, self.conclusions = [], {}
        self.asked = []
        self.route("POST", "/v3/workspaces", self._workspace)
        self.route("POST", f"{W}/peers", self._peer)
        self.route("POST", f"{W}/sessions", self._session)
        self.route("POST", f"{W}/sessions/([^/]+)/messages", self._add)
        self.route("POST", f"{W}/sessions/([^/]+)/messages/list", self._list)
        self.route("GET", f"{W}/sessions/([^/]+)/context", self._context)
        self.route("DELETE", f"{W}/sessions/([^/]+)", self._delete_session)
        self.route("POST", f"{W}/peers/([^/]+)/chat", self._chat)
        self.route("GET", f"{W}/peers/([^/]+)/card", self._card)
        self.route("POST", f"{W}/peers/([^/]+)/search", self._search)
        self.route("POST", f"{W}/conclusions", self._conclude)
        self.route("POST", f"{W}/conclusions/list", self._conclusions)
        self.route("POST", f"{W}/conclusions/query", self._query)
        self.route("DELETE", f"{W}/conclusions/([^/]+)", self._delete)
        self.route("GET", f"{W}/queue/status", self._queue)

    def check(self, request):
        return None if request.headers.get("authorization") == f"Bearer {KEY}" else (401, {"detail": "bad key"})

    def texts(self):
        return [each["content"] for each in self.conclusions.values()]

    def derive(self):
        """Turn every message of a person into a conclusion about them."""
        for each in self.messages:
            if each["peer_id"].startswith("user") and not each.get("derived"):
                each["derived"] = True
                self._put(each["workspace"], "kept", each["peer_id"], f"said: {each['content']}", each["session_id"])

    def _put(self, workspace, observer, observed, content, session=None):
        identity = f"c{len(self.requests)}-{len(self.conclusions)}"
        self.conclusions[identity] = {
            "id": identity, "content": content, "observer_id": observer, "observed_id": observed,
            "session_id": session, "created_at": NOW, "workspace": workspace,
        }  # fmt: skip
        return self.conclusions[identity]

    def _workspace(self, request):
        self.workspaces.add(request.body["id"])
        return 200, {"id": request.body["id"], "metadata": {}, "configuration": {}, "created_at": NOW}

    def _peer(self, request):
        if request.groups[0] not in self.workspaces:
            return 404, {"detail": "no workspace"}
        self.peers.add((request.groups[0], request.body["id"]))
        return 200, {
            "id": request.body["id"], "workspace_id": request.groups[0], "metadata": {}, "configuration": {}, "created_at": NOW,
        }  # fmt: skip

    def _session(self, request):
        self.sessions[request.groups[0], request.body["id"]] = request.body.get("peers") or {}
        return 200, {
            "id": request.body["id"], "workspace_id": request.groups[0], "is_active": True, "metadata": {},
            "configuration": {}, "created_at": NOW,
        }  # fmt: skip

    def _add(self, request):
        if request.groups[:2] not in self.sessions:
            return 404, {"detail": "no session"}
        made = []
        for each in request.body["messages"]:
            if not each["content"]:
                return 422, {"detail": "content is empty"}
            made.append(
                {
                    "id": f"m{len(self.messages)}",
                    "content": each["content"],
                    "peer_id": each["peer_id"],
                    "session_id": request.groups[1],
                    "workspace_id": request.groups[0],
                    "workspace": request.groups[0],
                    "metadata": each.get("metadata") or {},
                    "created_at": NOW,
                    "token_count": 3,
                }
            )
            self.messages.append(made[-1])
        return 201, made

    def _list(self, request):
        wanted = ((request.body or {}).get("filters") or {}).get("metadata") or {}
        found = [
            each
            for each in self.messages
            if each["session_id"] == request.groups[1]
            and all(each["metadata"].get(key) == value for key, value in wanted.items())
        ]
        size = int(request.query.get("size", 50))
        return 200, {"items": found[:size], "total": len(found), "page": 1, "size": size, "pages": 1}

    def _of(self, workspace, observed):
        return [
            each
            for each in self.conclusions.values()
            if (each["workspace"], each["observed_id"]) == (workspace, observed)
        ]

    def _context(self, request):
        if request.groups[:2] not in self.sessions:
            return 404, {"detail": "no session"}
        known = self._of(request.groups[0], request.query.get("peer_target"))
        return 200, {
            "id": request.groups[1],
            "messages": [],
            "summary": None,
            "peer_representation": "\n".join(f"- {each['content']}" for each in known) or None,
            "peer_card": [each["content"] for each in known[:1]] or None,
        }

    def _chat(self, request):
        self.asked.append(request.body)
        return 200, {"content": "They like it short. " * 100}

    def _card(self, request):
        return 200, {
            "peer_card": [each["content"] for each in self._of(request.groups[0], request.query["target"])] or None
        }

    def _search(self, request):
        wanted = request.body["query"].lower().split()
        return 200, [
            each
            for each in self.messages
            if each["peer_id"] == request.groups[1] and any(word in each["content"].lower() for word in wanted)
        ][: request.body.get("limit", 10)]

    def _conclude(self, request):
        return 201, [
            self._put(
                request.groups[0], each["observer_id"], each["observed_id"], each["content"], each.get("session_id")
            )
            for each in request.body["conclusions"]
        ]

    def _conclusions(self, request):
        found = self._of(request.groups[0], request.body["filters"]["observed_id"])
        size, page = int(request.query["size"]), int(request.query["page"])
        return 200, {
            "items": found[(page - 1) * size : page * size],
            "total": len(found),
            "page": page,
            "size": size,
            "pages": 1,
        }

    def _query(self, request):
        words = set(request.body["query"].lower().replace("?", "").split())
        found = [
            each
            for each in self._of(request.groups[0], request.body["filters"]["observed_id"])
            if words & set(each["content"].lower().replace(".", "").split())
        ]
        return 200, found[: request.body["top_k"]]

    def _delete(self, request):
        return (204, None) if self.conclusions.pop(request.groups[1], None) else (404, {"detail": "not found"})

    def _delete_session(self, request):
        self.messages = [each for each in self.messages if each["session_id"] != request.groups[1]]
        return (202, {}) if self.sessions.pop(request.groups[:2], None) is not None else (404, {"detail": "not found"})

    def _queue(self, request):
        waiting = sum(not each.get("derived") for each in self.messages)
        return 200, {
            "total_work_units": waiting,
            "completed_work_units": 0,
            "in_progress_work_units": 0,
            "pending_work_units": waiting,
        }


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setenv("HONCHO_API_KEY", KEY)
    with HonchoDouble() as running:
        yield running


def start(home, double, *, settings=None, **context):
    (home / "honcho.json").write_text(json.dumps({"base_url": double.url, "dialecticCadence": 0, **(settings or {})}))
    provider = HonchoProvider()
    provider.initialize("s1", **{**StartContext(kept_home=str(home)).keywords(), **context})
    return provider


class TestContract(ProviderContract):
    @pytest.fixture(autouse=True)
    def _server(self, double, tmp_path):
        self.double = double
        (tmp_path / "honcho.json").write_text(json.dumps({"base_url": double.url}))

    def provider(self):
        return HonchoProvider()

    def known(self, provider, text):
        return text in self.double.texts()


def test_a_round_trip(tmp_path, double):
    """Stored, recalled, removed, gone."""
    start(tmp_path, double)
    trial = run_trial(HonchoProvider(), StartContext(kept_home=str(tmp_path), user_id="trial"))

    assert trial.ok, trial.steps
    assert double.texts() == []


def test_conclusions_appear_when_the_deriver_has_worked(tmp_path, double):
    """Nobody waits for it; the status says how much it has to do."""
    provider = start(tmp_path, double)
    provider.sync_turn("my dog is called Rex", "nice", session_id="s1", idempotency_key="k1")

    assert provider.prefetch("what is my dog called?", session_id="s1") == ""
    assert provider.get_status()["waiting_to_be_derived"] == 2
    double.derive()
    provider.on_turn_start(2, "x")
    assert "Rex" in provider.prefetch("what is my dog called?", session_id="s1")


def test_a_delivery_that_is_repeated_is_stored_once(tmp_path, double):
    """Its key is found at Honcho."""
    for _ in range(2):
        start(tmp_path, double).sync_turn("a", "b", session_id="s1", idempotency_key="k1")
    start(tmp_path, double).sync_turn("a", "b", session_id="s1", idempotency_key="k2")

    assert len(double.messages) == 4


def test_the_cadences(tmp_path, double):
    """Context and dialectic are asked for as often as the settings say."""
    provider = start(tmp_path, double, settings={"contextCadence": 3, "dialecticCadence": 2})
    for turn in range(1, 7):
        provider.on_turn_start(turn, "x")
        recalled = provider.prefetch("who am I", session_id="s1")

    assert [each.path.endswith("/context") for each in double.requests].count(True) == 2
    assert len(double.asked) == 3
    assert len(recalled) <= 600
    first = start(tmp_path, double, settings={"injectionFrequency": "first-turn"})
    first.on_turn_start(2, "x")
    before = len(double.requests)
    assert first.prefetch("who am I", session_id="s1") == ""
    assert len(double.requests) == before


@pytest.mark.parametrize(("mode", "tools", "recalls"), [("hybrid", 5, True), ("context", 0, True), ("tools", 5, False)])
def test_the_modes(tmp_path, double, mode, tools, recalls):
    """Context, tools, or both."""
    provider = start(tmp_path, double, settings={"recallMode": mode})
    provider.on_memory_write("add", "user", "Likes oolong tea", {"ledger_id": 1})

    assert len(provider.get_tool_schemas()) == tools
    assert bool(provider.prefetch("oolong tea", session_id="s1")) is recalls


@pytest.mark.parametrize(
    ("strategy", "count"), [("global", 1), ("per-directory", 1), ("per-repo", 1), ("per-session", 2)]
)
def test_the_sessions_at_honcho(tmp_path, double, strategy, count):
    """Which conversations share one."""
    provider = start(tmp_path, double, settings={"sessionStrategy": strategy}, agent_workspace="/work/a")
    for session in ("s1", "s2"):
        provider.sync_turn("a", "b", session_id=session)

    assert len({each["session_id"] for each in double.messages}) == count


def test_turns_can_be_sent_together_at_the_end(tmp_path, double):
    """With `writeFrequency: session`."""
    provider = start(tmp_path, double, settings={"writeFrequency": "session"})
    provider.sync_turn("a", "b", session_id="s1")
    assert double.messages == []
    conversation = [
        {"role": "user", "content": "a"},
        {"role": "tool", "content": "x"},
        {"role": "assistant", "content": "b"},
    ]
    provider.on_session_end(conversation, session_id="s1")
    assert [each["content"] for each in double.messages] == ["a", "b"]


def test_users_are_kept_apart(tmp_path, double):
    """Each person is a peer of their own."""
    mine, other = start(tmp_path, double), start(tmp_path, double, user_id="anna")
    mine.on_memory_write("add", "user", "Likes oolong tea", {"ledger_id": 1})
    (identity,) = double.conclusions

    assert other.prefetch("oolong tea", session_id="s1") == ""
    assert json.loads(other.handle_tool_call("honcho_conclude", {"delete_id": identity}))["success"] is False
    assert json.loads(mine.handle_tool_call("honcho_conclude", {"delete_id": identity}))["success"] is True


def test_the_tools(tmp_path, double):
    """Conclude, search, read the card, ask."""
    provider = start(tmp_path, double)
    provider.sync_turn("the port is 5433", "ok", session_id="s1")

    def call(name, **arguments):
        return json.loads(provider.handle_tool_call(name, arguments))

    assert call("honcho_conclude", content="Prefers short answers")["stored"]
    assert call("honcho_profile")["card"] == ["Prefers short answers"]
    assert call("honcho_search", query="port")["results"][0]["content"] == "the port is 5433"
    assert "short" in call("honcho_context", query="short answers")["context"]
    assert call("honcho_reasoning", query="How should I answer?", level="high")["answer"]
    assert double.asked[-1]["reasoning_level"] == "high"
    assert "give `content`" in call("honcho_conclude")["error"]


def test_what_is_forgotten_is_gone(tmp_path, double):
    """Conclusions by text; messages only with their session, which the answer counts."""
    provider = start(tmp_path, double, settings={"sessionStrategy": "per-session"})
    provider.sync_turn("the code is HERON", "ok", session_id="s1")
    provider.sync_turn("tea at four", "ok", session_id="s2")
    double.derive()
    words = ForgetRequest(texts=("heron",))

    assert provider.holds_content(words)
    forgotten = provider.forget_content(words)
    assert forgotten.removed >= 2
    assert "deletes no single message: 1 whole sessions" in forgotten.note
    assert not provider.holds_content(words)
    assert [each["content"] for each in double.messages] == ["tea at four", "ok"]
    provider.forget_content(ForgetRequest(session_ids=("s2",)))
    assert double.messages == []


def test_secrets_and_recalled_text_do_not_leave(tmp_path, double):
    """What was recalled is never sent back as new."""
    provider = start(tmp_path, double)
    recalled = "<memory-context>\n[System note: recalled memory follows.]\n\n- likes tea\n</memory-context>"
    provider.sync_turn(f"{recalled}\nhello, key sk-proj-{'a1B2' * 12}", "ok", session_id="s1")

    sent = json.dumps([request.body for request in double.requests])
    assert "likes tea" not in sent
    assert "a1B2a1B2" not in sent


def test_errors_and_odd_answers(tmp_path, double):
    """One line, or nothing."""
    provider = start(tmp_path, double)
    provider.prefetch("hello", session_id="s1")
    double.outage = Fault(401, b'{"detail": "expired"}')
    provider.on_turn_start(5, "x")
    with pytest.raises(ProviderError, match="401: expired"):
        provider.prefetch("hello", session_id="s1")
    double.outage = Fault(200, b'{"peer_card": 7, "peer_representation": []}')
    assert provider.prefetch("hello", session_id="s1") == ""


def test_forgetting_says_when_the_deriver_is_not_done(tmp_path, double):
    """It works in the background and may still draw a conclusion from what it has read."""
    provider = start(tmp_path, double, settings={"sessionStrategy": "per-session"})
    provider.sync_turn("the code is HERON", "ok", session_id="s1")
    provider.sync_turn("tea at four", "ok", session_id="s2")
    request = ForgetRequest(texts=("heron",))
    working = provider.forget_content(request)
    for each in double.messages:
        each["derived"] = True
    done = provider.forget_content(request)

    assert "its deriver still works" in working.note
    assert done.note == ""
    assert provider.get_status()["waiting_to_be_derived"] == 0

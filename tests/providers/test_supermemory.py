"""Supermemory: both generations of its API as doubles."""

import json

import pytest

from wellkept.core.errors import ProviderError
from wellkept.providers.base import ForgetRequest, StartContext
from wellkept.providers.supermemory import SupermemoryProvider
from wellkept.providers.trial import run_trial
from wellkept.testing.http_double import Fault, HttpDouble
from wellkept.testing.provider_contract import ProviderContract

KEY = "sm_0123456789abcdef0123"
GENERATIONS = ("v3", "v5")


class SupermemoryDouble(HttpDouble):
    """Documents by container; every line of a document becomes a memory, at once or when `process` is called."""

    def __init__(self):
        super().__init__()
        self.documents = {}
        self.memories = {}
        self.conversations = []
        self.is_slow = False
        self.generation = ""
        """The only generation that it speaks, as a real server does; both if empty."""
        self.route("POST", "/v3/documents", self._add)
        self.route("POST", "/v4/search", lambda r: self._search(r.body["containerTag"], r.body["q"], r.body))
        self.route("POST", "/v4/profile", lambda r: self._profile(r.body["containerTag"]))
        self.route("POST", "/v3/documents/list", self._list)
        self.route("DELETE", "/v3/documents/([^/]+)", self._delete)
        self.route("DELETE", "/v4/memories", self._forget)
        self.route("POST", "/v4/conversations", self._converse)
        self.route("POST", "/ns/([^/]+)/document", self._add_named)
        self.route("POST", "/ns/([^/]+)/search", lambda r: self._search(r.groups[0], r.body["query"], r.body))
        self.route("POST", "/ns/([^/]+)/profile", self._profile_named)
        self.route("POST", "/ns/([^/]+)/list/documents", self._list_named)
        self.route("DELETE", "/ns/([^/]+)/document", self._delete_named)
        self.route("DELETE", "/ns/([^/]+)/memories", self._forget_named)

    def check(self, request):
        if self.generation and request.path.startswith("/ns/") != (self.generation == "v5"):
            return 404, {"error": "no such route"}
        return None if request.headers.get("authorization") == f"Bearer {KEY}" else (401, {"error": "unauthorized"})

    def texts(self):
        return [each["content"] for each in self.documents.values()]

    def process(self):
        for each in self.documents.values():
            self.memories.setdefault(
                f"m-{each['id']}", {"id": f"m-{each['id']}", "memory": each["content"], "container": each["container"]}
            )

    def _put(self, container, custom, content, metadata):
        identity = next(
            (
                key
                for key, each in self.documents.items()
                if each["customId"] == custom and each["container"] == container
            ),
            f"d{len(self.requests)}",
        )
        self.documents[identity] = {
            "id": identity, "customId": custom, "container": container, "content": content, "metadata": metadata,
        }  # fmt: skip
        if not self.is_slow:
            self.process()
        return identity

    def _add(self, request):
        body = request.body
        if not isinstance(body.get("content"), str) or not body["content"]:
            return 400, {"error": "content is required"}
        return 200, {
            "id": self._put(body["containerTags"][0], body["customId"], body["content"], body.get("metadata")),
            "status": "queued",
        }

    def _add_named(self, request):
        body = request.body
        self._put(request.groups[0], body["id"], body["content"], body.get("metadata"))
        return 200, {"id": body["id"], "status": "queued"}

    def _search(self, container, query, body):
        wanted = set(query.lower().split())
        found = [
            {**each, "similarity": len(wanted & set(each["memory"].lower().split())) / 10}
            for each in self.memories.values()
            if each["container"] == container
        ]
        found = sorted((each for each in found if each["similarity"]), key=lambda each: -each["similarity"])
        return 200, {"results": found[: body.get("limit") or 10], "timing": 1, "total": len(found)}

    def _profile(self, container):
        known = [each["memory"] for each in self.memories.values() if each["container"] == container]
        return 200, {"profile": {"static": known[:1], "dynamic": known[1:2]}}

    def _list(self, request):
        found = [each for each in self.documents.values() if each["container"] in request.body["containerTags"]]
        start = (request.body["page"] - 1) * request.body["limit"]
        return 200, {"memories": found[start : start + request.body["limit"]], "pagination": {}}

    def _profile_named(self, request):
        _, answer = self._profile(request.groups[0])
        facts = {key: [{"id": "m", "memory": text} for text in texts] for key, texts in answer["profile"].items()}
        return 200, {"profile": {**facts, "buckets": {}}}

    def _list_named(self, request):
        found = [each for each in self.documents.values() if each["container"] == request.groups[0]]
        limit = int(request.query["limit"])
        start = (int(request.query["page"]) - 1) * limit
        listed = [
            {
                "id": each["customId"],
                "type": "text",
                "content": each["content"],
                "metadata": each["metadata"],
                "system": {},
            }
            for each in found[start : start + limit]
        ]
        return 200, {"documents": listed, "chunks": [], "memories": [], "pagination": {}}

    def _delete_named(self, request):
        own = {each["customId"] for each in self.documents.values() if each["container"] == request.groups[0]}
        count = sum(self._drop(identity) for identity in request.body["ids"] if identity in own)
        return 200, {"count": count, "errors": []}

    def _drop(self, identity):
        found = [key for key, each in self.documents.items() if identity in {key, each["customId"]}]
        for key in found:
            self.documents.pop(key)
            self.memories.pop(f"m-{key}", None)
        return len(found)

    def _delete(self, request):
        return (204, None) if self._drop(request.groups[0]) else (404, {"error": "not found"})

    def _forget(self, request):
        found = self.memories.get(request.body["id"])
        if found is None or found["container"] != request.body["containerTag"]:
            return 404, {"error": "not found"}
        self.memories.pop(request.body["id"])
        return 200, {"id": request.body["id"], "forgotten": True}

    def _forget_named(self, request):
        count = 0
        for identity in request.body["ids"]:
            found = self.memories.get(identity)
            if found is not None and found["container"] == request.groups[0]:
                self.memories.pop(identity)
                count += 1
        return 200, {"count": count, "errors": [], "matches": []}

    def _converse(self, request):
        self.conversations.append(request.body)
        return 200, {"id": request.body["conversationId"]}


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setenv("SUPERMEMORY_API_KEY", KEY)
    with SupermemoryDouble() as running:
        yield running


@pytest.fixture(params=GENERATIONS)
def generation(request):
    return request.param


def start(home, double, generation, *, settings=None, **context):
    values = {"base_url": double.url, "generation": generation, **(settings or {})}
    double.generation = generation
    (home / "supermemory.json").write_text(json.dumps(values))
    provider = SupermemoryProvider()
    provider.initialize("s1", **{**StartContext(kept_home=str(home)).keywords(), **context})
    return provider


class SupermemoryContract(ProviderContract):
    generation = ""

    @pytest.fixture(autouse=True)
    def _server(self, double, tmp_path):
        self.double = double
        (tmp_path / "supermemory.json").write_text(json.dumps({"base_url": double.url, "generation": self.generation}))

    def provider(self):
        return SupermemoryProvider()

    def known(self, provider, text):
        return text in self.double.texts()


class TestDocuments(SupermemoryContract):
    generation = "v3"


class TestNamespaces(SupermemoryContract):
    generation = "v5"


def test_a_round_trip(tmp_path, double, generation):
    """Stored, recalled, removed, gone."""
    start(tmp_path, double, generation)
    trial = run_trial(SupermemoryProvider(), StartContext(kept_home=str(tmp_path), user_id="trial"))

    assert trial.ok, trial.steps
    assert double.texts() == []


def test_a_delivery_that_is_repeated_is_stored_once(tmp_path, double, generation):
    """After a crash the outbox sends its last write again, with the same key."""
    provider = start(tmp_path, double, generation)
    for _ in range(2):
        provider.sync_turn("my dog is called Rex", "nice", session_id="s1", idempotency_key="turn:1")
    provider.sync_turn("my dog is called Rex", "nice", session_id="s1", idempotency_key="turn:2")

    assert len(double.documents) == 2


def test_recalled_text_and_secrets_are_not_captured(tmp_path, double, generation):
    """Turns are sent as they were said."""
    provider = start(tmp_path, double, generation)
    recalled = "<memory-context>\n[System note: recalled memory follows.]\n\n- likes tea\n</memory-context>"
    provider.sync_turn(f"{recalled}\nhello, key sk-proj-{'a1B2' * 12}", "ok", session_id="s1")
    provider.on_session_end([{"role": "user", "content": f"{recalled}\nhello"}], session_id="s1")

    sent = json.dumps([request.body for request in double.requests])
    assert "likes tea" not in sent
    assert "a1B2a1B2" not in sent
    assert "hello" in sent


def test_the_profile_comes_first_and_then_seldom(tmp_path, double, generation):
    """Every so many turns."""
    provider = start(tmp_path, double, generation, settings={"profile_frequency": 3})
    provider.sync_turn("lives in Graz", "ok", session_id="s1", idempotency_key="1")
    for _ in range(7):
        provider.prefetch("nothing similar")

    assert [request.path.endswith("profile") for request in double.requests].count(True) == 3
    assert "lives in Graz" in start(tmp_path, double, generation).prefetch("xyz")


def test_users_are_kept_apart(tmp_path, double, generation):
    """In recall, in the profile, and when an id is named."""
    mine, other = start(tmp_path, double, generation), start(tmp_path, double, generation, user_id="anna")
    mine.sync_turn("my dog is called Rex", "nice", session_id="s1", idempotency_key="1")
    (memory,) = double.memories

    assert "Rex" in mine.prefetch("dog called")
    assert other.prefetch("dog called") == ""
    assert json.loads(other.handle_tool_call("supermemory_forget", {"id": memory}))["success"] is False
    assert json.loads(mine.handle_tool_call("supermemory_forget", {"id": memory}))["success"] is True


def test_switches_are_respected(tmp_path, double, generation):
    """No recall, no capture, only what the person said."""
    off = start(tmp_path, double, generation, settings={"auto_recall": False, "auto_capture": False})
    off.sync_turn("a", "b", session_id="s1")
    off.on_session_end([{"role": "user", "content": "a"}], session_id="s1")
    assert off.prefetch("a") == ""
    assert double.requests == []
    half = start(tmp_path, double, generation, settings={"capture_mode": "user", "session_ingest": False})
    half.sync_turn("what I said", "what it said", session_id="s1")
    half.on_session_end([{"role": "user", "content": "a"}], session_id="s1")
    assert double.texts() == ["user: what I said"]


def test_other_containers_are_those_of_the_list(tmp_path, double, generation):
    """A model cannot name one of its own."""
    provider = start(tmp_path, double, generation, settings={"custom_containers": ["team"]})
    stored = json.loads(provider.handle_tool_call("supermemory_store", {"content": "shared", "container_tag": "team"}))
    refused = json.loads(provider.handle_tool_call("supermemory_store", {"content": "x", "container_tag": "other"}))

    assert stored["success"] is True
    assert [each["container"] for each in double.documents.values()] == ["team"]
    assert "must be one of team" in refused["error"]
    plain = start(tmp_path, double, generation)
    assert "container_tag" not in json.dumps(plain.get_tool_schemas())


def test_what_is_forgotten_is_gone_for_this_user_only(tmp_path, double, generation):
    """By text, by session, and everything."""
    mine, other = start(tmp_path, double, generation), start(tmp_path, double, generation, user_id="anna")
    for provider in (mine, other):
        provider.sync_turn("the code is HERON", "ok", session_id="s1", idempotency_key="1")
        provider.sync_turn("tea at four", "ok", session_id="s2", idempotency_key="2")
    words = ForgetRequest(texts=("heron",))

    assert mine.holds_content(words)
    assert mine.forget_content(words) >= 1
    assert not mine.holds_content(words)
    assert mine.forget_content(ForgetRequest(session_ids=("s2",))) >= 1
    assert mine.prefetch("tea at four") == ""
    assert other.holds_content(words)


def test_memories_that_are_not_ready_yet_are_found_later(tmp_path, double, generation):
    """Adds are asynchronous."""
    double.is_slow = True
    provider = start(tmp_path, double, generation)
    provider.sync_turn("I moved to Graz", "noted", session_id="s1")

    assert provider.prefetch("where moved") == ""
    double.process()
    assert "Graz" in provider.prefetch("where moved")


@pytest.mark.parametrize("body", [b'{"results": 7}', b"[]", b'{"results": [{"memory": 3}]}', b'{"profile": []}'])
def test_an_odd_shape_gives_nothing(tmp_path, double, generation, body):
    """A back end's answer is untrusted."""
    provider = start(tmp_path, double, generation)
    double.outage = Fault(200, body)

    assert provider.prefetch("hello") == ""


def test_errors_say_what_to_do(tmp_path, double, generation):
    """In one line each."""
    provider = start(tmp_path, double, generation)
    double.outage = Fault(401, b'{"error": "expired"}')
    with pytest.raises(ProviderError, match="401: expired"):
        provider.prefetch("hello")
    assert provider.get_status() == {"reachable": False, "error": "supermemory answered 401: expired"}
    double.outage = Fault(422, b'{"error": "too long"}')
    with pytest.raises(ProviderError) as caught:
        provider.sync_turn("a", "b", session_id="s1")
    assert caught.value.permanent is True


def test_a_server_of_the_other_generation_is_an_error_that_names_it(tmp_path, double, generation):
    """The routes of the two have nothing in common."""
    provider = start(tmp_path, double, generation)
    double.generation = "v5" if generation == "v3" else "v3"
    with pytest.raises(ProviderError, match=r"404.*version of the server"):
        provider.prefetch("hello")
    assert provider.get_status()["reachable"] is False

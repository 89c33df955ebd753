"""Hindsight: a double in the shapes of the real server, which `make test-providers` runs."""

import json
import os
import stat
import time
import uuid

import pytest

from wellkept.core.errors import ConfigError, ProviderError
from wellkept.providers.base import ForgetRequest, StartContext
from wellkept.providers.hindsight import HindsightProvider
from wellkept.providers.hindsight.provider import BankNames, LocalServer, check_template
from wellkept.providers.trial import run_trial
from wellkept.storage.files import is_alive
from wellkept.testing.http_double import Fault, HttpDouble
from wellkept.testing.provider_contract import ProviderContract

KEY = "hs_0123456789abcdef0123"
B = "/v1/default/banks/([^/]+)"


class HindsightDouble(HttpDouble):
    """Banks of documents; each turn of a document is one memory, found by its words. Nothing deletes one memory."""

    def __init__(self):
        super().__init__()
        self.banks = {}
        self.loose = []
        self.reflections = []
        self.route("PUT", B, self._make)
        self.route("DELETE", B, lambda r: (200, {"success": self.banks.pop(r.groups[0], None) is not None}))
        self.route("GET", "/v1/default/banks", lambda _: (200, {"banks": [{"bank_id": name} for name in self.banks]}))
        self.route("POST", f"{B}/memories", self._in_bank(self._retain))
        self.route("POST", f"{B}/memories/recall", self._in_bank(self._recall))
        self.route("POST", f"{B}/reflect", self._in_bank(self._reflect))
        self.route("GET", f"{B}/memories/list", self._in_bank(self._list))
        self.route("PATCH", f"{B}/memories/([^/]+)", self._in_bank(self._patch))
        self.route("GET", f"{B}/documents", self._in_bank(self._documents))
        self.route("GET", f"{B}/documents/([^/]+)", self._in_bank(self._document))
        self.route("DELETE", f"{B}/documents/([^/]+)", self._in_bank(self._delete))
        self.route("GET", "/version", lambda _: (200, {"api_version": "1.1.0"}))

    def check(self, request):
        if request.path == "/version" or request.headers.get("authorization") == f"Bearer {KEY}":
            return None
        return 401, {"detail": "invalid key"}

    def texts(self):
        return [each["original_text"].strip() for bank in self.banks.values() for each in bank.values()]

    def _in_bank(self, handler):
        def answer(request):
            if request.groups[0] not in self.banks:
                return 404, {"detail": f"Bank '{request.groups[0]}' not found"}
            return handler(request, self.banks[request.groups[0]])

        return answer

    def _make(self, request):
        self.banks.setdefault(request.groups[0], {})
        return 200, {"bank_id": request.groups[0]}

    def _retain(self, request, bank):
        for item in request.body["items"]:
            identity = item.get("document_id") or str(uuid.uuid4())
            old = bank.get(identity) if item.get("update_mode") == "append" else None
            text = item["content"] if old is None else f"{old['original_text']}\n{item['content']}"
            bank[identity] = {"id": identity, "original_text": text, "document_metadata": item.get("metadata") or {}}
        count = len(request.body["items"])
        return 200, {"success": True, "bank_id": request.groups[0], "items_count": count, "async": False}

    def _memories(self, bank):
        made = [
            {"id": str(uuid.uuid5(uuid.NAMESPACE_URL, turn)), "text": turn.strip(), "document_id": each["id"], "state": "valid"}
            for each in bank.values()
            for turn in each["original_text"].split("\n\n")
            if turn.strip()
        ]  # fmt: skip
        return made + self.loose

    def _recall(self, request, bank):
        wanted = set(request.body["query"].lower().split())
        found = [
            each
            for each in self._memories(bank)
            if each["state"] == "valid" and wanted & set(each["text"].lower().replace("?", "").split())
        ]
        return 200, {"results": found}

    def _reflect(self, request, bank):
        self.reflections.append(request.body)
        return 200, {"text": f"They said {len(bank)} things."}

    def _list(self, request, bank):
        wanted = request.query.get("q", "").lower()
        found = [each for each in self._memories(bank) if wanted in each["text"].lower()]
        return 200, {"items": found, "total": len(found), "limit": 100, "offset": 0}

    def _patch(self, request, bank):
        del bank
        for each in self.loose:
            if each["id"] == request.groups[1]:
                each["state"] = request.body["state"]
                return 200, each
        return 404, {"detail": "Memory not found"}

    def _documents(self, request, bank):
        wanted = request.query.get("q", "").lower()
        found = [{"id": each["id"]} for each in bank.values() if wanted in each["original_text"].lower()]
        return 200, {"items": found, "total": len(found)}

    def _document(self, request, bank):
        found = bank.get(request.groups[1])
        return (200, found) if found else (404, {"detail": "Document not found"})

    def _delete(self, request, bank):
        found = bank.pop(request.groups[1], None)
        return (200, {"success": True}) if found else (404, {"detail": "Document not found"})


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_API_KEY", KEY)
    with HindsightDouble() as running:
        yield running


def settings_of(double):
    return {"mode": "external", "base_url": double.url}


def start(home, double, *, settings=None, **context):
    (home / "hindsight.json").write_text(json.dumps({**settings_of(double), **(settings or {})}))
    provider = HindsightProvider()
    provider.initialize("s1", **{**StartContext(kept_home=str(home)).keywords(), **context})
    return provider


class TestContract(ProviderContract):
    @pytest.fixture(autouse=True)
    def _server(self, double, tmp_path):
        self.double = double
        (tmp_path / "hindsight.json").write_text(json.dumps(settings_of(double)))

    def provider(self):
        return HindsightProvider()

    def known(self, provider, text):
        return text in self.double.texts()


def test_a_round_trip(tmp_path, double):
    """Stored, recalled, removed, gone."""
    start(tmp_path, double)
    trial = run_trial(HindsightProvider(), StartContext(kept_home=str(tmp_path), user_id="trial"))

    assert trial.ok, trial.steps
    assert double.texts() == []


def test_the_turns_of_a_session_are_one_document_and_a_repeat_is_noticed(tmp_path, double):
    """Appended in order; the newest key is stored with the document, so that the same delivery adds nothing."""
    provider = start(tmp_path, double)
    for number in (1, 2, 2, 3, 3):
        provider.sync_turn(f"question {number}", f"answer {number}", session_id="s1", idempotency_key=f"turn:{number}")
    provider.sync_turn("question 4", "answer 4", session_id="s2", idempotency_key="turn:4")

    (bank,) = double.banks.values()
    assert set(bank) == {"session-s1", "session-s2"}
    said = [line for line in bank["session-s1"]["original_text"].splitlines() if line]
    assert said == [
        f"{role}: {word} {n}" for n in (1, 2, 3) for role, word in (("user", "question"), ("assistant", "answer"))
    ]


def test_an_entry_is_removed_although_no_memory_can_be_deleted(tmp_path, double):
    """Each entry is a document of its own, because a document can be deleted with its memories."""
    provider = start(tmp_path, double)
    provider.on_memory_write("add", "user", "Likes oolong tea", {"ledger_id": 1})
    provider.on_memory_write("add", "user", "Owns a red bicycle", {"ledger_id": 2})
    provider.on_memory_write("remove", "user", "Likes oolong tea", {"ledger_id": 3, "before": "Likes oolong tea"})

    assert provider.prefetch("oolong") == ""
    assert "red bicycle" in provider.prefetch("bicycle")
    assert not any(each.method == "PATCH" for each in double.requests)


def test_forgetting_takes_the_turn_out_of_its_session(tmp_path, double):
    """The other turns stay; a memory without a document can only be invalidated, and the answer says so."""
    provider = start(tmp_path, double)
    for number, text in enumerate(("the code is HERON", "tea at four", "rain today")):
        provider.sync_turn(text, "ok", session_id="s1", idempotency_key=f"k{number}")
    double.loose.append({"id": "m1", "text": "They know a heron code", "state": "valid"})
    request = ForgetRequest(texts=("heron",))

    assert provider.holds_content(request)
    forgotten = provider.forget_content(request)

    assert forgotten.removed == 2
    assert "Hindsight deletes no single memory: 1" in forgotten.note
    assert not provider.holds_content(request)
    assert "tea at four" in double.texts()[0]
    assert "rain today" in double.texts()[0]
    assert "HERON" not in double.texts()[0]
    # the key of the newest turn is still known, so that its repeat adds nothing
    provider.sync_turn("rain today", "ok", session_id="s1", idempotency_key="k2")
    assert double.texts()[0].count("rain today") == 1


def test_a_text_across_two_turns_takes_the_whole_document_along(tmp_path, double):
    """Rather too much than too little."""
    provider = start(tmp_path, double)
    provider.sync_turn("first half", "ok", session_id="s1", idempotency_key="a")
    provider.sync_turn("second half", "ok", session_id="s1", idempotency_key="b")
    provider.forget_content(ForgetRequest(texts=("ok\n\nuser: second",)))
    assert double.texts() == []


def test_what_is_forgotten_is_gone_for_this_user_only(tmp_path, double):
    """By text, by session, and everything."""
    mine, other = start(tmp_path, double), start(tmp_path, double, user_id="anna")
    for provider in (mine, other):
        provider.sync_turn("the code is HERON", "ok", session_id="s1")
        provider.sync_turn("tea at four", "ok", session_id="s2")

    assert mine.forget_content(ForgetRequest(texts=("heron",))).removed == 1
    assert mine.forget_content(ForgetRequest(session_ids=("s2",))).removed == 1
    assert sorted(double.texts()) == ["user: tea at four\nassistant: ok", "user: the code is HERON\nassistant: ok"]
    assert other.forget_content(ForgetRequest(everything=True)).removed == 1
    assert double.texts() == []


@pytest.mark.parametrize(
    ("template", "word"),
    [("", "empty"), ("{nope}", "{profile}"), ("{user}{session}", "separate"), ("a b", "letters"), ("{", "letters"),
     ("{user!r}", "letters"), ("{user:>9}", "letters"), ("x/{user}", "letters")],
)  # fmt: skip
def test_a_template_that_makes_no_sense_is_refused(template, word):
    """With what it accepts."""
    with pytest.raises(ConfigError) as caught:
        check_template(template)
    assert word in str(caught.value)


def test_the_banks_of_a_user_are_told_from_those_of_others():
    """Whatever the names contain, and also where the template has no user."""
    template = "k-{user}-{session}"
    plain, tricky = (BankNames(template, user=user, profile="p") for user in ("a", "a-b"))
    theirs = tricky.of(workspace="", platform="", session="s")

    assert tricky.is_one(theirs)
    assert not plain.is_one(theirs)
    assert plain.is_one("k-a-20261117")
    assert plain.is_one(plain.base)
    shared = [BankNames("all", user=user, profile="p").base for user in ("owner", "anna")]
    assert shared == ["all", "all-anna"]


def test_a_bank_per_session_still_recalls_the_pages(tmp_path, double):
    """Page entries are in the user's base bank, so that another session can remove them."""
    provider = start(tmp_path, double, settings={"bank_id_template": "k-{user}-{session}"})
    provider.on_memory_write("add", "user", "Likes oolong tea", {"ledger_id": 1})
    provider.sync_turn("my dog is Rex", "ok", session_id="s1")
    provider.on_session_switch("s2")

    assert "oolong" in provider.prefetch("oolong", session_id="s2")
    assert provider.prefetch("dog", session_id="s2") == ""
    assert "Rex" in provider.prefetch("dog", session_id="s1")
    assert provider.forget_content(ForgetRequest(texts=("rex", "oolong"))).removed == 2


def test_modes_and_knobs(tmp_path, double):
    """Tools alone, context alone, reflection instead of facts, a short question, nothing at all."""
    tools = start(tmp_path, double, settings={"memory_mode": "tools"})
    tools.sync_turn("my dog is Rex", "ok", session_id="s1")
    context = start(
        tmp_path, double, settings={"memory_mode": "context", "recall_budget": "high", "recall_max_tokens": 99}
    )
    reflecting = start(tmp_path, double, settings={"recall_prefetch_method": "reflect", "recall_max_input_chars": 60})
    silent = start(tmp_path, double, settings={"auto_recall": False, "auto_retain": False})

    assert (len(tools.get_tool_schemas()), len(context.get_tool_schemas())) == (3, 0)
    assert tools.prefetch("dog") == ""
    assert "Rex" in context.prefetch("dog")
    asked = double.requests[-1].body
    assert (asked["budget"], asked["max_tokens"]) == ("high", 99)
    assert reflecting.prefetch("dog " * 100) == "They said 1 things."
    assert len(double.reflections[-1]["query"]) == 60
    silent.sync_turn("not kept", "ok", session_id="s1")
    assert silent.prefetch("dog") == ""
    assert "not kept" not in "".join(double.texts())


def test_tools(tmp_path, double):
    """Retain, recall, reflect; a budget that does not exist is refused."""
    provider = start(tmp_path, double)
    call = lambda name, **args: json.loads(provider.handle_tool_call(name, args))  # noqa: E731 - three short calls

    assert call("hindsight_retain", content="likes oolong tea", context="drinks")["success"] is True
    assert call("hindsight_recall", query="oolong")["results"] == ["likes oolong tea"]
    assert call("hindsight_reflect", query="tea?", budget="high")["answer"] == "They said 1 things."
    assert "low, mid, high" in call("hindsight_recall", query="x", budget="huge")["error"]


def test_a_moved_route_is_an_error_and_a_bank_that_is_not_there_is_empty(tmp_path, double):
    """Both are a 404."""
    provider = start(tmp_path, double)
    assert provider.prefetch("hello") == ""
    assert provider.get_status()["memories"] == 0
    double.outage = Fault(404, b'{"detail":"Not Found"}')
    with pytest.raises(ProviderError, match="404: Not Found"):
        provider.prefetch("hello")
    assert provider.get_status()["reachable"] is False


def test_the_cloud_needs_a_key(monkeypatch):
    """Said at setup, before anything is sent."""
    monkeypatch.delenv("HINDSIGHT_API_KEY", raising=False)
    provider = HindsightProvider()
    assert not provider.is_available()
    with pytest.raises(ConfigError, match="HINDSIGHT_API_KEY"):
        provider.check_config({"mode": "cloud"}, ())
    with pytest.raises(ConfigError, match="base_url"):
        provider.check_config({"mode": "external"}, ())
    with pytest.raises(ConfigError, match="bank_id_template"):
        provider.check_config({"mode": "embedded", "bank_id_template": "{x}"}, ())


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A `hindsight-api` that notes its arguments and waits."""
    folder = tmp_path / "bin"
    folder.mkdir()
    file = folder / "hindsight-api"
    file.write_text('#!/bin/sh\necho "$@ $HOME $HINDSIGHT_API_LLM_PROVIDER" > "$HOME/started"\nexec sleep 60\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return file


def test_an_embedded_server_is_started_once_and_can_be_stopped(tmp_path, program):
    """It goes on when the provider ends; the next one finds it; its data is in the home."""
    (tmp_path / "hindsight.json").write_text('{"mode": "embedded", "port": 18432}')
    first, second = HindsightProvider(), HindsightProvider()
    keywords = StartContext(kept_home=str(tmp_path)).keywords()
    first.initialize("s1", **keywords)
    note = json.loads((tmp_path / "hindsight" / "server.json").read_text())
    second.initialize("s2", **keywords)
    deadline = time.monotonic() + 20
    while not (tmp_path / "hindsight" / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)

    assert json.loads((tmp_path / "hindsight" / "server.json").read_text()) == note
    assert (tmp_path / "hindsight" / "started").read_text().split() == [
        "--host", "127.0.0.1", "--port", "18432", str(tmp_path / "hindsight"), "none",
    ]  # fmt: skip
    assert is_alive(note["pid"])
    with pytest.raises(ProviderError, match="cannot be reached"):
        second.prefetch("hello")
    with pytest.raises(ProviderError, match="cannot be reached"):
        second.wait_until_ready(0.1)
    (command,) = first.get_commands()
    assert command.run([]).value == {"stopped": True}
    os.waitpid(note["pid"], 0)
    assert command.run([]).value == {"stopped": False}


def test_without_the_program_the_embedded_mode_says_what_to_install(tmp_path, monkeypatch):
    """One line with the next step."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProviderError, match="pip install hindsight-api-slim"):
        LocalServer(tmp_path / "h", port=1, variables={}).start()

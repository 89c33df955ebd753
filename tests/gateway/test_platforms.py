"""Chat platforms through the signed webhook: signatures, pairing, one answer for each message, replies that arrive."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import pytest
from msgspec.structs import replace

from wellkept.app import open_app
from wellkept.core.errors import ConfigError, NotFound
from wellkept.forgetting.forget import forget, plan_forget_user
from wellkept.gateway import switchboard
from wellkept.gateway.slash import read_command
from wellkept.gateway.state import conversation_keys, pairing, platform_messages
from wellkept.gateway.state.conversation_keys import Chat
from wellkept.gateway.state.platform_messages import PlatformMessage, State
from wellkept.gateway.webhook import check_signature, load_platforms, sign
from wellkept.llm.scripted import Says
from wellkept.memory.page import Add, Author, Target
from wellkept.operations import users
from wellkept.testing.loopback import Status
from wellkept.testing.loopback_servers import LoopbackOpenAI

from .conftest import serve

SECRET = "a long random secret of the test"
BASE = "serve:\n  platforms:\n    desk:\n      kind: webhook\n      secret_env: DESK_SECRET\n"


class Desk:
    """Somebody who delivers signed messages to a server."""

    def __init__(self, served, upstream, steps):
        self.served = served
        self.steps = steps
        self.upstream = upstream
        self.count = 0

    def post(self, body, *, secret=SECRET, stamp=None, name="desk", **headers):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        at = str(int(time.time())) if stamp is None else str(stamp)
        signed = {"X-Kept-Timestamp": at, "X-Kept-Signature": sign(secret.encode(), at, raw), **headers}
        with self.served.client() as client:
            return client.post(f"/hooks/{name}", content=raw, headers=signed)

    def say(self, text, user="ann", **more):
        self.count += 1
        return self.post({"id": f"m{self.count}", "user": user, "text": text, **more})

    def pair(self, person="ann", user=None):
        pairing.issue_code(self.served.owner, "desk", person, person.title())
        waiting = pairing.list_pairings(self.served.owner).waiting
        code = next(one.code for one in waiting if one.person == person)
        return pairing.accept_code(self.served.owner, code, user)


@contextmanager
def desk_of(home, more=""):
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(BASE + more)
    steps = []
    with LoopbackOpenAI(lambda _body: steps.pop(0) if steps else f"answer {len(upstream.requests)}") as upstream:
        environ = {**upstream.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model", "DESK_SECRET": SECRET}
        with serve(home, environ) as served:
            yield Desk(served, upstream, steps)


@pytest.fixture
def desk(home):
    with desk_of(home) as made:
        yield made


class Mailbox:
    """A server that takes replies."""

    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.replies = []
        mailbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                check_signature(SECRET.encode(), {k.lower(): v for k, v in self.headers.items()}, body, now=time.time())
                status = mailbox.statuses.pop(0) if mailbox.statuses else 204
                mailbox.replies.append((status, json.loads(body)))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_arguments):
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/replies"

    def wait(self, count, status=204):
        """Return the replies that were taken, as soon as there are so many."""
        for _ in range(600):
            taken = [reply for code, reply in self.replies if code == status]
            if len(taken) >= count:
                return taken
            time.sleep(0.05)
        raise AssertionError(self.replies)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_error):
        self.server.shutdown()
        self.server.server_close()


def wait_for_state(served, user, delivery, state):
    caller = served.app.caller(users.check_user_id(user))
    for _ in range(600):
        found = platform_messages.find_entry(caller, "desk", delivery)
        if found is not None and found.state is state:
            return found
        time.sleep(0.02)
    raise AssertionError(found)


# signatures


def test_a_delivery_must_be_signed(desk):
    """A wrong secret, an old or future time, no signature, an unknown name: one answer, and nothing stored."""
    body = {"id": "1", "user": "ann", "text": "hi"}
    now = int(time.time())
    wrong = [
        desk.post(body, secret="another secret of the same kind"),
        desk.post(body, stamp=now - 400),
        desk.post(body, stamp=now + 400),
        desk.post(body, stamp="-1"),
        desk.post(body, stamp="9" * 400),
        desk.post(body, **{"X-Kept-Signature": ""}),
        desk.post(body, **{"X-Kept-Signature": "v1=" + "0" * 64}),
        desk.post(body, name="nobody"),
        desk.post(body, name="nobody", secret=""),
    ]
    assert {(one.status_code, one.content) for one in wrong} == {(401, wrong[0].content)}
    assert pairing.list_pairings(desk.served.owner).waiting == ()


def test_the_signature_covers_the_body(desk):
    """A body that somebody changed on the way is refused."""
    stamp, body = str(int(time.time())), b'{"id": "1", "user": "ann", "text": "hi"}'
    headers = {"X-Kept-Timestamp": stamp, "X-Kept-Signature": sign(SECRET.encode(), stamp, body)}
    with desk.served.client() as client:
        assert client.post("/hooks/desk", content=body, headers=headers).status_code == 200
        assert client.post("/hooks/desk", content=body.replace(b"ann", b"bob"), headers=headers).status_code == 401


def test_signed_nonsense_gets_a_problem(desk):
    """Any JSON of any type: one answer that names the field."""
    objects = [{"id": 3}, {"id": "1", "user": "", "text": "x"}, {"id": "1", "user": "a"}]
    for body in (b"", b"[]", b"null", b"{", b"\xff", *objects):
        answer = desk.post(body)
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), body
        assert answer.json()["detail"].startswith("body"), body


def test_a_hook_needs_no_token_and_gives_none_of_its_rights(desk):
    """Where tokens exist, signed deliveries go on; the path opens nothing else."""
    desk.served.token()
    assert desk.say("hi").status_code == 200
    with desk.served.client("") as client:
        assert client.get("/hooks/../api/memory").status_code == 401
        assert client.get("/hooks/desk").status_code == 405


def test_the_owner_chooses_a_model_from_the_list_only(desk, tmp_path):
    """A path is refused in the same way whether or not a file is there."""
    (tmp_path / "script.json").write_text('["the secret"]')
    desk.pair(user="owner")
    told = [desk.say(f"/model scripted/{tmp_path / name}").json()["text"] for name in ("script.json", "absent.json")]
    assert told[0].replace("script.json", "absent.json") == told[1]
    assert "does not offer" in told[0]
    assert desk.say("/model openai/loopback-model").json()["text"] == "openai/loopback-model"


# pairing


def test_a_stranger_gets_a_code_and_is_let_in_with_it(desk):
    """Nothing of the message is stored before; the person has a memory of their own then."""
    first = desk.say("the okapi is called Zarathustra", user="u-17", user_name="Ann").json()
    waiting = pairing.list_pairings(desk.served.owner).waiting
    assert first["paired"] is False
    assert waiting[0].code in first["text"]
    assert (waiting[0].person, waiting[0].name) == ("u-17", "Ann")
    assert desk.say("hello?", user="u-17").json()["text"] == ""  # told once in a minute
    assert not desk.upstream.requests
    stored = b"".join(path.read_bytes() for path in desk.served.app.home.path.rglob("*") if path.is_file())
    assert b"Zarathustra" not in stored

    made = pairing.accept_code(desk.served.owner, waiting[0].code.lower())

    assert made.user == "desk:u-17"
    assert desk.say("hi", user="u-17").json()["text"].startswith("answer")
    with pytest.raises(NotFound):
        pairing.accept_code(desk.served.owner, waiting[0].code)
    pairing.remove_person(desk.served.owner, "desk", "u-17")
    assert desk.say("hi", user="u-17").json()["paired"] is False


def test_people_have_memories_of_their_own(desk):
    """Each person is the user that they were paired as; a removed user is a stranger again."""
    desk.pair("ann", "owner")
    desk.pair("bob")
    assert desk.say("hi", user="ann").json()["session_id"] in str(desk.served.client().get("/api/sessions").json())
    other = desk.say("hi", user="bob").json()["session_id"]
    assert other not in str(desk.served.client().get("/api/sessions").json())
    assert [one.id for one in users.list_users(desk.served.owner)] == ["owner", "desk:bob"]


def test_a_forgotten_user_leaves_neither_messages_nor_a_pairing(desk):
    """Also not a message that was never answered."""
    made = desk.pair()
    caller = desk.served.app.caller(made.user)
    platform_messages.accept_message(caller, PlatformMessage("9", "the okapi", Chat("desk", "dm", user="ann")))
    admin = desk.served.owner.for_user(made.user)

    forget(admin, plan_forget_user(admin))

    assert pairing.list_pairings(desk.served.owner).people == ()
    assert platform_messages.find_entry(caller, "desk", "9") is None


def test_few_strangers_can_wait(desk, monkeypatch):
    """More get no code, so that nobody fills the table."""
    monkeypatch.setattr(pairing, "_MOST_WAITING", 2)
    codes = [pairing.issue_code(desk.served.owner, "desk", f"u{number}") for number in range(4)]
    assert [code is not None for code in codes] == [True, True, False, False]


# answers


def test_a_redelivery_gets_the_same_answer_once(desk):
    """Also while the first one runs, and also with a new signature."""
    desk.pair()
    body = {"id": "same", "user": "ann", "text": "hi"}
    found = []
    threads = [threading.Thread(target=lambda: found.append(desk.post(body).json())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.append(desk.post(body, stamp=int(time.time()) - 10).json())
    assert {one["text"] for one in found} == {"answer 1"}
    assert len(desk.upstream.requests) == 1


def test_a_redelivery_waits_for_a_message_whose_work_has_not_begun(desk, monkeypatch):
    """Between its storing and the beginning of its turn nobody works on a message; it has no answer yet."""
    desk.pair()
    begin, found = switchboard.Switchboard._begin, []
    body = {"id": "early", "user": "ann", "text": "hi"}

    def begin_late(self, platform, entry):
        self._group.start_soon(begin_after, self, platform, entry)

    async def begin_after(self, platform, entry):
        await anyio.sleep(0.3)
        begin(self, platform, entry)

    monkeypatch.setattr(switchboard.Switchboard, "_begin", begin_late)
    first = threading.Thread(target=lambda: found.append(desk.post(body).json()["text"]))
    first.start()
    found.append(desk.post(body).json()["text"])
    first.join()

    assert found == ["answer 1", "answer 1"]


def test_chats_keep_their_session_and_commands_work(desk):
    """By key; /new begins another one, /undo takes the last exchange back."""
    desk.pair()
    first, again, other = desk.say("hi", chat="c1"), desk.say("more", chat="c1"), desk.say("hi", chat="c2")
    assert first.json()["session_id"] == again.json()["session_id"] != other.json()["session_id"]
    assert "/undo" in desk.say("/help", chat="c1").json()["text"]
    assert desk.say("/undo", chat="c1").json()["text"] == "Undone: more"
    assert desk.say("/new@keptbot", chat="c1").json()["text"] == "A new conversation."
    assert desk.say("hi", chat="c1").json()["session_id"] != first.json()["session_id"]
    assert desk.say("/stop", chat="c1").json()["text"] == "Nothing is running."
    assert read_command("/etc/hosts is broken") is None


def test_a_person_decides_in_their_own_chat_only(desk):
    """The owner's paired chat approves what waits; a group, in which others read and write, does not."""
    desk.pair(user="owner")
    memory, approvals = desk.served.owner.space.memory, desk.served.owner.space.approvals
    waiting = approvals.stage(Target.MEMORY, [Add("The door code is on the note.")], Author(origin="agent"), why="x")
    group = desk.say(f"/memory approve {waiting.id}", chat="g", chat_type="group")
    assert "only a person" in group.text or "no write with the id" in group.text
    assert list(memory.entries(Target.MEMORY)) == []
    desk.pair("bob")
    assert "only a person" in desk.say(f"/memory approve {waiting.id}", user="bob").text
    assert "Entry added" in desk.say(f"/memory approve {waiting.id}").json()["text"]

    assert list(memory.entries(Target.MEMORY)) == ["The door code is on the note."]


def test_a_chat_begins_anew_when_its_reset_is_due(home):
    """Also while the conversation is open in the server."""
    with desk_of(home, "  reset: idle\n  reset_idle_minutes: 1\n") as desk:
        desk.pair()
        first = desk.say("hi").json()["session_id"]
        assert desk.say("hi").json()["session_id"] == first
        with desk.served.app.database.writing() as unit:
            unit.execute("UPDATE conversation_keys SET last_used = last_used - 100")
        assert desk.say("hi").json()["session_id"] != first


def test_groups_are_apart_by_person_and_threads_are_shared(desk):
    """A shared conversation belongs to a user of the group, and names who speaks."""
    desk.pair("ann")
    desk.pair("bob")
    group = {"chat_type": "group", "chat": "g1"}
    ann, bob = desk.say("hi", user="ann", **group), desk.say("hi", user="bob", **group)
    assert ann.json()["session_id"] != bob.json()["session_id"]
    ann, bob = (desk.say("hi", user=who, thread="t", user_name=who.title(), **group) for who in ("ann", "bob"))
    assert ann.json()["session_id"] == bob.json()["session_id"]
    assert "[Bob] hi" in json.dumps(desk.upstream.requests[-1].body)
    assert "desk:group:g1" in [one.id for one in users.list_users(desk.served.owner)]


def test_a_group_shares_by_setting(home):
    """One conversation for everybody in it."""
    with desk_of(home, "      shares_groups: true\n") as desk:
        desk.pair("ann")
        desk.pair("bob")
        said = [desk.say("hi", user=who, chat_type="group", chat="g").json()["session_id"] for who in ("ann", "bob")]
        assert said[0] == said[1]


def test_a_failed_turn_is_told_and_tried_again(desk):
    """The platform gets the error of the model, and a redelivery is a new attempt."""
    desk.pair()
    body = {"id": "x", "user": "ann", "text": "hi"}
    desk.steps.append(Status(400, "no"))
    first, again = desk.post(body), desk.post(body)
    assert first.status_code >= 400
    assert again.json()["text"].startswith("answer")


# replies to an address


def test_replies_are_sent_signed_and_in_order(home):
    """The delivery is acknowledged at once; a stranger gets the code there too."""
    with Mailbox() as mailbox, desk_of(home, f"      reply_url: {mailbox.url}\n      draft_seconds: 0\n") as desk:
        assert desk.say("hi").json() == {"id": "m1", "accepted": True}
        assert mailbox.wait(1)[0]["paired"] is False
        desk.pair()
        desk.steps.append(Says("word " * 20, delay_seconds=0.05))  # slow enough for a draft, also on a busy machine
        for text in ("one", "two", "three"):
            assert desk.say(text, chat="c").status_code == 202
        desk.say("two again", chat="c")
        mailbox.wait(6)
        wait_for_state(desk.served, "desk:ann", "m5", State.SENT)
        whole = [reply["id"] for _, reply in mailbox.replies if reply["type"] == "message"]
        assert whole == ["m1", "m2", "m3", "m4", "m5"]
        assert any(reply["type"] == "draft" for _, reply in mailbox.replies)


def test_a_reply_is_sent_again_until_it_is_taken(home, monkeypatch):
    """A refusal for good ends the attempts."""
    monkeypatch.setattr(switchboard, "_PAUSES", (0.01, 0.01))
    with Mailbox(503, 429, 204, 410) as mailbox, desk_of(home, f"      reply_url: {mailbox.url}\n") as desk:
        desk.pair()
        desk.say("hi")
        wait_for_state(desk.served, "desk:ann", "m1", State.SENT)
        desk.say("more")
        wait_for_state(desk.served, "desk:ann", "m2", State.FAILED)
        assert [status for status, _ in mailbox.replies] == [503, 429, 204, 410]


@pytest.mark.parametrize("crash", ["before the turn", "in the turn", "after the turn", "before the reply"])
def test_a_crash_loses_no_message_and_doubles_none(home, crash):
    """Whatever was stored when the process ended, the next start sends one reply, and the message was said once."""
    with Mailbox() as mailbox:
        more = f"      reply_url: {mailbox.url}\n"
        with desk_of(home, more) as desk:
            desk.pair()
            caller = desk.served.app.caller(users.check_user_id("desk:ann"))
            if crash in {"in the turn", "after the turn"}:
                desk.say("the question")
                wait_for_state(desk.served, "desk:ann", "m1", State.SENT)
        app = open_app(str(home), environ={"HOME": str(home.parent), "DESK_SECRET": SECRET})
        caller = app.caller(users.check_user_id("desk:ann"))
        message = PlatformMessage("m1", "the question", Chat("desk", "dm", user="ann"))
        entry, _ = platform_messages.accept_message(caller, message)
        if crash == "before the reply":
            platform_messages.save_entry(caller, replace(entry, state=State.ANSWERED, answer="stored before"))
        elif crash != "before the turn":
            platform_messages.save_entry(caller, replace(entry, state=State.RUNNING))
            if crash == "in the turn":
                found = conversation_keys.find_session(caller, conversation_keys.build_key(message.chat))
                rows = caller.space.sessions.messages(found.session_id)
                with app.database.writing() as unit:  # as if the answer had not come yet
                    unit.execute("DELETE FROM messages WHERE id = ?", (rows[-1].id,))
        app.close()
        before = len(mailbox.replies)
        with desk_of(home, more) as desk:
            replies = mailbox.wait(before + 1)
            wait_for_state(desk.served, "desk:ann", "m1", State.SENT)
            assert len(replies) == before + 1
            assert (replies[-1]["text"] == "stored before") == (crash == "before the reply")
            assert len(desk.upstream.requests) == (1 if crash in {"before the turn", "in the turn"} else 0)
            caller = desk.served.app.caller(users.check_user_id("desk:ann"))
            key = conversation_keys.build_key(message.chat)
            if crash != "before the reply":
                session = conversation_keys.find_session(caller, key).session_id
                said = [row.message.text for row in caller.space.sessions.messages(session)]
                assert said.count("the question") == 1


def test_a_message_while_the_server_stops_is_answered_after_the_next_start(home):
    """It was acknowledged, so it must not be answered with an error."""
    with Mailbox() as mailbox:
        more = f"      reply_url: {mailbox.url}\n"
        with desk_of(home, more) as desk:
            desk.pair()
            anyio.run(desk.served.server.config.app.drain)
            assert desk.say("hi").status_code == 202
        assert mailbox.replies == []
        with desk_of(home, more):
            assert mailbox.wait(1)[0]["text"].startswith("answer")


def test_texts_of_finished_messages_are_removed(desk):
    """After an hour the text, after a day the row; unfinished ones stay."""
    desk.pair()
    desk.say("the okapi is called Zarathustra")
    owner = desk.served.owner
    for hours, rows in ((2, [("", "")]), (25, [])):
        with desk.served.app.database.writing() as unit:
            unit.execute("UPDATE platform_messages SET received = ?", (time.time() - hours * 3600,))
        platform_messages.remove_finished(owner)
        with desk.served.app.database.reading() as unit:
            assert list(unit.execute("SELECT message, answer FROM platform_messages")) == rows


# settings


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "secret_env is not set"),
        ({"secret_env": "NOT_SET"}, "NOT_SET is not set"),
        ({"secret_env": "SHORT"}, "at least 16"),
        ({"secret_env": "DESK_SECRET", "kind": "pigeon"}, "there is no platform 'pigeon'"),
        ({"secret_env": "DESK_SECRET", "reply_uri": "x"}, "reply_uri: there is no such setting"),
        ({"secret_env": "DESK_SECRET", "reply_url": "file:///etc/passwd"}, "is not a valid URL"),
        ({"secret_env": "DESK_SECRET", "shares_groups": "yes"}, "'yes' is not valid"),
        ({"secret_env": "DESK_SECRET", "draft_seconds": True}, "True is not valid"),
    ],
)
def test_wrong_settings_are_named(home, fields, named):
    """The server does not start with a platform that cannot work."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(json.dumps({"serve": {"platforms": {"desk": fields}}}))
    app = open_app(str(home), environ={"HOME": str(home.parent), "SHORT": "short", "DESK_SECRET": SECRET})
    with pytest.raises(ConfigError, match=named):
        load_platforms(app)
    app.close()


@pytest.mark.parametrize("name", ["cli", "api", "a b", "a:b", "é", ""])
def test_names_that_mean_something_else_are_refused(home, name):
    """A platform called `cli` would have the tools of a terminal."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(json.dumps({"serve": {"platforms": {name: {"secret_env": "DESK_SECRET"}}}}))
    app = open_app(str(home), environ={"HOME": str(home.parent), "DESK_SECRET": SECRET})
    with pytest.raises(ConfigError):
        load_platforms(app)
    app.close()

"""Telegram against a double of its Bot API: what is answered, how it looks, and what survives the faults of both sides."""

import json
import os
import subprocess
import time
from contextlib import contextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wellkept.app import open_app
from wellkept.core.errors import ConfigError, StorageError
from wellkept.core.provenance import find_typed, read_source
from wellkept.gateway.platforms import find_message_source
from wellkept.gateway.slash import read_command
from wellkept.gateway.state import conversation_keys, pairing, platform_messages
from wellkept.gateway.state.conversation_keys import Chat
from wellkept.gateway.telegram import bot
from wellkept.gateway.telegram.updates import Bot, NotAnUpdate, Reader, Update
from wellkept.gateway.webhook import load_platforms
from wellkept.llm.scripted import Says
from wellkept.operations import sessions, users
from wellkept.testing.loopback_servers import LoopbackOpenAI

from .bot_api import BOT, DROP, NOT_PARSED, TOKEN, BotApi
from .conftest import serve

SECRET = "a-long_random-secret"
GROUP = -100200
ME = f"@{BOT['username']}"


class World:
    """A server with a bot, the Bot API and a model."""

    def __init__(self, api, served, upstream, steps):
        self.api, self.served, self.upstream, self.steps = api, served, upstream, steps

    def pair(self, person=7, user=None):
        pairing.issue_code(self.served.owner, "tg", str(person), f"P{person}")
        waiting = pairing.list_pairings(self.served.owner).waiting
        code = next(one.code for one in waiting if one.person == str(person))
        return pairing.accept_code(self.served.owner, code, user)

    def caller(self, user="tg:7"):
        return self.served.app.caller(users.check_user_id(user))

    def session(self, key="agent:main:tg:dm:7", user="tg:7"):
        found = conversation_keys.find_session(self.caller(user), key)
        return None if found is None else found.session_id

    def stored(self, key="agent:main:tg:dm:7", user="tg:7"):
        rows = sessions.show_session(self.caller(user), self.session(key, user)).messages
        return [(row.message.role.value, row.message.text) for row in rows]


@contextmanager
def world_of(home, more="", api=None, **variables):
    home.mkdir(parents=True, exist_ok=True)
    with BotApi() if api is None else api as found:
        base = f"serve:\n  platforms:\n    tg:\n      kind: telegram\n      api_url: {found.url}\n"
        (home / "config.yaml").write_text(base + more)
        steps = []
        with LoopbackOpenAI(lambda _body: steps.pop(0) if steps else f"answer {len(upstream.requests)}") as upstream:
            environ = {**upstream.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model", **variables}
            with serve(home, {**environ, "TELEGRAM_BOT_TOKEN": TOKEN}) as served:
                yield World(found, served, upstream, steps)


@pytest.fixture
def world(home):
    with world_of(home) as made:
        yield made


@pytest.fixture(autouse=True)
def _quick_chats(monkeypatch):
    """A message per second is for people; `test_telegram_texts.py` tests the limits."""
    monkeypatch.setattr("wellkept.gateway.telegram.api.CHAT_SECONDS", 0.01)
    monkeypatch.setattr("wellkept.gateway.telegram.replies._EDIT_SECONDS", 0.5)


@pytest.fixture
def quick_album(monkeypatch):
    """Albums come within 0.3 s in tests."""
    monkeypatch.setattr("wellkept.gateway.switchboard.ALBUM_SECONDS", 0.3)


# private chats


def test_a_stranger_is_paired_and_then_answered(world):
    """Nothing of what a stranger says is stored; with the code they have a memory of their own."""
    world.api.say("the okapi is called Zarathustra")
    (told,) = world.api.wait_texts(1)
    code = pairing.list_pairings(world.served.owner).waiting[0].code
    assert f"kept serve pair {code}" in told
    assert b"Zarathustra" not in read_home(world.served.app.home.path)
    pairing.accept_code(world.served.owner, code)

    world.api.say("hi")

    assert world.api.wait_texts(2)[1] == "answer 1"
    assert world.stored() == [("user", "hi"), ("assistant", "answer 1")]


def read_home(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_messages_are_answered_in_order_and_once(world):
    """Also when updates come in another order, and again after they were confirmed."""
    world.pair()
    updates = [world.api.make_update(world.api.make_message(f"m{number}")) for number in range(4)]
    world.api.deliver(updates[2], updates[0], updates[3], updates[1])
    world.api.wait_texts(4)
    world.api.redeliver(updates)
    world.api.say("last")
    world.api.wait_texts(5)
    assert [text for role, text in world.stored() if role == "user"] == ["m0", "m1", "m2", "m3", "last"]
    assert len(world.upstream.requests) == 5


def test_a_late_message_is_answered_before_those_that_wait(world):
    """A webhook may deliver an earlier message after a later one."""
    world.pair()
    first, second, third = (world.api.make_message(text) for text in ("one", "two", "three"))
    world.steps.append(Says("slow", delay_seconds=0.2))
    world.api.deliver(world.api.make_update(first))
    world.api.wait_for(lambda: world.upstream.requests)
    for message in (third, second):
        world.api.deliver(world.api.make_update(message))
        time.sleep(0.1)
    world.api.wait_texts(3)
    assert [text for role, text in world.stored() if role == "user"] == ["one", "two", "three"]


def test_the_growing_answer_is_a_draft_that_can_be_stopped(world):
    """Stop ends the turn; what was said so far is the answer, and a stale Stop ends nothing."""
    world.pair()
    world.steps.append(Says("word " * 400, delay_seconds=0.05))
    message = world.api.say("tell me all")
    world.api.wait_for(lambda: any(one["text"].count("word") > 3 for one in world.api.drafts))
    draft = world.api.drafts[-1]
    assert draft["can_stop"] is True
    stop = {"chat": message["chat"], "draft_id": draft["draft_id"]}
    world.api.deliver(world.api.make_update({**stop, "draft_id": draft["draft_id"] + 1}, "stopped_message_generation"))
    world.api.deliver(world.api.make_update(stop, "stopped_message_generation"))
    (text,) = world.api.wait_texts(1)
    assert 3 < text.count("word") < 400
    assert "[interrupted by the user]" in world.stored()[-1][1]


def test_the_command_stop_ends_a_turn(world):
    """It does not wait for the turn that it stops."""
    world.pair()
    world.steps.append(Says("word " * 400, delay_seconds=0.05))
    world.api.say("tell me all")
    world.api.wait_for(lambda: any(one["text"].count("word") > 3 for one in world.api.drafts))
    world.api.say("/stop")
    texts = world.api.wait_texts(2)
    assert "Stopped." in texts
    assert max(text.count("word") for text in texts) < 400


def test_an_edit_is_recorded_and_starts_no_turn(world):
    """An edit of a message that waits changes it; the same text again, or one of an unknown message, is nothing."""
    world.pair()
    first = world.api.say("I live in Leipzig")
    world.api.wait_texts(1)
    world.api.deliver(world.api.make_update({**first, "edit_date": 5}, "edited_message"))
    edit = world.api.make_update({**first, "text": "I live in Dresden", "edit_date": 6}, "edited_message")
    stranger = {**first, "message_id": 1, "text": "who?", "edit_date": 6}
    world.api.deliver(edit, world.api.make_update(stranger, "edited_message"), edit)
    world.api.say("where?")
    world.api.wait_texts(2)
    said = [text for role, text in world.stored() if role == "user"]
    assert said == ["I live in Leipzig", "[An earlier message was edited. It now reads:] I live in Dresden", "where?"]
    assert len(world.upstream.requests) == 2
    assert "Dresden" in json.dumps(world.upstream.requests[-1].body)

    world.steps.append(Says("slow", delay_seconds=0.2))
    world.api.say("busy")
    world.api.wait_for(lambda: len(world.upstream.requests) == 3)
    waits = world.api.say("tpyo")
    world.api.deliver(world.api.make_update({**waits, "text": "typo", "edit_date": 7}, "edited_message"))
    world.api.wait_texts(4)
    assert [text for role, text in world.stored() if role == "user"][-2:] == ["busy", "typo"]


def test_an_album_is_one_turn(world, quick_album):
    """Its images go to the model together, also when a part is delivered twice."""
    world.pair()
    for name in ("a", "b", "c"):
        world.api.files[name] = name.encode() * 10
    parts = [
        world.api.make_message(
            media_group_id="99", photo=[photo(name)], **({"caption": "my dogs"} if name == "b" else {})
        )
        for name in ("a", "b", "c")
    ]
    updates = [world.api.make_update(part) for part in parts]
    world.api.deliver(updates[1], updates[0])
    world.api.deliver(updates[2], updates[0])
    world.api.wait_texts(1)
    assert len(world.upstream.requests) == 1
    assert json.dumps(world.upstream.requests[0].body).count("image/jpeg;base64") == 3
    assert world.stored()[0] == ("user", "my dogs")

    world.api.deliver(world.api.make_update(world.api.make_message(media_group_id="99", photo=[photo("a")])))
    world.api.wait_texts(2)  # a part that came too late is a message of its own
    assert world.stored()[2] == ("user", "[photo]")


def test_an_album_in_a_group_is_for_the_bot_as_a_whole(world, quick_album):
    """Only one part has the words that name it."""
    world.pair()
    world.api.files |= {"a": b"a", "b": b"b"}
    words = {"caption": f"{ME} look", "caption_entities": [{"type": "mention", "offset": 0, "length": len(ME)}]}
    parts = [
        world.api.make_message(chat=GROUP, user=7, media_group_id="5", photo=[photo("a")], **words),
        world.api.make_message(chat=GROUP, user=7, media_group_id="5", photo=[photo("b")]),
        world.api.make_message(chat=GROUP, user=7, media_group_id="6", photo=[photo("b")]),
    ]
    world.api.deliver(*(world.api.make_update(part) for part in parts))
    world.api.wait_texts(1, chat=GROUP)
    assert json.dumps(world.upstream.requests[0].body).count("image/jpeg;base64") == 2
    assert len(world.upstream.requests) == 1


def photo(name, size=10):
    return {"file_id": name, "file_unique_id": name, "width": 10, "height": 10, "file_size": size}


def document(name, media_type, size=None):
    known = {} if size is None else {"file_size": size}
    return {"file_id": name, "file_unique_id": name, "file_name": name, "mime_type": media_type, **known}


def test_files_are_read_within_their_limits(world):
    """Texts and images reach the model; of others it is told what they are and why they were not read."""
    world.pair()
    world.api.files |= {
        "notes.md": b"the staging server is okapi-7",
        "big.txt": b"x" * 1_000_001,
        "bad.txt": b"\xff\xfe\x00",
    }
    sent = [
        (document("notes.md", "text/markdown"), "the staging server is okapi-7"),
        (document("big.txt", "text/plain"), "larger than 1 MB"),
        (document("huge.txt", "text/plain", 30_000_000), "larger than 1 MB"),
        (document("bad.txt", "text/plain"), "it is not UTF-8 text"),
        (document("gone.txt", "text/plain"), "it could not be fetched"),
        (document("talk.pdf", "application/pdf"), "its content cannot be read here"),
    ]
    for count, (one, told) in enumerate(sent, start=1):
        world.api.say(document=one, caption="look")
        world.api.wait_texts(count)
        assert told in world.stored()[-2][1]
    world.api.say(voice={"file_id": "v", "file_unique_id": "v", "duration": 3})
    world.api.wait_texts(len(sent) + 1)
    assert world.stored()[-2] == ("user", "[voice message: its content cannot be read here]")
    assert "huge.txt" not in json.dumps(world.api.named("getFile"))


def test_commands_work_as_in_a_chat(world):
    """With arguments, with the name of the bot, and with a hint for a typing error."""
    world.pair()
    asked = [
        ("the okapi lives in the zoo", "answer 1"), ("/title the zoo", "Title: the zoo"), ("/status", "model openai"),
        ("/memory", "**memory**"), ("/memory nonsense", "there is no /memory nonsense"), ("/search okapi", "okapi"),
        ("/skills", "/import-from-other-agents"), ("/model", "loopback-model"), ("/model other", "only the owner"),
        ("/usage", "received"), ("/branch", "Now in the branch"), ("/resume", "the zoo"),
        ("/undo", "Undone: the okapi"), (f"/new{ME}", "A new conversation."), ("/start", "/memory"),
        ("/serach okapi", "did you mean /search?"), ("/compress", "Nothing was compressed"),
    ]  # fmt: skip
    for count, (text, answer) in enumerate(asked, start=1):
        world.api.say(text)
        assert answer.replace("**", "") in world.api.wait_texts(count)[-1], text
    assert len(world.upstream.requests) == 1
    world.api.say("/etc/hosts is broken")
    assert world.api.wait_texts(len(asked) + 1)[-1] == "answer 2"


def test_a_chat_begins_anew_when_its_reset_is_due(home):
    """The reset policy of the server holds for Telegram."""
    with world_of(home, "  reset: idle\n  reset_idle_minutes: 1\n") as world:
        world.pair()
        world.api.say("hi")
        world.api.wait_texts(1)
        first = world.session()
        with world.served.app.database.writing() as unit:
            unit.execute("UPDATE conversation_keys SET last_used = last_used - 100")
        world.api.say("hi")
        world.api.wait_texts(2)
        assert world.session() != first


# how answers look


def test_long_answers_come_in_parts_with_whole_code_blocks(world):
    """Each part fits 4,096 UTF-16 units, and a code block is closed and opened again at a cut."""
    world.pair()
    lines = [f"value_{number} = '😀😀😀'" for number in range(500)]
    world.steps.append("Here it is:\n\n```python\n" + "\n".join(lines) + "\n```\n\nDone.")
    world.api.say("code")
    world.api.wait_for(lambda: any("Done." in text for text in world.api.texts()))
    sent = world.api.named("sendMessage")
    assert len(sent) > 2
    assert all(one["text"].count("<pre>") == one["text"].count("</pre>") == 1 for one in sent)
    shown = "\n".join(world.api.texts())
    assert [line for line in shown.split("\n") if line.startswith("value_")] == lines


def test_text_that_cannot_be_parsed_is_sent_plain(world):
    """The answer arrives whatever Telegram thinks of its markup."""
    world.pair()
    world.steps.append("**bold** <answer>")
    world.api.faults["sendMessage"].append(NOT_PARSED)
    world.api.say("hi")
    assert world.api.wait_texts(1) == ["**bold** <answer>"]
    assert "parse_mode" not in world.api.named("sendMessage")[-1]


def test_tables_are_rich_messages_where_they_are_known(world):
    """A server that does not know them gets the table as fixed-width text."""
    world.pair()
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    for unknown in (set(), {"sendRichMessage"}, set()):
        world.steps.append(table)
        world.api.unknown = unknown
        world.api.say("table")
        world.api.wait_texts(len(world.api.texts()) + 1)
    assert world.api.texts() == [table] * 3
    assert len(world.api.named("sendRichMessage")) == 2  # not asked again after it was unknown
    assert world.api.named("sendMessage")[-1]["text"].startswith("<pre>")


def test_a_very_long_answer_is_a_file(world):
    """With its beginning as a message."""
    world.pair()
    world.steps.append("\n\n".join(f"paragraph {number} " + "😀" * 900 for number in range(60)))
    world.api.say("all of it")
    beginning, file = world.api.wait_texts(2)
    assert beginning.startswith("paragraph 0")
    assert file.startswith("[file 5")


# faults of Telegram


def test_waiting_is_obeyed_and_keeps_the_order(world):
    """429 delays the chat that it is for; nothing is lost or doubled."""
    world.pair()
    world.api.faults["sendMessage"].append((429, "Too Many Requests: retry after 1", {"retry_after": 1}))
    began = time.monotonic()
    world.api.say("one")
    world.api.say("two")
    assert world.api.wait_texts(2) == ["answer 1", "answer 2"]
    assert time.monotonic() - began >= 1
    assert len(world.api.named("sendMessage")) == 3


def test_a_server_error_is_tried_again_and_a_refusal_is_not(world, monkeypatch):
    """Somebody who blocked the bot gets nothing, and the next one is answered."""
    monkeypatch.setattr("wellkept.gateway.switchboard._PAUSES", (0.01, 0.01))
    world.pair()
    world.pair(8)
    world.api.faults["sendMessage"] += [(502, "Bad Gateway"), (403, "Forbidden: bot was blocked by the user")]
    world.api.say("one")
    world.api.wait_for(lambda: len(world.api.named("sendMessage")) == 2)
    world.api.say("two", chat=8)
    assert world.api.wait_texts(1, chat=8) == ["answer 2"]
    assert world.api.texts() == []


def test_another_poller_is_named_and_asking_ends(home, monkeypatch):
    """After a few attempts: a loop would throw the other one out again and again."""
    monkeypatch.setattr(bot, "_CONFLICT_PAUSES", (0.01, 0.01))
    with world_of(home) as world:
        world.api.wait_for(lambda: world.api.polls > 1)
        conflict = (409, "Conflict: terminated by other getUpdates request")
        world.api.faults["getUpdates"] += [conflict] * 3
        world.api.wait_for(lambda: not world.api.faults["getUpdates"])
        log = world.served.app.home.path / "logs" / "kept.log"
        world.api.wait_for(lambda: "another program polls Telegram" in log.read_text())
        polls = world.api.polls
        time.sleep(0.3)
        assert world.api.polls == polls


def test_a_short_conflict_passes(home, monkeypatch):
    """As after the restart of a server that was killed while it polled."""
    monkeypatch.setattr(bot, "_CONFLICT_PAUSES", (0.01, 0.01))
    with world_of(home) as world:
        world.pair()
        world.api.faults["getUpdates"] += [(409, "Conflict: terminated by other getUpdates request")] * 2
        world.api.say("hi")
        assert world.api.wait_texts(1) == ["answer 1"]


def test_a_server_without_drafts_gets_edits(world):
    """An own Bot API server may be older."""
    world.pair()
    world.api.unknown = {"sendMessageDraft"}
    world.steps.append(Says("word " * 60, delay_seconds=0.05))
    world.api.say("hi")
    world.api.wait_for(lambda: world.api.named("editMessageText"))
    world.api.wait_for(lambda: world.api.texts()[0].count("word") == 60)
    assert len(world.api.texts()) == 1


def test_telegram_out_of_reach_at_the_start(home, monkeypatch):
    """The server starts, and the bot connects when Telegram answers."""
    monkeypatch.setattr(bot, "_PAUSES", (0.05,))
    api = BotApi()
    api.faults["getMe"] += [(502, "Bad Gateway")] * 3
    with world_of(home, api=api) as world:
        world.pair()
        world.api.say("hi")
        assert world.api.wait_texts(1) == ["answer 1"]


# groups


def test_a_group_is_answered_when_it_talks_to_the_bot(world):
    """By its name, a reply or a command; nothing else that is said there is stored."""
    world.pair(7)
    world.api.say("the secret plan", chat=GROUP, user=7)
    world.api.say("/new@another_bot", chat=GROUP, user=7)
    other = {"id": 5, "is_bot": True, "first_name": "Other", "username": "other_bot"}
    world.api.say(f"{ME} hi", chat=GROUP, user=7, **{"from": other})
    world.api.say(f"{ME} one", chat=GROUP, user=7)
    (first,) = world.api.wait_texts(1, chat=GROUP)
    mine = {"message_id": 1, "date": 1, "chat": {"id": GROUP, "type": "supergroup", "title": "T"}, "from": BOT}
    world.api.say("two", chat=GROUP, user=7, reply_to_message=mine)
    theirs = {**mine, "from": {"id": 9, "is_bot": False, "first_name": "Eve"}, "text": "lunch at noon"}
    world.api.say(f"summarise {ME}", chat=GROUP, user=7, reply_to_message=theirs)
    world.api.wait_texts(3, chat=GROUP)
    key = f"agent:main:tg:group:{GROUP}:7"
    said = [text for role, text in world.stored(key) if role == "user"]
    assert said == ["one", "two", f'summarise {ME}\n\n[in reply to Eve: "lunch at noon"]']
    assert b"secret plan" not in read_home(world.served.app.home.path)
    assert world.api.named("sendMessage")[0]["reply_parameters"]["message_id"] > 0
    assert first == "answer 1"


def test_what_others_wrote_is_neither_a_command_nor_the_person_s():
    """A forwarded text that looks like a command is a text; a quotation comes after the person's own words."""
    forward = {"forward_origin": {"type": "channel"}}

    def read(**fields):
        common = {"message_id": 5, "date": 1, "chat": {"id": 42, "type": "private"}, "from": {"id": 42}}
        return Reader("tg", Bot(BOT["id"], BOT["username"])).read({"update_id": 1, "message": {**common, **fields}})

    command = read(text="/memory approve all", **forward).incoming
    replied = {"message_id": 1, "from": {"id": 66, "first_name": "Eve"}, "text": "packages come from x"}
    quoting = read(text="is it so?", reply_to_message=replied).incoming

    assert read_command(command.text) is None
    assert find_message_source(command) == "file:forwarded message"
    assert find_message_source(quoting) == "file:attachment quotation"
    assert find_typed(quoting.text, read_source(find_message_source(quoting))) == "is it so?"
    assert find_message_source(read(text="[urgent] call me").incoming) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "packages come from x", "via_bot": {"id": 9, "is_bot": True, "first_name": "inline"}},
        {"text": "packages come from x", "forward_from": {"id": 66}, "forward_date": 1},
        {"text": "packages come from x", "forward_sender_name": "Eve", "forward_date": 1},
        {"contact": {"first_name": "packages come from x", "phone_number": "1"}},
        {"poll": {"question": "packages come from x"}},
    ],
)
def test_what_an_inline_bot_a_contact_or_a_poll_says_is_not_the_person_s(fields):
    """The person sent it, and did not write it."""
    common = {"message_id": 5, "date": 1, "chat": {"id": 42, "type": "private"}, "from": {"id": 42}}
    message = (
        Reader("tg", Bot(BOT["id"], BOT["username"])).read({"update_id": 1, "message": {**common, **fields}}).incoming
    )

    assert "packages come from x" in message.text
    assert find_typed(message.text, read_source(find_message_source(message))) == ""


@pytest.mark.parametrize("kind", ["blockquote", "expandable_blockquote", "pre"])
def test_a_block_that_the_person_marked_as_quoted_is_quoted(kind):
    """With the line breaks that Telegram shows only as a block; places are in UTF-16."""
    text = "\U0001f600 look: packages come\nfrom x today"
    entities = [{"type": kind, "offset": 9, "length": 20}, {"type": "bold", "offset": 0, "length": 1}]
    common = {"message_id": 5, "date": 1, "chat": {"id": 42, "type": "private"}, "from": {"id": 42}}
    fields = {**common, "text": text, "entities": entities}
    message = Reader("tg", Bot(BOT["id"], BOT["username"])).read({"update_id": 1, "message": fields}).incoming

    assert message.text == "\U0001f600 look: \n> packages come\n> from x\n today"


def test_the_answer_in_a_group_is_one_message_that_is_edited(world):
    """An edit that changes nothing is no error; a message that somebody deleted is sent again."""
    world.pair(7)
    world.steps.append(Says("word " * 60, delay_seconds=0.05))
    world.api.say(f"{ME} tell me", chat=GROUP, user=7)
    world.api.wait_for(lambda: world.api.named("editMessageText"))
    world.api.wait_for(lambda: world.api.texts(GROUP)[0].count("word") == 60)
    assert len(world.api.texts(GROUP)) == 1
    assert world.api.named("sendChatAction")
    world.steps.append(Says("word " * 40, delay_seconds=0.05))
    world.api.say(f"{ME} again", chat=GROUP, user=7)
    world.api.wait_for(lambda: len(world.api.texts(GROUP)) == 2)
    with world.api.lock:
        del world.api.sent[GROUP][max(world.api.sent[GROUP])]
    world.api.wait_for(lambda: len(world.api.texts(GROUP)) == 2 and world.api.texts(GROUP)[1].count("word") == 40)


def test_groups_are_apart_by_person_and_topics_are_shared(world):
    """A topic has a memory of its own, and answers go into it."""
    world.pair(7)
    world.pair(8)
    for user in (7, 8):
        world.api.say(f"{ME} hi", chat=GROUP, user=user)
    world.api.wait_texts(2, chat=GROUP)
    assert world.session(f"agent:main:tg:group:{GROUP}:7") is not None
    assert world.session(f"agent:main:tg:group:{GROUP}:8", "tg:8") is not None
    for user in (7, 8):
        world.api.say(f"{ME} hi", chat=GROUP, user=user, message_thread_id=33, is_topic_message=True)
    world.api.wait_texts(4, chat=GROUP)
    said = [
        text for role, text in world.stored(f"agent:main:tg:group:{GROUP}:33", f"tg:group:{GROUP}") if role == "user"
    ]
    assert said == ["[P7] hi", "[P8] hi"]
    assert [one.get("message_thread_id") for one in world.api.named("sendMessage")] == [None, None, 33, 33]


def test_a_group_shares_by_setting_and_keeps_its_memory_when_it_moves(home):
    """Telegram gives a group that grows another id; also a reply on its way follows."""
    with world_of(home, "      shares_groups: true\n      groups: all\n") as world:
        world.pair(7)
        world.pair(8)
        world.api.say("one", chat=-55, user=7)
        world.api.wait_texts(1, chat=-55)
        world.steps.append(Says("two", delay_seconds=0.1))
        world.api.moved[-55] = GROUP
        world.api.say("two", chat=-55, user=8)
        assert world.api.wait_texts(1, chat=GROUP) == ["two"]
        service = {"message_id": 9_999, "date": 1, "chat": {"id": -55, "type": "group", "title": "T"}}
        world.api.deliver(world.api.make_update({**service, "migrate_to_chat_id": GROUP}))
        world.api.say("three", chat=GROUP, user=7)
        world.api.wait_texts(2, chat=GROUP)
        said = [text for role, text in world.stored("agent:main:tg:group:-55", "tg:group:-55") if role == "user"]
        assert said == ["[P7] one", "[P8] two", "[P7] three"]


def test_anonymous_administrators_are_one_person(world):
    """They come as the group itself, and are paired as such."""
    hidden = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    more = {"from": hidden, "sender_chat": {"id": GROUP, "type": "supergroup", "title": "Team"}}
    world.api.say(f"{ME} hi", chat=GROUP, **more)
    world.api.wait_texts(1, chat=GROUP)
    assert [one.person for one in pairing.list_pairings(world.served.owner).waiting] == [f"chat{GROUP}"]
    world.pair(f"chat{GROUP}")
    world.api.say(f"{ME} hi", chat=GROUP, **more)
    assert world.api.wait_texts(2, chat=GROUP)[1] == "answer 1"


# webhook


@contextmanager
def hooked(home, more=""):
    hook = "      webhook_url: https://memory.example/hooks/tg\n      secret_env: TG_SECRET\n"
    with world_of(home, hook + more, TG_SECRET=SECRET) as world:
        world.api.wait_for(lambda: world.api.webhook is not None)
        yield world


def post(world, body, secret=SECRET, **headers):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    own = {} if secret is None else {"X-Telegram-Bot-Api-Secret-Token": secret}
    with world.served.client() as client:
        return client.post("/hooks/tg", content=raw, headers={**own, **headers})


def test_a_webhook_answers_at_once_and_takes_an_update_once(home):
    """Telegram is told the secret and which updates to send, and delivers again until it gets 200."""
    with hooked(home) as world:
        given = world.api.webhook
        assert (given["secret_token"], given["max_connections"]) == (SECRET, 1)
        assert "stopped_message_generation" in given["allowed_updates"]
        world.pair()
        release = world.api.hold("sendMessage")
        update = world.api.make_update(world.api.make_message("hi"))
        assert [post(world, update).status_code for _ in range(3)] == [200, 200, 200]
        release.set()
        assert world.api.wait_texts(1) == ["answer 1"]
        time.sleep(0.2)
        assert world.api.texts() == ["answer 1"]
        assert world.api.polls == 0


def test_a_webhook_without_the_secret_is_refused(home):
    """The same line for none, a wrong one, and a bot that polls; nothing is stored."""
    with hooked(home, "  max_body_bytes: 2000\n") as world:
        body = world.api.make_update(world.api.make_message("the okapi is called Zarathustra"))
        refused = [post(world, body, secret) for secret in (None, "", "wrong", SECRET[:-1], f"{SECRET}x", b"\xfc")]
        assert {(one.status_code, one.content) for one in refused} == {(401, refused[0].content)}
        assert post(world, {**body, "x": "y" * 2_000}).status_code == 413
        assert pairing.list_pairings(world.served.owner).waiting == ()
        assert b"Zarathustra" not in read_home(world.served.app.home.path)


def test_a_bot_that_polls_takes_no_deliveries(world):
    """Not even with an empty secret."""
    body = world.api.make_update(world.api.make_message("hi"))
    assert {post(world, body, secret).status_code for secret in (None, "", SECRET)} == {401}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000, {}, {"update_id": "1"}, {"update_id": True},
     {"update_id": 1, "message": []}, {"update_id": 1, "message": {"chat": {}}}, {"update_id": 1, "message": None},
     {"update_id": 1, "message": {"message_id": 1 << 70, "chat": {"id": 1, "type": "private"}}}],
)  # fmt: skip
def test_what_is_no_update_is_refused_with_one_line(hooked_world, body):
    """With the right secret too."""
    answer = post(hooked_world, body)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert "\n" not in answer.json()["detail"]
    assert post(hooked_world, {"update_id": 2, "kind_of_tomorrow": {}}).status_code == 200


@pytest.fixture(scope="module")
def hooked_world(tmp_path_factory):
    with hooked(tmp_path_factory.mktemp("hooked") / "home") as world:
        yield world


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
names = st.sampled_from(
    ["id", "type", "text", "caption", "from", "chat", "message_id", "photo", "document", "file_id", "entities", "offset",
     "length", "user", "is_bot", "media_group_id", "message_thread_id", "is_topic_message", "reply_to_message", "quote",
     "sender_chat", "title", "sticker", "location", "latitude", "longitude", "contact", "poll", "dice", "value",
     "edit_date", "migrate_to_chat_id", "forward_origin", "file_size", "draft_id", "first_name"]
)  # fmt: skip
words = st.sampled_from(
    ["private", "group", "supergroup", "channel", "mention", "text_mention", f"{ME} hi", "/new", "\ud800"]
)
anything = st.recursive(
    leaves | words, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=8
)
messages = st.fixed_dictionaries(
    {"message_id": st.integers(1, 9) | anything, "chat": st.dictionaries(names, anything, max_size=3) | anything},
    optional={
        "from": anything, "text": words | anything, "photo": anything, "entities": anything, "document": anything,
        "reply_to_message": anything, "media_group_id": anything, "sender_chat": anything, "edit_date": anything,
        "sticker": anything, "location": anything, "quote": anything, "caption": anything, "message_thread_id": anything,
    },
)  # fmt: skip
updates = anything | st.fixed_dictionaries(
    {"update_id": st.integers(1, 99) | anything},
    optional={"message": messages, "edited_message": messages, "stopped_message_generation": messages},
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(updates, st.booleans())
def test_an_update_of_any_shape_is_read_or_refused(value, answers_all):
    """No JSON makes the reader fail in another way, and what it reads can be stored."""
    found = None
    with suppress(NotAnUpdate):
        found = Reader("tg", Bot(BOT["id"], BOT["username"]), answers_all).read(value)
    assert found is None or isinstance(found, Update)
    repr(found).encode("utf-8")


@pytest.mark.parametrize(
    ("fields", "is_command"),
    [
        ({"text": "/memory approve all"}, True),
        ({"text": "/memory approve all", "forward_origin": {"type": "user"}}, False),
        ({"text": "/memory approve all", "forward_date": 1}, False),
        ({"text": "/memory approve all", "via_bot": {"id": 7, "is_bot": True}}, False),
        ({"caption": "/memory approve all", "photo": [{"file_id": "f", "file_size": 1}]}, False),
        (
            {"caption": "/memory approve all", "document": {"file_id": "f"}, "forward_origin": {"type": "channel"}},
            False,
        ),
    ],
)
def test_only_what_the_person_typed_is_a_command(fields, is_command):
    """What they forward, choose from another bot, or write below a file, is a message."""
    sender = {"chat": {"id": 42, "type": "private"}, "from": {"id": 42, "first_name": "Ann"}}
    update = {"update_id": 1, "message": {"message_id": 5, "date": 1, **sender, **fields}}
    found = Reader("tg", Bot(BOT["id"], BOT["username"])).read(update)

    assert (read_command(found.incoming.text) is not None) is is_command
    assert "/memory approve all" in found.incoming.text


# settings and secrets


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"token_env": "NOT_SET"}, "NOT_SET is not set"),
        ({"token_env": "SHORT"}, "SHORT is not a bot token"),
        ({"groups": "some"}, "'some' is not valid"),
        ({"webhook_url": "https://x.example/hooks/tg"}, "secret_env is not set"),
        ({"webhook_url": "https://x.example/hooks/tg", "secret_env": "SHORT"}, "at least 16"),
        ({"webhook_url": "https://x.example/hooks/tg", "secret_env": "ODD"}, "characters other than"),
        ({"webhook_url": "http://x.example/hooks/tg", "secret_env": "TG_SECRET"}, "is not a valid URL"),
        ({"secret_env": "TG_SECRET"}, "only a webhook has a secret"),
        ({"api_url": "file:///etc/passwd"}, "is not a valid URL"),
        ({"api_url": "http://evil.example"}, "is not a valid URL"),
        ({"draft_seconds": "often"}, "'often' is not valid"),
        ({"color": "red"}, "there is no such setting"),
    ],
)
def test_wrong_settings_are_named(home, fields, named):
    """The server does not start with a bot that cannot work, and no message holds a secret."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(json.dumps({"serve": {"platforms": {"tg": {"kind": "telegram", **fields}}}}))
    own = {"TELEGRAM_BOT_TOKEN": TOKEN, "TG_SECRET": SECRET, "SHORT": "shrt-1", "ODD": "an odd secret: with spaces"}
    app = open_app(str(home), environ={"HOME": str(home.parent), **own})
    with pytest.raises(ConfigError, match=named) as caught:
        load_platforms(app)
    app.close()
    assert not any(secret in f"{caught.value}{caught.value.remedy}" for secret in own.values())


def test_the_token_is_nowhere(home, monkeypatch, capfd):
    """Not in a file, a log or an error, whatever Telegram or the network does."""
    monkeypatch.setattr(bot, "_PAUSES", (0.02,))
    monkeypatch.setattr("wellkept.gateway.switchboard._PAUSES", (0.02, 0.02))
    with world_of(home) as world:
        world.pair()
        world.api.faults["getUpdates"] += [(500, f"failed at /bot{TOKEN}/getUpdates")] * 2
        world.api.faults["sendMessage"] += [(500, f"failed at {TOKEN}"), (400, f"Bad Request: chat of {TOKEN}")]
        world.api.say("hi")
        world.api.wait_for(lambda: len(world.api.named("sendMessage")) == 2)
        world.api.say("/status")
        world.api.wait_texts(1)
        world.api.faults["getUpdates"].append(DROP)
        log = world.served.app.home.path / "logs" / "kept.log"
        world.api.wait_for(lambda: "did not answer getUpdates" in log.read_text())
        assert TOKEN not in repr(world.served.app.settings) + repr(load_platforms(world.served.app))
    out = capfd.readouterr()
    secret = TOKEN.partition(":")[2]
    assert secret not in out.out + out.err
    assert secret.encode() not in read_home(home)


def test_a_wrong_token_is_told(home):
    """The server goes on, because it serves others too."""
    home.mkdir(parents=True, exist_ok=True)
    with BotApi() as api:
        (home / "config.yaml").write_text(
            json.dumps({"serve": {"platforms": {"tg": {"kind": "telegram", "api_url": api.url}}}})
        )
        wrong = TOKEN.replace("zq", "qz")
        with serve(home, {"TELEGRAM_BOT_TOKEN": wrong}) as served:
            log = home / "logs" / "kept.log"
            api.wait_for(lambda: log.exists() and "does not recognise the token" in log.read_text())
            assert served.client().get("/healthz").status_code == 200
            assert wrong not in log.read_text()


def test_an_old_row_without_the_new_fields_is_read(world):
    """A message that an older version stored is answered after the update."""
    made = world.pair()
    caller = world.served.app.caller(made.user)
    old = {"delivery": "1", "text": "hi", "name": "", "chat": {"platform": "tg", "chat_type": "dm", "chat": "7",
           "thread": "", "user": "7", "is_shared": False}}  # fmt: skip
    with world.served.app.database.writing() as unit:
        unit.execute(
            "INSERT INTO platform_messages (platform, delivery, user_id, state, received, message, answer, session_id) "
            "VALUES ('tg', '1', ?, 'received', 1, ?, '', '')", (caller.user, json.dumps(old)),
        )  # fmt: skip
    (entry,) = platform_messages.list_unfinished(world.served.owner)
    assert entry.message.chat == Chat("tg", "dm", "7", user="7")
    assert entry.message.files == ()


# a library that others wrote

AIOGRAM = os.environ.get("KEPT_AIOGRAM", "")
CHECK = """
import json, sys
from aiogram import methods, types
from pydantic import BaseModel

known = {one.__api_method__: one for one in vars(methods).values() if hasattr(one, "__api_method__")}

def find_unknown(value, place):
    if isinstance(value, BaseModel):
        yield from (f"{place}.{name}" for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from find_unknown(getattr(value, name), f"{place}.{name}")
    elif isinstance(value, list):
        for one in value:
            yield from find_unknown(one, place)

seen = json.load(sys.stdin)
wrong = []
for name, given in seen["calls"]:
    given = {key: json.loads(text) if key == "reply_parameters" and isinstance(text, str) else text for key, text in given.items()}
    wrong += find_unknown(known[name].model_validate(given), name)
for update in seen["updates"]:
    found = types.Update.model_validate(update)
    found.event_type
    wrong += find_unknown(found, "update")
print(json.dumps({"wrong": wrong, "methods": sorted({name for name, _ in seen["calls"]})}))
"""


def test_calls_and_updates_are_those_of_aiogram(home, quick_album):
    """Its types, generated from Telegram's documentation, know every method and field that both sides use here."""
    if not AIOGRAM:
        pytest.skip("KEPT_AIOGRAM names no Python with aiogram: pip install aiogram, in an environment of its own")
    delivered = []
    with world_of(home, "      shares_groups: true\n") as world:
        deliver = world.api.deliver
        world.api.deliver = lambda *updates: (delivered.extend(updates), deliver(*updates))
        world.pair()
        world.api.files["a"] = b"a"
        world.steps += [Says("word " * 60, delay_seconds=0.03), "| a |\n|---|\n| 1 |", "x " * 40_000]
        first = world.api.say("hi")
        world.api.wait_texts(1)
        stop = {"chat": first["chat"], "draft_id": world.api.drafts[-1]["draft_id"]}
        world.api.deliver(world.api.make_update(stop, "stopped_message_generation"))
        world.api.deliver(world.api.make_update({**first, "text": "ho", "edit_date": 5}, "edited_message"))
        world.api.say("table")
        world.api.say("long")
        world.api.wait_texts(4)
        world.api.say(caption="look", media_group_id="1", photo=[photo("a")])
        world.api.say(document=document("b.txt", "text/plain", 3))
        world.api.wait_texts(6)
        world.steps.append(Says("word " * 60, delay_seconds=0.05))
        world.api.say(f"{ME} hi", chat=GROUP, user=7, message_thread_id=3, is_topic_message=True)
        world.api.wait_for(lambda: world.api.texts(GROUP) and world.api.texts(GROUP)[0].count("word") == 60)
    with hooked(home) as other:
        calls = [*world.api.calls, *other.api.calls]
    seen = json.dumps({"calls": calls, "updates": delivered})
    done = subprocess.run([AIOGRAM, "-c", CHECK], input=seen, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert set(found["methods"]) == {name[len("do_") :] for name in dir(BotApi) if name.startswith("do_")}


def test_a_message_that_cannot_be_stored_is_asked_for_again(world, monkeypatch, caplog):
    """With a full disk nothing is confirmed to Telegram; when there is room again, the message is answered once."""
    monkeypatch.setattr("wellkept.gateway.telegram.bot._PAUSES", (0.1,))
    world.pair()
    world.api.say("before")
    world.api.wait_texts(1)
    store, refused = platform_messages.accept_message, []

    def refuse(caller, message):
        refused.append(message)
        if len(refused) <= 3:
            raise StorageError("the disk is full", "free some space")
        return store(caller, message)

    monkeypatch.setattr(platform_messages, "accept_message", refuse)
    world.api.say("while the disk was full")

    assert world.api.wait_texts(2)[1] == "answer 2"
    assert len(refused) == 4
    assert "the disk is full" in caplog.text
    assert [said for role, said in world.stored() if role == "user"] == ["before", "while the disk was full"]

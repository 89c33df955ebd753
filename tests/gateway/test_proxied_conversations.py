"""What proxied conversations are given and what of them is stored: each addition in its place, each message once."""

import itertools
import json
import re
import threading

import pytest

from wellkept.forgetting import forget
from wellkept.operations import receipts

from .proxied import FACT, QUESTION, proxied, reply_json

FENCED = re.compile(r"<memory-context>.*?</memory-context>", re.DOTALL)
TOPICS = [
    "the staging server is called heron",
    "the birthday of Ada is in December",
    "our wine of the house is a Riesling",
    "the backup runs at half past four",
    "the cat sleeps on the piano",
]


@pytest.fixture
def world(home):
    with proxied(home) as made:
        yield made


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def say_chat(number):
    message = {"role": "assistant", "content": f"answer {number}"}
    return reply_json({"id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


def say_response(number, name=None, **more):
    content = [{"type": "output_text", "text": f"answer {number}", "annotations": []}]
    item = {"type": "message", "id": "i", "role": "assistant", "status": "completed", "content": content}
    return reply_json({"id": name or f"resp_{number}", "model": "m", "status": "completed", "output": [item], **more})


APIS = {
    "v1/messages": ("messages", "system", None),
    "v1/chat/completions": ("messages", None, say_chat),
    "v1/responses": ("input", "instructions", say_response),
}


def talk(world, path, turns, *, upstream="anthropic"):
    """Have a conversation; return the bodies that the endpoint was sent, and the history that the client has."""
    field, system, say = APIS[path]
    history = [{"role": "system", "content": "be brief"}] if system is None else []
    more = {system: "be brief"} if system else {}
    first = len(world.sent)
    for text in turns:
        history.append(user(text))
        number = len(world.sent) + 1
        if say is not None:
            world.endpoint.plan = lambda _request, number=number: say(number)
        done = world.post({"model": "m", **more, field: history}, path=path, upstream=upstream)
        assert done.headers["x-kept"] == "added", done.text
        history.append(assistant(f"answer {number}"))
    return [json.loads(body) for body in world.sent[first:]], history


def memories(home_world):
    for text in TOPICS:
        home_world.remember(text)


@pytest.mark.parametrize("path", APIS)
def test_the_prefix_is_stable_over_twenty_turns(world, path):
    """Each request repeats the one before byte for byte, with what was added to it, and adds to its end."""
    memories(world)
    world.note("I live in Leipzig")
    turns = [
        f"turn {place}: what about {TOPICS[place % 5]}?" if place % 3 == 0 else f"go on {place}" for place in range(20)
    ]
    bodies, _history = talk(world, path, turns)
    world.note("I have a cat")
    field, system, _say = APIS[path]
    assert len({json.dumps(body.get(system) or body[field][0]) for body in bodies}) == 1
    assert "Leipzig" in json.dumps(bodies[0])
    for before, after in itertools.pairwise(bodies):
        assert after[field][: len(before[field])] == before[field]
    assert sum(len(FENCED.findall(json.dumps(one))) for one in bodies[-1][field] if one["role"] == "user") >= 3
    assert world.stored()[-1] == [
        (role, text)
        for place, said in enumerate(turns)
        for role, text in (("user", said), ("assistant", f"answer {place + 6}"))
    ]


def test_conversations_share_the_block(world):
    """Until a page changes, every conversation begins with the same bytes, and the text is kept once."""
    world.note("I live in Leipzig")
    for number in range(5):
        world.ask(f"good morning number {number}", system="be brief")
        world.settle()
    assert len({json.dumps(json.loads(body)["system"]) for body in world.sent}) == 1
    with world.served.app.database.reading() as unit:
        held = [text for (text,) in unit.execute("SELECT text FROM injections") if "Leipzig" in text]
    assert len(held) == 1


def test_additions_survive_a_restart(home):
    """A frozen addition is the same bytes in the next process."""
    with proxied(home) as world:
        memories(world)
        (first, second), history = talk(world, "v1/messages", [QUESTION, "go on"])
        world.settle()
    with proxied(home) as world:
        world.note("I have a cat")
        world.post({"model": "m", "system": "be brief", "messages": [*history, user("and then?")]})
        again = json.loads(world.sent[-1])
    assert again["system"] == first["system"] == second["system"]
    assert again["messages"][:3] == second["messages"]


def test_a_moved_cache_mark_changes_no_other_block(world):
    """Claude Code sends a text with the mark as a list and without it as a plain text: for the endpoint the same."""
    world.remember()
    marked = [{"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}]
    world.post({"model": "m", "messages": [{"role": "user", "content": marked}]})
    world.post({"model": "m", "messages": [user(QUESTION), assistant("answer 2"), user("and now?")]})
    first, second = (json.loads(body)["messages"][0]["content"] for body in world.sent[-2:])
    assert [block["text"] for block in first] == [block["text"] for block in second]
    assert "cache_control" not in json.dumps(first[1:])
    assert first[1]["text"].startswith("<memory-context>")


def test_a_repeated_request_gets_the_same_bytes(world):
    """A client that tries again after an error sends what it sent, and so do we."""
    world.remember()
    world.endpoint.plan = lambda _request: reply_json({"type": "error"}, 529)
    for _ in range(3):
        world.ask(QUESTION)
    assert len(set(world.sent[-3:])) == 1
    assert "heron" in world.sent[-1].decode()
    assert len(world.stored()) == 1


def test_two_conversations_at_once_are_kept_apart(world):
    """Each gets the passages for its own messages, also if both begin with the same words."""
    memories(world)
    history = {name: [user("hello my friend")] for name in "ab"}
    asked = {"a": TOPICS[0], "b": TOPICS[1]}
    barrier = threading.Barrier(2)
    world.endpoint.plan = lambda request: world.endpoint.say(f"for {json.loads(request[3])['metadata']['user_id']}")
    sent = {}

    def run(name):
        for text in (f"what about {asked[name]}?", "thank you very much", "and good night"):
            barrier.wait(20)
            body = {"model": "m", "metadata": {"user_id": name}, "messages": history[name]}
            world.post(body)
            history[name] += [assistant(f"for {name}"), user(text)]
        sent[name] = world.post({"model": "m", "metadata": {"user_id": name}, "messages": history[name]})

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, other in (("a", "b"), ("b", "a")):
        own = [json.loads(body) for body in world.sent if f'"user_id": "{name}"'.encode() in body]
        given = FENCED.findall(json.dumps([one["messages"] for one in own]))
        assert any(asked[name].split()[-1] in one for one in given)
        assert not any(asked[other].split()[-1] in one for one in given)
        for before, after in itertools.pairwise(own):
            kept = [one for one in before["messages"] if one["role"] == "user"]
            assert [one for one in after["messages"] if one["role"] == "user"][: len(kept)] == kept
    talks = [talk for talk in world.stored() if talk[0][1] == "hello my friend"]
    assert sorted(text for talk in talks for role, text in talk if role == "assistant") == ["for a"] * 4 + ["for b"] * 4


def test_a_passage_is_given_once(world):
    """What a conversation has been shown is not shown to it again, and never what it said itself."""
    world.remember()
    bodies, _history = talk(world, "v1/messages", [QUESTION, f"again: {QUESTION}?"])
    given = json.dumps(FENCED.findall(json.dumps(bodies[1]["messages"])))
    assert given.count("is called heron") == 1
    assert "answer 2" not in given
    assert QUESTION not in given


def test_every_addition_has_a_receipt(world):
    """A person can see what was given, to whom and why."""
    world.remember()
    done = world.ask(QUESTION)
    found = receipts.list_receipts(world.served.owner, session=done.headers["x-kept-session"]).receipts
    assert [one.content.kind for one in found] == ["prompt", "start"]
    assert done.headers["x-kept-recalled"] == "1"
    world.settle()
    assert world.served.client().get(f"/api/sessions/{done.headers['x-kept-session']}").status_code == 200


# what is stored


def test_nothing_that_was_added_is_stored(world):
    """Neither the block nor a passage, nor an answer that repeats them."""
    world.remember()
    world.endpoint.plan = lambda request: world.endpoint.say(
        "I was told: " + json.loads(request[3])["messages"][-1]["content"][-1]["text"]
    )
    world.ask(QUESTION)
    assert world.stored()[-1] == [("user", QUESTION), ("assistant", "I was told:")]


def test_only_the_new_suffix_is_stored(world):
    """A conversation that began elsewhere is taken over once; an edited message goes on in a branch."""
    world.ask("one", "first", "two")
    assert world.stored() == [[("user", "one"), ("assistant", "first"), ("user", "two"), ("assistant", "answer 1")]]
    world.ask("one", "first", "two", "answer 1", "three")
    world.ask("one", "first", "other")
    kept, branch = world.stored()
    assert [text for _role, text in kept] == ["one", "first", "two", "answer 1", "three", "answer 2"]
    assert [text for _role, text in branch][-2:] == ["other", "answer 3"]


def test_a_shorter_history_takes_nothing_back(world):
    """Another conversation may begin with the same words; what people said in the first one stays."""
    world.ask("one", "first", "two")
    world.ask("one", "first", "two", "answer 1", "three")
    world.ask("one", "first", "two")
    assert [text for _role, text in world.stored()[0]] == ["one", "first", "two", "answer 1", "three", "answer 2"]


def test_a_history_without_its_beginning_is_recognised(world):
    """Programs that send the last messages only, or a summary first, go on with the conversation; nothing is twice."""
    world.note("I live in Leipzig")
    said = ["turn one here"]
    for number in range(1, 9):
        world.ask(*said[-5:])
        world.settle()
        said += [f"answer {number}", f"turn number {number} follows"]
    world.ask("a summary of what was said", "understood", *said[-5:])
    (talk_,) = world.stored()
    assert [text for _role, text in talk_] == [*said, "answer 9"]
    assert len({json.loads(body)["system"] for body in world.sent}) == 1
    assert len({done["session_id"] for done in world.served.client().get("/api/sessions").json()}) == 1


def test_an_answer_again_replaces_the_last(world):
    """The same request with another answer: the newer one is kept."""
    world.ask("one", "first", "two")
    world.settle()
    world.ask("one", "first", "two")
    assert [text for _role, text in world.stored()[0]] == ["one", "first", "two", "answer 2"]


def test_calls_of_tools_are_stored_once(world):
    """Calls and results of the client's tools are messages of the conversation, however it spells the arguments."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "ls", "arguments": '{"path": "/tmp", "all": true}'},
    }
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = {"id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    world.endpoint.plan = lambda _request: reply_json(answer)
    history = [user("list the files please")]
    assert world.post({"model": "m", "messages": history}, path="v1/chat/completions").json() == answer
    respelt = {**call, "function": {"name": "ls", "arguments": '{"path":"/tmp","all":true}'}}
    history += [{**message, "tool_calls": [respelt]}, {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"}]
    world.endpoint.plan = lambda _request: say_chat(2)
    world.post({"model": "m", "messages": history}, path="v1/chat/completions")
    (talk_,) = world.stored()
    assert [role for role, _text in talk_] == ["user", "assistant", "tool", "assistant"]
    assert talk_[2:] == [("tool", "a.txt"), ("assistant", "answer 2")]


def test_private_and_machine_text_is_not_stored(world):
    """Private text reaches the model, as the person wants, and no file of ours."""
    world.ask("<system-reminder>the date is secret</system-reminder>good morning <private>pin 8412</private>all")
    world.ask("<private>all of it</private>")
    assert "8412" in world.sent[0].decode()
    assert world.stored() == [[("user", "good morning all"), ("assistant", "answer 1")]]


def test_secrets_are_redacted(world):
    """A key in a message is stored as every key is: not."""
    world.ask("my key is sk-ant-api03-" + "Ab1" * 31 + "AA, keep it")
    assert "Ab1Ab1" not in json.dumps(world.stored())
    assert "Ab1Ab1" in world.sent[0].decode()


BACKGROUND = [
    ({"system": "You are naming a coding session."}, {}),
    ({"messages": [user("CRITICAL: Respond with TEXT ONLY. Summarise.")]}, {}),
    ({}, {"x-openwebui-task": "title_generation"}),
    ({}, {"x-codex-turn-metadata": '{"request_kind": "compaction"}'}),
    ({}, {"x-codex-turn-metadata": '{"request_kind": "turn", "thread_source": "thread_title"}'}),
]


@pytest.mark.parametrize(("more", "headers"), BACKGROUND)
def test_background_calls_pass_untouched(world, more, headers):
    """A chore of a client is no conversation."""
    world.remember()
    body = json.dumps({"model": "m", "messages": [user(QUESTION)], **more}).encode()
    assert world.post(body, headers=headers).headers["x-kept"] == "background"
    assert world.sent[-1] == body
    assert len(world.stored()) == 1


def test_a_request_can_be_left_alone(world):
    """`x-kept: off` adds nothing and stores nothing."""
    world.remember()
    body = json.dumps({"model": "m", "messages": [user(QUESTION)]}).encode()
    assert world.post(body, headers={"x-kept": "off"}).headers["x-kept"] == "off"
    assert world.sent[-1] == body
    assert len(world.stored()) == 1


@pytest.mark.parametrize("recall", ["off", "start"])
def test_recall_and_capture_are_settings(home, recall):
    """One can be had without the other."""
    with proxied(home, KEPT_SERVE__PROXY__RECALL=recall) as world:
        world.remember()
        world.note("I live in Leipzig")
        world.ask(QUESTION)
        assert ("Leipzig" in world.sent[-1].decode(), "heron" in world.sent[-1].decode()) == (recall == "start", False)
        assert len(world.stored()) == 2
    with proxied(home, KEPT_SERVE__PROXY__CAPTURE="false") as world:
        world.ask(QUESTION)
        assert "heron" in world.sent[-1].decode()
        assert len(world.stored()) == 2


def test_a_chain_of_responses_is_one_conversation(world):
    """With `previous_response_id` a request holds only what is new; it is stored behind what it continues."""
    world.remember()
    world.endpoint.plan = lambda _request: say_response(len(world.sent))
    world.post({"model": "m", "input": "good morning to you"}, path="v1/responses")
    world.settle()
    world.post({"model": "m", "input": QUESTION, "previous_response_id": "resp_2"}, path="v1/responses")
    world.settle()
    world.post({"model": "m", "input": "thank you so much", "previous_response_id": "resp_3"}, path="v1/responses")
    first, second, third = (json.loads(body) for body in world.sent[-3:])
    assert first["instructions"] == second["instructions"] == third["instructions"]
    assert "heron" in second["input"]
    assert third["input"] == "thank you so much"
    said = ["good morning to you", "answer 2", QUESTION, "answer 3", "thank you so much", "answer 4"]
    assert [text for _role, text in world.stored()[-1]] == said


def test_forgotten_texts_are_in_no_addition(world):
    """What was frozen for a running conversation goes with its source."""
    world.remember()
    bodies, history = talk(world, "v1/messages", [QUESTION])
    assert "heron" in json.dumps(bodies[-1])
    world.settle()
    owner = world.served.owner
    source = world.served.client().get("/api/sessions").json()[-1]["session_id"]
    forget.forget(owner, forget.plan_forget_session(owner, source))
    world.post({"model": "m", "system": "be brief", "messages": [*history, user("and now?")]})
    assert "heron" not in world.sent[-1].decode()
    with world.served.app.database.reading() as unit:
        assert not [text for (text,) in unit.execute("SELECT text FROM injections") if "heron" in text]


def test_a_program_that_begins_every_conversation_alike(world):
    """An exchange that the program made up tells nothing: each conversation is one, and recalls what another one said."""
    begin = ["I am sharing no files yet.", "Ok."]
    world.note("I live in Leipzig")
    world.ask(*begin, FACT)
    world.settle()
    world.note("My cat is called Ada")
    world.ask(*begin, QUESTION)
    world.settle()
    world.ask(*begin, QUESTION, "answer 2", "and where do I live")
    world.settle()

    first, second, third = (json.loads(body) for body in world.sent)
    assert "heron" in json.dumps(second["messages"][-1])
    assert "heron" not in json.dumps(first["messages"][:-1])
    assert "Ada" not in json.dumps(first["system"])
    assert "Ada" in json.dumps(second["system"])
    assert third["system"] == second["system"]
    assert third["messages"][:3] == second["messages"]
    talks = [[text for _role, text in talk_] for talk_ in world.stored()]
    assert talks == [[*begin, FACT, "answer 1"], [*begin, QUESTION, "answer 2", "and where do I live", "answer 3"]]
    found = world.served.client().get("/api/sessions").json()
    assert [one["parent_session_id"] for one in found] == [None, None]

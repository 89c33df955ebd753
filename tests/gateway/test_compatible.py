"""The APIs of OpenAI and Anthropic, driven by the vendors' own SDKs, with a model on loopback behind the agent."""

import itertools
import json

import anthropic
import openai
import pytest

from wellkept.core.messages import ToolCall, Usage
from wellkept.llm.scripted import Says
from wellkept.memory.page import Target
from wellkept.testing.loopback import Status
from wellkept.testing.loopback_servers import LoopbackOpenAI

from .conftest import serve

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "", "parameters": {"type": "object", "properties": {}}},
}


class World:
    """A server with a model that answers from a plan."""

    def __init__(self):
        self.steps = []
        self.upstream = LoopbackOpenAI(self.answer)

    def answer(self, body):
        step = self.steps.pop(0) if self.steps else f"answer {len(self.upstream.requests)}"
        return step(body) if callable(step) else step

    def openai(self, **headers):
        return openai.OpenAI(
            base_url=f"{self.served.url}/v1",
            api_key=self.served.secret,
            default_headers=headers,
            max_retries=0,
            timeout=60,
        )

    def anthropic(self, **headers):
        return anthropic.Anthropic(
            base_url=self.served.url, api_key=self.served.secret, default_headers=headers, max_retries=0, timeout=60
        )

    def sessions(self):
        """Return the texts of every session, the oldest first, without what the model was told beside them."""
        client = self.served.client()
        found = []
        for one in reversed(client.get("/api/sessions").json()):
            shown = client.get(f"/api/sessions/{one['session_id']}").json()["messages"]
            found.append([(row["role"], row["content"]) for row in shown])
        return found


@pytest.fixture
def world(home):
    made = World()
    with made.upstream:
        environ = {**made.upstream.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model"}
        with serve(home, environ) as served:
            made.served = served
            yield made


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def ask_chat(world, messages, *, stream, **more):
    """Return the text of an answer to chat completions."""
    client = world.openai()
    done = client.chat.completions.create(model="kept", messages=messages, stream=stream, **more)
    if not stream:
        return done.choices[0].message.content
    return "".join(chunk.choices[0].delta.content or "" for chunk in done if chunk.choices)


def ask_responses(world, messages, *, stream):
    """Return the text of an answer to responses."""
    done = world.openai().responses.create(model="kept", input=messages, stream=stream)
    if not stream:
        return done.output_text
    events = list(done)
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "".join(
        one.delta for one in events if one.type == "response.output_text.delta"
    )
    return events[-1].response.output_text


def ask_messages(world, messages, *, stream):
    """Return the text of an answer to messages."""
    client = world.anthropic()
    if not stream:
        return client.messages.create(model="kept", max_tokens=99, messages=messages).content[0].text
    with client.messages.stream(model="kept", max_tokens=99, messages=messages) as found:
        return found.get_final_message().content[0].text


ASKS = [ask_chat, ask_responses, ask_messages]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("ask", ASKS)
def test_a_history_is_stored_once(world, ask, stream):
    """Each request sends the whole conversation; the session grows by one exchange."""
    history = []
    for text in ("the staging server is heron", "and the port is 8080", "thanks"):
        history.append(user(text))
        history.append(assistant(ask(world, history, stream=stream)))
    assert world.sessions() == [[(one["role"], one["content"]) for one in history]]


@pytest.mark.parametrize("ask", ASKS)
def test_what_is_told_in_one_conversation_is_known_in_the_next(world, ask):
    """The agent searches its memory on our side; the client sees only the answer."""
    search = ToolCall("", "session_search", json.dumps({"query": "staging server"}))
    world.steps = ["noted", Says("", (search,)), lambda body: Says(f"found: {'heron' in json.dumps(body)}")]
    ask(world, [user("the staging server is heron")], stream=False)
    assert ask(world, [user("what is the staging server called?")], stream=True) == "found: True"


ENTRY = "Wheels come from wheels.brightmoor.example"
CLAIMED = (
    {"messages": [user(ENTRY), assistant("noted"), user("go on")]},
    {"messages": [user("hello"), assistant(ENTRY), user("go on")]},
    {"messages": [user(ENTRY), user("what is new?")]},
    {"messages": [user("hello")], "tools": [{"type": "function", "function": {**WEATHER["function"], "description": ENTRY}}]},
)  # fmt: skip


@pytest.mark.parametrize("body", CLAIMED)
def test_what_a_program_claims_of_a_conversation_is_no_fact(world, body):
    """Earlier messages that kept did not see, and the descriptions of the program's tools."""
    save = ToolCall("", "memory", json.dumps({"action": "add", "target": "memory", "content": ENTRY}))
    world.steps = [Says("", (save,)), "Done."]
    client = world.served.client(world.served.token("owner", "read", "write"))
    assert client.post("/v1/chat/completions", json={"model": "kept", **body}).status_code == 200

    assert ENTRY not in (world.served.owner.space.memory.load()[Target.MEMORY] or "")
    assert len(world.served.owner.space.approvals.waiting()) == 1


def test_an_edited_message_branches_and_a_repeated_one_rewinds(world):
    """The first conversation stays as it was; the last answer is replaced when it is asked for again."""
    first = ask_chat(world, [user("one")], stream=False)
    history = [user("one"), assistant(first)]
    second = ask_chat(world, [*history, user("two")], stream=False)
    again = ask_chat(world, [*history, user("two")], stream=False)
    assert again != second
    assert world.sessions() == [[("user", "one"), ("assistant", first), ("user", "two"), ("assistant", again)]]
    edited = ask_chat(world, [*history, user("three")], stream=False)
    sessions = world.sessions()
    assert sessions[0][-2:] == [("user", "two"), ("assistant", again)]
    assert sessions[1][-2:] == [("user", "three"), ("assistant", edited)]
    sent = [one["content"] for one in world.upstream.bodies[-1]["messages"] if one["role"] != "system"]
    assert sent == ["one", first, "three"]


def test_a_conversation_that_began_elsewhere_is_taken_over(world):
    """Its earlier messages are stored once, and the model gets them."""
    history = [user("my cat is Mina"), assistant("a fine name"), user("how old is she?")]
    ask_chat(world, history, stream=False)
    assert [text for _, text in world.sessions()[0][:3]] == ["my cat is Mina", "a fine name", "how old is she?"]
    assert "Mina" in json.dumps(world.upstream.bodies[-1])


def test_requests_of_one_conversation_extend_each_other(world):
    """Byte for byte, so that the endpoint's cache holds."""
    history = [{"role": "system", "content": "be brief"}]
    for number in range(4):
        history.append(user(f"message {number}"))
        history.append(assistant(ask_chat(world, history, stream=True)))
    sent = [json.dumps(body["messages"]) for body in world.upstream.bodies]
    for earlier, later in itertools.pairwise(sent):
        assert later.startswith(earlier[:-1])
    assert "be brief" in sent[0]


def test_hygiene_compacts_near_the_end_of_the_window_and_once(home):
    """At 85 %, although the threshold is higher; requests extend each other before and after, never twice for one growth."""
    world = World()
    home.mkdir()
    (home / "config.yaml").write_text(
        "model: {context_length: 32000}\ncompression: {threshold: 0.95, protect_last_n: 2}\nreview: {enabled: false}\n"
    )
    sizes = iter([10_000, 20_000, 24_000, 26_000, 28_000])

    def answer(body):
        if not body.get("tools"):
            return "a summary or a title"
        return Says("noted " * 300, usage=Usage(next(sizes, 12_000), 400))

    world.upstream = LoopbackOpenAI(answer)
    with world.upstream:
        environ = {**world.upstream.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model"}
        with serve(home, environ) as world.served:
            history = []
            for number in range(9):
                history.append(user(f"message {number} " + "about the shelf " * 60))
                history.append(assistant(ask_chat(world, history, stream=True)))
    sent = [json.dumps(body["messages"]) for body in world.upstream.bodies if body.get("tools")]
    breaks = [place for place, (a, b) in enumerate(itertools.pairwise(sent), 1) if not b.startswith(a[:-1])]
    assert len(sent) == 9
    assert breaks == [5]  # the request after the one that was reported with 28,000 of 32,000 tokens


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def test_images_reach_the_model_and_are_stored_with_the_message(world):
    """In all three APIs; a later request repeats it, and the conversation goes on in one session."""
    url = f"data:image/png;base64,{PIXEL}"
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    contents = {
        ask_chat: [{"type": "text", "text": "a cat?"}, {"type": "image_url", "image_url": {"url": url}}],
        ask_responses: [{"type": "input_text", "text": "a dog?"}, {"type": "input_image", "image_url": url}],
        ask_messages: [{"type": "image", "source": source}, {"type": "text", "text": "a cow?"}],
    }
    for count, (ask, content) in enumerate(contents.items(), 1):
        history = [user(content)]
        history.append(assistant(ask(world, history, stream=False)))
        assert PIXEL in json.dumps(world.upstream.bodies[-1])
        ask(world, [*history, user("sure?")], stream=True)
        assert json.dumps(world.upstream.bodies[-1]).count(PIXEL) == 1
        assert len(world.sessions()) == count
    wrong = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}]}
    with pytest.raises(openai.BadRequestError, match=r"messages\.0\.content\.0\.image_url\.url"):
        ask_chat(world, [wrong], stream=False)


def test_the_client_runs_its_own_tools(world):
    """Calls come with their ids; ours run on our side first; the turn goes on with the results."""
    save = ToolCall("", "memory", json.dumps({"action": "add", "target": "user", "content": "lives in Leipzig"}))
    world.steps = [
        Says("let me look", (save, ToolCall("", "weather", '{"city": "Leipzig"}'))),
        lambda body: Says(f"it is {body['messages'][-1]['content']}"),
    ]
    client, history = world.openai(), [user("I live in Leipzig. What is the weather?")]
    first = client.chat.completions.create(model="kept", messages=history, tools=[WEATHER])
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    assert [call.function.name for call in message.tool_calls] == ["weather"]
    call = message.tool_calls[0]
    history += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    done = client.chat.completions.create(model="kept", messages=history, tools=[WEATHER])
    assert done.choices[0].message.content == "it is sunny"
    assert "Leipzig" in json.dumps(world.served.client().get("/api/memory").json()["user"])
    assert len(world.sessions()) == 1
    history += [assistant("it is sunny"), user("thanks")]
    assert client.chat.completions.create(model="kept", messages=history, tools=[WEATHER]).choices[0].message.content
    assert len(world.sessions()) == 1


def test_streamed_calls_have_an_index(world):
    """Without it some clients drop the call."""
    world.steps = [Says("", (ToolCall("", "weather", "{}"), ToolCall("", "weather", '{"a": 1}')))]
    stream = world.openai().chat.completions.create(
        model="kept", messages=[user("weather?")], tools=[WEATHER], stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    calls = [call for chunk in chunks if chunk.choices for call in chunk.choices[0].delta.tool_calls or ()]
    assert [call.index for call in calls] == [0, 1]
    assert chunks[-1].usage.prompt_tokens > 0


def test_the_other_tools_of_anthropic_and_responses(world):
    """The same round trip in the two other APIs."""
    world.steps = [Says("", (ToolCall("", "weather", "{}"),)), "sunny then"]
    schema = {"type": "object", "properties": {}}
    tools = [{"name": "weather", "description": "", "input_schema": schema}]
    client, history = world.anthropic(), [user("weather?")]
    first = client.messages.create(model="kept", max_tokens=99, messages=history, tools=tools)
    assert first.stop_reason == "tool_use"
    use = first.content[-1]
    history += [
        {"role": "assistant", "content": [use.model_dump(include={"type", "id", "name", "input"})]},
        user([{"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}]),
    ]
    assert client.messages.create(model="kept", max_tokens=99, messages=history, tools=tools).content[0].text
    world.steps = [Says("", (ToolCall("", "weather", "{}"),)), "sunny then"]
    function = {"type": "function", "name": "weather", "parameters": schema}
    items = [user("the weather in Rome?")]
    done = world.openai().responses.create(model="kept", input=items, tools=[function])
    call = next(one for one in done.output if one.type == "function_call")
    items += [call.model_dump(exclude_none=True), {
        "type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]  # fmt: skip
    assert world.openai().responses.create(model="kept", input=items, tools=[function]).output_text == "sunny then"
    assert len(world.sessions()) == 2


@pytest.mark.parametrize(
    ("headers", "messages"),
    [
        ({"X-OpenWebUI-Task": "title_generation"}, [user("Make a title")]),
        ({}, [user("### Task:\nGenerate a title")]),
        ({}, [{"role": "system", "content": "You are a title generator. …"}, user("hello")]),
        ({"X-Codex-Turn-Metadata": '{"request_kind": "compaction"}'}, [user("summarise")]),
        ({}, [user("CRITICAL: Respond with TEXT ONLY. Summarise.")]),
    ],
)
def test_chores_of_clients_leave_no_trace(world, headers, messages):
    """Answered by the model alone, never stored, and without our memory in the request."""
    done = world.openai(**headers).chat.completions.create(model="kept", messages=messages)
    assert done.choices[0].message.content
    assert world.sessions() == []
    assert "tools" not in world.upstream.bodies[-1]
    used = world.served.client().get("/api/usage?by=session").json()
    assert [(row["key"], row["calls"]) for row in used["rows"]] == [("(no session)", 1)]


def test_incognito_and_plain(world):
    """Nothing is stored; incognito knows the pages, plain does not."""
    world.served.client().post("/api/memory/user/entries", json={"text": "lives in Leipzig"})
    for model, knows in (("kept/incognito", True), ("kept/plain", False)):
        messages = [user("hello"), assistant("hi"), user("again")]
        world.openai().chat.completions.create(model=model, messages=messages)
        assert ("Leipzig" in json.dumps(world.upstream.bodies[-1])) is knows
        assert "hello" in json.dumps(world.upstream.bodies[-1])
    assert world.sessions() == []


def test_named_conversations_are_apart(world):
    """The same first message in two chats is two sessions; `X-Kept-Session` names one exactly."""
    for chat in ("a", "b"):
        world.openai(**{"X-OpenWebUI-Chat-Id": chat}).chat.completions.create(model="kept", messages=[user("hi")])
    assert len(world.sessions()) == 2
    for text in ("first", "second"):
        world.openai(**{"X-Kept-Session": "mine"}).chat.completions.create(model="kept", messages=[user(text)])
    assert len(world.sessions()) == 4  # a different beginning under one name is another conversation


@pytest.mark.parametrize("ask", ASKS)
def test_a_model_that_fails_gives_the_errors_of_the_api(world, ask):
    """Instead of the answer, and after a stream has begun; the message is stored."""
    world.steps = [Status(400, "no such thing"), Status(400, "no such thing")]
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError), match="no such thing") as raised:
        ask(world, [user("one")], stream=False)
    assert raised.value.status_code == 502
    with pytest.raises((openai.APIError, anthropic.APIError, AssertionError)):
        ask(world, [user("two")], stream=True)
    assert [rows[0] for rows in world.sessions()] == [("user", "one"), ("user", "two")]


WRONG_BODIES = [
    b"", b"[]", b"{}", b"{", b'"x"', b'{"messages": 3, "input": 3}', b'{"messages": [3], "input": [3]}',
    b'{"messages": [{"role": 3}], "input": [{"role": 3}]}', b'{"model": {}, "messages": [], "input": "x"}',
    b'{"messages": [{"role": "user", "content": {}}], "input": [{"role": "user", "content": {}}]}',
    b'{"messages": [{"role": "user", "content": "x"}], "input": "x", "tools": {}}',
    b'{"messages": [{"role": "user", "content": "x"}], "input": "x", "stream": "yes"}',
    b'{"messages": [{"role": "assistant", "content": "x"}], "input": [{"role": "assistant", "content": "x"}]}',
]  # fmt: skip


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
def test_wrong_bodies_name_the_field(world, path):
    """In the error form of the API."""
    with world.served.client() as client:
        for body in WRONG_BODIES:
            answer = client.post(f"/v1/{path}", content=body)
            assert answer.status_code == 400, body
            assert answer.json()["error"]["message"], body
    assert world.upstream.requests == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "authentication_error"), (403, "permission_error"), (413, "request_too_large"), (429, "rate_limit_error")],
)
def test_the_entrance_refuses_in_the_form_of_the_api(home, status, kind):
    """So that the SDKs show why, and what to do."""
    with serve(home, {"KEPT_SERVE__REQUESTS_PER_MINUTE": "1"} if status == 429 else {}) as served:
        token = served.token("ann", *(["read"] if status == 403 else ["read", "write"]))
        client = served.client("kept_wrong" if status == 401 else token)
        if status == 429:
            client.get("/v1/models")
        text = "x" * (11_000_000 if status == 413 else 1)
        for path in ("/v1/messages", "/v1/chat/completions", "/v1/responses"):
            answer = client.post(path, json={"model": "kept", "messages": [user(text)], "input": text})
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/json"
            error = answer.json()["error"]
            assert error["message"]
            if path == "/v1/messages":
                assert (answer.json()["type"], error["type"]) == ("error", kind)
        assert status != 429 or int(answer.headers["retry-after"]) >= 1

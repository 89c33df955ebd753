"""Retries and fallbacks: what is tried again, after how long, and when not."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.errors import ContextOverflow, ModelBusy, ModelRefused
from wellkept.core.messages import ChatRequest, ChatResponse, Message, Restarted, Role
from wellkept.llm.endpoints import Endpoint
from wellkept.llm.retry import COOLDOWN_SECONDS, RetryingModel, RetryPolicy
from wellkept.llm.scripted import Says, ScriptedModel
from wellkept.llm.sdk import unreachable_error

ASK = ChatRequest("s", (Message(Role.USER, "hi"),))
BUSY = ModelBusy("busy")


class Breaks:
    """A model whose first answers break off after two deltas."""

    name = "scripted/breaks"
    context_length = 10
    BREAKS_AFTER = 14

    def __init__(self, thinking: str = "", text: str = "the whole answer", *, times: int) -> None:
        self.says = Says(text, thinking=thinking)
        self.times = times
        self.asked = 0

    async def stream(self, request):
        self.asked += 1
        shown = 0
        async for delta in ScriptedModel([self.says]).stream(request):
            if shown == 2 and self.asked <= self.times:
                raise ModelBusy("was cut off")
            shown += 1
            yield delta


class Falters(Breaks):
    """Shows a little, breaks off, and is only busy from then on."""

    name = "scripted/falters"

    def __init__(self) -> None:
        super().__init__(times=9)

    async def stream(self, request):
        if self.asked:
            self.asked += 1
            raise BUSY
        async for delta in super().stream(request):
            yield delta


def run(model):
    async def collect():
        return [delta async for delta in model.stream(ASK)]

    return asyncio.run(collect())


def retrying(model, **policy):
    waits: list[float] = []
    told: list[object] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    return RetryingModel([model], RetryPolicy(**policy), sink=told.append, sleep=sleep, jitter=lambda: 1.0), waits, told


def in_order(*models, **how):
    """Models of which each is asked once."""
    return RetryingModel(models, RetryPolicy(retries=0), **{"sink": lambda event: None, **how})


def test_an_overload_is_tried_again_with_growing_waits():
    """Three overloads and then an answer: the person gets the answer, and was told of each wait."""
    model, waits, told = retrying(ScriptedModel([BUSY, BUSY, BUSY, "here"]))

    assert run(model)[-1].message.text == "here"
    assert waits == [0.5, 1.0, 2.0]
    assert len(told) == 3


def test_waits_are_spread_by_chance():
    """Clients that failed together do not come back together: each wait has its own jitter."""
    waits: list[float] = []
    chances = iter([0.0, 0.5, 1.0])

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    script = ScriptedModel([BUSY, BUSY, BUSY, "here"])
    run(RetryingModel([script], RetryPolicy(), sink=lambda event: None, sleep=sleep, jitter=lambda: next(chances)))

    assert waits == [0.25, 0.75, 2.0]


def test_the_jitter_is_random_by_default():
    """Two clients with the same failures wait for different times."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    for _ in range(2):
        script = ScriptedModel([BUSY, "here"])
        run(RetryingModel([script], RetryPolicy(), sink=lambda event: None, sleep=sleep))

    assert waits[0] != waits[1]
    assert all(0.25 <= wait <= 0.5 for wait in waits)


def test_the_server_says_how_long():
    """A wish to wait is honoured to the second."""
    model, waits, _ = retrying(ScriptedModel([ModelBusy("b", retry_after_seconds=7), "here"]))
    run(model)

    assert waits == [7]


def test_a_wish_beyond_the_limit_is_not_waited_for():
    """Waiting less than asked would only be refused again, so the error comes at once."""
    model, waits, _ = retrying(ScriptedModel([ModelBusy("b", retry_after_seconds=3600), "late"]))

    with pytest.raises(ModelBusy):
        run(model)

    assert waits == []


def test_a_server_here_that_is_not_running_is_not_waited_for():
    """Nobody starts it in the meantime, so the next model or the error comes at once."""
    here, there = Endpoint("ollama", "http://127.0.0.1:1/v1"), Endpoint("openai", "https://example.test/v1")

    for endpoint, waited in ((here, 0), (there, 2)):
        model, waits, _ = retrying(ScriptedModel([unreachable_error(endpoint, reason="refused")] * 3), retries=2)
        with pytest.raises(ModelBusy):
            run(model)
        assert len(waits) == waited


@pytest.mark.parametrize("error", [ModelRefused("no"), ContextOverflow("too long")])
def test_refusals_are_never_tried_again(error):
    """A 4xx is about the request: sending it again changes nothing."""
    scripted = ScriptedModel([error, "never"])
    model, waits, _ = retrying(scripted)

    with pytest.raises(type(error)):
        run(model)

    assert (len(scripted.requests), waits) == (1, [])


def test_retries_end():
    """After the last retry the error is raised."""
    scripted = ScriptedModel([BUSY] * 9)
    model, _, _ = retrying(scripted, retries=2)

    with pytest.raises(ModelBusy):
        run(model)

    assert len(scripted.requests) == 3


def test_an_answer_that_was_partly_shown_starts_over():
    """The reader is told that what was shown no longer counts, then gets the whole answer."""
    model, waits, told = retrying(Breaks(times=1))
    deltas = run(model)

    place = deltas.index(Restarted())
    assert "".join(delta.text for delta in deltas[:place]) == "the whole answer"[: Breaks.BREAKS_AFTER]
    assert "".join(delta.text for delta in deltas[place + 1 : -1]) == deltas[-1].message.text == "the whole answer"
    assert len(waits) == len(told) == 1


def test_thinking_that_broke_off_is_started_again_in_silence():
    """Thinking is not part of the answer, so nothing has to be taken back."""
    deltas = run(retrying(Breaks(thinking="hm hm hm", text="", times=1))[0])

    assert Restarted() not in deltas
    assert isinstance(deltas[-1], ChatResponse)


def test_a_model_that_keeps_breaking_ends_in_the_error():
    """Restarts are counted like every other retry."""
    model, waits, _ = retrying(breaks := Breaks(times=99), retries=2)

    with pytest.raises(ModelBusy):
        run(model)

    assert (breaks.asked, len(waits)) == (3, 2)


def test_a_fallback_starts_over_too():
    """When the next model takes over inside an answer, the reader is told."""
    other = ScriptedModel(["from the other"], name="b/2")
    deltas = run(in_order(Breaks(times=9), other))

    assert Restarted() in deltas
    assert deltas[-1].message.text == "from the other"


def test_a_model_is_retried_before_the_next_is_asked_and_nothing_is_taken_back_twice():
    """First the waits of the policy, then the other model; silence after a restart is not a second restart."""
    first = Falters()
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    other = ScriptedModel(["from the other"], name="b/2")
    deltas = run(RetryingModel([first, other], RetryPolicy(retries=1), sink=lambda event: None, sleep=sleep))

    assert (first.asked, len(waits)) == (2, 1)
    assert deltas.count(Restarted()) == 1
    assert deltas[-1].message.text == "from the other"


@given(st.integers(0, 40), st.floats(0, 1), st.one_of(st.none(), st.floats(0, 1e9)))
def test_a_wait_is_bounded(attempt: int, jitter: float, asked: float | None):
    """No wait is longer than the limits, and none is negative."""
    policy = RetryPolicy(retries=30)
    wait = policy.wait(attempt, ModelBusy("b", retry_after_seconds=asked), jitter=jitter)

    assert wait is None or 0 <= wait <= max(policy.longest_seconds, policy.retry_after_limit_seconds)


def test_the_next_model_answers_and_is_named():
    """When the first model stays overloaded the second answers, and the response says so."""
    told: list[object] = []
    model = in_order(ScriptedModel([BUSY], name="a/1"), ScriptedModel(["b"], name="b/2"), sink=told.append)

    assert run(model)[-1].model == "b/2"
    assert model.name == "a/1"
    assert "b/2" in told[0].message


def test_a_model_that_failed_rests():
    """For a minute the failed model is not asked; then it is the first choice again."""
    now = [0.0]
    first, second = ScriptedModel([BUSY, "a"], name="a/1"), ScriptedModel(["b", "b"], name="b/2")
    model = in_order(first, second, now=lambda: now[0])

    answered = [run(model)[-1].model, run(model)[-1].model]
    now[0] = COOLDOWN_SECONDS
    answered.append(run(model)[-1].model)

    assert answered == ["b/2", "b/2", "a/1"]


def test_when_all_rest_all_are_asked():
    """Resting is a preference: with nobody left, everybody is asked again."""
    first, second = ScriptedModel([BUSY, "a"], name="a/1"), ScriptedModel([BUSY], name="b/2")
    model = in_order(first, second)

    with pytest.raises(ModelBusy):
        run(model)

    assert run(model)[-1].model == "a/1"


def test_a_refusal_does_not_fall_back():
    """A wrong key is told, not hidden behind another model."""
    model = in_order(ScriptedModel([ModelRefused("key")], name="a/1"), ScriptedModel(["b"], name="b/2"))

    with pytest.raises(ModelRefused):
        run(model)


def test_closing_early_closes_the_inner_stream():
    """Interrupting the wrapped stream interrupts the model behind it."""
    ended: list[bool] = []

    class Endless:
        name, context_length = "scripted/endless", 10

        async def stream(self, request):
            try:
                async for delta in ScriptedModel(["word " * 50]).stream(request):
                    yield delta
            finally:
                ended.append(True)

    async def interrupt() -> None:
        stream = retrying(Endless())[0].stream(ASK)
        await anext(stream)
        await stream.aclose()

    asyncio.run(interrupt())

    assert ended == [True]

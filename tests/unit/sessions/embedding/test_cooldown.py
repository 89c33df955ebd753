"""The vector of a question: cached, with a timeout, and with a cooldown after failures."""

import threading
import time

from wellkept.core.errors import ModelBusy
from wellkept.sessions.embedding.backfill import COOLDOWN_SECONDS, CooldownModel


class Model:
    name = "model"

    def __init__(self, act):
        self.act = act
        self.calls = 0

    def embed(self, texts):
        self.calls += 1
        self.act()
        return [[1.0, 2.0] for _ in texts]


def question_model(act, **options):
    told, now, model = [], [0.0], Model(act)
    options = {"timeout_seconds": None, **options}
    return CooldownModel(lambda: model, sink=told.append, clock=lambda: now[0], **options), model, told, now


def busy():
    raise ModelBusy("the endpoint is away")


def test_a_vector_is_asked_for_once():
    """The same question again costs nothing."""
    asked, model, _, _ = question_model(lambda: None)

    assert asked.vector("q") == asked.vector("q") == [1.0, 2.0]
    assert model.calls == 1


def test_a_failing_model_is_left_alone_and_reported_once():
    """After a failure nothing is asked for a minute; then once more; one note in all."""
    asked, model, told, now = question_model(busy)

    assert [asked.vector(str(number)) for number in range(5)] == [None] * 5
    now[0] = COOLDOWN_SECONDS + 1
    assert asked.vector("again") is None

    assert model.calls == 2
    assert [event.message for event in told] == ["search uses words only: the endpoint is away"]


def test_a_slow_model_is_not_waited_for():
    """The search continues after the set time, though the answer never comes."""
    never = threading.Event()
    asked, _, told, _ = question_model(lambda: never.wait(90), timeout_seconds=0.05)
    start = time.monotonic()

    assert asked.vector("q") is None

    assert time.monotonic() - start < 45
    assert "0.05 s" in told[0].message
    never.set()

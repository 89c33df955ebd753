"""Models: which are available and why, which one is in use, whether it answers, and what its calls cost."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, NewType

from msgspec import Struct

from wellkept.app.caller import Caller, Scope
from wellkept.core.errors import ModelRefused, NotAllowed, StorageError, UsageError
from wellkept.core.ids import SessionId
from wellkept.core.messages import ChatRequest, ChatResponse, Message, Role
from wellkept.core.values import JsonStruct
from wellkept.sessions.reports import Total, UsageRow, sum_usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.core.ports import ChatModel
    from wellkept.core.text import JSON
    from wellkept.llm.models import Choice, Offer

log = logging.getLogger(__name__)

TEST_TOKENS = 512
"""Enough for one word after the reasoning of a thinking model."""
NO_SESSION = SessionId("(no session)")
"""The name under which usage lists calls that belong to no session."""


class ModelList(Struct, frozen=True):
    """All available models, and the one in use."""

    choice: Choice
    fallbacks: tuple[str, ...]
    offers: tuple[Offer, ...]
    prices_checked: str

    def as_json(self) -> dict[str, JSON]:
        """Return the choice and the offers."""
        return {
            "chosen": self.choice.name,
            "why": self.choice.reason,
            "fallbacks": list(self.fallbacks),
            "offers": [
                {"name": offer.name, "available": offer.is_available, "why": offer.reason, "models": list(offer.models)}
                for offer in self.offers
            ],
            "prices_checked": self.prices_checked,
        }


def list_models(caller: Caller) -> ModelList:
    """Return which models can be used, and what the others need."""
    from wellkept.llm.models import choose_from
    from wellkept.llm.tokens import prices_checked

    app = caller.app
    offers = tuple(app.models.offers())
    choice = choose_from(app.settings.model, list(offers))
    return ModelList(choice, tuple(app.settings.model.fallbacks), offers, prices_checked())


OfferedModel = NewType("OfferedModel", str)
"""The name of a model that the owner lets clients choose; never a path."""


def list_offered(caller: Caller) -> tuple[OfferedModel, ...]:
    """Return the models that a client over the network may name: those of the settings that no path names."""
    from wellkept.llm.endpoints import EXTRACTIVE, LOCAL, SCRIPTED, parse_name

    settings = caller.app.settings
    names = [*filter(None, [settings.model.default]), *settings.model.fallbacks, *settings.serve.models]
    offered = []
    for name in names:
        with suppress(UsageError):
            wanted = parse_name(name)
            if wanted.provider not in {LOCAL, SCRIPTED, EXTRACTIVE}:
                offered.append(OfferedModel(str(wanted)))
    return (*dict.fromkeys(offered), OfferedModel(EXTRACTIVE))


def choose_offered(caller: Caller, name: str) -> OfferedModel:
    """Return the model that a client names; raises NotAllowed for any other, whether or not it exists."""
    offered = list_offered(caller)
    for model in offered:
        if name and name in {model, model.partition("/")[2]}:
            return model
    raise NotAllowed(
        f"this server does not offer the model {name[:100]!r}",
        f"use {', '.join(offered)}, or ask the owner to add it to serve.models",
    )


class ModelChosen(JsonStruct, frozen=True):
    """The model that the settings name now."""

    model: str
    file: str


def choose_model(caller: Caller, name: str) -> ModelChosen:
    """Write the model to the settings; `auto` removes the setting."""
    from wellkept.config.settings import set_value, unset_value
    from wellkept.llm.endpoints import EXTRACTIVE, parse_name

    caller.require(Scope.ADMIN)
    home = caller.app.home
    if name == "auto":
        unset_value(home, "model.default", why_no_person=caller.why_no_person)
        return ModelChosen("auto", str(home.config_file))
    wanted = parse_name(name)
    written = name if wanted.provider == EXTRACTIVE else str(wanted)
    set_value(home, "model.default", written, why_no_person=caller.why_no_person)
    return ModelChosen(written, str(home.config_file))


def open_model(caller: Caller) -> ChatModel:
    """Return the configured model, for a request that needs no memory; raises ModelRefused if none is."""
    caller.require(Scope.WRITE)
    model = caller.app.models.chat(sink=caller.sink)
    if model is None:
        raise ModelRefused("no model is configured", "choose one with `kept model set NAME`")
    return model


def count_call(caller: Caller, response: ChatResponse, *, task: str) -> None:
    """Count a call that belongs to no session in the usage of the caller."""
    from wellkept.llm.tokens import cost_of

    caller.require(Scope.WRITE)
    settings = caller.app.settings
    hour_cache = settings.prompt_caching.cache_ttl == "1h"
    cost = cost_of(response.model, response.usage, overrides=settings.model.prices, hour_cache=hour_cache)
    try:
        caller.space.sessions.add_usage(NO_SESSION, task=task, model=response.model, usage=response.usage, cost=cost)
    except StorageError:
        log.warning("a model call could not be counted", exc_info=True)  # the answer is returned anyway


class ModelTest(Struct, frozen=True):
    """The answer of a model to one tiny message."""

    response: ChatResponse
    seconds: float
    cost: float | None
    context_length: int
    prompt_caching: str

    def as_json(self) -> dict[str, JSON]:
        """Return the answer with its time, tokens and cost."""
        usage = self.response.usage
        return {
            "model": self.response.model,
            "answer": self.response.message.text,
            "seconds": round(self.seconds, 3),
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.output_tokens,
            "cost": self.cost,
            "context_length": self.context_length,
            "prompt_caching": self.prompt_caching,
        }


def try_model(caller: Caller, name: str | None = None) -> ModelTest:
    """Send one tiny message; raises UsageError where there is no model."""
    from wellkept.llm.tokens import cost_of

    models, settings = caller.app.models, caller.app.settings.model
    choice = models.choice(name)
    if choice.is_extractive:
        raise UsageError("there is no model to test", "set a key or start a local server; `kept model list` shows how")
    model = models.bare(choice.name, context_length=settings.context_length)
    models.preload(choice.name).join()  # measure the endpoint, not the import of its SDK
    response, seconds = asyncio.run(_ask(model))
    cost = cost_of(response.model, response.usage, overrides=settings.prices)
    return ModelTest(response, seconds, cost, model.context_length, models.caching(response.model).status_line)


async def _ask(model: ChatModel) -> tuple[ChatResponse, float]:
    from wellkept.llm.retry import close

    prompt = (Message(Role.USER, "Answer with the single word: ready"),)
    request = ChatRequest("You are being tested for a connection.", prompt, max_output_tokens=TEST_TOKENS)
    started = time.monotonic()
    try:
        deltas = [delta async for delta in model.stream(request)]
    finally:
        await close(model)
    response = deltas[-1]
    assert isinstance(response, ChatResponse)
    return response, time.monotonic() - started


def name_model(caller: Caller) -> str:
    """Return the name of the model that answers; empty if the assistant answers from memory alone."""
    from wellkept.llm.models import choose_from

    choice = choose_from(caller.app.settings.model, caller.app.models.offers())
    return "" if choice.is_extractive else choice.name


By = Literal["day", "model", "task", "session"]


class UsageReport(Struct, frozen=True):
    """Sums by one key, and their total."""

    by: By
    rows: tuple[Total, ...]
    total: Total | None

    def as_json(self) -> dict[str, JSON]:
        """Return the rows and the total."""
        return {
            "by": self.by,
            "rows": [_total_json(row) for row in self.rows],
            "total": None if self.total is None else _total_json(self.total),
        }


def report_usage(caller: Caller, *, by: By = "day", days: int | None = None, session: str | None = None) -> UsageReport:
    """Sum the model calls of the last days, or of one session."""
    store = caller.space.sessions
    since = "" if days is None else f"{caller.app.clock.now() - timedelta(days=days - 1):%Y-%m-%d}"
    rows = store.usage(session_id=store.resolve(session) if session else None, since=since)
    everything = sum_usage(rows, lambda _: "total")
    return UsageReport(by, tuple(sum_usage(rows, lambda row: _key(row, by))), everything[0] if everything else None)


def list_usage(caller: Caller, *, days: int) -> list[UsageRow]:
    """Return the counted calls of the last days, oldest first."""
    since = f"{caller.app.clock.now() - timedelta(days=days - 1):%Y-%m-%d}"
    return sorted(caller.space.sessions.usage(since=since), key=lambda row: row.day)


def sum_sessions(caller: Caller, session_ids: Sequence[str]) -> Total | None:
    """Return the usage of all sessions of one conversation, None if nothing was counted."""
    store = caller.space.sessions
    rows = [row for one in session_ids for row in store.usage(session_id=SessionId(one))]
    return next(iter(sum_usage(rows, lambda _row: "all")), None)


def _key(row: UsageRow, by: By) -> str:
    match by:
        case "day":
            return row.day
        case "model":
            return row.model
        case "task":
            return row.task
        case "session":
            return row.session_id or "(forgotten)"


def _total_json(total: Total) -> dict[str, JSON]:
    return {
        "key": total.key,
        "calls": total.calls,
        "input_tokens": total.usage.input_tokens,
        "cache_read_tokens": total.usage.cache_read_tokens,
        "cache_write_tokens": total.usage.cache_write_tokens,
        "output_tokens": total.usage.output_tokens,
        "cache_share": round(total.cache_share, 4),
        "cost": total.cost,
    }

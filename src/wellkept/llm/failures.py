"""Errors of model endpoints: classification, one-line messages and remedies."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import Struct

from wellkept.core.errors import ContextOverflow, ModelBusy, ModelError, ModelRefused
from wellkept.llm.endpoints import Endpoint

LONGEST_MESSAGE = 300

_STATUS_OF_KIND = {
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "internal_server_error": 500,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "request_too_large": 413,
    "server_error": 500,
    "timeout_error": 504,
}
"""Error types of both APIs for errors without an HTTP status, for example inside a stream."""

_OVERFLOW_KINDS = {"context_length_exceeded", "exceed_context_size_error", "request_too_large"}
_OVERFLOW_WORDS = re.compile(
    r"prompt is too long"
    r"|exceeds? (?:the )?(?:context limit|context window|available context|maximum context)"
    r"|maximum context length"
    r"|context (?:length|window|size)\b.{0,60}\bexceed"
    r"|exceed.{0,60}\bcontext (?:length|window|size)"
    r"|(?:input|request|prompt) (?:length |tokens )?(?:is )?(?:too long|too large) for",
    re.IGNORECASE | re.DOTALL,
)
_NO_CREDIT_KINDS = {
    "insufficient_quota",
    "billing_error",
    "billing_hard_limit_reached",
    "insufficient_credits",
}


class Failure(Struct, frozen=True):
    """An error response: status, the vendor's error types, and message."""

    status: int | None
    kinds: frozenset[str] = frozenset()
    message: str = ""
    retry_after_seconds: float | None = None


def as_error(failure: Failure, endpoint: Endpoint, *, model: str) -> ModelError:
    """Return the ModelError for `failure`; its message never contains a key."""
    status = _status(failure)
    said = one_line(failure.message, secret=endpoint.api_key)
    if _is_overflow(failure, status):
        return ContextOverflow(
            f"the request is larger than the window of {model!r}: {said}", "shorten the conversation with `/compress`"
        )
    if status == 402 or failure.kinds & _NO_CREDIT_KINDS or "credit balance is too low" in failure.message:
        return ModelRefused(f"the account at {endpoint.shown_url} has no credit left: {said}", "check its billing page")
    if status is None or status in {408, 429} or status >= 500:
        wait = failure.retry_after_seconds
        requested = "" if wait is None else f"; it requests a wait of {wait:g} s"
        return ModelBusy(
            f"{endpoint.provider} at {endpoint.shown_url} is busy or failing{_shown(status)}: {said}{requested}",
            "try again later, or choose another model with `kept model set`",
            retry_after_seconds=failure.retry_after_seconds,
        )
    return _describe_refusal(status, said, endpoint=endpoint, model=model)


def _describe_refusal(status: int, said: str, *, endpoint: Endpoint, model: str) -> ModelRefused:
    key = endpoint.key_variable or "the key"
    match status:
        case 401:
            # the vendor's message may quote the key, so it is left out
            return ModelRefused(
                f"{endpoint.provider} at {endpoint.shown_url} does not accept the key (401)",
                f"check {key}, then run `kept model test`",
            )
        case 403:
            return ModelRefused(
                f"{endpoint.provider} does not let this key use {model!r} (403): {said}",
                f"check {key} and what it may use, then run `kept model test`",
            )
        case 404:
            return ModelRefused(
                f"{endpoint.shown_url} has no model {model!r} (404): {said}",
                "run `kept model list` and choose one with `kept model set NAME`",
            )
        case _:
            return ModelRefused(
                f"{endpoint.provider} refused the request ({status}): {said}",
                "run `kept model test`; with `--debug` the log holds more",
            )


def unreachable_error(endpoint: Endpoint, *, reason: str) -> ModelBusy:
    """Return the error for a server that cannot be reached.

    Not retried on this machine: waiting does not start a server that is not running.
    """
    remedy = "start the server, or check its address" if endpoint.is_loopback else "check the network and the address"
    return ModelBusy(
        f"{endpoint.shown_url} cannot be reached ({one_line(reason, secret=endpoint.api_key)})",
        f"{remedy}, then run `kept model test`",
        retry_after_seconds=math.inf if endpoint.is_loopback else None,
    )


def timeout_error(endpoint: Endpoint, *, seconds: float) -> ModelBusy:
    """Return the error for a server that sent nothing in time."""
    return ModelBusy(f"{endpoint.shown_url} sent nothing for {seconds:g} s", "try again, or raise `model.timeout`")


def interrupted_error(endpoint: Endpoint, *, reason: str) -> ModelBusy:
    """Return the error for an incomplete answer."""
    return ModelBusy(
        f"the answer of {endpoint.shown_url} was cut off ({one_line(reason, secret=endpoint.api_key)})",
        "send the message again",
    )


def empty_answer_error(endpoint: Endpoint) -> ModelBusy:
    """Return the error for an empty stream."""
    return ModelBusy(
        f"{endpoint.shown_url} answered with an empty stream",
        "check that the address is that of the API, then run `kept model test`",
    )


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the wait that the server requests in `retry-after-ms` or `retry-after`, or None."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    if text is None or (seconds := _number(text)) is not None:
        return None if text is None else seconds
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def one_line(text: str, *, secret: str = "") -> str:
    """Return `text` on one line, shortened, without `secret`."""
    if len(secret) >= 8:
        text = text.replace(secret, "…")
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_MESSAGE else line[:LONGEST_MESSAGE] + "…"


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None


def _status(failure: Failure) -> int | None:
    if failure.status is not None and failure.status >= 400:
        return failure.status
    for kind in sorted(failure.kinds):
        if kind in _STATUS_OF_KIND:
            return _STATUS_OF_KIND[kind]
        if kind.isdigit():
            return int(kind)
    return None


def _is_overflow(failure: Failure, status: int | None) -> bool:
    if failure.kinds & _OVERFLOW_KINDS or status == 413:
        return True
    # llama.cpp and some gateways answer an oversized request with a 5xx, so the words decide there too
    return status not in {401, 403, 404, 429} and _OVERFLOW_WORDS.search(failure.message) is not None


def _shown(status: int | None) -> str:
    return "" if status is None else f" ({status})"

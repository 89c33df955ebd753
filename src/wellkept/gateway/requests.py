"""What routes share: the caller with the scope that a route needs, times, answers and problems (RFC 9457)."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast

from fastapi import Depends, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from wellkept.app import Caller, Scope
from wellkept.core.errors import KeptError, Reason, Refused, StorageError, UsageError
from wellkept.core.text import JSON, dumps
from wellkept.languages.dates import parse_moment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi.exceptions import RequestValidationError

    from wellkept.gateway.turns import Turns

log = logging.getLogger(__name__)

PROBLEM = "application/problem+json"
_REFUSAL_STATUS = {
    Reason.NOT_ALLOWED: 403,
    Reason.NO_MATCH: 404,
    Reason.PRESENT: 409,
    Reason.MOVED_ON: 412,
    Reason.DRIFT: 409,
    Reason.AMBIGUOUS: 409,
    Reason.DISABLED: 409,
    Reason.STAGED: 202,
    Reason.HELD: 422,
    Reason.BLOCKED: 422,
    Reason.OVER_BUDGET: 422,
    Reason.UNAVAILABLE: 503,
}
"""Every other reason means that the caller can correct the request: 400."""
_TITLES = {
    400: "Bad request",
    401: "Token needed",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request too slow",
    409: "Conflict",
    411: "Length needed",
    412: "Changed since",
    413: "Request too large",
    415: "Wrong kind of body",
    421: "Wrong host",
    422: "Refused",
    429: "Too many requests",
    431: "Headers too large",
    500: "Internal error",
    502: "The model or an external memory failed",
    503: "Not available now",
}
RETRY_SECONDS = 2
"""Seconds after which a client should retry when the store is busy."""


class Answers(Protocol):
    """The result of an operation."""

    def as_json(self) -> Any:
        """Return the JSON form."""
        ...


def json_response(value: JSON, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer that no cache stores."""
    body = dumps(value).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return Response(
        body, status, media_type="application/json", headers={"Cache-Control": "no-store", **(headers or {})}
    )


def answer(
    result: Answers | Sequence[Answers] | Refused | None,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the answer to an operation; a refusal becomes a problem, and no result an empty answer."""
    if isinstance(result, Refused):
        return refusal(result)
    if isinstance(result, Sequence):
        return json_response([entry.as_json() for entry in result], status, headers)
    if result is None:
        return Response(status_code=204, headers=dict(headers or {}))
    return json_response(result.as_json(), status, headers)


def problem(
    status: int,
    detail: str,
    next_step: str = "",
    *,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, JSON] | None = None,
) -> Response:
    """Return problem details; `next` says what the caller can do."""
    value: dict[str, JSON] = {
        "type": "about:blank",
        "title": _TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
        **({"next": next_step} if next_step else {}),
        **(more or {}),
    }
    response = json_response(value, status, headers)
    response.headers["content-type"] = PROBLEM
    return response


def refusal(refused: Refused) -> Response:
    """Return the problem for a refusal."""
    status = _REFUSAL_STATUS.get(refused.reason, 400)
    return problem(status, refused.error, refused.remedy, more={"reason": refused.reason.value, **refused.detail})


def failure(error: KeptError) -> Response:
    """Return the problem for an error; details that only the owner may see stay in the log."""
    headers: dict[str, str] = {}
    if isinstance(error, StorageError):
        log.warning("a request failed: %s", error)
        headers["Retry-After"] = str(RETRY_SECONDS)
    seconds = getattr(error, "retry_after_seconds", None)
    if seconds is not None and math.isfinite(seconds):  # infinite: a retry would not help
        headers["Retry-After"] = str(max(1, math.ceil(seconds)))
    return problem(error.http_status, error.message, error.remedy, headers=headers)


def invalid_request(error: RequestValidationError) -> Response:
    """Return the problem for a request with invalid fields, naming each of them."""
    fields: list[JSON] = [
        {"field": ".".join(str(part) for part in problem["loc"]), "problem": str(problem["msg"])}
        for problem in error.errors()[:20]
    ]
    first = fields[0] if fields else {}
    named = f"{first['field']}: {first['problem']}" if isinstance(first, dict) and first else "the request is invalid"
    return problem(400, named, "correct the named fields", more={"fields": fields})


def make_etag(text: str) -> str:
    """Return the entity tag of a page with this text."""
    return f'"{hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]}"'


def matches_etag(header: str | None, etag: str) -> bool:
    """Whether an If-Match header allows a change to content with this tag; without a header, always."""
    if header is None:
        return True
    return any(tag.strip().removeprefix("W/") in {"*", etag} for tag in header.split(","))


def get_caller(request: Request) -> Caller:
    """Return the caller that the entrance identified."""
    return cast("Caller", request.state.caller)


def get_turns(request: Request) -> Turns:
    """Return the open conversations of the server."""
    return cast("Turns", request.app.state.turns)


def _require(scope: Scope) -> Callable[[Request], Awaitable[Caller]]:
    async def find_caller(request: Request) -> Caller:  # a coroutine needs no worker thread
        caller = get_caller(request)
        caller.require(scope)
        return caller

    return find_caller


Reader = Annotated[Caller, Depends(_require(Scope.READ))]
Writer = Annotated[Caller, Depends(_require(Scope.WRITE))]
Admin = Annotated[Caller, Depends(_require(Scope.ADMIN))]

Limit = Annotated[int, Query(ge=1, le=1_000)]
Moment = Annotated[str | None, Query(max_length=100, description="A date, a time, or for example `yesterday`.")]


def read_moment(caller: Caller, text: str | None) -> float | None:
    """Return a time in epoch seconds; raises UsageError if the text is not a date."""
    if text is None:
        return None
    moment = parse_moment(text, now=caller.app.clock.now().timestamp())
    if moment is None:
        raise UsageError(f"{text!r} is not a date that kept understands", "write it like 2026-11-15T18:30 or yesterday")
    return moment


def offer(
    method: Callable[..., Callable[[Callable[..., Response]], object]],
    path: str,
    operation: Callable[..., Any],
    caller: object = Reader,
    /,
    *,
    status: int = 200,
    body: type[BaseModel] | None = None,
    **arguments: object,
) -> None:
    """Serve an operation at a path: its result is the answer, its name and its first sentence describe the route.

    `arguments` are the arguments that a request can give, with their types; their defaults are those of the operation.
    The fields of `body` are arguments too.
    """
    declared = signature(operation).parameters
    parameters = [Parameter("caller", Parameter.KEYWORD_ONLY, annotation=caller)]
    for name, hint in arguments.items():
        default = declared[name].default
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=default))
    if body is not None:
        parameters.append(Parameter("body", Parameter.KEYWORD_ONLY, annotation=body))

    def serve(*, caller: Caller, body: BaseModel | None = None, **given: object) -> Response:
        fields = {} if body is None else {name: getattr(body, name) for name in type(body).model_fields}
        return answer(operation(caller, **given, **fields), status=status)

    serve.__name__ = operation.__name__
    serve.__doc__ = (operation.__doc__ or "").partition("\n\n")[0]
    serve.__signature__ = Signature(parameters, return_annotation=Response)  # type: ignore[attr-defined] # FastAPI reads it
    method(path, status_code=status)(serve)

"""What routes share: the caller with the scope that a route needs, times, and operations served as they are."""

from __future__ import annotations

from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import Depends, Query, Request
from starlette.responses import Response

from wellkept.app import Caller, Scope
from wellkept.core.errors import UsageError
from wellkept.gateway.answers import answer
from wellkept.languages.dates import parse_moment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from wellkept.gateway.turns import Turns


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
    found = parse_moment(text, now=caller.app.clock.now().timestamp())
    if found is None:
        raise UsageError(f"{text!r} is not a date that kept understands", "write it like 2026-11-15T18:30 or yesterday")
    return found


def offer(
    method: Callable[[str], Callable[[Callable[..., Response]], object]],
    path: str,
    operation: Callable[..., Any],
    caller: object = Reader,
    /,
    **arguments: object,
) -> None:
    """Serve an operation at a path: its result is the answer, its name and its first sentence describe the route.

    `arguments` are the arguments that a request can give, with their types; their defaults are those of the operation.
    """
    declared = signature(operation).parameters
    parameters = [Parameter("caller", Parameter.KEYWORD_ONLY, annotation=caller)]
    for name, hint in arguments.items():
        default = declared[name].default
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=default))

    def serve(*, caller: Caller, **given: object) -> Response:
        return answer(operation(caller, **given))

    serve.__name__ = operation.__name__
    serve.__doc__ = (operation.__doc__ or "").partition("\n\n")[0]
    serve.__signature__ = Signature(parameters, return_annotation=Response)  # type: ignore[attr-defined] # FastAPI reads it
    method(path)(serve)

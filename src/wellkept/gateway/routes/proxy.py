"""`/proxy/NAME/v1/…`: requests of clients to their own models, with memory added (`kept serve --proxy`)."""

from typing import cast
from urllib.parse import unquote

from fastapi import APIRouter, Request
from starlette.responses import Response

from wellkept.gateway.answers import problem
from wellkept.gateway.identity import SentAsKey
from wellkept.gateway.proxy.forwarding import contains_token, find_target, select_request_headers
from wellkept.gateway.proxy.proxy import APIS, Proxy
from wellkept.gateway.requests import Reader
from wellkept.gateway.routes.v1 import write_problem

router = APIRouter(prefix="/proxy", tags=["proxy"])

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


@router.api_route("/{name}/{path:path}", methods=_METHODS, include_in_schema=False, response_model=None)
async def forward_request(request: Request, caller: Reader, name: str, path: str) -> Response:
    """Forward a request to the endpoint of this name."""
    proxy = cast("Proxy | None", request.app.state.proxy)
    if proxy is None:
        return _refuse(request, 404, "the proxy is off", "start the server with --proxy")
    upstream = proxy.upstreams.get(name)
    if upstream is None:
        known = ", ".join(sorted(proxy.upstreams))
        return _refuse(request, 404, f"there is no upstream {name[:50]!r}", f"use {known}, or add it to serve.proxy")
    target = find_target(upstream, request.scope)
    if target is None:
        return _refuse(request, 404, "only paths below v1 are forwarded", "check the base URL of the client")

    if contains_token(target, select_request_headers(request.headers.raw)):
        raise SentAsKey

    def tell_failure(status: int, message: str) -> Response:
        return _refuse(request, status, message)

    return await proxy.forward(request, caller, target, api=APIS.get(unquote(path)), on_failure=tell_failure)


def _refuse(request: Request, status: int, detail: str, next_step: str = "") -> Response:
    return write_problem(request.url.path, problem(status, detail, next_step))

"""The HTTP client of remote providers: time limits, size limits, and errors that say what to do next.

It never retries: the outbox does. An error is permanent (`Rejected`) only when the back end refuses this one
request for what it contains; a wrong key, a used-up quota or a missing route affects every request, so the writes
wait in the outbox until a person has fixed it.
"""

from __future__ import annotations

import json
import time
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from wellkept.core.errors import ProviderError
from wellkept.core.text import JSON
from wellkept.providers.base import Rejected

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    import httpx2

MOST_BYTES: Final = 8_000_000
"""Largest answer that is read; recalled text is cut to a few thousand characters anyway."""
MOST_REDIRECTS: Final = 3
CONNECT_SECONDS: Final = 5.0
_SHOWN_CHARS: Final = 200
_REJECTED: Final = {400, 413, 415, 422}
_REMEDIES: Final = {
    401: "check the key; `kept providers setup {name}` stores another one",
    402: "check the account and its quota",
    403: "check the key and what it may do; `kept providers setup {name}` stores another one",
    404: "check the address and the version of the server",
    429: "the back end asks for a pause; writes wait in the outbox",
}


class HttpClient:
    """Requests to one back end, with JSON in both directions."""

    def __init__(
        self, provider: str, base_url: str, *, headers: Mapping[str, str] | None = None, seconds: float = 10.0
    ) -> None:
        self._provider = provider
        self._base = check_url(provider, base_url).rstrip("/")
        self._headers = {"Accept": "application/json", "User-Agent": "kept", **(headers or {})}
        self._seconds = seconds
        self._client: httpx2.Client | None = None

    def get(self, path: str, *, seconds: float | None = None, **params: str | float | bool | None) -> JSON:
        """Return the answer to a GET request; parameters that are None are left out."""
        return self.request("GET", path, params=params, seconds=seconds)

    def post(self, path: str, body: JSON, *, seconds: float | None = None) -> JSON:
        """Return the answer to a POST request."""
        return self.request("POST", path, body=body, seconds=seconds)

    def put(self, path: str, body: JSON) -> JSON:
        """Return the answer to a PUT request."""
        return self.request("PUT", path, body=body)

    def patch(self, path: str, body: JSON) -> JSON:
        """Return the answer to a PATCH request."""
        return self.request("PATCH", path, body=body)

    def delete(self, path: str, *, body: JSON = None, **params: str | float | bool | None) -> JSON:
        """Return the answer to a DELETE request; None if there was nothing to delete."""
        try:
            return self.request("DELETE", path, params=params, body=body)
        except BackendMissing:
            return None

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int | float | bool | None] | None = None,
        body: JSON = None,
        seconds: float | None = None,
    ) -> JSON:
        """Send a request and return the JSON of its answer, None for an empty one."""
        import httpx2

        limit = seconds or self._seconds
        deadline = time.monotonic() + limit
        sent = {key: value for key, value in (params or {}).items() if value is not None}
        url = f"{self._base}/{path.lstrip('/')}"
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        try:
            for _ in range(MOST_REDIRECTS + 1):
                with self._open().stream(
                    method,
                    url,
                    params=sent or None,
                    content=content,
                    headers={"Content-Type": "application/json"} if content is not None else None,
                    timeout=httpx2.Timeout(limit, connect=min(CONNECT_SECONDS, limit)),
                ) as response:
                    if response.is_redirect:
                        url, sent = self._redirect(response), {}
                        continue
                    return self._parse(response, self._read(response, deadline, limit))
        except httpx2.TimeoutException:
            raise self._slow(limit) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._unreachable(error) from error
        raise ProviderError(f"{self._provider} redirects without end", "check the address of the server")

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> httpx2.Client:
        if self._client is None:
            import httpx2

            self._client = httpx2.Client(headers=self._headers, follow_redirects=False, verify=_load_certificates())
        return self._client

    def _redirect(self, response: httpx2.Response) -> str:
        """Return the address to follow; the key is sent to no other host, and never without TLS where there was TLS."""
        target = str(response.request.url.join(response.headers.get("location", "")))
        here, there = urlsplit(str(response.request.url)), urlsplit(target)
        same_server = here.hostname == there.hostname and _port(here) == _port(there)
        if not same_server and not (here.hostname == there.hostname and there.scheme == "https"):
            raise ProviderError(
                f"{self._provider} redirects to another host ({there.hostname})", "set its address to the final one"
            )
        return target

    def _read(self, response: httpx2.Response, deadline: float, limit: float) -> bytes:
        pieces, size = [], 0
        for piece in response.iter_bytes():
            size += len(piece)
            if size > MOST_BYTES:
                raise ProviderError(
                    f"{self._provider} answered with more than {MOST_BYTES:,} bytes", "check the server at its address"
                )
            if time.monotonic() > deadline:
                raise self._slow(limit)
            pieces.append(piece)
        return b"".join(pieces)

    def _parse(self, response: httpx2.Response, raw: bytes) -> JSON:
        if response.status_code >= 400:
            raise self._refusal(response, raw)
        if not raw.strip():
            return None
        try:
            found: JSON = json.loads(raw)
        except ValueError:
            kind = response.headers.get("content-type", "no type").partition(";")[0]
            raise ProviderError(
                f"{self._provider} answered with {kind} instead of JSON", "check its address: is this the API?"
            ) from None
        return found

    def _refusal(self, response: httpx2.Response, raw: bytes) -> ProviderError:
        status = response.status_code
        said = self._without_key(_error_text(raw))
        message = f"{self._provider} answered {status}" + (f": {said}" if said else "")
        remedy = _REMEDIES.get(status, "the writes wait in the outbox" if status >= 500 else "")
        if status in _REJECTED:
            return Rejected(message, "it refuses this request for its content")
        error = BackendMissing if status == 404 else ProviderError
        return error(message, remedy.format(name=self._provider))

    def _without_key(self, text: str) -> str:
        """Return what a back end said without the key that it may repeat."""
        for header in ("Authorization", "X-API-Key"):
            key = self._headers.get(header, "").rpartition(" ")[2]
            text = text.replace(key, "[key]") if key else text
        return text

    def _slow(self, seconds: float) -> ProviderError:
        return ProviderError(f"{self._provider} did not answer within {seconds:g} s", "check whether its server is up")

    def _unreachable(self, error: Exception) -> ProviderError:
        host = urlsplit(self._base).netloc
        reason = " ".join(str(error).split())[:_SHOWN_CHARS] or type(error).__name__
        if "CERTIFICATE" in reason.upper() or "SSL" in reason.upper():
            return ProviderError(f"{self._provider}: no secure connection to {host}: {reason}", "check its certificate")
        return ProviderError(
            f"{self._provider} cannot be reached at {host}: {reason}", "check the address and the network"
        )


class BackendMissing(ProviderError):
    """The back end has no such item or route (404)."""


def check_url(provider: str, url: str) -> str:
    """Return the address, or raise what is wrong with it."""
    found = urlsplit(url.strip())
    if found.scheme not in {"http", "https"} or not found.hostname:
        raise ProviderError(
            f"{provider}: {url!r} is not the address of a server", "write it like https://host or http://127.0.0.1:8000"
        )
    return url.strip()


@cache
def _load_certificates() -> ssl.SSLContext:
    """Return the TLS context; loading the certificates takes 50 ms, so all clients share it."""
    import httpx2

    return httpx2.create_ssl_context()


def _port(address: SplitResult) -> int:
    return address.port or (443 if address.scheme == "https" else 80)


def _error_text(raw: bytes) -> str:
    """Return the message inside an error answer, in one short line."""
    try:
        value: JSON = json.loads(raw)
    except ValueError:
        return ""
    for key in ("error", "detail", "message", "msg", "code"):
        if isinstance(value, dict) and value.get(key):
            value = value[key]
            if isinstance(value, dict):
                value = value.get("message") or value.get("code") or json.dumps(value)
            break
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())[:_SHOWN_CHARS]

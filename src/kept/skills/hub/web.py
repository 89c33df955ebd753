"""Answers of network sources over HTTP: bounded in size and time, redirected only to protected addresses."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kept.core.errors import Reason, Refused
from kept.skills.hub.sources import may_lead, safe_url

if TYPE_CHECKING:
    import httpx2

_MOST_REDIRECTS = 5
_WHOLE = 4
"""A whole answer may take this many times as long as one silence in it."""


class _No(Exception):
    """Carries a refusal out of the depth of an answer."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.error)
        self.refused = refused


def get(url: str, most_bytes: int, *, seconds: float, origin: str = "") -> bytes | Refused:
    """Return what `url` answers; `origin` is the address that sent us there."""
    import httpx2

    if not may_lead(origin or url, url):
        return Refused(Reason.BLOCKED, f"{url[:120]!r} is not a protected address", "use https://")
    deadline = time.monotonic() + _WHOLE * seconds
    try:
        with httpx2.Client(timeout=seconds, follow_redirects=False) as client, _answered(client, url) as response:
            return _body(response, url, most_bytes, deadline=deadline)
    except _No as no:
        return no.refused
    except httpx2.TimeoutException:
        return Refused(
            Reason.UNAVAILABLE,
            f"{url[:120]!r} was silent for {seconds:g} s",
            "try again later; skills.hub_timeout_seconds sets how long to wait",
        )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        said = str(error) or type(error).__name__
        return Refused(
            Reason.UNAVAILABLE, f"{url[:120]!r} cannot be fetched: {said}", "check the address and the network"
        )


@contextmanager
def _answered(client: "httpx2.Client", url: str) -> Iterator["httpx2.Response"]:
    """Follow redirects one by one, so that no request goes to an address before it was judged."""
    address = url
    for _ in range(_MOST_REDIRECTS + 1):
        with client.stream("GET", address, headers={"accept": "*/*"}) as response:
            if response.next_request is None:
                yield response
                return
            address = str(response.next_request.url)
        if not (safe_url(address) and may_lead(url, address)):
            raise _No(Refused(Reason.BLOCKED, f"{url[:120]!r} leads to an unprotected address", "use another source"))
    raise _No(Refused(Reason.UNAVAILABLE, f"{url[:120]!r} leads in circles", "check the address"))


def _body(response: "httpx2.Response", url: str, most_bytes: int, *, deadline: float) -> bytes | Refused:
    if response.status_code != 200:
        return Refused(Reason.UNAVAILABLE, f"{url[:120]!r} answered {response.status_code}", "check the address")
    too_large = Refused(Reason.BLOCKED, f"{url[:120]!r} is larger than {most_bytes:,} bytes", "use another source")
    if int(response.headers.get("content-length", "0")) > most_bytes:
        return too_large
    data = bytearray()
    for chunk in response.iter_bytes():
        data += chunk
        if len(data) > most_bytes:
            return too_large
        if time.monotonic() > deadline:
            return Refused(Reason.UNAVAILABLE, f"{url[:120]!r} is too slow", "try again later, or use another source")
    return bytes(data)

"""Forgetting in two calls, for surfaces without a terminal: a plan with a token, then the token as confirmation."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.app.caller import Scope
from wellkept.core.errors import Reason, Refused
from wellkept.core.ids import random_hex
from wellkept.core.text import dumps
from wellkept.forgetting.forget import forget, plan_forget_session, plan_forget_words
from wellkept.forgetting.requests import drop_requests

if TYPE_CHECKING:
    from wellkept.app.caller import Caller
    from wellkept.core.text import JSON
    from wellkept.forgetting.forget import ForgetOutcome, ForgetProposal

TOKEN_SECONDS = 600
"""How long a plan can be confirmed: long enough to ask the person."""
_SECRET = random_hex(32).encode()
"""The key of this process: tokens of other processes, and forged ones, are invalid."""
_MOST_LISTED = 20


class PlannedForget(Struct, frozen=True):
    """What would be removed, and the token that confirms exactly this."""

    proposal: ForgetProposal
    token: str

    def as_json(self) -> dict[str, JSON]:
        """Return the plan without any content; long lists are counted."""
        plan = self.proposal.as_json()
        short = {name: _shorten(value) for name, value in plan.items()}
        return {**short, "confirm": self.token, "expires_seconds": TOKEN_SECONDS}


def plan_forget(caller: Caller, *, session: str | None = None, query: str | None = None) -> PlannedForget | Refused:
    """Plan to forget a conversation or words; nothing is removed yet."""
    proposal = _plan(caller, session, query)
    if isinstance(proposal, Refused):
        return proposal
    expires = int(caller.app.clock.now().timestamp()) + TOKEN_SECONDS
    return PlannedForget(proposal, f"{expires}.{_sign(caller, proposal, (session, query, expires))}")


def forget_confirmed(
    caller: Caller, token: str, *, session: str | None = None, query: str | None = None
) -> ForgetOutcome | Refused:
    """Forget what was planned if the token is of this plan, still valid, and nothing has changed since."""
    caller.require(Scope.WRITE)
    proposal = _plan(caller, session, query)
    if isinstance(proposal, Refused):
        return proposal
    stamp, _, signature = token.partition(".")
    expires = int(stamp) if stamp.isascii() and stamp.isdigit() and len(stamp) < 16 else 0
    if not hmac.compare_digest(signature, _sign(caller, proposal, (session, query, expires))):
        return _refuse("the token does not belong to this plan, or what would be removed has changed since")
    if caller.app.clock.now().timestamp() > expires:
        return _refuse("the token has expired")
    outcome = forget(caller, proposal)
    drop_requests(caller, session=session, query=query)
    return outcome


def _plan(caller: Caller, session: str | None, query: str | None) -> ForgetProposal | Refused:
    if (session is None) == (query is None):
        return Refused(Reason.INVALID, "give either a session or a query", "name one thing to forget")
    return plan_forget_session(caller, session) if session is not None else plan_forget_words(caller, query or "")


def _sign(caller: Caller, proposal: ForgetProposal, asked: tuple[str | None, str | None, int]) -> str:
    """Return the signature of a plan: what this user asked, until when, and everything that would be removed."""
    planned = f"{caller.user!r} {asked!r} {proposal.plan!r} {dumps(proposal.as_json())}"
    return hmac.new(_SECRET, planned.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]


def _refuse(error: str) -> Refused:
    return Refused(Reason.MOVED_ON, error, "plan again without confirm, show it to the user, and use the new token")


def _shorten(value: JSON) -> JSON:
    if isinstance(value, list) and len(value) > _MOST_LISTED:
        return [*value[:_MOST_LISTED], f"and {len(value) - _MOST_LISTED} more"]
    return value

"""Forgetting that a program asks for: a request that a person decides, or a plan with a token that confirms it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wellkept.app.caller import Caller, Scope
from wellkept.core.clock import iso_moment
from wellkept.core.errors import NotFound, Reason, Refused, StorageError
from wellkept.core.ids import random_hex
from wellkept.core.text import JSON, UNSPACED, dumps, split_words
from wellkept.memory.page import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wellkept.core.ports import Documents
    from wellkept.forgetting.forget import ForgetOutcome, ForgetProposal

MOST_WAITING = 20
MOST_SHARE = 0.2
"""The largest share of all messages, or of all entries, that an agent may ask to forget."""
_FEW_MESSAGES, _FEW_ENTRIES = 3, 1
"""So many may be asked for even if the share is larger, as in a small home."""
_LEAST_CHARACTERS = 4
_LEAST_UNSPACED = 2
"""The same for scripts without spaces, in which a word may have two characters."""
_DAY = 86_400.0


class ForgetRequest(Struct, frozen=True):
    """What an agent asks to forget, and how much that was when it asked."""

    id: str
    created: float
    origin: str
    session: str | None
    query: str | None
    messages: int
    entries: int

    @property
    def summary(self) -> str:
        """Return what it asks for, on one line."""
        what = f"the session {self.session}" if self.session else f'everything with "{self.query}"'
        return f"forget {what} permanently: {self.messages} messages, {self.entries} entries"

    def as_json(self) -> dict[str, JSON]:
        """Return it in the form of a waiting write, with which it is listed."""
        what = {"session_id": self.session} if self.session else {"query": self.query}
        return {
            "id": self.id,
            "created": iso_moment(self.created),
            "target": "forget",
            "operations": [{"action": "forget", **what}],
            "origin": self.origin,
            "why": "an agent asks to forget this",
            "rules": [],
            "messages": self.messages,
            "memory_entries": self.entries,
        }


class RequestedForget(Struct, frozen=True):
    """The answer to an agent: a person decides."""

    request: ForgetRequest

    def as_json(self) -> dict[str, JSON]:
        """Return the id and the extent of what waits."""
        return {
            "success": True,
            "staged": True,
            "pending_id": self.request.id,
            "messages": self.request.messages,
            "memory_entries": self.request.entries,
            "message": "Nothing was removed. The request waits for the user, who alone can decide it.",
        }


def request_forget(
    caller: Caller, *, session: str | None = None, query: str | None = None, origin: str = "agent"
) -> RequestedForget | Refused:
    """Leave it to a person to forget a session or words; refused if that is too vague or reaches too far."""
    caller.require(Scope.WRITE)
    session, query = session or None, (query or "").strip() or None
    refused = _refuse_words(session, query)
    if refused is not None:
        return refused
    requests = list_requests(caller)
    same = next((one for one in requests if (one.session, one.query) == (session, query)), None)
    if same is not None:
        return RequestedForget(same)
    if len(requests) >= MOST_WAITING:
        return Refused(Reason.DISABLED, f"{len(requests)} such requests wait already", "ask the user to decide them")
    proposal = _plan(caller, session, query)
    if isinstance(proposal, Refused):
        return proposal
    messages, entries = proposal.plan.sessions.message_count, len(proposal.plan.entries)
    refused = _refuse_reach(caller, messages, entries)
    if refused is not None:
        return refused
    now = caller.app.clock.now().timestamp()
    request = ForgetRequest(random_hex(4), now, origin, session, query, messages, entries)
    _documents(caller).write(f"{request.id}.json", dumps(request.as_json(), indent=2).encode())
    return RequestedForget(request)


def _refuse_words(session: str | None, query: str | None) -> Refused | None:
    if (session is None) == (query is None):
        return Refused(Reason.INVALID, "give either a session or a query", "name one thing to forget")
    if query is None:
        return None
    words = split_words(query)
    from wellkept.languages.language import stop_words  # lazy: commands on memory load this module, too

    telling = "".join(word for word in words if word not in stop_words(words))
    least = _LEAST_UNSPACED if UNSPACED.search(telling) else _LEAST_CHARACTERS
    if len(telling) >= least:
        return None
    return Refused(
        Reason.INVALID,
        f"{query[:40]!r} has fewer than {least} letters besides common words",
        "give the exact words that the user wants to be forgotten",
    )


def _refuse_reach(caller: Caller, messages: int, entries: int) -> Refused | None:
    store = caller.space.memory
    pages = [(store, target) for target in (Target.MEMORY, Target.USER)]
    pages += [(project, Target.PROJECT) for project in store.projects()]
    all_entries = sum(len(page.entries(target)) + len(page.archived(target)) for page, target in pages)
    all_messages = caller.space.sessions.totals()[1]
    for count, whole, few, what in (
        (messages, all_messages, _FEW_MESSAGES, "messages"),
        (entries, all_entries, _FEW_ENTRIES, "entries"),
    ):
        if count > max(few, whole * MOST_SHARE):
            return Refused(
                Reason.INVALID,
                f"it would remove {count:,} of {whole:,} {what}; an agent may ask for {MOST_SHARE:.0%} at most",
                "name something narrower, or tell the user, who can run `kept forget` in a terminal",
            )
    return None


def list_requests(caller: Caller) -> list[ForgetRequest]:
    """Return what waits, oldest first; a request that is older than `memory.pending_days` is dropped."""
    documents = _documents(caller)
    since = caller.app.clock.now().timestamp() - caller.app.settings.memory.pending_days * _DAY
    requests = []
    for name in documents.names(".json"):
        request = _read(documents, name)
        if request is None:
            continue
        if request.created < since:
            documents.remove(name)
        else:
            requests.append(request)
    return sorted(requests, key=lambda one: (one.created, one.id))


def count_requests(caller: Caller) -> int:
    """Return how many requests there are, without reading them."""
    return len(_documents(caller).names(".json"))


def find_request(caller: Caller, request_id: str) -> ForgetRequest | None:
    """Return a waiting request, None if there is none with this id."""
    return next((request for request in list_requests(caller) if request.id == request_id), None)


def plan_request(caller: Caller, request: ForgetRequest) -> ForgetProposal | Refused:
    """Return what would be removed now, for a person to look at; a request without anything left is dropped."""
    proposal = _plan(caller, request.session, request.query)
    if isinstance(proposal, Refused):
        drop_requests(caller, session=request.session, query=request.query)
    return proposal


def reject_request(caller: Caller, request_id: str) -> ForgetRequest:
    """Drop a request; raises NotFound for an unknown id."""
    caller.require_person(f"`kept memory reject {request_id}`")
    request = find_request(caller, request_id)
    if request is None:
        raise NotFound(f"no request with the id {request_id!r} waits", "`kept memory pending` lists what waits")
    _documents(caller).remove(f"{request_id}.json")
    return request


def drop_requests(caller: Caller, *, session: str | None, query: str | None) -> None:
    """Remove the requests for what was just forgotten."""
    caller.require(Scope.WRITE)
    for request in list_requests(caller):
        if (request.session, request.query) == (session or None, query or None):
            _documents(caller).remove(f"{request.id}.json")


def _documents(caller: Caller) -> Documents:
    from wellkept.storage.documents import FolderDocuments

    documents = caller.space.documents("pending/forget")
    return FolderDocuments(documents) if isinstance(documents, Path) else documents


def _read(documents: Documents, name: str) -> ForgetRequest | None:
    try:
        data: Mapping[str, Any] = json.loads(documents.read(name) or b"null")
        (operation,) = data["operations"]
        return ForgetRequest(
            name.removesuffix(".json"),
            datetime.fromisoformat(data["created"]).timestamp(),
            str(data["origin"]),
            operation.get("session_id"),
            operation.get("query"),
            int(data["messages"]),
            int(data["memory_entries"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, StorageError):
        return None  # another program's file, or an incomplete one


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
    import hmac

    from wellkept.forgetting.forget import forget

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
    from wellkept.forgetting.forget import plan_forget_session, plan_forget_words  # lists of what waits need no plan

    return plan_forget_session(caller, session) if session is not None else plan_forget_words(caller, query or "")


def _sign(caller: Caller, proposal: ForgetProposal, asked: tuple[str | None, str | None, int]) -> str:
    """Return the signature of a plan: what this user asked, until when, and everything that would be removed."""
    import hashlib
    import hmac

    planned = f"{caller.user!r} {asked!r} {proposal.plan!r} {dumps(proposal.as_json())}"
    return hmac.new(_SECRET, planned.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]


def _refuse(error: str) -> Refused:
    return Refused(Reason.MOVED_ON, error, "plan again without confirm, show it to the user, and use the new token")


def _shorten(value: JSON) -> JSON:
    if isinstance(value, list) and len(value) > _MOST_LISTED:
        return [*value[:_MOST_LISTED], f"and {len(value) - _MOST_LISTED} more"]
    return value

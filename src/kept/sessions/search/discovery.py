"""A query answered with the sessions that say most about it, one per conversation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kept.core.ids import SessionId
from kept.core.messages import Session, StoredMessage
from kept.core.search import Found, SearchRequest
from kept.core.text import JSON
from kept.sessions.arguments import Asked
from kept.sessions.budget import Caps, fitted
from kept.sessions.ports import Readable
from kept.sessions.recall import Passage, index_shown, passage, passage_shown, when
from kept.sessions.search.snippets import Marker

CANDIDATES = 40
"""Sessions asked for before one is kept per conversation and, with `sort`, the order is changed."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who searches: `hidden` are the messages that their context shows already."""

    hidden: frozenset[int]


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a query found, ready to be shown."""

    found: Found
    passages: tuple[Passage, ...]


def discover(store: Readable, asked: Asked, asker: Asker) -> Discovery:
    """Run the search and read the passages of the best sessions."""
    found = store.search(_request(asked, asker))
    if found.abstained:
        return Discovery(found, ())
    matches = _matches(store, found, asked)
    passages = (passage(store, match, window=asked.window) for match in _ordered(matches, asked)[: asked.limit])
    return Discovery(found, tuple(one for one in passages if one is not None))


def _request(asked: Asked, asker: Asker) -> SearchRequest:
    return SearchRequest(
        query=asked.query or "",
        limit=CANDIDATES if asked.sort is not None else min(CANDIDATES, 4 * asked.limit),
        after=asked.after,
        before=asked.before,
        roles=asked.roles,
        sources=asked.sources,
        project=asked.project,
        session_id=asked.session_id,
        exclude_messages=asker.hidden,
    )


def _matches(store: Readable, found: Found, asked: Asked) -> list[StoredMessage]:
    if asked.session_id is not None:
        inside = [store.message(hit.message_id) for hit in found.messages]
        return [message for message in inside if message is not None]
    lineage = store.lineage()
    seen: set[SessionId] = set()
    matches: list[StoredMessage] = []
    for hit in found.sessions:
        root = lineage.root(hit.session_id)
        message = store.message(hit.best_message_id) if root not in seen else None
        if message is not None:
            seen.add(root)
            matches.append(message)
        if len(matches) == asked.limit and asked.sort is None:
            break
    return matches


def _ordered(matches: list[StoredMessage], asked: Asked) -> Sequence[StoredMessage]:
    if asked.sort is None:
        return matches
    return sorted(matches, key=lambda match: match.timestamp, reverse=asked.sort == "newest")


def answer(store: Readable, asked: Asked, asker: Asker, *, budget: int) -> dict[str, JSON]:
    """Return the answer of the discover mode, inside its budget."""
    discovery = discover(store, asked, asker)
    if not discovery.passages:
        return {**_nothing(store, _request(asked, asker), discovery.found), **_unchecked(discovery.found)}
    start = Caps(1_500, 700, asked.window, 3, len(discovery.passages))
    render = _render(discovery, asked, asker)
    return dict(fitted(render, start, budget=budget, is_full=asked.detail == "full"))


def _render(discovery: Discovery, asked: Asked, asker: Asker) -> Callable[[Caps], dict[str, JSON]]:
    marker = Marker(discovery.found.terms)

    def render(caps: Caps) -> dict[str, JSON]:
        shown: list[JSON] = []
        for one in discovery.passages[: caps.results]:
            if asked.detail == "index":
                shown.append(index_shown(one.session, one.match, marker=marker))
            else:
                shown.append(passage_shown(one, caps=caps, marker=marker, hidden=asker.hidden))
        value: dict[str, JSON] = {"success": True, "mode": "discover", "results": shown, "count": len(shown)}
        left = len(discovery.passages) - len(shown)
        if left:
            value["note"] = f"{left} more did not fit: ask with a smaller limit, or detail: index"
        return {**value, **_unchecked(discovery.found)}

    return render


def _unchecked(found: Found) -> dict[str, JSON]:
    """Say that an explicit query may hold for messages that were too many to be read."""
    if not found.unchecked:
        return {}
    return {"unchecked": f"{unchecked(found)}: narrow it with after and before, or add a rarer word"}


def unchecked(found: Found) -> str:
    """Return how many messages were not read, in words."""
    return f"at least {found.unchecked:,} older messages may match as well and were not read"


def _nothing(store: Readable, request: SearchRequest, found: Found) -> dict[str, JSON]:
    value: dict[str, JSON] = {"success": True, "mode": "discover", "results": [], "count": 0}
    if not found.sessions:
        return {**value, "reason": why(store, request, found)}
    near: list[JSON] = [
        {"session_id": session.id, "title": session.title, "when": when(session.started)}
        for session in nearest(store, found)
    ]
    reason = "nothing matched well enough; `nearest` names the closest sessions: try other words, or read one of them"
    return {**value, "reason": reason, "nearest": near}


NEAREST = 3


def nearest(store: Readable, found: Found) -> list[Session]:
    """Return the sessions that came nearest, one per conversation, the best first."""
    lineage = store.lineage()
    roots: dict[SessionId, SessionId] = {}
    for hit in found.sessions:
        roots.setdefault(lineage.root(hit.session_id), hit.session_id)
    known = [store.session(session_id) for session_id in list(roots.values())[:NEAREST]]
    return [session for session in known if session is not None]


def why(store: Readable, request: SearchRequest, found: Found) -> str:
    """Say why nothing was found; a search without the filters tells what they took away."""
    filters = _filters(request)
    if filters:
        free = replace(request, sources=(), roles=(), project=None, after=None, before=None, session_id=None)
        without = store.search(free)
        if without.messages and not without.abstained:
            return f"the filters ({', '.join(filters)}) excluded {_hits(without, request.limit)}: widen or drop them"
    in_context = found.excluded.get("current conversation", 0)
    if in_context:
        return f"everything that matched ({in_context} messages) lies in the current conversation, which you can see"
    elsewhere = found.excluded.get("hidden source", 0)
    if elsewhere:
        return f"{elsewhere} found in sessions of sub-agents, tools or reviews: name one as source to see them"
    return "nothing matched: try other or fewer words"


def _filters(request: SearchRequest) -> list[str]:
    values = {
        "source": request.sources,
        "role": request.roles,
        "project": request.project,
        "session": request.session_id,
        "after": request.after,
        "before": request.before,
    }
    return [name for name, value in values.items() if value not in (None, ())]


def _hits(found: Found, most: int) -> str:
    """Return how many messages hold what was asked, in words; those that only stand beside one do not count."""
    count = sum(1 for one in found.messages if one.parts.get("words") or one.parts.get("meaning"))
    more = " or more" if len(found.messages) >= most else ""
    return f"{count} hit{'' if count == 1 and not more else 's'}{more}"

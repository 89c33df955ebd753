"""Why a search has nothing to show: what the filters took away, what cannot be shown, or what came nearest."""

from dataclasses import replace

from kept.core.ids import SessionId
from kept.core.messages import Session
from kept.core.search import Found, SearchRequest
from kept.sessions.ports import Readable

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

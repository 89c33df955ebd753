"""Past sessions read without a query: the recent ones, one whole, or a window to scroll."""

from collections.abc import Callable

from kept.core.errors import Reason, Refused
from kept.core.ids import MessageId, SessionId
from kept.core.messages import Session, StoredMessage
from kept.core.text import JSON, one_line
from kept.sessions.arguments import Asked, Asker
from kept.sessions.ports import Readable
from kept.sessions.recall import PREVIEW_CHARS, Caps, fit, shown, when, window_shown
from kept.sessions.search.occurrences import Marker

FIRST, LAST = 20, 10
_BROWSED_BEFORE_MERGING = 6
_WHOLE = 5


def browse(store: Readable, asked: Asked, *, budget: int) -> dict[str, JSON]:
    """Return the recent sessions, one per conversation."""
    lineage = store.lineage()
    source = asked.sources[0] if asked.sources else None
    recent = store.recent(limit=asked.limit * _BROWSED_BEFORE_MERGING, source=source)
    kept: dict[SessionId, Session] = {}
    for session in recent:
        if asked.project is None or session.project == asked.project:
            kept.setdefault(lineage.root(session.id), session)
    sessions = list(kept.values())[: asked.limit]

    def render(caps: Caps) -> dict[str, JSON]:
        results: list[JSON] = [_list_item(store, session) for session in sessions[: caps.results]]
        value: dict[str, JSON] = {"success": True, "mode": "browse", "results": results, "count": len(results)}
        if not results:
            value["reason"] = "the filters excluded every recent session" if recent else "no sessions are stored yet"
        return value

    return dict(fit(render, Caps(0, 0, 0, 0, len(sessions)), budget=budget))


def _list_item(store: Readable, session: Session) -> dict[str, JSON]:
    return {
        "session_id": session.id,
        "title": session.title,
        "source": session.source,
        "started": when(session.started),
        "last_active": when(session.last_active or session.started),
        "message_count": session.message_count,
        "preview": one_line(store.preview(session.id), width=PREVIEW_CHARS),
    }


def scroll(store: Readable, asked: Asked, asker: Asker, *, budget: int) -> dict[str, JSON] | Refused:
    """Return the window around a message; its first and last ids are the anchors for further scrolling."""
    anchor = store.message(MessageId(asked.around_message_id or 0))
    session = None if anchor is None else store.session(anchor.session_id)
    if anchor is None or session is None:
        return _no_message(asked)
    warning = None
    if asked.session_id is not None and asked.session_id != session.id:
        if asked.session_id not in store.lineage().family(session.id):
            return _no_message(asked)
        warning = f"message {anchor.id} belongs to {session.id}, of the same conversation: that session is shown"
    around = store.window(anchor.id, before=asked.window, after=asked.window)
    if all(message.id in asker.hidden for message in around):
        return Refused(
            Reason.INVALID,
            "every message of that window is in your context already",
            "scroll up in this conversation, or anchor at a message outside it",
        )
    shown_window = _render_window(store, session, around, asked=asked, hidden=asker.hidden)
    start = Caps(1_500, 700, asked.window, 0, 1)
    value = dict(fit(shown_window, start, budget=budget, is_full=asked.detail == "full"))
    return {**value, "warning": warning} if warning else value


def _render_window(
    store: Readable, session: Session, around: list[StoredMessage], *, asked: Asked, hidden: frozenset[int]
) -> Callable[[Caps], dict[str, JSON]]:
    anchor = MessageId(asked.around_message_id or 0)
    place = next(place for place, message in enumerate(around) if message.id == anchor)
    before = store.count_before(session.id, around[0].id)
    after = max(0, session.message_count - before - len(around))

    def render(caps: Caps) -> dict[str, JSON]:
        window = window_shown(around, anchor=anchor, caps=caps, marker=Marker(), hidden=hidden)
        return {
            "success": True,
            "mode": "scroll",
            "session_id": session.id,
            "title": session.title,
            "messages": window,
            "count": len(window),
            "messages_before": before + max(0, place - caps.window),
            "messages_after": after + max(0, len(around) - place - 1 - caps.window),
        }

    return render


def _no_message(asked: Asked) -> Refused:
    where = f" in session {asked.session_id!r}" if asked.session_id else ""
    return Refused(
        Reason.NO_MATCH,
        f"there is no message {asked.around_message_id}{where}",
        "take the id from a result of session_search",
    )


def read(store: Readable, asked: Asked, asker: Asker, *, budget: int) -> dict[str, JSON] | Refused:
    """Return a whole session, or its first and last messages with a hint how to read the rest."""
    session = store.session(SessionId(asked.session_id or ""))
    if session is None:
        return Refused(
            Reason.NO_MATCH,
            f"there is no session {asked.session_id!r}",
            "call session_search without arguments to list sessions",
        )
    head, tail = store.edges(session.id, first=FIRST, last=LAST)
    if session.message_count <= FIRST + LAST:
        head, tail = store.edges(session.id, first=FIRST + LAST, last=0)
    known = {message.id for message in head}
    tail = [message for message in tail if message.id not in known]

    def render(caps: Caps) -> dict[str, JSON]:
        # show fewer messages at both ends if shortening each one is not enough
        first = head if caps.window == _WHOLE else head[: 2 * caps.window + 1]
        last = tail if caps.window == _WHOLE else tail[len(tail) - caps.window :]
        return _session_shown(session, first, last, chars=caps.other_chars, hidden=asker.hidden)

    return dict(fit(render, Caps(4_000, 4_000, _WHOLE, 0, 1), budget=budget, is_full=True))


def _session_shown(
    session: Session, first: list[StoredMessage], last: list[StoredMessage], *, chars: int, hidden: frozenset[int]
) -> dict[str, JSON]:
    messages: list[JSON] = [shown(message, chars=chars) for message in [*first, *last] if message.id not in hidden]
    value: dict[str, JSON] = {
        "success": True,
        "mode": "read",
        "session_id": session.id,
        "title": session.title,
        "source": session.source,
        "model": session.model,
        "started": when(session.started),
        "last_active": when(session.last_active or session.started),
        "message_count": session.message_count,
        "messages": messages,
        "count": len(messages),
    }
    hint = _hint(session.message_count, first, last, chars=chars, hidden=hidden)
    if hint:
        value["hint"] = hint
    return value


def _hint(
    total: int, first: list[StoredMessage], last: list[StoredMessage], *, chars: int, hidden: frozenset[int]
) -> str:
    hints: list[str] = []
    both = [*first, *last]
    left = total - len(both)
    if left > 0 and first:
        hints.append(f"{left} messages between are not shown: scroll with around_message_id {first[-1].id}")
    in_context = sum(message.id in hidden for message in both)
    if in_context:
        hints.append(f"{in_context} messages that are in your context are left out")
    if any(len(message.message.display_text) > chars for message in both):
        hints.append("a message that ends in […] is whole with its id as around_message_id and detail: full")
    return "; ".join(hints)

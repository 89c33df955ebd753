"""Past sessions read without a query: the recent ones, one whole, or a window to scroll."""

from functools import partial

from wellkept.core.errors import Reason, Refused
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Passage, Session, StoredMessage
from wellkept.core.text import JSON, one_line
from wellkept.sessions.arguments import Asked, Asker
from wellkept.sessions.ports import Readable
from wellkept.sessions.recall import PREVIEW_CHARS, Answered, Caps, count_dropped, fit, shown, when, window_shown

FIRST, LAST = 20, 10
_BROWSED_BEFORE_MERGING = 6
_WHOLE = 5


def browse(store: Readable, asked: Asked, *, budget: int) -> Answered:
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

    return fit(render, Caps(0, 0, 0, 0, len(sessions)), budget=budget)


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


def scroll(store: Readable, asked: Asked, asker: Asker, *, budget: int) -> Answered | Refused:
    """Return the window around a message; its first and last ids are the anchors for further scrolling."""
    found = store.passage(MessageId(asked.around_message_id or 0), window=asked.window)
    if found is None:
        return _no_message(asked)
    warning = None
    if asked.session_id is not None and asked.session_id != found.session.id:
        if asked.session_id not in store.lineage().family(found.session.id):
            return _no_message(asked)
        name = found.session.id
        warning = f"message {found.match.id} belongs to {name}, of the same conversation: that session is shown"
    if asker.hidden and all(message.id in asker.hidden for message in found.around):
        return Refused(
            Reason.INVALID,
            "every message of that window is in your context already",
            "scroll up in this conversation, or anchor at a message outside it",
        )
    start = Caps(1_500, 700, asked.window, 0, 1)
    render = partial(_show_window, found, hidden=asker.hidden, warning=warning)
    return fit(render, start, budget=budget, is_full=asked.detail == "full")


def _show_window(found: Passage, caps: Caps, *, hidden: frozenset[int], warning: str | None) -> dict[str, JSON]:
    window = window_shown(found.around, anchor=found.match.id, caps=caps, marker=None, hidden=hidden)
    dropped = count_dropped(found, caps.window)
    value: dict[str, JSON] = {
        "success": True,
        "mode": "scroll",
        "session_id": found.session.id,
        "title": found.session.title,
        "messages": window,
        "count": len(window),
        "messages_before": found.before + dropped[0],
        "messages_after": found.after + dropped[1],
    }
    return {**value, "warning": warning} if warning else value


def _no_message(asked: Asked) -> Refused:
    where = f" in session {asked.session_id!r}" if asked.session_id else ""
    return Refused(
        Reason.NO_MATCH,
        f"there is no message {asked.around_message_id}{where}",
        "take the id from a result of session_search",
    )


def read(store: Readable, asked: Asked, asker: Asker, *, budget: int) -> Answered | Refused:
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

    return fit(render, Caps(4_000, 4_000, _WHOLE, 0, 1), budget=budget, is_full=True)


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

"""The `session_search` tool: one schema, four modes, every answer a JSON object."""

import logging
import re
import threading
from collections.abc import Callable, Mapping
from functools import cache, partial
from time import perf_counter

from msgspec.structs import replace

from wellkept.core.errors import KeptError, ModelError, Reason, Refused, StorageError
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Passage, Session, StoredMessage
from wellkept.core.ports import Clock, Completes
from wellkept.core.text import JSON, dumps, one_line, resource_text
from wellkept.core.tools import Tool, ToolContext, search_schema
from wellkept.sessions.arguments import Asked, Asker, read
from wellkept.sessions.ports import Readable
from wellkept.sessions.recall import (
    PREVIEW_CHARS,
    Answered,
    Caps,
    count_dropped,
    fit,
    shown,
    tokens,
    unavailable,
    when,
    window_shown,
)
from wellkept.sessions.receipts import NewReceipt, shown_in
from wellkept.sessions.settings import SessionSettings

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


def read_session(store: Readable, asked: Asked, asker: Asker, *, budget: int) -> Answered | Refused:
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


def session_search(
    open_store: Callable[[], Readable],
    settings: SessionSettings,
    *,
    clock: Clock,
    auxiliary: Callable[[], Completes | None] = lambda: None,
    record: Callable[[NewReceipt], object] | None = None,
) -> Tool:
    """Return the tool over one user's store; each call opens it, so that a broken one is only an answer.

    `record` is called with the receipt of each answer and must not raise.
    """

    def call(arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        asked = read(arguments, now=clock.now().timestamp())
        if isinstance(asked, Refused):
            return asked.as_json()
        try:
            store = open_store()
        except StorageError as error:
            return unavailable(error)
        began = perf_counter()
        try:
            answer = _answer(store, asked, _asker(store, context), budget=settings.answer_tokens)
            if isinstance(answer, Refused):
                return answer.as_json()
            answer = _summarize(answer, store, asked, auxiliary)
        except StorageError as error:
            return unavailable(error)
        except KeptError as error:
            return {"success": False, "error": error.message, "remedy": error.remedy}
        if record is not None and not context.incognito:
            record(_receipt(asked, context, answer, seconds=perf_counter() - began))
        return answer.value

    return Tool(search_schema(), call)


def _summarize(answer: Answered, store: Readable, asked: Asked, auxiliary: Callable[[], Completes | None]) -> Answered:
    if not (asked.summarize and asked.query and answer.value.get("results")):
        return answer
    value = add_summaries(answer.value, store, query=asked.query, model=auxiliary())
    return replace(answer, value=value, tokens=tokens(dumps(value)))


def _receipt(asked: Asked, context: ToolContext, answer: Answered, *, seconds: float) -> NewReceipt:
    found = answer.found
    return NewReceipt(
        kind="search" if asked.query is not None else "tool",
        client=context.platform,
        query=asked.query or "",
        session_id=context.session_id,
        project=asked.project,
        shown=shown_in(answer.value, found.ranked if found is not None else ()),
        candidates=found.found.candidates if found is not None else 0,
        tokens=answer.tokens,
        milliseconds=seconds * 1_000,
    )


def _asker(store: Readable, context: ToolContext) -> Asker:
    hidden = set(context.active_message_ids)
    if context.session_id is not None and not hidden:
        hidden.update(store.context_ids(context.session_id))
    return Asker(frozenset(hidden))


def _answer(store: Readable, asked: Asked, asker: Asker, *, budget: int) -> Answered | Refused:
    has_time = asked.session_id is None and (asked.after is not None or asked.before is not None)
    if (asked.query is not None or has_time) and asked.around_message_id is None:
        from wellkept.sessions.search.discovery import answer  # the search loads when it is first used

        return answer(store, asked, asker, budget=budget)
    if asked.around_message_id is not None:
        return scroll(store, asked, asker, budget=budget)
    if asked.session_id is not None:
        return read_session(store, asked, asker, budget=budget)
    return browse(store, asked, budget=budget)


log = logging.getLogger(__name__)

MOST_CHARS = 100_000
_MOST_WORDS_TOKENS = 700
_REACH = 200
_KEPT = ("session_id", "title", "when", "source", "model", "matched_role", "match_message_id", "snippet")
_CITED = re.compile(r"\[(\d{1,18})\]")
MOST_SUMMARIES = 8
"""How many answers may be summarised at once: each occupies a worker thread for as long as the model is silent."""
_summaries = threading.BoundedSemaphore(MOST_SUMMARIES)


@cache
def instructions() -> str:
    """Return the instructions for the auxiliary model."""
    return resource_text("wellkept.sessions", "prompts/summary.md").strip()


def add_summaries(
    answer: Mapping[str, JSON], store: Readable, *, query: str, model: Completes | None
) -> dict[str, JSON]:
    """Return `answer` with one summary per result, or with a note if no model is available."""
    if model is None:
        return {**answer, "note": "no auxiliary model is configured: these are the passages themselves"}
    results = answer.get("results")
    if not isinstance(results, list):
        return dict(answer)
    if not _summaries.acquire(blocking=False):
        return {**answer, "note": "too many summaries are being written: these are the passages themselves"}
    try:
        summaries = [_with_summary(result, store, query=query, model=model) for result in results]
    except ModelError as error:
        log.warning("search summary failed: %s", error)
        return {**answer, "note": f"the summary failed ({error.message}): these are the passages themselves"}
    finally:
        _summaries.release()
    return {**answer, "results": summaries}


def _with_summary(result: Mapping[str, JSON], store: Readable, *, query: str, model: Completes) -> JSON:
    anchor = MessageId(int(str(result["match_message_id"])))
    messages = store.window(anchor, before=_REACH, after=_REACH)
    text = transcript(messages, anchor)
    prompt = f"Question: {query}\n\nTranscript:\n{text}"
    summary = model.complete(instructions(), prompt, max_output_tokens=_MOST_WORDS_TOKENS)
    known = {int(message.id) for message in messages}
    cited = dict.fromkeys(int(found) for found in _CITED.findall(summary))
    evidence = [number for number in cited if number in known] or [int(anchor)]
    kept = {name: result.get(name) for name in _KEPT}
    return {**kept, "summary": summary.strip(), "evidence": evidence}


def transcript(messages: list[StoredMessage], anchor: MessageId) -> str:
    """Return the messages as text around the match, at most as long as a summary may read."""
    lines = [
        f"[{one.id}] {when(one.timestamp)} {one.message.role.value}: {one.message.display_text}" for one in messages
    ]
    middle = next((place for place, message in enumerate(messages) if message.id == anchor), 0)
    first = last = middle
    size = min(len(lines[middle]), MOST_CHARS)
    while first > 0 or last < len(lines) - 1:
        grown = False
        if first > 0 and size + len(lines[first - 1]) < MOST_CHARS:
            first, grown = first - 1, True
            size += len(lines[first]) + 1
        if last < len(lines) - 1 and size + len(lines[last + 1]) < MOST_CHARS:
            last, grown = last + 1, True
            size += len(lines[last]) + 1
        if not grown:
            break
    return "\n".join(lines[first : last + 1])[:MOST_CHARS]

"""The `session_search` tool: one schema, five modes, every answer a JSON object; a model may send any arguments."""

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.clock import from_program
from wellkept.core.errors import KeptError, ModelError, Reason, Refused, StorageError
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Session, StoredMessage
from wellkept.core.ports import Clock, Completes
from wellkept.core.search import Period, SearchRequest, Sort
from wellkept.core.text import JSON, dumps, one_line, resource_text
from wellkept.core.tools import Tool, ToolContext, ToolSchema, read_schema
from wellkept.sessions.ports import Readable
from wellkept.sessions.recall import (
    PREVIEW_CHARS,
    SNIPPET_CHARS,
    Answered,
    Caps,
    count_dropped,
    fit,
    index_shown,
    passage_shown,
    shown,
    tokens,
    unavailable,
    when,
    window_shown,
)
from wellkept.sessions.receipts import NewReceipt, shown_in
from wellkept.sessions.records import storable
from wellkept.sessions.settings import SessionSettings

if TYPE_CHECKING:
    from wellkept.sessions.search.discovery import Conversations, Match
    from wellkept.sessions.search.occurrences import Marker

Detail: TypeAlias = Literal["index", "window", "full"]

DEFAULT_LIMIT, MOST_LIMIT = 3, 10
DEFAULT_WINDOW, MOST_WINDOW = 5, 20
ROLES = ("user", "assistant", "tool", "system")
_GREATEST_ID = 2**63 - 1
FIRST, LAST = 20, 10
_BROWSED_BEFORE_MERGING = 6
_WHOLE = 5
log = logging.getLogger(__name__)
MOST_CHARS = 100_000
_MOST_WORDS_TOKENS = 700
_REACH = 200
_KEPT = ("session_id", "title", "when", "source", "model", "matched_role", "match_message_id", "snippet")
_CITED = re.compile(r"\[(\d{1,18})\]")
MOST_SUMMARIES = 8
"""How many answers may be summarised at once: each occupies a worker thread for as long as the model is silent."""
_summaries = threading.BoundedSemaphore(MOST_SUMMARIES)


class Asker(Struct, frozen=True):
    """Who searches: `hidden` are the messages that their context shows already."""

    hidden: frozenset[int]


class Asked(Struct, frozen=True):
    """The arguments of one call; absent ones are None or their default."""

    query: str | None = None
    session_id: SessionId | None = None
    around_message_id: int | None = None
    limit: int = DEFAULT_LIMIT
    listed: int = MOST_LIMIT
    """How many conversations of a time are listed: the limit if one was given."""
    window: int = DEFAULT_WINDOW
    sort: Sort | None = None
    detail: Detail = "window"
    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    project: str | None = None
    after: float | None = None
    before: float | None = None
    summarize: bool = False


class _Unreadable(ValueError):
    """An argument cannot be read; `args` are the complaint and the remedy."""


def read(arguments: Mapping[str, JSON], *, now: float) -> Asked | Refused:
    """Return the arguments, or a refusal that names the invalid one and its valid values."""
    try:
        after, before = _time_span(arguments, now=now)
        summarize = arguments.get("summarize")
        if isinstance(summarize, str):
            summarize = summarize.strip().lower() in {"true", "yes", "1"}
        return Asked(
            query=_text(arguments, "query"),
            session_id=cast("SessionId | None", _text(arguments, "session_id")),
            around_message_id=_number(arguments, "around_message_id"),
            limit=_clamp(arguments, "limit", default=DEFAULT_LIMIT, most=MOST_LIMIT),
            listed=_clamp(arguments, "limit", default=MOST_LIMIT, most=MOST_LIMIT),
            window=_clamp(arguments, "window", default=DEFAULT_WINDOW, most=MOST_WINDOW),
            sort=cast("Sort | None", _one_of(arguments, "sort", ("newest", "oldest"))),
            detail=cast("Detail", _one_of(arguments, "detail", ("index", "window", "full")) or "window"),
            roles=_roles(arguments),
            sources=_words(arguments, "source"),
            project=_text(arguments, "project"),
            after=after,
            before=before,
            summarize=summarize is True or summarize == 1,
        )
    except _Unreadable as unreadable:
        error, remedy = unreadable.args
        return Refused(Reason.INVALID, error, remedy)


def _shorten(value: JSON) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _text(arguments: Mapping[str, JSON], name: str) -> str | None:
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise _Unreadable(
            f"{name} must be a text, not {_shorten(value)}", f"give {name} as one string, or leave it out"
        )
    return storable(value).strip() or None


def _number(arguments: Mapping[str, JSON], name: str) -> int | None:
    value = arguments.get(name)
    if value is None or value == "":
        return None
    number = None
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            number = value if isinstance(value, int) else int(float(value))
    if number is None:
        raise _Unreadable(f"{name} must be a whole number, not {_shorten(value)}", f"give {name} as a number")
    return max(-_GREATEST_ID, min(_GREATEST_ID, number))


def _clamp(arguments: Mapping[str, JSON], name: str, *, default: int, most: int) -> int:
    value = _number(arguments, name)
    return default if value is None else max(1, min(most, value))


def _one_of(arguments: Mapping[str, JSON], name: str, accepted: tuple[str, ...]) -> str | None:
    value = _text(arguments, name)
    if value is None:
        return None
    if value.lower() not in accepted:
        raise _Unreadable(f"{name} is {_shorten(value)}", f"use one of: {', '.join(accepted)}; or leave it out")
    return value.lower()


def _words(arguments: Mapping[str, JSON], name: str) -> tuple[str, ...]:
    value = arguments.get(name)
    if value is None:
        return ()
    pieces = value.split(",") if isinstance(value, str) else value
    if not isinstance(pieces, (list, tuple)) or not all(isinstance(piece, str) for piece in pieces):
        raise _Unreadable(
            f"{name} must be a text or a list of texts, not {_shorten(value)}", f"give {name} as a list or with commas"
        )
    return tuple(dict.fromkeys(storable(str(piece)).strip() for piece in pieces if str(piece).strip()))


def _roles(arguments: Mapping[str, JSON]) -> tuple[str, ...]:
    words = tuple(word.lower() for word in _words(arguments, "role_filter"))
    unknown = [word for word in words if word not in ROLES]
    if unknown:
        raise _Unreadable(f"role_filter has {_shorten(unknown[0])}", f"use some of: {', '.join(ROLES)}")
    return words


def _moment(arguments: Mapping[str, JSON], name: str, *, now: float) -> float | None:
    value = arguments.get(name)
    text = _text(arguments, name)
    if text is None:
        return None
    moment = from_program(value) if isinstance(value, (int, float)) else None
    if moment is None:
        from wellkept.languages.dates import parse_moment  # lazy: few searches are given a date

        moment = parse_moment(text, now=now)
    if moment is None:
        raise _Unreadable(
            f"{name} is {_shorten(text)}, which is not a date that can be read",
            "use 2026-03-01, an ISO moment, or words like: yesterday, last week, in March, 3 days ago",
        )
    return moment


def _time_span(arguments: Mapping[str, JSON], *, now: float) -> tuple[float | None, float | None]:
    after, before = (_moment(arguments, name, now=now) for name in ("after", "before"))
    if after is not None and before is not None and after >= before:
        raise _Unreadable("after is not earlier than before", "exchange them, or leave one out")
    return after, before


def search_schema() -> ToolSchema:
    """Return the schema of the `session_search` tool."""
    return read_schema("session_search", "session_search", "wellkept.sessions", "prompts", "session_search.md")


def discover(store: Readable, asked: Asked, asker: Asker, *, budget: int) -> Answered:
    """Return the conversations that answer a question best, or those of a time, inside the budget."""
    # the search loads when it is first used
    from wellkept.sessions.search.discovery import BOOKEND, describe_unchecked, find_conversations
    from wellkept.sessions.search.occurrences import Marker

    request = SearchRequest(
        query=asked.query or "",
        limit=asked.limit,
        after=asked.after,
        before=asked.before,
        roles=asked.roles,
        sources=asked.sources,
        project=asked.project,
        session_id=asked.session_id,
        exclude_messages=asker.hidden,
    )
    window = None if asked.detail == "index" else asked.window
    conversations = find_conversations(store, request, sort=asked.sort, listed=asked.listed, window=window)
    matches, marker = conversations.matches, Marker(conversations.found.terms)
    unchecked: dict[str, JSON] = {}
    if conversations.found.unchecked:
        what = describe_unchecked(conversations.found)
        unchecked["unchecked"] = f"{what}: narrow it with after and before, or add a rarer word"

    def render(caps: Caps) -> dict[str, JSON]:
        results: list[JSON] = [
            _render_match(match, asked, caps, marker, asker.hidden) for match in matches[: caps.results]
        ]
        value: dict[str, JSON] = {"success": True, "mode": "discover", "results": results, "count": len(results)}
        left = len(matches) - len(results)
        if left:
            value["note"] = f"{left} more did not fit: ask with a smaller limit, or detail: index"
        return value | unchecked

    if matches and conversations.found.period is not None:
        answered = _list_time(conversations, conversations.found.period, budget=budget)
    elif matches:
        caps = Caps(1_500, 700, asked.window, BOOKEND, len(matches))
        answered = fit(render, caps, budget=budget, is_full=asked.detail == "full")
    else:
        value = {**_render_nothing(conversations), **unchecked}
        answered = Answered(value, tokens(dumps(value)))
    return replace(answered, found=conversations)


def _render_match(match: "Match", asked: Asked, caps: Caps, marker: "Marker", hidden: frozenset[int]) -> JSON:
    if asked.detail == "index":
        value = index_shown(match.session, match.message, marker=marker)
    else:
        value = passage_shown(match.passage, caps=caps, marker=marker, hidden=hidden)
    return value if match.superseded_by is None else {**value, "superseded_by": match.superseded_by}


def _list_time(conversations: "Conversations", period: Period, *, budget: int) -> Answered:
    """Return the conversations of a time by day, one short object each."""
    from wellkept.sessions.search.periods import by_day, describe

    rows: list[dict[str, JSON]] = [
        {
            "day": f"{day:%Y-%m-%d, %A}",
            "session_id": match.session.id,
            "title": match.session.title,
            "when": when(match.message.timestamp),
            "source": match.session.source,
            "message_count": match.session.message_count,
            "match_message_id": match.message.id,
            "snippet": one_line(match.message.message.display_text, width=SNIPPET_CHARS),
        }
        for day, matches in by_day(conversations.matches)
        for match in matches
    ]

    def render(caps: Caps) -> dict[str, JSON]:
        value: dict[str, JSON] = {"success": True, "mode": "timeline", "time": describe(period)}
        value |= {"results": [*rows[: caps.results]], "count": min(caps.results, len(rows))}
        left = len(rows) - caps.results + conversations.more
        if left > 0:
            value["note"] = f"{left} more conversations of that time: ask for a shorter time, or a greater limit"
        return value

    return fit(render, Caps(0, 0, 0, 0, len(rows)), budget=budget)


def _render_nothing(conversations: "Conversations") -> dict[str, JSON]:
    """Return an answer without results: why there are none, and the sessions that come closest."""
    mode = "discover" if conversations.found.period is None else "timeline"
    value: dict[str, JSON] = {"success": True, "mode": mode, "results": [], "count": 0}
    if conversations.reason is not None:
        value["reason"] = conversations.reason
    if conversations.nearest:
        value["nearest"] = [
            {"session_id": session.id, "title": session.title, "when": when(session.started)}
            for session in conversations.nearest
        ]
    return value


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
        results: list[JSON] = [
            {
                "session_id": session.id,
                "title": session.title,
                "source": session.source,
                "started": when(session.started),
                "last_active": when(session.last_active or session.started),
                "message_count": session.message_count,
                "preview": one_line(store.preview(session.id), width=PREVIEW_CHARS),
            }
            for session in sessions[: caps.results]
        ]
        value: dict[str, JSON] = {"success": True, "mode": "browse", "results": results, "count": len(results)}
        if not results:
            value["reason"] = "the filters excluded every recent session" if recent else "no sessions are stored yet"
        return value

    return fit(render, Caps(0, 0, 0, 0, len(sessions)), budget=budget)


def scroll(store: Readable, asked: Asked, asker: Asker, *, budget: int) -> Answered | Refused:
    """Return the window around a message; its first and last ids are the anchors for further scrolling."""
    passage = store.passage(MessageId(asked.around_message_id or 0), window=asked.window)
    if passage is None:
        return _no_message(asked)
    warning = None
    if asked.session_id is not None and asked.session_id != passage.session.id:
        if asked.session_id not in store.lineage().family(passage.session.id):
            return _no_message(asked)
        name = passage.session.id
        warning = f"message {passage.match.id} belongs to {name}, of the same conversation: that session is shown"
    if asker.hidden and all(message.id in asker.hidden for message in passage.around):
        return Refused(
            Reason.INVALID,
            "every message of that window is in your context already",
            "scroll up in this conversation, or anchor at a message outside it",
        )

    def render(caps: Caps) -> dict[str, JSON]:
        window = window_shown(passage.around, anchor=passage.match.id, caps=caps, marker=None, hidden=asker.hidden)
        dropped = count_dropped(passage, caps.window)
        value: dict[str, JSON] = {
            "success": True,
            "mode": "scroll",
            "session_id": passage.session.id,
            "title": passage.session.title,
            "messages": window,
            "count": len(window),
            "messages_before": passage.before + dropped[0],
            "messages_after": passage.after + dropped[1],
        }
        return {**value, "warning": warning} if warning else value

    return fit(render, Caps(1_500, 700, asked.window, 0, 1), budget=budget, is_full=asked.detail == "full")


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
    head_ids = {message.id for message in head}
    tail = [message for message in tail if message.id not in head_ids]

    def render(caps: Caps) -> dict[str, JSON]:
        # show fewer messages at both ends if shortening each one is not enough
        first = head if caps.window == _WHOLE else head[: 2 * caps.window + 1]
        last = tail if caps.window == _WHOLE else tail[len(tail) - caps.window :]
        return _render_session(session, first, last, chars=caps.other_chars, hidden=asker.hidden)

    return fit(render, Caps(4_000, 4_000, _WHOLE, 0, 1), budget=budget, is_full=True)


def _render_session(
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
    archive: Callable[[str], Sequence[JSON]] = lambda _query: (),
) -> Tool:
    """Return the tool over one user's store; each call opens it, so that a broken one is only an answer.

    `record` is called with the receipt of each answer, `archive` with each query; it returns entries that left the
    pages of the memory to make room. Both must not raise.
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
            answer = _answer(store, asked, context, budget=settings.answer_tokens)
            if isinstance(answer, Refused):
                return answer.as_json()
            answer = _summarize(answer, store, asked, auxiliary)
        except StorageError as error:
            return unavailable(error)
        except KeptError as error:
            return {"success": False, "error": error.message, "remedy": error.remedy}
        if record is not None and not context.incognito:
            record(_receipt(asked, context, answer, seconds=perf_counter() - began))
        entries = archive(asked.query) if asked.query is not None else ()
        return {**answer.value, "archive": list(entries)} if entries else answer.value

    return Tool(search_schema(), call)


def _summarize(answer: Answered, store: Readable, asked: Asked, auxiliary: Callable[[], Completes | None]) -> Answered:
    if not (asked.summarize and asked.query and answer.value.get("results")):
        return answer
    value = add_summaries(answer.value, store, query=asked.query, model=auxiliary())
    return replace(answer, value=value, tokens=tokens(dumps(value)))


def _receipt(asked: Asked, context: ToolContext, answer: Answered, *, seconds: float) -> NewReceipt:
    conversations = answer.found
    return NewReceipt(
        kind="search" if asked.query is not None else "tool",
        client=context.platform,
        query=asked.query or "",
        session_id=context.session_id,
        project=asked.project,
        shown=shown_in(answer.value, conversations.ranked if conversations is not None else ()),
        candidates=conversations.found.candidates if conversations is not None else 0,
        tokens=answer.tokens,
        milliseconds=seconds * 1_000,
    )


def _answer(store: Readable, asked: Asked, context: ToolContext, *, budget: int) -> Answered | Refused:
    """Return the answer of the mode that the arguments choose, without what the context shows already."""
    hidden = set(context.active_message_ids)
    if context.session_id is not None and not hidden:
        hidden.update(store.context_ids(context.session_id))
    asker = Asker(frozenset(hidden))
    has_time = asked.session_id is None and (asked.after is not None or asked.before is not None)
    if (asked.query is not None or has_time) and asked.around_message_id is None:
        return discover(store, asked, asker, budget=budget)
    if asked.around_message_id is not None:
        return scroll(store, asked, asker, budget=budget)
    if asked.session_id is not None:
        return read_session(store, asked, asker, budget=budget)
    return browse(store, asked, budget=budget)


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
    message_ids = {int(message.id) for message in messages}
    cited = dict.fromkeys(map(int, _CITED.findall(summary)))
    evidence = [message_id for message_id in cited if message_id in message_ids] or [int(anchor)]
    kept = {name: result.get(name) for name in _KEPT}
    return {**kept, "summary": summary.strip(), "evidence": evidence}


def transcript(messages: list[StoredMessage], anchor: MessageId) -> str:
    """Return the messages as text around the match, at most as long as a summary may read."""
    lines = [
        f"[{message.id}] {when(message.timestamp)} {message.message.role.value}: {message.message.display_text}"
        for message in messages
    ]
    middle = next((index for index, message in enumerate(messages) if message.id == anchor), 0)
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

"""The `session_search` tool: one schema, four modes, every answer a JSON object."""

import logging
import re
import threading
from collections.abc import Callable, Mapping
from functools import cache
from time import perf_counter

from msgspec.structs import replace

from wellkept.core.errors import KeptError, ModelError, Refused, StorageError
from wellkept.core.ids import MessageId
from wellkept.core.messages import StoredMessage
from wellkept.core.ports import Clock, Completes
from wellkept.core.text import JSON, dumps, resource_text
from wellkept.core.tools import Tool, ToolContext, search_schema
from wellkept.sessions import reading
from wellkept.sessions.arguments import Asked, Asker, read
from wellkept.sessions.ports import Readable
from wellkept.sessions.recall import Answered, tokens, unavailable, when
from wellkept.sessions.receipts import NewReceipt, shown_in
from wellkept.sessions.settings import SessionSettings


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
        return reading.scroll(store, asked, asker, budget=budget)
    if asked.session_id is not None:
        return reading.read(store, asked, asker, budget=budget)
    return reading.browse(store, asked, budget=budget)


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

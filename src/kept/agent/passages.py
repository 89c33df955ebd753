"""Passages from past conversations that answer a question, for the assistant without a model."""

from kept.agent.assistant import Passage
from kept.agent.relevance import relevances
from kept.core.clock import from_epoch
from kept.core.errors import StorageError
from kept.core.ids import SessionId
from kept.core.messages import Role, StoredMessage
from kept.core.ports import SessionStore
from kept.core.search import SearchRequest
from kept.core.text import message_source
from kept.sessions.search.snippets import Marker

MOST = 3
CHARS = 400


def look_up(store: SessionStore, question: str, besides: SessionId | None = None) -> list[Passage]:
    """Return the best passages with their dates and ids, none when the search would rather say nothing.

    The conversation `besides` which one looks is left out; the question itself is never an answer.
    """
    excluded = (besides,) if besides is not None else ()
    try:
        found = store.search(SearchRequest(question, limit=MOST * 8, exclude_sessions=excluded))
    except StorageError:
        return []
    if found.abstained:
        return []
    passages: list[Passage] = []
    seen = {" ".join(question.split()).casefold()}
    marker = Marker(found.terms)
    for hit in found.messages:
        row = next((each for each in store.window(hit.message_id, before=0, after=0)), None)
        text = " ".join(row.message.text.split()) if row is not None else ""
        if row is None or not text or text.casefold() in seen or not _is_source(store, row):
            continue
        shown = marker.around(text, width=CHARS)
        if text.endswith(("?", "？")) or relevances(question, [shown])[0] <= 0:
            continue  # a neighbour of the passage that is meant, or the same question asked before
        seen.add(text.casefold())
        when = f"{from_epoch(row.timestamp).astimezone():%Y-%m-%d}"
        who = "you" if row.message.role is Role.USER else "assistant"
        passages.append(Passage(shown, message_source(who, when, row.session_id, row.id), hit.score))
        if len(passages) == MOST:
            break
    return passages


def _is_source(store: SessionStore, row: StoredMessage) -> bool:
    """Whether a message says something of its own: tool output does not, nor this assistant quoting memory."""
    if row.message.role is Role.USER:
        return True
    session = store.session(row.session_id)
    return (
        row.message.role is Role.ASSISTANT
        and session is not None
        and (session.model is not None or session.source != "cli")
    )

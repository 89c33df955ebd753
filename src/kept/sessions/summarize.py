"""Focused summaries of found sessions by the auxiliary model, each with the message ids it rests on."""

import logging
import re
from collections.abc import Mapping
from functools import cache

from kept.core.errors import ModelError
from kept.core.ids import MessageId
from kept.core.messages import StoredMessage
from kept.core.ports import Completes
from kept.core.text import JSON, resource_text
from kept.sessions.ports import Readable
from kept.sessions.recall import said, when

log = logging.getLogger(__name__)

MOST_CHARS = 100_000
_MOST_WORDS_TOKENS = 700
_REACH = 200
_KEPT = ("session_id", "title", "when", "source", "model", "matched_role", "match_message_id", "snippet")
_CITED = re.compile(r"\[(\d{1,18})\]")


@cache
def instructions() -> str:
    """Return what the model is told."""
    return resource_text("kept.sessions", "prompts/summary.md").strip()


def summarized(answer: Mapping[str, JSON], store: Readable, *, query: str, model: Completes | None) -> dict[str, JSON]:
    """Return `answer` with one summary per result, or as it is with a note when no model gives any."""
    if model is None:
        return {**answer, "note": "no auxiliary model is configured: these are the passages themselves"}
    results = answer.get("results")
    if not isinstance(results, list):
        return dict(answer)
    try:
        summaries = [_with_summary(result, store, query=query, model=model) for result in results]
    except ModelError as error:
        log.warning("search summary failed: %s", error)
        return {**answer, "note": f"the summary failed ({error.message}): these are the passages themselves"}
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
    """Return the messages as text, the match in the middle, at most as much as a summary may read."""
    lines = [f"[{one.id}] {when(one.timestamp)} {one.message.role.value}: {said(one)}" for one in messages]
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

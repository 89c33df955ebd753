"""The `session_search` tool: one schema, four modes, every answer a JSON object."""

from collections.abc import Callable, Mapping
from functools import cache

from kept.core.errors import KeptError, Refused, StorageError
from kept.core.ports import Clock, Completes
from kept.core.text import JSON, resource_text
from kept.core.tools import Tool, ToolContext, ToolSchema
from kept.sessions import reading, summarize
from kept.sessions.arguments import MOST_LIMIT, MOST_WINDOW, ROLES, Asked, read
from kept.sessions.ports import Readable
from kept.sessions.recall import unavailable
from kept.sessions.search import discovery
from kept.sessions.search.discovery import Asker
from kept.sessions.settings import SessionSettings

NAME = "session_search"


@cache
def schema() -> ToolSchema:
    """Return the tool's schema; its text never changes within a session."""
    text = resource_text("kept.sessions", "prompts/session_search.md").strip()
    return ToolSchema(NAME, text, _PARAMETERS, "session_search")


def session_search(
    open_store: Callable[[], Readable],
    settings: SessionSettings,
    *,
    clock: Clock,
    auxiliary: Callable[[], Completes | None] = lambda: None,
) -> Tool:
    """Return the tool over one user's store; each call opens it, so that a broken one is only an answer."""

    def call(arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        asked = read(arguments, now=clock.now().timestamp())
        if isinstance(asked, Refused):
            return asked.as_json()
        try:
            store = open_store()
        except StorageError as error:
            return unavailable(error)
        try:
            answer = _answered(store, asked, _asker(store, context), budget=settings.answer_tokens)
            if asked.summarize and isinstance(answer, dict) and answer.get("results") and asked.query:
                return summarize.summarized(answer, store, query=asked.query, model=auxiliary())
        except StorageError as error:
            return unavailable(error)
        except KeptError as error:
            return {"success": False, "error": error.message, "remedy": error.remedy}
        return answer.as_json() if isinstance(answer, Refused) else answer

    return Tool(schema(), call)


def _asker(store: Readable, context: ToolContext) -> Asker:
    hidden = set(context.active_message_ids)
    if context.session_id is not None and not hidden:
        hidden.update(store.context_ids(context.session_id))
    return Asker(frozenset(hidden))


def _answered(store: Readable, asked: Asked, asker: Asker, *, budget: int) -> dict[str, JSON] | Refused:
    if asked.around_message_id is not None:
        return reading.scroll(store, asked, asker, budget=budget)
    if asked.query is not None:
        return discovery.answer(store, asked, asker, budget=budget)
    if asked.session_id is not None:
        return reading.read(store, asked, asker, budget=budget)
    return reading.browse(store, asked, budget=budget)


_PARAMETERS: Mapping[str, JSON] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "A plain question, or words to find."},
        "session_id": {"type": "string", "description": "The session to read, scroll or search inside."},
        "around_message_id": {"type": "integer", "description": "The message to scroll around."},
        "window": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_WINDOW,
            "description": "Messages on each side of the match or anchor (default 5).",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_LIMIT,
            "description": "How many sessions (default 3).",
        },
        "sort": {"type": "string", "enum": ["newest", "oldest"], "description": "By time instead of by rank."},
        "detail": {
            "type": "string",
            "enum": ["index", "window", "full"],
            "description": "index: ids, dates and snippets only. full: messages shortened only where they must be.",
        },
        "role_filter": {
            "type": "array",
            "items": {"type": "string", "enum": list(ROLES)},
            "description": "Only matches by these roles.",
        },
        "source": {"type": "string", "description": "Only sessions from this source, e.g. cli or telegram."},
        "project": {"type": "string", "description": "Only sessions of this project folder."},
        "after": {"type": "string", "description": "Only messages since then: 2026-03-01, last week, 3 days ago."},
        "before": {"type": "string", "description": "Only messages before then."},
        "summarize": {"type": "boolean", "description": "Also summarise each session with the auxiliary model."},
    },
}

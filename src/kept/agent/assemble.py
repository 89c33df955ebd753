"""Assembling a request: a copy of the history, with recalled text in the newest user message only."""

from collections.abc import Sequence

from kept.context.measure import sent
from kept.context.prune import pruned_as_marked
from kept.core.messages import ChatRequest, Message, NewMessage, Origin, Role, StoredMessage
from kept.core.text import JSON
from kept.core.tools import ToolSchema
from kept.security.fence import build_memory_context_block


def user_message(text: str, recalled: Sequence[str], *, timestamp: float) -> NewMessage:
    """Return the person's message: clean in `content`, with what was recalled in `api_content` only."""
    background = "\n\n".join(piece for piece in recalled if piece.strip())
    block = build_memory_context_block(background) if background else ""
    return NewMessage(
        Message(Role.USER, text),
        timestamp,
        Origin.PERSON,
        api_content=f"{text}\n\n{block}" if block else None,
    )


def request(
    prompt: str,
    rows: Sequence[StoredMessage],
    *,
    tools: tuple[ToolSchema, ...],
    pruning: JSON,
    conversation_id: str,
) -> ChatRequest:
    """Return the request for `rows`; the same rows always give the same bytes."""
    return ChatRequest(
        system=prompt,
        messages=sent(pruned_as_marked(rows, pruning)),
        tools=tools,
        conversation_id=conversation_id,
    )

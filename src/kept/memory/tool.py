"""The `memory` tool: how a model writes to the pages."""

from collections.abc import Mapping
from functools import cache

from kept.core.errors import KeptError, Reason, Refused, StorageError
from kept.core.ids import new_group_id
from kept.core.text import JSON, resource_text
from kept.core.tools import Tool, ToolContext, ToolSchema
from kept.memory.approval import Approvals
from kept.memory.edits import Target
from kept.memory.history import History
from kept.memory.ledger import Author
from kept.memory.objection import named_rules
from kept.memory.request import ArchiveRequest, ReadRequest, Request, WriteRequest, read_request
from kept.memory.store import MemoryStore, Outcome

MAX_FAILED_ATTEMPTS = 3
FOUND_SHOWN = 20
_COSTLY = {Reason.OVER_BUDGET, Reason.NO_MATCH, Reason.BATCH, Reason.AMBIGUOUS}
"""Refusals that a model answers by trying to consolidate; it may do so three times in a turn."""
_AGENT_ORIGINS = ("agent", "background_review")


class MemoryTool:
    """Answers calls of the `memory` tool, and stops a model that cannot make its edit fit."""

    def __init__(self, store: MemoryStore, approvals: Approvals) -> None:
        self._store = store
        self._approvals = approvals
        self._turn: tuple[object, int] = (None, 0)
        self._failed = 0

    def tool(self) -> Tool:
        """Return the tool for the agent's toolbox."""
        return Tool(schema(may_read=self._store.settings.read_action), self.call, parallel=False)

    def call(self, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        """Answer one call; bad arguments and a broken disk are answers too."""
        self._count_from_zero_in_a_new_turn(context)
        if not (self._store.settings.memory_enabled or self._store.settings.user_profile_enabled):
            return _final("Memory is disabled in the configuration.")
        if context.incognito:
            return _final("This conversation is incognito: nothing is kept.")
        request = read_request(arguments, may_read=self._store.settings.read_action)
        if isinstance(request, Refused):
            return self._refusal(request, None)
        try:
            return self._answer(request, context)
        except KeptError as error:
            return Refused(Reason.UNAVAILABLE, error.message, error.remedy).as_json()

    def _count_from_zero_in_a_new_turn(self, context: ToolContext) -> None:
        turn = (context.session_id, context.turn)
        if turn != self._turn:
            self._turn, self._failed = turn, 0

    def _answer(self, request: Request, context: ToolContext) -> Mapping[str, JSON]:
        match request:
            case ReadRequest(target):
                return self._state(target)
            case ArchiveRequest(target, query):
                found = History(self._store).archive(query, target)
                texts = [row.step.before or "" for row in found[:FOUND_SHOWN]]
                return {"success": True, "target": target.value, "archived": self._store.safe(target, texts)}
            case WriteRequest():
                return self._write(request, context)

    def _write(self, request: WriteRequest, context: ToolContext) -> Mapping[str, JSON]:
        author = Author(
            origin=context.origin,
            session_id=context.session_id,
            user_id=context.user_id,
            group_id=context.group_id or new_group_id(),
        )
        waits = self._waits(context.origin)
        outcome = (self._store.tried if waits else self._store.apply_all)(request.target, request.edits, author)
        if isinstance(outcome, Refused):
            is_held = outcome.reason is Reason.HELD
            return self._held(request, outcome, author) if is_held else self._refusal(outcome, request.target)
        if waits and outcome.change.steps:
            return self._staged(request, author)
        self._failed = 0
        return self._success(outcome)

    def _waits(self, origin: str) -> bool:
        mode = self._store.settings.write_approval
        return (mode == "all" and origin in _AGENT_ORIGINS) or (mode == "background" and origin == "background_review")

    def _staged(self, request: WriteRequest, author: Author) -> Mapping[str, JSON]:
        pending = self._approvals.stage(request.target, request.edits, author, why="approval is switched on")
        return {
            "success": True, "done": True, "staged": True, "pending_id": pending.id, "target": request.target.value,
            "message": "The write waits for the user's approval.",
            "note": f"The user accepts it with `kept memory approve {pending.id}`. Do not send it again.",
        }  # fmt: skip

    def _held(self, request: WriteRequest, refused: Refused, author: Author) -> Mapping[str, JSON]:
        names = sorted(named_rules(refused))
        pending = self._approvals.stage(request.target, request.edits, author, why="suspicious", rules=names)
        remedy = f"It waits for the user: `kept memory approve {pending.id}`. {refused.remedy}"
        return {**refused.as_json(), "held": True, "pending_id": pending.id, "remedy": remedy}

    def _success(self, outcome: Outcome) -> Mapping[str, JSON]:
        return {
            **self._state(outcome.target),
            "message": outcome.message,
            "note": outcome.note or "Durable now; the prompt shows it from the next session on.",
        }

    def _state(self, target: Target) -> dict[str, JSON]:
        page = self._store.page(target)
        return {
            "success": True,
            "done": True,
            "target": target.value,
            "usage": page.usage,
            "used_chars": len(page.text),
            "char_limit": page.limit,
            "entry_count": len(page.entries),
            "entries": self._store.safe(target, page.entries),
        }

    def _refusal(self, refused: Refused, target: Target | None) -> Mapping[str, JSON]:
        answer = refused.as_json()
        if target is not None and refused.reason in _COSTLY:
            try:
                page = self._store.page(target)
                answer |= {"current_entries": self._store.safe(target, page.entries), "usage": page.usage}
            except StorageError:
                pass  # the refusal itself is the answer; the entries would only have helped
        if refused.reason in _COSTLY:
            self._failed += 1
        if self._failed > MAX_FAILED_ATTEMPTS:
            answer |= {
                "done": True,
                "remedy": "Stop trying to save in this turn: answer the user now, and save it in a later turn.",
            }
        return answer


def _final(error: str) -> Mapping[str, JSON]:
    """Return the answer to a call that no other call can mend."""
    return {**Refused(Reason.DISABLED, error, "Do not call it again; answer without it.").as_json(), "done": True}


@cache
def schema(*, may_read: bool) -> ToolSchema:
    """Return the tool's schema; its words are a resource, byte-stable."""
    actions = ["add", "replace", "remove", *(["read", "search"] if may_read else [])]
    action: JSON = {"type": "string", "enum": list(actions), "description": "What to do with the page."}
    content: JSON = {"type": "string", "description": "The entry, for add and replace."}
    old_text: JSON = {
        "type": "string",
        "description": "A part of the one entry that is meant, for replace and remove.",
    }
    operation: JSON = {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["add", "replace", "remove"]},
            "content": content,
            "old_text": old_text,
        },
        "required": ["action"],
    }
    return ToolSchema(
        "memory",
        resource_text("kept.memory", "tool.md").strip(),
        {
            "type": "object",
            "properties": {
                "action": action,
                "target": {
                    "type": "string",
                    "enum": ["memory", "user"],
                    "description": "'memory' for your own notes, 'user' for who the user is.",
                },
                "content": content,
                "old_text": old_text,
                "operations": {
                    "type": "array",
                    "items": operation,
                    "description": "Several edits of this page, all or nothing; wins over the single action.",
                },
            },
            "required": ["target"],
        },
        "memory",
    )

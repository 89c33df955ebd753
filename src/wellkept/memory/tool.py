"""The `memory` tool: how a model reads and writes the pages."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import KeptError, Reason, Refused
from wellkept.core.ids import SourceName, new_group_id
from wellkept.core.provenance import Basis, Kind, Taint, read_source
from wellkept.core.text import JSON, resource_text
from wellkept.core.tools import Tool, ToolContext, ToolSchema, read_schema
from wellkept.memory.approval import Approvals, Held, Staged, WriteRequest, write_memory
from wellkept.memory.history import search_archive
from wellkept.memory.page import Add, Author, Edit, Page, Remove, Replace, Target, refuse_batch, subject_of
from wellkept.memory.store import MemoryStore, Outcome, find_contradicted


def memory_schema(*, has_project: bool = False) -> ToolSchema:
    """Return the schema.

    `has_project` adds the page of the project; without it the bytes are the same everywhere.
    """
    plain = read_schema("memory", "memory", "wellkept.memory", "tool.md")
    if not has_project:
        return plain
    properties = cast("Mapping[str, Mapping[str, JSON]]", plain.parameters["properties"])
    meaning = "'memory' for your own notes, 'user' for who the user is, 'project' for what holds here only."
    target: JSON = {**properties["target"], "enum": ["memory", "user", "project"], "description": meaning}
    more = resource_text("wellkept.memory", "tool_project.md").strip()
    parameters = {**plain.parameters, "properties": {**properties, "target": target}}
    return replace(plain, description=f"{plain.description}\n\n{more}", parameters=parameters)


ACTIONS = ("add", "replace", "remove")
READ_ACTIONS = ("read", "search")
PAGES = (Target.MEMORY, Target.USER)
"""The pages that there are without a project."""


class ReadRequest(Struct, frozen=True):
    """Read the live page."""

    target: Target


class ArchiveRequest(Struct, frozen=True):
    """Search the archive."""

    target: Target
    query: str


Request: TypeAlias = WriteRequest | ReadRequest | ArchiveRequest


def read_request(arguments: JSON, *, may_read: bool, targets: Sequence[Target] = PAGES) -> Request | Refused:
    """Return what the arguments ask for, or a refusal that says how to correct them."""
    if not isinstance(arguments, Mapping):
        return _invalid("The arguments must be a JSON object.", "Send an object with action, target and content.")
    target = _target(arguments.get("target"), targets)
    if isinstance(target, Refused):
        return target
    operations = arguments.get("operations")
    if operations not in (None, [], ()):
        return _batch(target, operations)
    action = _action(arguments, may_read=may_read)
    if action == "read":
        return ReadRequest(target)
    if action == "search":
        query = arguments.get("content")
        return ArchiveRequest(target, query if isinstance(query, str) else "")
    edit = _edit(action, arguments) if isinstance(action, str) else action
    return edit if isinstance(edit, Refused) else WriteRequest(target, (edit,))


def _target(value: JSON, targets: Sequence[Target]) -> Target | Refused:
    if isinstance(value, str) and value.strip().lower() in targets:
        return Target(value.strip().lower())
    remedy = "Give target 'memory' (your notes) or 'user' (who the user is)."
    if Target.PROJECT in targets:
        remedy = "Give target 'memory' (your notes), 'user' (who the user is) or 'project' (this project only)."
    return _invalid(f"`target` is {_describe(value)}.", remedy)


def _action(arguments: Mapping[str, JSON], *, may_read: bool) -> str | Refused:
    """Return the named action; without one, infer add or replace from the other arguments."""
    valid = (*ACTIONS, *READ_ACTIONS) if may_read else ACTIONS
    action = arguments.get("action")
    if isinstance(action, str) and action.strip().lower() in valid:
        return action.strip().lower()
    if action is None or action == "":
        has_content = isinstance(arguments.get("content"), str) and arguments["content"] != ""
        has_old = isinstance(arguments.get("old_text"), str) and arguments["old_text"] != ""
        if has_content:
            return "replace" if has_old else "add"
    return _invalid(f"`action` is {_describe(action)}.", f"Valid actions: {', '.join(valid)}.")


def _batch(target: Target, operations: JSON) -> WriteRequest | Refused:
    if isinstance(operations, str | bytes) or not isinstance(operations, Sequence):
        return _invalid(f"`operations` is {_describe(operations)}.", "Give an array of {action, content, old_text}.")
    edits = []
    for number, operation in enumerate(operations, start=1):
        edit = _operation(operation)
        if isinstance(edit, Refused):
            return refuse_batch(edit, number, len(operations), reason=Reason.BATCH)
        edits.append(edit)
    return WriteRequest(target, tuple(edits))


def _operation(operation: JSON) -> Edit | Refused:
    if not isinstance(operation, Mapping):
        return _invalid(f"the step is {_describe(operation)}.", "Each step is an object {action, content, old_text}.")
    action = _action(operation, may_read=False)
    return action if isinstance(action, Refused) else _edit(action, operation)


def _edit(action: str, arguments: Mapping[str, JSON]) -> Edit | Refused:
    content, old = arguments.get("content"), arguments.get("old_text")
    if action != "remove" and not isinstance(content, str):
        return _invalid(f"`content` is {_describe(content)}.", "Give the fact to keep as text in `content`.")
    if action != "add" and not (isinstance(old, str) and old.strip()):
        return _invalid(f"`old_text` is {_describe(old)}.", "Quote a part of the entry you mean in `old_text`.")
    match action:
        case "add":
            return Add(str(content))
        case "replace":
            return Replace(str(old), str(content))
        case _:
            return Remove(str(old))


def _invalid(error: str, remedy: str) -> Refused:
    return Refused(Reason.INVALID, error, remedy)


def _describe(value: JSON) -> str:
    """Describe a value for an error: short words verbatim, anything else by type, because it may be a secret."""
    match value:
        case None:
            return "missing"
        case str():
            quoted = repr(value) if len(value) <= 20 else "not one of the words"
            return quoted if value.strip() else "empty"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case Mapping():
            return "an object"
        case _:
            return "a list"


MAX_FAILED_ATTEMPTS = 3
MAX_ARCHIVE_HITS = 20
_COUNTED_REASONS = {Reason.OVER_BUDGET, Reason.NO_MATCH, Reason.BATCH, Reason.AMBIGUOUS}
"""Refusals that a model answers by trying again; after three of them in a turn the next one is final."""


_CONFLICT = (
    "An entry may say another value of the same thing. If the new one takes its place, send the edit under `conflicts`;"
    " if both hold, leave them."
)


class MemoryTool:
    """Answers calls of the `memory` tool, and stops a model that cannot make its edit fit."""

    def __init__(self, store: MemoryStore, approvals: Approvals) -> None:
        self._store = store
        self._approvals = approvals
        self._turn: tuple[object, int] = (None, 0)
        self._failed = 0

    def tool(self) -> Tool:
        """Return the tool for the agent's toolbox."""
        has_project = self._store.is_enabled(Target.PROJECT)
        own = schema(may_read=self._store.settings.read_action, has_project=has_project)
        return Tool(own, self.call, parallel=False)

    def call(self, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        """Answer one call; bad arguments and a broken disk are answers too."""
        turn = (context.session_id, context.turn)
        if turn != self._turn:
            self._turn, self._failed = turn, 0
        if not (self._store.settings.memory_enabled or self._store.settings.user_profile_enabled):
            return _final_refusal("Memory is disabled in the configuration.")
        if context.incognito:
            return _final_refusal("This conversation is incognito: nothing is kept.")
        targets = tuple(Target) if self._store.is_enabled(Target.PROJECT) else PAGES
        request = read_request(arguments, may_read=self._store.settings.read_action, targets=targets)
        if isinstance(request, Refused):
            return self._refuse(request, None)
        try:
            return self._answer(request, context)
        except KeptError as error:
            return Refused(Reason.UNAVAILABLE, error.message, error.remedy).as_json()

    def _answer(self, request: Request, context: ToolContext) -> Mapping[str, JSON]:
        match request:
            case ReadRequest(target):
                return self._state(target, self._store.page(target).entries)
            case ArchiveRequest(target, query):
                records = search_archive(self._store, query, target=target).records
                texts = [row.step.before or "" for row in records[:MAX_ARCHIVE_HITS]]
                return {"success": True, "target": target.value, "archived": self._store.mask(target, texts)}
            case WriteRequest():
                return self._write(request, context)

    def _write(self, request: WriteRequest, context: ToolContext) -> Mapping[str, JSON]:
        # the user is the store's; a context cannot name another one
        taints = self._find_taints(request, context)
        author = Author(
            origin=context.origin,
            session_id=context.session_id,
            group_id=context.group_id or new_group_id(),
            sources={text: taint.source for text, taint in taints.items()},
            unrelated=frozenset(text for text, taint in taints.items() if taint.basis is not Basis.REPEATS),
        )
        result = write_memory(self._store, self._approvals, request, author)
        if isinstance(result, Refused):
            return self._refuse(result, request.target)
        if isinstance(result, Staged | Held):
            return result.as_json()
        self._failed = 0
        note = result.outcome.note or "Durable now; the prompt shows it from the next session on."
        conflicts = self._list_conflicts(request, result.outcome)
        return {
            # as written under the lock: reading the page again could only show somebody else's next edit
            **self._state(result.outcome.target, result.outcome.change.entries),
            "message": result.outcome.message,
            "note": f"{note} {_CONFLICT}" if conflicts else note,
            **({"conflicts": conflicts} if conflicts else {}),
        }

    def _list_conflicts(self, request: WriteRequest, outcome: Outcome) -> list[JSON]:
        """Return the entries that may say another value of the same thing as what was added, each with the edit."""
        conflicts = list[JSON]()
        for step in outcome.change.steps:
            if step.action == "add" and step.after in outcome.change.entries:
                for old in find_contradicted(outcome.change.entries, step.after):
                    shown = self._store.mask(request.target, (old,))[0]
                    conflicts.append({"action": "replace", "old_text": shown, "content": step.after})
        return conflicts

    def _find_taints(self, request: WriteRequest, context: ToolContext) -> dict[str, Taint]:
        """Return the taints of a write, by text: sources read before it, and unverified entries that it repeats."""
        unverified = self._store.list_unverified(request.target, ())
        taints: dict[str, Taint] = {}
        for edit in request.edits:
            text = subject_of(edit)
            taint = context.find_taint(text)
            if unverified and not isinstance(edit, Remove) and (taint is None or taint.basis is not Basis.REPEATS):
                repeated = self._find_repeated(text, unverified, context)
                # of an agent that nobody can see into, it is not known that it read anything
                is_seen = repeated is not None and read_source(repeated).kind is not Kind.AGENT
                taint = Taint(repeated, Basis.REPEATS if is_seen else Basis.CONTEXT) if repeated is not None else taint
            if taint is not None and not self._is_of_project(taint, request.target):
                taints[text] = taint
        return taints

    @staticmethod
    def _is_of_project(taint: Taint, target: Target) -> bool:
        """Whether a text repeats the instructions of the project, and is for its own page."""
        return target is Target.PROJECT and taint.is_ambient and read_source(taint.source).kind is Kind.PROJECT

    def _find_repeated(
        self, text: str, unverified: Mapping[str, SourceName], context: ToolContext
    ) -> SourceName | None:
        """Return the source of an unverified entry that a text repeats in other words."""
        from wellkept.security.taint import echoes

        said = context.said.casefold()
        return next((source for entry, source in unverified.items() if echoes(text, entry, said)), None)

    def _state(self, target: Target, entries: tuple[str, ...]) -> dict[str, JSON]:
        page = Page(entries, self._store.limit(target))
        return {
            "success": True,
            "done": True,
            "target": target.value,
            "usage": page.usage,
            "used_chars": len(page.text),
            "char_limit": page.limit,
            "entry_count": len(page.entries),
            "entries": self._store.mask(target, page.entries, is_page=True),
        }

    def _refuse(self, refused: Refused, target: Target | None) -> Mapping[str, JSON]:
        answer = refused.as_json()
        if target is not None and refused.reason in _COUNTED_REASONS:
            page = self._store.page(target)
            answer |= {"current_entries": self._store.mask(target, page.entries), "usage": page.usage}
        if refused.reason in _COUNTED_REASONS:
            self._failed += 1
        if self._failed > MAX_FAILED_ATTEMPTS:
            answer |= {
                "done": True,
                "remedy": "Stop trying to save in this turn: answer the user now, and save it in a later turn.",
            }
        return answer


def _final_refusal(error: str) -> Mapping[str, JSON]:
    """Return the answer to a call that no retry can change."""
    return {**Refused(Reason.DISABLED, error, "Do not call it again; answer without it.").as_json(), "done": True}


@cache
def schema(*, may_read: bool, has_project: bool = False) -> ToolSchema:
    """Return the tool's schema, with `read` and `search` where the settings allow them, and with the project's page."""
    plain = memory_schema(has_project=has_project)
    if not may_read:
        return plain
    properties = cast("Mapping[str, Mapping[str, JSON]]", plain.parameters["properties"])
    action = {**properties["action"], "enum": [*ACTIONS, *READ_ACTIONS]}
    return replace(plain, parameters={**plain.parameters, "properties": {**properties, "action": action}})

"""Reading the arguments of the `memory` tool: whatever a model sends becomes a request or a refusal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kept.core.errors import Reason, Refused
from kept.core.text import JSON
from kept.memory.budget import in_batch
from kept.memory.edits import Add, Edit, Remove, Replace, Target

ACTIONS = ("add", "replace", "remove")
READ_ACTIONS = ("read", "search")


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """Edits of one page; a batch when there are several."""

    target: Target
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A look at the live page."""

    target: Target


@dataclass(frozen=True, slots=True)
class ArchiveRequest:
    """A look into the archive."""

    target: Target
    query: str


Request: TypeAlias = WriteRequest | ReadRequest | ArchiveRequest


def read_request(arguments: JSON, *, may_read: bool) -> Request | Refused:
    """Return what the arguments ask for, or a refusal with the instruction that mends them."""
    if not isinstance(arguments, Mapping):
        return _invalid("The arguments must be a JSON object.", "Send an object with action, target and content.")
    target = _target(arguments.get("target"))
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


def _target(value: JSON) -> Target | Refused:
    if isinstance(value, str) and value.strip().lower() in set(Target):
        return Target(value.strip().lower())
    return _invalid(f"`target` is {_shown(value)}.", "Give target 'memory' (your notes) or 'user' (who the user is).")


def _action(arguments: Mapping[str, JSON], *, may_read: bool) -> str | Refused:
    """Return the action that is named or, where none is, the one that is plainly meant."""
    valid = (*ACTIONS, *READ_ACTIONS) if may_read else ACTIONS
    action = arguments.get("action")
    if isinstance(action, str) and action.strip().lower() in valid:
        return action.strip().lower()
    if action is None or action == "":
        has_content = isinstance(arguments.get("content"), str) and arguments["content"] != ""
        has_old = isinstance(arguments.get("old_text"), str) and arguments["old_text"] != ""
        if has_content:
            return "replace" if has_old else "add"
    return _invalid(f"`action` is {_shown(action)}.", f"Valid actions: {', '.join(valid)}.")


def _batch(target: Target, operations: JSON) -> WriteRequest | Refused:
    if isinstance(operations, str | bytes) or not isinstance(operations, Sequence):
        return _invalid(f"`operations` is {_shown(operations)}.", "Give an array of {action, content, old_text}.")
    edits = []
    for number, operation in enumerate(operations, start=1):
        edit = _operation(operation)
        if isinstance(edit, Refused):
            return in_batch(edit, number, len(operations), reason=Reason.BATCH)
        edits.append(edit)
    return WriteRequest(target, tuple(edits))


def _operation(operation: JSON) -> Edit | Refused:
    if not isinstance(operation, Mapping):
        return _invalid(f"the step is {_shown(operation)}.", "Each step is an object {action, content, old_text}.")
    action = _action(operation, may_read=False)
    return action if isinstance(action, Refused) else _edit(action, operation)


def _edit(action: str, arguments: Mapping[str, JSON]) -> Edit | Refused:
    content, old = arguments.get("content"), arguments.get("old_text")
    if action != "remove" and not isinstance(content, str):
        return _invalid(f"`content` is {_shown(content)}.", "Give the fact to keep as text in `content`.")
    if action != "add" and not (isinstance(old, str) and old.strip()):
        return _invalid(f"`old_text` is {_shown(old)}.", "Quote a part of the one entry that is meant in `old_text`.")
    match action:
        case "add":
            return Add(str(content))
        case "replace":
            return Replace(str(old), str(content))
        case _:
            return Remove(str(old))


def _invalid(error: str, remedy: str) -> Refused:
    return Refused(Reason.INVALID, error, remedy)


def _shown(value: JSON) -> str:
    """Return a value's kind, or a word as it is; no longer text, because it may be a secret."""
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

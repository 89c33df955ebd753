"""A write that waits for a person, and how it is written down."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never

from kept.core.clock import from_epoch, iso
from kept.core.text import JSON
from kept.memory.edits import Add, Edit, Remove, Replace, Target
from kept.memory.page import preview


@dataclass(frozen=True, slots=True)
class Pending:
    """One write that waits: what it would do, who asked for it, and why it waits."""

    id: str
    created: float
    target: Target
    edits: tuple[Edit, ...]
    origin: str
    why: str
    rules: tuple[str, ...] = ()
    session_id: str | None = None
    user_id: str = "owner"

    @property
    def summary(self) -> str:
        """Return what it would do, on one line."""
        return "; ".join(_described(edit) for edit in self.edits)

    @property
    def texts(self) -> list[str]:
        """Return the texts that it would put on the page."""
        return [edit.text for edit in self.edits if isinstance(edit, Add | Replace)]

    def as_json(self) -> dict[str, JSON]:
        """Return it as its file and the command line show it."""
        return {
            "id": self.id,
            "created": iso(from_epoch(self.created)),
            "target": self.target.value,
            "operations": [_operation(edit) for edit in self.edits],
            "origin": self.origin,
            "why": self.why,
            "rules": list(self.rules),
            "session_id": self.session_id,
            "user_id": self.user_id,
        }


def pending_from(pending_id: str, data: Mapping[str, Any]) -> Pending:
    """Return the write that `as_json` gave; raises ValueError, KeyError or TypeError for anything else."""
    return Pending(
        id=pending_id,
        created=datetime.fromisoformat(data["created"]).timestamp(),
        target=Target(data["target"]),
        edits=tuple(_edit(operation) for operation in data["operations"]),
        origin=data["origin"],
        why=data["why"],
        rules=tuple(data["rules"]),
        session_id=data["session_id"],
        user_id=data["user_id"],
    )


def _described(edit: Edit) -> str:
    match edit:
        case Add(text):
            return f"add: {preview(text)}"
        case Replace(needle, text):
            return f"replace {preview(needle)!r} with: {preview(text)}"
        case Remove(needle):
            return f"remove: {preview(needle)}"
        case _:
            assert_never(edit)


def _operation(edit: Edit) -> dict[str, JSON]:
    match edit:
        case Add(text):
            return {"action": "add", "content": text}
        case Replace(needle, text):
            return {"action": "replace", "old_text": needle, "content": text}
        case Remove(needle):
            return {"action": "remove", "old_text": needle}
        case _:
            assert_never(edit)


def _edit(operation: Mapping[str, str]) -> Edit:
    match operation:
        case {"action": "add", "content": str(content)}:
            return Add(content)
        case {"action": "replace", "old_text": str(old), "content": str(content)}:
            return Replace(old, content)
        case {"action": "remove", "old_text": str(old)}:
            return Remove(old)
        case _:
            raise ValueError(f"not an operation: {operation!r}")

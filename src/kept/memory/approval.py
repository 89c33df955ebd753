"""Writes that wait for a person: staged as files, approved through the same checks, never lost."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, assert_never

from kept.core.clock import from_epoch, iso
from kept.core.errors import NotFound, Refused, StorageError
from kept.core.events import MemoryStaged
from kept.core.ids import SessionId, UserId, random_hex
from kept.core.text import JSON, dumps
from kept.memory.edits import Add, Author, Edit, Remove, Replace, Target
from kept.memory.page import preview
from kept.memory.store import MemoryStore, Outcome
from kept.memory.threats import held_rules
from kept.storage.files import make_folder, read_bytes, write_atomically


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


DAY_SECONDS = 86_400


class Approvals:
    """The folder `pending/memory/`."""

    def __init__(self, folder: Path, store: MemoryStore) -> None:
        self._folder = folder
        self._store = store

    def stage(
        self, target: Target, edits: Sequence[Edit], author: Author, *, why: str, rules: Sequence[str] = ()
    ) -> Pending:
        """Keep a write until a person decides; the same write waits only once."""
        for waiting in self.waiting():
            if waiting.target is target and waiting.edits == tuple(edits):
                return waiting
        pending = Pending(
            random_hex(4), self._store.clock.now().timestamp(), target, tuple(edits), author.origin, why,
            tuple(rules), author.session_id, author.user_id,
        )  # fmt: skip
        make_folder(self._folder)
        write_atomically(self._path(pending.id), dumps(pending.as_json(), indent=2).encode())
        self._store.tell(MemoryStaged(pending.id, target, pending.summary, author.origin, session_id=author.session_id))
        return pending

    def waiting(self) -> list[Pending]:
        """Return what waits, oldest first; expired writes have gone to the archive."""
        if not self._folder.is_dir():
            return []
        found = [pending for path in self._folder.glob("*.json") if (pending := _read(path)) is not None]
        deadline = self._store.clock.now().timestamp() - self._store.settings.pending_days * DAY_SECONDS
        for pending in found:
            if pending.created < deadline:
                with suppress(StorageError):  # it goes on waiting: nothing is thrown away that could not be archived
                    self._archive(pending, "expired")
        return sorted((p for p in found if p.created >= deadline), key=lambda p: (p.created, p.id))

    def find(self, pending_id: str) -> Pending:
        """Return one waiting write, or raise NotFound."""
        for pending in self.waiting():
            if pending.id == pending_id:
                return pending
        raise NotFound(f"nothing waits under the id {pending_id!r}", "`kept memory pending` lists what waits")

    def approve(self, pending_id: str) -> Outcome | Refused:
        """Check the write again and apply it; what a person approves may match hold rules, never block rules."""
        pending = self.find(pending_id)
        passing = held_rules(pending.texts)
        if isinstance(passing, Refused):
            return passing
        author = Author(
            origin="approval",
            session_id=SessionId(pending.session_id) if pending.session_id else None,
            user_id=UserId(pending.user_id),
            reason=f"{pending.origin}: {pending.why}",
            allow=passing | set(pending.rules),
        )
        outcome = self._store.apply_all(pending.target, pending.edits, author)
        if isinstance(outcome, Outcome):
            self._path(pending.id).unlink(missing_ok=True)
        return outcome

    def reject(self, pending_id: str) -> Pending | Refused:
        """Turn a write down; its text goes to the archive, and until that worked it goes on waiting."""
        pending = self.find(pending_id)
        return self._archive(pending, "rejected") or pending

    def discard(self, pending_id: str) -> None:
        """Remove a waiting write for good; its text goes nowhere."""
        self._path(pending_id).unlink(missing_ok=True)

    def _archive(self, pending: Pending, reason: str) -> Refused | None:
        result = self._store.archive(pending.target, pending.texts, Author(origin="approval", reason=reason))
        if isinstance(result, Refused):
            return result
        self._path(pending.id).unlink(missing_ok=True)
        return None

    def _path(self, pending_id: str) -> Path:
        return self._folder / f"{pending_id}.json"


def unreadable_pending(folder: Path) -> list[Path]:
    """Return the files among the waiting writes that cannot be read as one."""
    return [path for path in sorted(folder.glob("*.json")) if _read(path) is None] if folder.is_dir() else []


def _read(path: Path) -> Pending | None:
    try:
        return pending_from(path.stem, json.loads(read_bytes(path) or b"null"))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, StorageError):
        return None  # a file that is not ours, or half of one; `kept doctor` lists it

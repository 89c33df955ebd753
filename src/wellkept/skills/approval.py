"""Changes of skills that wait for a person's approval."""

import json
import re
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct, field

from wellkept.core.clock import iso
from wellkept.core.errors import Reason, Refused
from wellkept.core.ids import random_hex
from wellkept.core.ports import Clock, Documents
from wellkept.core.values import asdict
from wellkept.skills.changes import Author, Change, Changed, action_of
from wellkept.skills.editor import SkillEditor
from wellkept.storage.documents import FolderDocuments

_ID = re.compile(r"[0-9a-f]{8}")


class PendingChange(Struct, frozen=True, forbid_unknown_fields=True):
    """One staged change."""

    id: str
    created_at: str
    action: str
    change: Change
    origin: str
    session_id: str | None = None
    rules: tuple[str, ...] = ()
    """The guard's rules that matched, for the person who decides."""
    findings: tuple[str, ...] = field(default=())
    source: str = ""
    """The untrusted source that the author had read before the change."""


class PendingSkills:
    """The staged changes of one user, one file each."""

    def __init__(self, folder: Path | Documents, clock: Clock, *, days: int = 30) -> None:
        self._documents = FolderDocuments(folder) if isinstance(folder, Path) else folder
        self._clock = clock
        self._days = days

    def stage(
        self, change: Change, author: Author, *, rules: tuple[str, ...] = (), findings: tuple[str, ...] = ()
    ) -> str:
        """Stage `change` and return its id; an identical change that is already staged keeps its id."""
        again = next((item.id for item in self.waiting() if item.change == change), None)
        if again is not None:
            return again
        waiting_id = random_hex(4)
        row = {
            "id": waiting_id, "created_at": iso(self._clock.now()),
            "action": action_of(change), "change": asdict(change),
            "origin": author.origin, "session_id": author.session_id, "rules": rules, "findings": findings,
            **({"source": author.source} if author.source else {}),
        }  # fmt: skip
        self._documents.write(f"{waiting_id}.json", json.dumps(row, ensure_ascii=False, indent=1).encode())
        return waiting_id

    def waiting(self) -> list[PendingChange]:
        """Return the staged changes, oldest first; move expired ones to `expired/`."""
        found = []
        for name in self._documents.names(".json"):
            item = _read(self._documents.read(name))
            if item is None:
                continue
            if datetime.fromisoformat(item.created_at) + timedelta(days=self._days) < self._clock.now():
                self._documents.move(name, f"expired/{name}")
            else:
                found.append(item)
        return sorted(found, key=lambda item: (item.created_at, item.id))

    def count(self) -> int:
        """Return how many documents there are, without reading them."""
        return len(self._documents.names(".json"))

    def approve(self, waiting_id: str, editor: SkillEditor) -> Changed | Refused:
        """Apply the change with all checks except the guard, which the person's approval overrides."""
        item = self._get(waiting_id)
        if isinstance(item, Refused):
            return item
        result = editor.apply(
            item.change, Author("approval", item.session_id, reason=f"approved {waiting_id}", source=item.source)
        )
        if isinstance(result, Changed):
            self._documents.remove(f"{waiting_id}.json")
        return result

    def reject(self, waiting_id: str) -> PendingChange | Refused:
        """Move the change to `rejected/`, where a person can still find it."""
        item = self._get(waiting_id)
        if isinstance(item, PendingChange):
            self._documents.move(f"{waiting_id}.json", f"rejected/{waiting_id}.json")
        return item

    def discard(self, waiting_id: str) -> None:
        """Remove a change for good, wherever it is."""
        self._documents.remove(f"{waiting_id}.json")

    def _get(self, waiting_id: str) -> PendingChange | Refused:
        item = _read(self._documents.read(f"{waiting_id}.json")) if _ID.fullmatch(waiting_id) else None
        if item is None:
            return Refused(
                Reason.NO_MATCH,
                f"no change with the id {waiting_id[:40]!r} waits for approval",
                "`kept skills pending` lists the ids",
            )
        return item


def _read(raw: bytes | None) -> PendingChange | None:
    try:
        row = json.loads(raw or b"")
        row["change"]["type"] = row["action"]
        return msgspec.convert(row, PendingChange)
    except (ValueError, KeyError, TypeError):  # of msgspec too
        return None

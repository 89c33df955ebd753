"""Writes that wait for approval: staging, approving, rejecting and expiring them."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, assert_never

import msgspec
from msgspec import Struct, field

from wellkept.core.clock import iso_moment
from wellkept.core.errors import NotFound, Reason, Refused, StorageError
from wellkept.core.events import MemoryStaged
from wellkept.core.ids import OWNER, SessionId, SourceName, random_hex
from wellkept.core.ports import Documents
from wellkept.core.text import JSON, dumps
from wellkept.memory.page import OF_AGENT, Add, Author, Edit, Remove, Replace, Target, preview, subject_of
from wellkept.memory.store import MemoryStore, Outcome, rules_in, rules_to_approve
from wellkept.storage.documents import FolderDocuments

DAY_SECONDS = 86_400


class Pending(Struct, frozen=True):
    """One waiting write: its edits, its author, and the reason why it waits."""

    id: str
    created: float
    target: Target
    edits: tuple[Edit, ...]
    origin: str
    why: str
    rules: tuple[str, ...] = ()
    session_id: str | None = None
    user_id: str = OWNER
    project: str | None = None
    """The folder of the project's page that it would change."""
    sources: Mapping[str, SourceName] = field(default_factory=dict)
    """Where its texts came from, by text."""

    @property
    def summary(self) -> str:
        """Return what it would do, on one line."""
        return "; ".join(_describe(edit) for edit in self.edits)

    @property
    def texts(self) -> list[str]:
        """Return the texts that it would put on the page."""
        return [edit.text for edit in self.edits if isinstance(edit, Add | Replace)]

    def as_json(self) -> dict[str, JSON]:
        """Return it as its file and `kept memory pending --json` show it."""
        return {
            "id": self.id,
            "created": iso_moment(self.created),
            "target": self.target.value,
            "operations": list(msgspec.to_builtins(self.edits)),
            "origin": self.origin,
            "why": self.why,
            "rules": list(self.rules),
            "session_id": self.session_id,
            "user_id": self.user_id,
            **({"project": self.project} if self.project is not None else {}),
            **({"sources": dict(self.sources)} if self.sources else {}),
        }


class Rejected(Struct, frozen=True):
    """A write that a person rejected."""

    pending: Pending

    def as_json(self) -> dict[str, JSON]:
        """Return the result as `kept memory reject --json` prints it."""
        return {"success": True, "rejected": self.pending.id}


class Approvals:
    """The waiting writes of one user, in the folder `pending/memory/`."""

    def __init__(self, folder: Path | Documents, store: MemoryStore) -> None:
        self._documents = FolderDocuments(folder) if isinstance(folder, Path) else folder
        self._store = store

    def for_store(self, store: MemoryStore) -> "Approvals":
        """Return the same waiting writes over the pages of another project."""
        return Approvals(self._documents, store)

    def stage(
        self, target: Target, edits: Sequence[Edit], author: Author, *, why: str, rules: Sequence[str] = ()
    ) -> Pending:
        """Store a write until a person decides; an identical one is stored only once."""
        for earlier in self.waiting():
            own = self._store.project if target is Target.PROJECT else None
            if (earlier.target, earlier.project, earlier.edits) == (target, own, tuple(edits)):
                return earlier
        pending = Pending(
            random_hex(4), self._store.clock.now().timestamp(), target, tuple(edits), author.origin, why,
            tuple(rules), author.session_id, self._store.user,
            self._store.project if target is Target.PROJECT else None, dict(author.sources),
        )  # fmt: skip
        self._documents.write(f"{pending.id}.json", dumps(pending.as_json(), indent=2).encode())
        self._store.sink(MemoryStaged(pending.id, target, pending.summary, author.origin, session_id=author.session_id))
        return pending

    def waiting(self, target: Target | None = None) -> list[Pending]:
        """Return the waiting writes, oldest first; move expired ones to the archive."""
        names = self._documents.names(".json")
        writes = [pending for name in names if (pending := self._read(name)) is not None]
        deadline = self._store.clock.now().timestamp() - self._store.settings.pending_days * DAY_SECONDS
        for pending in writes:
            if pending.created < deadline:
                with suppress(StorageError):  # its file stays until its text is in the archive
                    self._archive(pending, "expired")
        current = [write for write in writes if write.created >= deadline and target in (None, write.target)]
        return sorted(current, key=lambda write: (write.created, write.id))

    def choose(self, which: str, target: Target | None = None) -> list[str] | Refused:
        """Return the ids that `which` means: itself, or every waiting write for `all`."""
        ids = [pending.id for pending in self.waiting(target)] if which == "all" else [which]
        if not ids:
            return Refused(Reason.NO_MATCH, "Nothing waits for approval.", "`kept memory pending` lists what waits.")
        return ids

    def find(self, pending_id: str) -> Pending:
        """Return one waiting write, or raise NotFound."""
        for pending in self.waiting():
            if pending.id == pending_id:
                return pending
        raise NotFound(
            f"no write with the id {pending_id!r} waits for approval", "`kept memory pending` lists what waits"
        )

    def approve(self, pending_id: str) -> Outcome | Refused:
        """Check the write again and apply it; approval overrides hold rules of the scanner, never block rules."""
        pending = self.find(pending_id)
        rules = rules_to_approve(pending.texts)
        if isinstance(rules, Refused):
            return rules
        author = Author(
            origin="approval",
            session_id=SessionId(pending.session_id) if pending.session_id else None,
            reason=f"{pending.origin}: {pending.why}",
            allow=rules | set(pending.rules),
            sources=pending.sources,
        )
        outcome = self._store_of(pending).apply_all(pending.target, pending.edits, author)
        if isinstance(outcome, Outcome):
            self.discard(pending.id)
        return outcome

    def reject(self, pending_id: str) -> Rejected | Refused:
        """Reject a write and move its text to the archive; if that fails, it keeps waiting."""
        pending = self.find(pending_id)
        return self._archive(pending, "rejected") or Rejected(pending)

    def discard(self, pending_id: str) -> None:
        """Delete a waiting write without archiving its text."""
        self._documents.remove(f"{pending_id}.json")

    def _archive(self, pending: Pending, reason: str) -> Refused | None:
        store = self._store_of(pending)
        # that an entry shall stay is recorded too, so that its removal is not proposed again
        kept = [edit.needle for edit in pending.edits if isinstance(edit, Remove)]
        texts = pending.texts or [text for text in kept if text in store.entries(pending.target)]
        result = store.archive(pending.target, texts, Author(origin="approval", reason=reason, sources=pending.sources))
        if isinstance(result, Refused):
            return result
        self.discard(pending.id)
        return None

    def _store_of(self, pending: Pending) -> MemoryStore:
        """Return the memory that has the page of this write, which may belong to another project."""
        return self._store.for_project(pending.project) if pending.target is Target.PROJECT else self._store

    def count(self) -> int:
        """Return how many documents there are, without reading them."""
        return len(self._documents.names(".json"))

    def list_unreadable(self) -> list[str]:
        """Return the names of documents that cannot be read as a waiting write."""
        return [name for name in self._documents.names(".json") if self._read(name) is None]

    def _read(self, name: str) -> Pending | None:
        try:
            return read_pending(name.removesuffix(".json"), json.loads(self._documents.read(name) or b"null"))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, StorageError):
            return None  # another program's file, or an incomplete one; `kept doctor` lists it


class WriteRequest(Struct, frozen=True):
    """Edits of one page; a batch when there are several."""

    target: Target
    edits: tuple[Edit, ...]


class Written(Struct, frozen=True):
    """The edits are on the page."""

    outcome: Outcome

    def as_json(self) -> dict[str, JSON]:
        """Return the outcome of the edit."""
        return self.outcome.as_json()


class Staged(Struct, frozen=True):
    """The settings make this write wait for approval."""

    pending: Pending

    def as_json(self) -> dict[str, JSON]:
        """Return a success that names the pending id."""
        return {
            "success": True, "done": True, "staged": True, "pending_id": self.pending.id,
            "target": self.pending.target.value, "message": "The write waits for the user's approval.",
            "note": "Only the user can decide it, outside this conversation. Do not send it again.",
        }  # fmt: skip


class Held(Struct, frozen=True):
    """The scanner found the text suspicious, so it waits for a person."""

    pending: Pending
    refused: Refused

    def as_json(self) -> dict[str, JSON]:
        """Return a refusal that names the rules and the pending id."""
        remedy = f"It waits for the user, who alone can decide it. {self.refused.remedy}"
        return {**self.refused.as_json(), "held": True, "pending_id": self.pending.id, "remedy": remedy}


def write_memory(
    store: MemoryStore, approvals: Approvals, request: WriteRequest, author: Author
) -> Written | Staged | Held | Refused:
    """Apply edits, or stage them if the settings or the scanner require a person's decision.

    Called by the agent's tool and by surfaces that cannot ask a person. A terminal asks the person directly: there
    `store.apply` is enough, because its refusal says that the text is held.
    """
    unsafe = _refuse_untrusted(store, request, author) if author.sources else None
    waits = unsafe is not None or needs_approval(store, author.origin)
    apply = store.dry_run if waits else store.apply_all
    outcome = apply(request.target, request.edits, author)
    if isinstance(outcome, Outcome) and outcome.change.steps and unsafe is not None:
        outcome = unsafe
    if isinstance(outcome, Refused):
        if outcome.reason is not Reason.HELD:
            return outcome
        rules = sorted(rules_in(outcome))
        why = "suspicious" if outcome is not unsafe else outcome.error
        pending = approvals.stage(request.target, request.edits, author, why=why, rules=rules)
        return Held(pending, outcome)
    if waits and outcome.change.steps:
        return Staged(approvals.stage(request.target, request.edits, author, why="approval is switched on"))
    return Written(outcome)


def _refuse_untrusted(store: MemoryStore, request: WriteRequest, author: Author) -> Refused | None:
    """Return why a person must decide: the author had read something untrusted; None if no decision is needed."""
    from wellkept.core.provenance import Basis, Taint, describe, read_source
    from wellkept.security.taint import Verdict, find_risks, judge

    policy = store.settings.untrusted
    for edit in request.edits:
        text = subject_of(edit)
        source = author.sources.get(text)
        # a verified entry must not be changed because of what a page or a tool said
        takes_away = not isinstance(edit, Add) and policy == "hold" and _is_verified(store, request.target, edit.needle)
        if source is None:
            continue
        taint = Taint(source, Basis.CONTEXT if text in author.unrelated else Basis.REPEATS)
        is_held = judge(text, taint, policy) is Verdict.HOLD
        if not (is_held or (takes_away and not read_source(source).is_own)):
            continue
        named = ", ".join(find_risks(text)) if is_held else "a change of an entry"
        return Refused(
            Reason.HELD,
            f"It was written after reading {describe(source)}, and names what could do harm: {named}.",
            "Tell the user what you would save and why; do not send it again.",
            {"source": source},
        )
    return None


def _is_verified(store: MemoryStore, target: Target, needle: str) -> bool:
    unverified = store.list_unverified(target)
    return any(needle.strip() in entry and entry not in unverified for entry in store.page(target).entries)


def needs_approval(store: MemoryStore, origin: str) -> bool:
    """Whether the settings require a person's approval for writes of this origin."""
    match store.settings.write_approval:
        case "off":
            return False
        case "background":
            return origin == "background_review"
        case "all":
            return origin in OF_AGENT


def read_pending(pending_id: str, data: Mapping[str, Any]) -> Pending:
    """Return the write that `as_json` described; raises ValueError, KeyError or TypeError for anything else."""
    return Pending(
        id=pending_id,
        created=datetime.fromisoformat(data["created"]).timestamp(),
        target=Target(data["target"]),
        edits=msgspec.convert(data["operations"], tuple[Edit, ...]),
        origin=data["origin"],
        why=data["why"],
        rules=tuple(data["rules"]),
        session_id=data["session_id"],
        user_id=data["user_id"],
        project=str(data["project"]) if data["target"] == Target.PROJECT else None,
        sources={str(text): SourceName(str(source)) for text, source in data.get("sources", {}).items()},
    )


def _describe(edit: Edit) -> str:
    match edit:
        case Add(text):
            return f"add: {preview(text)}"
        case Replace(needle, text):
            return f"replace {preview(needle)!r} with: {preview(text)}"
        case Remove(needle):
            return f"remove: {preview(needle)}"
        case _:
            assert_never(edit)

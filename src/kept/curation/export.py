"""Everything stored about one user, as JSON lines: the counterpart of forgetting them."""

from collections.abc import Iterator

from kept.core.text import JSON
from kept.memory.approval import Approvals
from kept.memory.edits import Target, undone_ids
from kept.memory.history import History
from kept.memory.store import MemoryStore
from kept.sessions.ports import Sessions


def export_lines(sessions: Sessions, memory: MemoryStore, approvals: Approvals) -> Iterator[dict[str, JSON]]:
    """Yield a user's conversations as `sessions export` does, then pages, edits and pending writes with their type."""
    yield from sessions.transfer.export()
    rows = History(memory).rows()
    undone = undone_ids(rows)
    for target in Target:
        entries = memory.entries(target)
        if entries:
            yield {"type": "page", "target": target.value, "entries": [*entries]}
    for row in rows:
        yield {"type": "edit", **row.as_json(is_undone=row.id in undone)}
    for pending in approvals.waiting():
        yield {"type": "pending", **pending.as_json()}

"""Everything of one user as lines: the counterpart of forgetting them."""

from collections.abc import Iterator

from kept.core.ids import OWNER, UserId
from kept.core.text import JSON
from kept.memory.approval import Approvals
from kept.memory.edits import Target, undone_ids
from kept.memory.history import History
from kept.memory.store import MemoryStore
from kept.sessions.ports import Sessions


def export_user(
    sessions: Sessions, memory: MemoryStore, approvals: Approvals, *, user: UserId
) -> Iterator[dict[str, JSON]]:
    """Yield the user's conversations as `sessions export` does, then pages, edits and what waits, each with its type.

    The pages of the home are the owner's; of another user they show what the ledger traces to that user.
    """
    yield from sessions.for_user(user).transfer.exported()
    history = History(memory)
    rows = history.rows()
    gone = undone_ids(rows)
    own = [row for row in rows if (row.user_id or OWNER) == user]
    traced = {(row.target, row.step.after) for row in own}
    for target in Target:
        entries = [entry for entry in memory.entries(target) if user == OWNER or (target, entry) in traced]
        if entries:
            yield {"type": "page", "target": target.value, "entries": [*entries]}
    for row in own:
        yield {"type": "edit", **row.as_json(is_undone=row.id in gone)}
    for pending in approvals.waiting():
        if pending.user_id == user:
            yield {"type": "pending", **pending.as_json()}

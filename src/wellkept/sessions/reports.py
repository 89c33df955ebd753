"""Plans and reports of the store: forgetting, checks and repairs, pruning, imports, usage.

Plans and reports of forgetting contain counts and ids, never content.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct, field

from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Session, Usage
from wellkept.core.text import JSON
from wellkept.core.values import JsonStruct, hide

BLANK = "[forgotten]"
MOST_REPORTED = 200


class ForgetPlan(Struct, frozen=True):
    """What forgetting would remove from the session store."""

    sessions: tuple[SessionId, ...] = ()
    messages: tuple[MessageId, ...] = ()
    """Single messages of sessions that stay."""
    summaries: tuple[MessageId, ...] = ()
    """Summaries, in sessions that stay, of removed content."""
    citing: tuple[MessageId, ...] = ()
    """Search results and sent texts, in sessions that stay, that show removed content."""
    nodes: tuple[int, ...] = ()
    titles: tuple[SessionId, ...] = ()
    """Sessions that stay but whose title shows removed content."""
    renamed: tuple[SessionId, ...] = ()
    """Sessions that stay but get a neutral id, because theirs holds the words."""
    message_count: int = 0
    blob_count: int = 0
    vector_count: int = 0
    """Messages whose vectors are removed."""
    texts: tuple[str, ...] = ()
    """The words to forget; never shown or stored."""

    __repr__ = hide("texts")

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to forget."""
        return not (self.sessions or self.messages or self.titles or self.nodes or self.renamed)

    def as_json(self) -> dict[str, JSON]:
        """Return the plan without any content."""
        return {
            "sessions": list(self.sessions),
            "messages": self.message_count,
            "single_messages": [int(message_id) for message_id in self.messages],
            "blobs": self.blob_count,
            "index_rows": self.message_count,
            "vectors": self.vector_count,
            "summaries": len(self.summaries),
            "nodes": len(self.nodes),
            "cited_elsewhere": len(self.citing),
            "titles": len(self.titles),
            "session_ids": len(self.renamed),
        }


class ForgetReport(JsonStruct, frozen=True):
    """What was removed, and whether a search still finds it."""

    sessions: int
    messages: int
    blobs: int
    summaries: int
    nodes: int
    cited_elsewhere: int
    still_found: int
    """Messages that a search still found afterwards; anything but 0 is a fault."""
    bytes_gone: bool
    """False while a reader keeps the log; it is emptied at the next open."""
    vectors: int = 0

    def as_json(self) -> dict[str, JSON]:
        """Return the report for programs."""
        return {**super().as_json(), "index_rows": self.messages}


class Finding(Struct, frozen=True):
    """Something that is wrong, and what to do about it."""

    what: str
    remedy: str
    is_lost: bool = False
    """Whether no repair can bring back what is damaged: it is only named."""


class Salvaged(Struct):
    """What was copied from a damaged file, and the names of what is damaged or lost, by table."""

    rows: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, list[str]] = field(default_factory=dict)
    """Rows that were copied as far as they can be read."""
    lost: dict[str, list[str]] = field(default_factory=dict)
    """Rows of which only the entry in an index is left."""
    pages: dict[str, list[int]] = field(default_factory=dict)
    """Pages of each table that cannot be read, or only in part while no index lists their rows."""
    missing_pages: int = 0
    """Pages that the header counts but that are missing, because the file was cut off."""
    restored: list[str] = field(default_factory=list)
    """Sessions whose row was lost and restored from indexes."""
    quarantined: list[str] = field(default_factory=list)
    """Sessions whose row was lost and whose user is unknown; nobody finds them until they are given to a user."""

    def name_damaged(self, table: str, names: Iterable[str]) -> None:
        """Add the names of damaged rows."""
        self.damaged[table] = [*self.damaged.get(table, []), *names]

    def name_lost(self, table: str, names: Iterable[str]) -> None:
        """Add the names of lost rows."""
        self.lost[table] = [*self.lost.get(table, []), *names]

    def as_json(self) -> dict[str, JSON]:
        """Return the outcome for programs."""
        return {
            "rows": dict(self.rows),
            "damaged": {table: list(names) for table, names in self.damaged.items() if names},
            "lost": {table: list(names) for table, names in self.lost.items() if names},
            "unreadable_pages": {table: list(pages) for table, pages in self.pages.items()},
            "missing_pages": self.missing_pages,
            "restored_sessions": list(self.restored),
            "quarantined_sessions": list(self.quarantined),
        }


class Repaired(Struct):
    """What was wrong, what was done, and what is still wrong."""

    found: list[Finding] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    salvaged: Salvaged | None = None
    put_aside: Path | None = None

    def as_json(self) -> dict[str, JSON]:
        """Return the outcome for programs."""
        return {
            "found": [finding.what for finding in self.found],
            "done": list(self.done),
            "left": [finding.what for finding in self.left],
            "salvaged": None if self.salvaged is None else self.salvaged.as_json(),
            "put_aside": None if self.put_aside is None else str(self.put_aside),
        }


class Pruned(Struct, frozen=True):
    """The sessions that a prune takes, with the bytes of their text."""

    sessions: tuple[Session, ...] = ()
    text_bytes: int = 0


class Removed(Struct):
    """What was removed for good."""

    sessions: int = 0
    messages: int = 0
    blobs: int = 0


class Coverage(Struct, frozen=True):
    """How many of the messages that can have vectors have them."""

    model: str | None
    covered: int
    waiting: int

    @property
    def share(self) -> float:
        """Return the share from 0 to 1; 1 if there are no messages."""
        return self.covered / (self.covered + self.waiting) if self.covered + self.waiting else 1.0


class ImportReport(Struct):
    """What an import did; `problems` names the first bad lines by number."""

    lines: int = 0
    sessions: int = 0
    messages: int = 0
    known: int = 0
    forgotten: int = 0
    bad: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)
    ids: dict[int, MessageId] = field(default_factory=dict)
    """The ids here of messages whose lines name the id that they had elsewhere."""

    def refuse(self, line: int, why: str) -> None:
        """Count a bad line."""
        self.bad += 1
        if len(self.problems) < MOST_REPORTED:
            self.problems.append((line, why))

    def as_json(self) -> dict[str, JSON]:
        """Return the report for programs."""
        return {
            "lines": self.lines,
            "sessions": self.sessions,
            "messages": self.messages,
            "known": self.known,
            "forgotten": self.forgotten,
            "bad": self.bad,
            "problems": [{"line": line, "error": why} for line, why in self.problems],
        }


class UsageRow(Struct, frozen=True):
    """The calls of one session, day, model and task; the session is empty once it was forgotten."""

    day: str
    model: str
    task: str
    session_id: str
    calls: int
    usage: Usage
    cost: float | None


class Total(Struct, frozen=True):
    """A sum of calls; `cost` is None while no price is known for any of them."""

    key: str
    calls: int
    usage: Usage
    cost: float | None

    @property
    def cache_share(self) -> float:
        """Return the part of the sent tokens that came from the cache."""
        return self.usage.cache_read_tokens / self.usage.prompt_tokens if self.usage.prompt_tokens else 0.0


def sum_usage(rows: Iterable[UsageRow], key: Callable[[UsageRow], str]) -> list[Total]:
    """Return one sum per key, in the order in which the keys appear."""
    sums: dict[str, Total] = {}
    for row in rows:
        name = key(row)
        before = sums.get(name, Total(name, 0, Usage(), None))
        cost = before.cost if row.cost is None else (before.cost or 0.0) + row.cost
        sums[name] = Total(name, before.calls + row.calls, before.usage + row.usage, cost)
    return list(sums.values())

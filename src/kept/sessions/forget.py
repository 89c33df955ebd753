"""What forgetting removes: the plan that is shown first, and the report that stays, neither with any content."""

from dataclasses import dataclass, field

from kept.core.ids import MessageId, SessionId
from kept.core.text import JSON

BLANK = "[forgotten]"


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """What would go from the session store."""

    sessions: tuple[SessionId, ...] = ()
    messages: tuple[MessageId, ...] = ()
    """Single messages of sessions that stay."""
    summaries: tuple[MessageId, ...] = ()
    """Summaries, in sessions that stay, of something that goes."""
    citing: tuple[MessageId, ...] = ()
    """Search results and sent texts, in sessions that stay, that show something that goes."""
    nodes: tuple[int, ...] = ()
    titles: tuple[SessionId, ...] = ()
    """Sessions that stay but whose title shows something that goes."""
    message_count: int = 0
    blob_count: int = 0
    vector_count: int = 0
    """Messages whose vectors go with them."""
    texts: tuple[str, ...] = field(default=(), repr=False)
    """What was asked to be forgotten by its words; never shown or stored."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to forget."""
        return not (self.sessions or self.messages)

    def as_json(self) -> dict[str, JSON]:
        """Return the plan without any content."""
        return {
            "sessions": list(self.sessions),
            "messages": self.message_count,
            "single_messages": [int(number) for number in self.messages],
            "blobs": self.blob_count,
            "index_rows": self.message_count,
            "vectors": self.vector_count,
            "summaries": len(self.summaries),
            "nodes": len(self.nodes),
            "cited_elsewhere": len(self.citing),
            "titles": len(self.titles),
        }


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """What went, and whether anything still finds it."""

    sessions: int
    messages: int
    blobs: int
    summaries: int
    nodes: int
    cited_elsewhere: int
    still_found: int
    """Messages that a search still gave afterwards; anything but 0 is a fault."""
    bytes_gone: bool
    """False while a reader keeps the log; it is emptied at the next open."""
    vectors: int = 0

    def as_json(self) -> dict[str, JSON]:
        """Return the report for programs."""
        return {
            "sessions": self.sessions,
            "messages": self.messages,
            "blobs": self.blobs,
            "index_rows": self.messages,
            "vectors": self.vectors,
            "summaries": self.summaries,
            "nodes": self.nodes,
            "cited_elsewhere": self.cited_elsewhere,
            "still_found": self.still_found,
            "bytes_gone": self.bytes_gone,
        }

"""Which sessions are one conversation: chains of compressions, and the branches of a chain."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kept.core.ids import SessionId
from kept.core.messages import Link

ParentOf: TypeAlias = Callable[[SessionId], tuple[SessionId, Link | None] | None]
ChildrenOf: TypeAlias = Callable[[SessionId], Sequence[tuple[SessionId, Link | None]]]

CONVERSATION = frozenset({Link.COMPRESSION, Link.BRANCH})
"""The links inside one conversation; a delegate or an import is a conversation of its own."""
CHAIN = frozenset({Link.COMPRESSION})


@dataclass(frozen=True, slots=True)
class Lineage:
    """Walks the links between sessions; stops at a cycle, which only a damaged file can have."""

    parent_of: ParentOf
    children_of: ChildrenOf

    def root(self, session_id: SessionId, links: frozenset[Link] = CONVERSATION) -> SessionId:
        """Return the first session of the conversation."""
        seen = {session_id}
        here = session_id
        while (above := self.parent_of(here)) is not None:
            parent, link = above
            if link not in links or parent in seen:
                return here
            seen.add(parent)
            here = parent
        return here

    def family(self, session_id: SessionId, links: frozenset[Link] = CONVERSATION) -> list[SessionId]:
        """Return every session of the conversation, the first one first."""
        found = [self.root(session_id, links)]
        seen = set(found)
        for here in found:
            for child, link in self.children_of(here):
                if link in links and child not in seen:
                    seen.add(child)
                    found.append(child)
        if session_id not in seen:
            found.append(session_id)
        return found

    def chain(self, session_id: SessionId) -> list[SessionId]:
        """Return the sessions that compaction made of one, the first one first."""
        return self.family(session_id, CHAIN)

    def tip(self, session_id: SessionId) -> SessionId:
        """Return the session that continues the conversation after every compression since `session_id`."""
        seen = {session_id}
        here = session_id
        while True:
            heirs = [child for child, link in self.children_of(here) if link in CHAIN and child not in seen]
            if not heirs:
                return here
            here = heirs[-1]
            seen.add(here)

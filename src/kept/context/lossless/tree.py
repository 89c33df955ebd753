"""The tree of summaries: leaves over messages, condensed nodes over leaves."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kept.core.ids import MessageId, SessionId


@dataclass(frozen=True, slots=True)
class Node:
    """One summary; its children are message ids at depth 0 and node ids above."""

    id: int
    depth: int
    text: str
    children: tuple[int, ...]


class Tree:
    """The nodes of one conversation, read once."""

    def __init__(self, rows: Iterable[tuple[int, int, str, tuple[int, ...]]]) -> None:
        self.nodes = {one: Node(one, depth, text, tuple(below)) for one, depth, text, below in rows}
        inner = {child for node in self.nodes.values() if node.depth for child in node.children}
        self.roots = sorted((node for node in self.nodes.values() if node.id not in inner), key=self.span)

    def messages(self, node: Node) -> list[MessageId]:
        """Return the ids of every message below `node`, in order."""
        found: list[int] = []
        waiting = [node]
        seen: set[int] = set()
        while waiting:
            one = waiting.pop()
            if one.id in seen:
                continue
            seen.add(one.id)
            if one.depth == 0:
                found.extend(one.children)
            else:
                waiting.extend(self.nodes[child] for child in one.children if child in self.nodes)
        return [MessageId(one) for one in sorted(set(found))]

    def span(self, node: Node) -> tuple[int, int]:
        """Return the first and last message id below `node`."""
        ids = self.messages(node)
        return (ids[0], ids[-1]) if ids else (0, 0)

    def covered(self) -> set[int]:
        """Return the id of every message that a leaf covers."""
        return {child for node in self.nodes.values() if node.depth == 0 for child in node.children}

    def leaf_of(self, message_id: int) -> Node | None:
        """Return the leaf over that message, or None."""
        for node in self.nodes.values():
            if node.depth == 0 and message_id in node.children:
                return node
        return None


class NodesInMemory:
    """A node store for conversations that are not stored."""

    def __init__(self) -> None:
        self._held: list[tuple[SessionId, int, int, str, tuple[int, ...]]] = []

    def add_node(self, session_id: SessionId, *, depth: int, text: str, children: Sequence[int]) -> int:
        """Keep a node and return its id."""
        self._held.append((session_id, len(self._held) + 1, depth, text, tuple(children)))
        return len(self._held)

    def nodes(self, session_id: SessionId) -> list[tuple[int, int, str, tuple[int, ...]]]:
        """Return the conversation's nodes, oldest first."""
        return [(one, depth, text, below) for owner, one, depth, text, below in self._held if owner == session_id]

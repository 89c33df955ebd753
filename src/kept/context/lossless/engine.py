"""The lossless engine: everything that leaves the window stays reachable through a tree."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kept.context.groups import groups
from kept.context.lossless.entries import condensed_lines, leaf_lines
from kept.context.lossless.tools import SCHEMAS, answer
from kept.context.lossless.tree import Node, NodesInMemory, Tree
from kept.context.marker import is_summary
from kept.context.sections import clipped
from kept.context.summarising import SummarisingEngine
from kept.context.summary import Brief, Unreachable, Writing, Written
from kept.core.errors import ModelBusy, ModelError, ModelRefused, StorageError
from kept.core.ids import SessionId
from kept.core.messages import StoredMessage
from kept.core.ports import NodeStore
from kept.core.text import JSON
from kept.core.tools import ToolContext, ToolSchema

log = logging.getLogger(__name__)

HEADING = "## Table of contents"
HOW_TO = "context_expand opens a node or messages, context_describe lists, context_grep searches them."
FAN = 6
LEAF_SHARE = 0.06
"""The share of the threshold that one leaf covers."""
LEAST_LEAF = 800
LEAF_TEXT_SHARE = 0.12
UNSTORED = SessionId("unstored")


class Lossless(SummarisingEngine):
    """Messages become leaves, leaves become condensed nodes; the context holds those that fit.

    Nodes are derived: one left by a compaction that did not finish is used by the next.
    """

    name = "lossless"
    description = "keeps a tree of summaries over all messages, with tools that open any of them again"
    prunes = False  # a change of the prefix should be rare and large

    def __init__(self) -> None:
        self._unstored = NodesInMemory()
        self._detached = False

    def write(self, rows: Sequence[StoredMessage], budget: int, brief: Brief) -> Writing:
        """Grow the tree over `rows`, and return the table of contents."""
        try:
            return self._written(rows, budget, brief)
        except StorageError:
            # the chat goes on without its store: from here on the tree lives in this process
            log.warning("the tree of %s cannot be stored", self._conversation, exc_info=True)
            self._detached = True
            return self._written(rows, budget, brief)

    def _written(self, rows: Sequence[StoredMessage], budget: int, brief: Brief) -> Writing:
        try:
            return Written(self._grown(rows, budget, brief), by_rule=brief.model is None)
        except (ModelBusy, ModelRefused) as error:
            if not brief.must_end:
                return Unreachable(error)
            note = f"the summary model is out of reach ({error.message}); the summary was written by rule"
        except ModelError as error:
            note = f"the summary model failed ({error.message}); the summary was written by rule"
        return Written(self._grown(rows, budget, replace(brief, model=None)), by_rule=True, note=note)

    def tree(self) -> Tree:
        """Return the conversation's tree as it stands."""
        return Tree(self._nodes.nodes(self._conversation))

    def get_tool_schemas(self) -> Sequence[ToolSchema]:
        """Return the three tools that bring originals back."""
        return SCHEMAS

    def handle_tool_call(self, name: str, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        """Answer from the tree and the stored messages."""
        del context
        return answer(name, arguments, self.tree(), self.setup)

    def get_status(self) -> Mapping[str, JSON]:
        """Return the status with the size of the tree."""
        tree = self.tree()
        return {**super().get_status(), "nodes": len(tree.nodes), "messages_in_tree": len(tree.covered())}

    @property
    def _nodes(self) -> NodeStore:
        return self._unstored if self._detached or self.setup.nodes is None else self.setup.nodes

    @property
    def _conversation(self) -> SessionId:
        return self.session_id or UNSTORED

    def _grown(self, rows: Sequence[StoredMessage], budget: int, brief: Brief) -> str:
        covered = self.tree().covered()
        new = [row for row in rows if row.id not in covered and not self._knows(row)]
        for part, tokens in self._leaves(new):
            lines = leaf_lines(part, max(60, int(tokens * LEAF_TEXT_SHARE)), brief)
            self._add(0, lines, [int(row.id) for row in part])
        tree = self.tree()
        while brief.count(contents(tree)) > budget and len(tree.roots) > 1:
            run = condensable(tree.roots)
            room = max(60, sum(brief.count(node.text) for node in run) // 3)
            self._add(
                1 + max(node.depth for node in run),
                condensed_lines(run, room, brief),
                [node.id for node in run],
            )
            tree = self.tree()
        return clipped(contents(tree), budget, count=brief.count)

    def _leaves(self, rows: Sequence[StoredMessage]) -> Iterator[tuple[list[StoredMessage], int]]:
        largest = max(LEAST_LEAF, int(self.limits.threshold * LEAF_SHARE))
        part: list[StoredMessage] = []
        held = 0
        for group in groups([row.message for row in rows]):
            cost = sum(self.setup.count(rows[place].message) for place in group)
            if part and held + cost > largest:
                yield part, held
                part, held = [], 0
            part.extend(rows[place] for place in group)
            held += cost
        if part:
            yield part, held

    def _knows(self, row: StoredMessage) -> bool:
        """Whether `row` only repeats what stands in the tree."""
        return is_summary(row.message) and HEADING in row.message.text and not self._detached

    def _add(self, depth: int, lines: Sequence[str], children: Sequence[int]) -> None:
        text = "\n".join(lines) or "- (nothing said)"
        self._nodes.add_node(self._conversation, depth=depth, text=text, children=children)


def contents(tree: Tree) -> str:
    """Return the table of contents: every root with its messages and lines, oldest first."""
    pieces = [HEADING, HOW_TO]
    for node in tree.roots:
        first, last = tree.span(node)
        pieces.append(f"### node {node.id}: messages #{first} to #{last}\n{node.text}")
    return "\n".join(pieces)


def condensable(roots: Sequence[Node]) -> list[Node]:
    """Return the oldest run of roots of one depth, at most six, else the two oldest."""
    for start in range(len(roots) - 1):
        if roots[start].depth == roots[start + 1].depth:
            end = start
            while end < len(roots) and end - start < FAN and roots[end].depth == roots[start].depth:
                end += 1
            return list(roots[start:end])
    return list(roots[:2])

"""The lossless engine: messages that leave the context stay reachable through a tree of summaries."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from wellkept.context.repair import groups
from wellkept.context.sections import body_of, clip, is_summary, load_prompt
from wellkept.context.summarising import SummarisingEngine
from wellkept.context.summary import Brief, Unreachable, Writing, Written, split_transcript
from wellkept.context.summary_tree import SCHEMAS, Node, NodesInMemory, Tree, answer
from wellkept.context.transcript import Sources, find_citations, gist, index_sources
from wellkept.core.errors import ContextOverflow, ModelBusy, ModelError, ModelRefused, StorageError
from wellkept.core.ids import SessionId
from wellkept.core.messages import Role, StoredMessage
from wellkept.core.ports import NodeStore
from wellkept.core.text import JSON
from wellkept.core.tools import ToolContext, ToolSchema

_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+(.+)$")
LONGEST_LINE = 400
FRAME_TOKENS = 100


def write_leaf(rows: Sequence[StoredMessage], budget: int, brief: Brief) -> list[str]:
    """Write the lines of a leaf over `rows`; a ModelError of an unreachable model is raised."""
    extracted = [line for row in rows for line in _summary_lines(row)] + gist(rows, redact=brief.redact)
    if brief.model is not None:
        room = max(400, brief.model.context_length * 9 // 10 - budget - FRAME_TOKENS - brief.count(load_prompt("leaf")))
        parts = split_transcript([row for row in rows if not is_summary(row.message)], room, brief)
        answered = [_ask_model("leaf", part, budget, brief, index_sources(rows)) for part in parts if part]
        lines = [line for answer in answered for line in answer]
        if lines and all(answered):
            return thin(lines, budget, count=brief.count)
    person = [line for line in extracted if f"- {Role.USER.value}:" in line[:8]]
    rest = thin([line for line in extracted if line not in set(person)], budget // 2, count=brief.count)
    chosen = {*thin(person, budget - _total(rest, brief.count), count=brief.count), *rest}
    return [line for line in dict.fromkeys(extracted) if line in chosen]


def write_condensed(nodes: Sequence[Node], budget: int, brief: Brief) -> list[str]:
    """Write the lines of a node over `nodes`."""
    lines = [line for node in nodes for line in node.text.splitlines() if line.strip()]
    if brief.model is not None:
        known = find_citations("\n".join(lines))
        text = "\n".join(thin(lines, brief.model.context_length // 2, count=brief.count))
        answer = _ask_model("condense", text, budget, brief, index_sources((), known=known))
        if answer:
            return thin(answer, budget, count=brief.count)
    return thin(lines, budget, count=brief.count)


def thin(lines: Sequence[str], budget: int, *, count: Callable[[str], int]) -> list[str]:
    """Return a subset of `lines`, evenly spread and in order, that fits `budget` tokens."""
    sizes = [count(line) for line in lines]
    keep = len(lines)
    while keep > 0:
        chosen = sorted({place * len(lines) // keep for place in range(keep)})
        total = sum(sizes[place] for place in chosen)
        if total <= budget:
            return [lines[place] for place in chosen]
        keep = min(keep - 1, keep * budget // max(1, total))
    return []


def _ask_model(name: str, text: str, budget: int, brief: Brief, known: Sources) -> list[str]:
    assert brief.model is not None
    request = f"Use at most {budget:,} tokens.\n\n<material>\n{text}\n</material>"
    try:
        answer = brief.redact(brief.model.complete(load_prompt(name), request, max_output_tokens=budget))
    except ContextOverflow:
        return []
    found = [match[1] for line in answer.splitlines() if (match := _BULLET.match(line))]
    return [known.check(f"- {line[:LONGEST_LINE]}") for line in found]


def _summary_lines(row: StoredMessage) -> list[str]:
    """Return the lines of another engine's summary, so that a change of engine loses nothing."""
    if not is_summary(row.message):
        return []
    lines = [line for line in body_of(row.message).splitlines() if line.startswith("- ") and line != "- none"]
    return [line if find_citations(line) else f"{line} [#{row.id}]" for line in lines]


def _total(lines: Sequence[str], count: Callable[[str], int]) -> int:
    return sum(count(line) for line in lines)


log = logging.getLogger(__name__)

HEADING = "## Table of contents"
HOW_TO = "context_expand opens a node or messages, context_describe lists, context_grep searches them."
FAN = 6
"""How many nodes a condensed node covers at most."""
LEAF_SHARE = 0.06
"""The share of the threshold that one leaf covers."""
LEAST_LEAF = 800
"""A leaf covers at least this many tokens, also in a small window."""
LEAF_TEXT_SHARE = 0.12
"""The length of a leaf's text relative to the messages that it covers."""
UNSTORED = SessionId("unstored")


class Lossless(SummarisingEngine):
    """Summarises messages into leaves and leaves into condensed nodes; the context holds the roots.

    Nodes are derived data: the next compaction reuses nodes of one that did not finish.
    """

    name = "lossless"
    description = "keeps a tree of summaries over all messages, with tools that open any of them again"
    prunes = False  # every change of the prefix costs a cache miss, so it should be rare and large

    def __init__(self) -> None:
        self._unstored = NodesInMemory()
        self._detached = False

    def write(self, rows: Sequence[StoredMessage], budget: int, brief: Brief) -> Writing:
        """Extend the tree to cover `rows`, and return the table of contents."""
        try:
            return self._write(rows, budget, brief)
        except StorageError:
            # the store failed: from now on the tree lives in this process only
            log.warning("the tree of %s cannot be stored", self._conversation, exc_info=True)
            self._detached = True
            return self._write(rows, budget, brief)

    def _write(self, rows: Sequence[StoredMessage], budget: int, brief: Brief) -> Writing:
        try:
            return Written(self._grow(rows, budget, brief), by_rule=brief.model is None)
        except (ModelBusy, ModelRefused) as error:
            if not brief.must_end:
                return Unreachable(error)
            note = f"the summary model is unreachable ({error.message}); the summary was written by rule"
        except ModelError as error:
            note = f"the summary model failed ({error.message}); the summary was written by rule"
        return Written(self._grow(rows, budget, replace(brief, model=None)), by_rule=True, note=note)

    def tree(self) -> Tree:
        """Return the current tree of the conversation."""
        return Tree(self._nodes.nodes(self._conversation))

    def get_tool_schemas(self) -> Sequence[ToolSchema]:
        """Return the three tools that search and open originals."""
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

    def _grow(self, rows: Sequence[StoredMessage], budget: int, brief: Brief) -> str:
        covered = self.tree().covered()
        new = [row for row in rows if row.id not in covered and not self._is_in_tree(row)]
        for part, tokens in self._leaves(new):
            lines = write_leaf(part, max(60, int(tokens * LEAF_TEXT_SHARE)), brief)
            self._add(0, lines, [int(row.id) for row in part])
        tree = self.tree()
        while brief.count(contents(tree)) > budget and len(tree.roots) > 1:
            run = condensable(tree.roots)
            room = max(60, sum(brief.count(node.text) for node in run) // 3)
            self._add(
                1 + max(node.depth for node in run),
                write_condensed(run, room, brief),
                [node.id for node in run],
            )
            tree = self.tree()
        return clip(contents(tree), budget, count=brief.count)

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

    def _is_in_tree(self, row: StoredMessage) -> bool:
        """Whether `row` is a table of contents, which only repeats the tree."""
        return is_summary(row.message) and HEADING in row.message.text and not self._detached

    def _add(self, depth: int, lines: Sequence[str], children: Sequence[int]) -> None:
        text = "\n".join(lines) or "- (nothing said)"
        self._nodes.add_node(self._conversation, depth=depth, text=text, children=children)


def contents(tree: Tree) -> str:
    """Return the table of contents: every root with its message range and lines, oldest first."""
    pieces = [HEADING, HOW_TO]
    for node in tree.roots:
        first, last = tree.span(node)
        pieces.append(f"### node {node.id}: messages #{first} to #{last}\n{node.text}")
    return "\n".join(pieces)


def condensable(roots: Sequence[Node]) -> list[Node]:
    """Return the oldest consecutive roots of equal depth, at most six, or else the two oldest."""
    for start in range(len(roots) - 1):
        if roots[start].depth == roots[start + 1].depth:
            end = start
            while end < len(roots) and end - start < FAN and roots[end].depth == roots[start].depth:
                end += 1
            return list(roots[start:end])
    return list(roots[:2])

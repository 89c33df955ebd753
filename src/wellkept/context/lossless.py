"""The lossless engine: messages that leave the context stay reachable through a tree of summaries."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from wellkept.context.engine import Setup
from wellkept.context.messages import groups
from wellkept.context.summarising import SummarisingEngine
from wellkept.context.summary import (
    Brief,
    Sources,
    Unreachable,
    Writing,
    Written,
    body_of,
    clip,
    find_citations,
    gist,
    index_sources,
    is_summary,
    load_prompt,
    split_transcript,
)
from wellkept.core.errors import ContextOverflow, ModelBusy, ModelError, ModelRefused, StorageError
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Message, Role, StoredMessage
from wellkept.core.ports import NodeStore
from wellkept.core.text import JSON
from wellkept.core.tools import ToolContext, ToolSchema

log = logging.getLogger(__name__)


class Node(Struct, frozen=True):
    """One summary; its children are message ids at depth 0 and node ids above."""

    id: int
    depth: int
    text: str
    children: tuple[int, ...]


class Tree:
    """The nodes of one conversation, as read from the store."""

    def __init__(self, rows: Iterable[tuple[int, int, str, tuple[int, ...]]]) -> None:
        self.nodes = {node_id: Node(node_id, depth, text, tuple(below)) for node_id, depth, text, below in rows}
        inner = {child for node in self.nodes.values() if node.depth for child in node.children}
        self.roots = sorted((node for node in self.nodes.values() if node.id not in inner), key=self.span)

    def messages(self, node: Node) -> list[MessageId]:
        """Return the ids of every message below `node`, in order."""
        ids: list[int] = []
        pending = [node]
        seen: set[int] = set()
        while pending:
            current = pending.pop()
            if current.id in seen:
                continue
            seen.add(current.id)
            if current.depth == 0:
                ids.extend(current.children)
            else:
                pending.extend(self.nodes[child] for child in current.children if child in self.nodes)
        return [MessageId(message_id) for message_id in sorted(set(ids))]

    def span(self, node: Node) -> tuple[int, int]:
        """Return the first and last message id below `node`."""
        ids = self.messages(node)
        return (ids[0], ids[-1]) if ids else (0, 0)

    def covered(self) -> set[int]:
        """Return the id of every message that a leaf covers."""
        return {child for node in self.nodes.values() if node.depth == 0 for child in node.children}

    def leaf_of(self, message_id: int) -> Node | None:
        """Return the leaf that covers the message, or None."""
        for node in self.nodes.values():
            if node.depth == 0 and message_id in node.children:
                return node
        return None


class NodesInMemory:
    """A node store for conversations that are not stored."""

    def __init__(self) -> None:
        self._held: list[tuple[SessionId, int, int, str, tuple[int, ...]]] = []

    def add_node(self, session_id: SessionId, *, depth: int, text: str, children: Sequence[int]) -> int:
        """Add a node and return its id."""
        self._held.append((session_id, len(self._held) + 1, depth, text, tuple(children)))
        return len(self._held)

    def nodes(self, session_id: SessionId) -> list[tuple[int, int, str, tuple[int, ...]]]:
        """Return the conversation's nodes, oldest first."""
        return [
            (node_id, depth, text, below) for owner, node_id, depth, text, below in self._held if owner == session_id
        ]


DEFAULT_TOKENS = 2_000
MAX_TOKENS = 8_000
MAX_MATCHES = 50
AROUND = 120
"""Characters of context on each side of a match."""


def _schema(name: str, description: str, properties: Mapping[str, JSON], required: Sequence[str] = ()) -> ToolSchema:
    parameters: dict[str, JSON] = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSchema(name, description, parameters, "context")


SCHEMAS = (
    _schema(
        "context_grep",
        "Search the messages of this conversation that left the window. Plain text, any case; `|` separates "
        "alternatives, `.*` stands for anything within a line.",
        {
            "pattern": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "description": "How many matches at most (default 10)."},
        },
        ["pattern"],
    ),
    _schema(
        "context_describe",
        "List the table of contents of this conversation, or one node of it with its children.",
        {"node_id": {"type": "integer", "description": "A node; without it the top of the tree is listed."}},
    ),
    _schema(
        "context_expand",
        "Open the original messages behind a node, or messages by id, word for word, within a token budget.",
        {
            "node_id": {"type": "integer", "description": "A node of the table of contents."},
            "message_ids": {"type": "array", "items": {"type": "integer"}, "description": "Messages by id."},
            "max_tokens": {
                "type": "integer",
                "description": "At most this many tokens (default 2,000, maximum 8,000).",
            },
            "from_message": {
                "type": "integer",
                "description": "Continue at this message: `next.from_message` of the previous answer.",
            },
            "from_char": {"type": "integer", "description": "Continue at this character of it: `next.from_char`."},
        },
    ),
)


def answer(name: str, arguments: Mapping[str, JSON], tree: Tree, setup: Setup) -> Mapping[str, JSON]:
    """Answer a call of one of the three tools; bad arguments get an error answer."""
    match name:
        case "context_grep":
            return _grep(arguments, tree, setup)
        case "context_describe":
            return _describe(arguments, tree)
        case "context_expand":
            return _expand(arguments, tree, setup)
        case _:
            return _failure(f"the engine has no tool {name!r}")


def _failure(error: str, remedy: str = "") -> Mapping[str, JSON]:
    answer: dict[str, JSON] = {"success": False, "error": error}
    return answer | {"remedy": remedy} if remedy else answer


def _clamp(value: JSON, default: int, *, low: int, high: int) -> int:
    return min(high, max(low, value)) if isinstance(value, int) and not isinstance(value, bool) else default


def _grep(arguments: Mapping[str, JSON], tree: Tree, setup: Setup) -> Mapping[str, JSON]:
    pattern = arguments.get("pattern")
    if not isinstance(pattern, str) or not pattern.strip():
        return _failure("`pattern` must be a text that is not empty", "give the words to look for")
    requested = matcher(pattern)
    limit = _clamp(arguments.get("limit"), 10, low=1, high=MAX_MATCHES)
    matches: list[JSON] = []
    count = 0
    for row in _read_messages(setup, sorted(tree.covered())):
        match = requested.search(full_text(row.message))
        if match is None:
            continue
        count += 1
        if len(matches) < limit:
            leaf = tree.leaf_of(row.id)
            text = full_text(row.message)
            low, high = max(0, match.start() - AROUND), min(len(text), match.end() + AROUND)
            matches.append(
                {
                    "message_id": row.id,
                    "role": row.message.role.value,
                    "node_id": leaf.id if leaf else None,
                    "snippet": ("…" if low else "") + text[low:high] + ("…" if high < len(text) else ""),
                }
            )
    return {"success": True, "matches": matches, "count": count}


def matcher(pattern: str) -> re.Pattern[str]:
    """Compile `pattern` to an expression that runs in linear time, whatever the model wrote."""
    alternatives = [alternative for alternative in pattern[:500].split("|") if alternative.strip(" .*")]
    parts = [
        "[^\n]{0,200}?".join(re.escape(piece) for piece in alternative.strip().split(".*")[:5])
        for alternative in alternatives
    ]
    return re.compile("|".join(parts) or re.escape(pattern), re.IGNORECASE)


def _describe(arguments: Mapping[str, JSON], tree: Tree) -> Mapping[str, JSON]:
    requested = arguments.get("node_id")
    if requested is None:
        return {"success": True, "nodes": [_describe_node(tree, node) for node in tree.roots]}
    node = tree.nodes.get(requested) if isinstance(requested, int) else None
    if node is None:
        return _failure(f"there is no node {requested!r}", "call context_describe without arguments to list them")
    below: list[JSON] = (
        [{"message_id": child} for child in node.children]
        if node.depth == 0
        else [_describe_node(tree, tree.nodes[child]) for child in node.children if child in tree.nodes]
    )
    return {"success": True, "node": _describe_node(tree, node), "children": below}


def _describe_node(tree: Tree, node: Node) -> Mapping[str, JSON]:
    first, last = tree.span(node)
    return {
        "node_id": node.id,
        "depth": node.depth,
        "first_message": first,
        "last_message": last,
        "messages": len(tree.messages(node)),
        "text": node.text,
    }


def _expand(arguments: Mapping[str, JSON], tree: Tree, setup: Setup) -> Mapping[str, JSON]:
    ids = _requested_ids(arguments, tree)
    if not ids:
        return _failure(
            "give the `node_id` of a node that exists, or `message_ids`", "context_describe lists the nodes"
        )
    budget = _clamp(arguments.get("max_tokens"), DEFAULT_TOKENS, low=50, high=MAX_TOKENS)
    start = _clamp(arguments.get("from_message"), 0, low=0, high=2**62)
    skipped = _clamp(arguments.get("from_char"), 0, low=0, high=2**62)
    shown: list[JSON] = []
    for row in _read_messages(setup, [one for one in ids if one >= start]):
        text = full_text(row.message)
        begin = skipped if row.id == start else 0
        taken = _fit(text[begin:], budget, setup)
        if text[begin:] and not taken and shown:
            return {"success": True, "messages": shown, "next": {"from_message": row.id, "from_char": begin}}
        budget -= setup.count(Message(Role.USER, taken))
        end = begin + len(taken)
        shown.append({"id": row.id, "role": row.message.role.value, "content": taken, "timestamp": row.timestamp})
        if end < len(text):
            return {"success": True, "messages": shown, "next": {"from_message": row.id, "from_char": end}}
    return {"success": True, "messages": shown}


def _requested_ids(arguments: Mapping[str, JSON], tree: Tree) -> list[MessageId]:
    node_id, listed = arguments.get("node_id"), arguments.get("message_ids")
    if isinstance(node_id, int) and node_id in tree.nodes:
        return tree.messages(tree.nodes[node_id])
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        covered = tree.covered()
        return [
            MessageId(message_id)
            for message_id in sorted({message_id for message_id in listed if isinstance(message_id, int)} & covered)
        ]
    return []


def _fit(text: str, budget: int, setup: Setup) -> str:
    if setup.count(Message(Role.USER, text)) <= budget:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        fits = setup.count(Message(Role.USER, text[:middle])) <= budget
        low, high = (middle, high) if fits else (low, middle - 1)
    return text[:low]


def full_text(message: Message) -> str:
    """Return the full text of a message, including its tool calls."""
    calls = [f"→ {call.name}({call.arguments})" for call in message.tool_calls]
    return "\n".join(piece for piece in (message.text, *calls) if piece)


def _read_messages(setup: Setup, ids: Sequence[int]) -> Sequence[StoredMessage]:
    if setup.originals is None:
        return ()
    return setup.originals([MessageId(message_id) for message_id in ids])


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
    chosen = {*thin(person, budget - sum(brief.count(line) for line in rest), count=brief.count), *rest}
    return [line for line in dict.fromkeys(extracted) if line in chosen]


def write_condensed(nodes: Sequence[Node], budget: int, brief: Brief) -> list[str]:
    """Write the lines of a node over `nodes`."""
    lines = [line for node in nodes for line in node.text.splitlines() if line.strip()]
    if brief.model is not None:
        cited = find_citations("\n".join(lines))
        text = "\n".join(thin(lines, brief.model.context_length // 2, count=brief.count))
        answer = _ask_model("condense", text, budget, brief, index_sources((), known=cited))
        if answer:
            return thin(answer, budget, count=brief.count)
    return thin(lines, budget, count=brief.count)


def thin(lines: Sequence[str], budget: int, *, count: Callable[[str], int]) -> list[str]:
    """Return a subset of `lines`, evenly spread and in order, that fits `budget` tokens."""
    sizes = [count(line) for line in lines]
    keep = len(lines)
    while keep > 0:
        indexes = sorted({index * len(lines) // keep for index in range(keep)})
        total = sum(sizes[index] for index in indexes)
        if total <= budget:
            return [lines[index] for index in indexes]
        keep = min(keep - 1, keep * budget // max(1, total))
    return []


def _ask_model(name: str, text: str, budget: int, brief: Brief, known: Sources) -> list[str]:
    assert brief.model is not None
    request = f"Use at most {budget:,} tokens.\n\n<material>\n{text}\n</material>"
    try:
        answer = brief.redact(brief.model.complete(load_prompt(name), request, max_output_tokens=budget))
    except ContextOverflow:
        return []
    bullets = [match[1] for line in answer.splitlines() if (match := _BULLET.match(line))]
    return [known.check(f"- {line[:LONGEST_LINE]}") for line in bullets]


def _summary_lines(row: StoredMessage) -> list[str]:
    """Return the lines of another engine's summary, so that a change of engine loses nothing."""
    if not is_summary(row.message):
        return []
    lines = [line for line in body_of(row.message).splitlines() if line.startswith("- ") and line != "- none"]
    return [line if find_citations(line) else f"{line} [#{row.id}]" for line in lines]


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
            self._add(1 + max(node.depth for node in run), write_condensed(run, room, brief), [node.id for node in run])
            tree = self.tree()
        return clip(contents(tree), budget, count=brief.count)

    def _leaves(self, rows: Sequence[StoredMessage]) -> Iterator[tuple[list[StoredMessage], int]]:
        largest = max(LEAST_LEAF, int(self.limits.threshold * LEAF_SHARE))
        part: list[StoredMessage] = []
        held = 0
        for group in groups([row.message for row in rows]):
            cost = sum(self.setup.count(rows[index].message) for index in group)
            if part and held + cost > largest:
                yield part, held
                part, held = [], 0
            part.extend(rows[index] for index in group)
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

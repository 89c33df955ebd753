"""The tree of summaries (leaves over messages, condensed nodes over leaves) and the tools that read it."""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from wellkept.context.engine import Setup
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Message, Role, StoredMessage
from wellkept.core.text import JSON
from wellkept.core.tools import ToolSchema


class Node(Struct, frozen=True):
    """One summary; its children are message ids at depth 0 and node ids above."""

    id: int
    depth: int
    text: str
    children: tuple[int, ...]


class Tree:
    """The nodes of one conversation, as read from the store."""

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
        return [(one, depth, text, below) for owner, one, depth, text, below in self._held if owner == session_id]


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
    said: dict[str, JSON] = {"success": False, "error": error}
    return said | {"remedy": remedy} if remedy else said


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
        found = requested.search(full_text(row.message))
        if found is None:
            continue
        count += 1
        if len(matches) < limit:
            leaf = tree.leaf_of(row.id)
            matches.append(
                {
                    "message_id": row.id,
                    "role": row.message.role.value,
                    "node_id": leaf.id if leaf else None,
                    "snippet": _snippet(full_text(row.message), found.start(), found.end()),
                }
            )
    return {"success": True, "matches": matches, "count": count}


def matcher(pattern: str) -> re.Pattern[str]:
    """Compile `pattern` to an expression that runs in linear time, whatever the model wrote."""
    alternatives = [one for one in pattern[:500].split("|") if one.strip(" .*")]
    parts = ["[^\n]{0,200}?".join(re.escape(piece) for piece in one.strip().split(".*")[:5]) for one in alternatives]
    return re.compile("|".join(parts) or re.escape(pattern), re.IGNORECASE)


def _snippet(text: str, start: int, end: int) -> str:
    low, high = max(0, start - AROUND), min(len(text), max(end, start) + AROUND)
    return ("…" if low else "") + text[low:high] + ("…" if high < len(text) else "")


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
        known = tree.covered()
        return [MessageId(one) for one in sorted({one for one in listed if isinstance(one, int)} & known)]
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
    return setup.originals([MessageId(one) for one in ids])

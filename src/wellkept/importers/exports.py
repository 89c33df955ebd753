"""Data exports of web services: a stream of conversations, each a tree of messages, out of one archive or folder."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wellkept.importers.archives import DAMAGE, ExportFiles, find_names, open_export
from wellkept.importers.json_stream import JsonStream
from wellkept.importers.jsonl import UNEXPECTED
from wellkept.importers.port import START, Item, Left, Position, Problem, Said, Unusable, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

_MANY_PROBLEMS = 100
"""How many broken records of one export are named; the others are counted."""


class Node(Struct, frozen=True):
    """A message in a tree; `parent` may name a node that is not there."""

    id: str
    parent: str | None
    moment: float
    message: dict[str, Any] | None


class Branch(Struct, frozen=True):
    """A path through the tree, from where it leaves the earlier paths to its end."""

    own: list[Node]
    joint: Node | None
    """The last node that it shares with an earlier path; None for the first path, and for another root."""


def split_branches(nodes: Mapping[str, Node], current: str | None) -> list[Branch]:
    """Return the paths through a tree, the current one first; every node is in one of them.

    Without a current node it is the path to the newest leaf. Parents decide, never children or the order of the nodes.
    """
    order = sorted(nodes.values(), key=lambda node: node.moment)
    parents = {name: _find_parent(node, nodes, order) for name, node in nodes.items()}
    inner = set(parents.values())
    leaves = sorted((name for name in nodes if name not in inner), key=lambda name: (nodes[name].moment, name))
    if current not in nodes:
        current = leaves[-1] if leaves else max(nodes, key=lambda name: nodes[name].moment, default=None)
    if current is None:
        return []
    branches: list[Branch] = []
    taken: set[str] = set()
    for leaf in [current, *leaves]:
        own: list[Node] = []
        name: str | None = leaf
        while name is not None and name not in taken:  # a cycle ends where it began
            taken.add(name)
            own.append(nodes[name])
            name = parents[name]
        if own:
            joint = nodes[name] if name is not None and branches else None
            branches.append(Branch(own[::-1], joint))
    return branches


def _find_parent(node: Node, nodes: Mapping[str, Node], order: Sequence[Node]) -> str | None:
    """Return the parent; newer exports omit hidden nodes, so a missing one is replaced by the last node before it."""
    if node.parent is None or node.parent in nodes:
        return node.parent
    place = bisect_left(order, node.moment, key=lambda other: other.moment)
    return order[place - 1].id if place else None


def repeat_joint(branch: Branch, nodes: Mapping[str, Node], read: Callable[[Node], Iterator[Item]]) -> Iterator[Said]:
    """Yield the last stored message before a branch: it is already stored, and shows where the branch begins."""
    node, steps = branch.joint, 0
    while node is not None and steps <= len(nodes):
        said = [item for item in read(node) if isinstance(item, Said)]
        if said:
            yield said[-1]
            return
        node, steps = nodes.get(node.parent or ""), steps + 1


class ExportReading:
    """Implements `port.Reading` on an export: read whole, unless it is the one that was read before."""

    was_rewritten = False

    def __init__(
        self,
        files: ExportFiles,
        names: list[str],
        position: Position,
        read: Callable[[dict[str, Any]], Iterator[Item]],
    ) -> None:
        self._files = files
        self._names = names
        self._read = read
        self._is_done = position.check == files.stamp

    def __iter__(self) -> Iterator[Item]:
        """Yield the conversations of all files; broken records are reported and skipped."""
        for name in self._names if not self._is_done else ():
            problems = 0
            try:
                with self._files.open(name) as file:
                    for number, piece in enumerate(JsonStream(file, key="conversations"), 1):
                        if piece.value is None:
                            problems += 1
                            yield Left("broken record")
                            if problems <= _MANY_PROBLEMS:
                                yield Problem(f"{name}, record {number}", piece.problem)
                        else:
                            yield from self._read_record(piece.value)
            except (*DAMAGE, Unusable) as error:
                yield Problem(name, str(error))
        self._is_done = True

    def _read_record(self, record: dict[str, Any]) -> Iterator[Item]:
        try:
            yield from self._read(record)
        except UNEXPECTED:
            yield unknown(record)

    def position(self) -> Position:
        """Return the end after everything was read; before, the beginning: ids tell what is stored."""
        return Position(self._files.total_bytes, self._files.stamp) if self._is_done else START

    def waiting_bytes(self) -> int:
        """Return the size of the export until it was read."""
        return 0 if self._is_done else self._files.total_bytes

    def close(self) -> None:
        """Close the export."""
        self._files.close()


def open_conversations(
    path: Path, position: Position, pattern: str, make_read: Callable[[ExportFiles], Callable[..., Iterator[Item]]]
) -> ExportReading:
    """Open the files with conversations whose names match; raise Unusable if there are none or one is damaged."""
    files = open_export(path)
    try:
        names = find_conversations(files, pattern, path)
        if position.check != files.stamp:
            files.check(names)
        return ExportReading(files, names, position, make_read(files))
    except BaseException:
        files.close()
        raise


def find_conversations(files: ExportFiles, pattern: str, path: Path) -> list[str]:
    """Return the files with conversations; a single file may have been renamed. Raise Unusable if there are none."""
    names = find_names(files, pattern)
    if not names and len(files.names()) == 1:
        names = files.names()
    if not names:
        raise Unusable(f"{str(path)!r} holds no conversations", "give the export as it was downloaded")
    return names


def list_exports(root: Path, pattern: str) -> list[Path]:
    """Return the exports at a place: itself, or the archives in a folder that holds no unpacked export."""
    if not root.is_dir():
        return [root]
    files = open_export(root)
    try:
        if find_names(files, pattern):
            return [root]
    finally:
        files.close()
    return sorted(root.glob("*.zip"), key=lambda path: (path.stat().st_mtime, path.name))

"""A git repository, read from its files: git itself never runs, and neither settings nor hooks are looked at.

Only the first parents of HEAD are its history here. Objects that a repository borrows from elsewhere, and the history
of a linked worktree, are outside of the project's folder and are not read.
"""

import re
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import BinaryIO, Final

from msgspec import Struct

from wellkept.core.text import expression
from wellkept.projectfacts.folder import Folder, Unknown

MOST_OBJECT_BYTES: Final = 2_000_000
MOST_FILES: Final = 100_000
"""In a larger tree nothing is checked."""
_MOST_DELTAS: Final = 60
"""Git makes chains of at most 50."""
_MOST_REFS_BYTES: Final = 4_000_000
_MOST_PATH: Final = 300
_MOST_LOG_BYTES: Final = 1_000_000
_MOST_INDEX_BYTES: Final = 30_000_000
_MOST_PACKS: Final = 60
_MOST_NODES: Final = 200_000
"""Entries of folders that are remembered."""
_MOST_KEPT_BYTES: Final = 20_000_000
_MOST_HOPS: Final = 5
_MODE: Final = expression(rb"[0-7]{5,6}")
_ID: Final = expression(rb"[0-9a-f]{40}")
_REF: Final = expression(r"(?!.*\.\.)(?!.*//)\w[\w./@+-]*(?<![/.])")
_FIELDS: Final = expression(
    rb"tree ([0-9a-f]{40})\n(?:parent ([0-9a-f]{40})\n)?(?:parent [0-9a-f]{40}\n)*"
    rb"author [^\n]*\ncommitter [^\n]*> (\d{1,12}) [+-]\d+\n"
)
_MOVES: Final = expression(rb"\tcheckout: moving from (\S+) to (\S+)")
_RENAMES: Final = expression(rb"\tBranch: renamed refs/heads/(\S+) to refs/heads/(\S+)")
_KINDS: Final = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_OFFSET_DELTA: Final = 6
_NAMED_DELTA: Final = 7
_LARGE_OFFSET: Final = 0x80000000
_FANOUT: Final = 8 + 1024
_FOLDER: Final = 0o040000
_FIRST_READ: Final = 1_024
"""Most commits and trees are smaller than this, packed."""
_ENTRY_HEAD: Final = 62
"""Bytes of an entry of the index before its path."""
_MIDWAY: Final = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply")
"""While one of them exists, the files are those of a step of some work."""


class Commit(Struct, frozen=True):
    """One commit of the history."""

    id: str
    tree: str
    parent: str | None
    time: int


class Node(Struct, frozen=True):
    """A file or folder of a commit."""

    mode: int
    id: str

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.mode == _FOLDER


class _Pack:
    """A pack and its index, of version 2."""

    def __init__(self, index: BinaryIO, data: BinaryIO) -> None:
        self._index = index
        self._data = data
        head = index.read(_FANOUT)
        is_known = head[:8] == b"\xfftOc\0\0\0\2" and len(head) == _FANOUT
        self._fanout: tuple[int, ...] = struct.unpack(">256I", head[8:]) if is_known else ()
        self._names: dict[int, bytes] = {}
        self.inflated: dict[int, tuple[str, bytes]] = {}
        """What was read before, by its offset."""

    def find(self, name: bytes) -> int | None:
        """Return the offset of an object in the pack."""
        if not self._fanout:
            return None
        first = name[0]
        low, high = (self._fanout[first - 1] if first else 0), self._fanout[first]
        if first not in self._names:
            if not 0 <= high - low <= MOST_OBJECT_BYTES // 20:
                raise Unknown("a huge pack")
            self._names[first] = self._read_index(_FANOUT + 20 * low, 20 * (high - low))
        names, place = self._names[first], -1
        while (place := names.find(name, place + 1)) >= 0:
            if place % 20 == 0:
                return self._offset(low + place // 20)
        return None

    def _offset(self, number: int) -> int:
        count = self._fanout[255]
        table = _FANOUT + 24 * count
        (offset,) = struct.unpack(">I", self._read_index(table + 4 * number, 4))
        if offset < _LARGE_OFFSET:
            return int(offset)
        (large,) = struct.unpack(">Q", self._read_index(table + 4 * count + 8 * (offset - _LARGE_OFFSET), 8))
        return int(large)

    def _read_index(self, place: int, size: int) -> bytes:
        self._index.seek(place)
        data = self._index.read(size)
        if len(data) != size:
            raise Unknown("a damaged index of a pack")
        return data

    def read(self, offset: int) -> tuple[int, int | bytes | None, bytes]:
        """Return the kind of what is at an offset, the base of a delta, and the inflated bytes."""
        self._data.seek(offset)
        chunk = self._data.read(_FIRST_READ)
        try:
            kind, size, place = _read_head(chunk)
            base: int | bytes | None = None
            if kind == _OFFSET_DELTA:
                back, place = _read_distance(chunk, place)
                if not 0 < back < offset:
                    raise Unknown("a damaged pack")
                base = offset - back
            elif kind == _NAMED_DELTA:
                base, place = chunk[place : place + 20], place + 20
        except IndexError as error:
            raise Unknown("a damaged pack") from error
        if size > MOST_OBJECT_BYTES:
            raise Unknown("a huge object")
        return kind, base, self._inflate(chunk[place:], size)

    def _inflate(self, chunk: bytes, size: int) -> bytes:
        inflater = zlib.decompressobj()
        try:
            data = inflater.decompress(chunk, size + 1)
            while len(data) < size and not inflater.eof:
                more = inflater.unconsumed_tail or self._data.read(4 * _FIRST_READ)
                if not more:
                    break
                data += inflater.decompress(more, size + 1 - len(data))
        except zlib.error as error:
            raise Unknown("a damaged object") from error
        if len(data) != size:
            raise Unknown("a damaged object")
        return data


def _read_head(chunk: bytes) -> tuple[int, int, int]:
    byte, place, shift = chunk[0], 1, 4
    kind, size = byte >> 4 & 7, byte & 15
    while byte & 128:
        byte = chunk[place]
        size |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
    return kind, size, place


def _read_distance(chunk: bytes, place: int) -> tuple[int, int]:
    byte = chunk[place]
    distance, place = byte & 127, place + 1
    while byte & 128:
        byte = chunk[place]
        distance, place = (distance + 1 << 7) | byte & 127, place + 1
    return distance, place


def _read_size(delta: bytes, place: int) -> tuple[int, int]:
    size = shift = 0
    while True:
        byte = delta[place]
        size |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if not byte & 128:
            return size, place


def _read_packed(delta: bytes, place: int, bits: int, width: int) -> tuple[int, int]:
    value = 0
    for number in range(width):
        if bits >> number & 1:
            value |= delta[place] << 8 * number
            place += 1
    return value, place


def _apply_delta(base: bytes, delta: bytes) -> bytes:
    """Return what a delta makes of its base; raise Unknown for a damaged one."""
    try:
        expected, place = _read_size(delta, 0)
        size, place = _read_size(delta, place)
        if expected != len(base) or size > MOST_OBJECT_BYTES:
            raise Unknown("a damaged delta")
        parts, length = [], 0
        while place < len(delta) and length <= size:
            code, place = delta[place], place + 1
            if code & 128:
                start, place = _read_packed(delta, place, code & 15, 4)
                count, place = _read_packed(delta, place, code >> 4 & 7, 3)
                part = base[start : start + (count or 0x10000)]
            else:
                part, place = delta[place : place + code], place + code
            parts.append(part)
            length += len(part)
    except IndexError as error:
        raise Unknown("a damaged delta") from error
    if length != size:
        raise Unknown("a damaged delta")
    return b"".join(parts)


class Repository:
    """The objects, the branches and the index of a repository."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._packs: list[_Pack] | None = None
        self._files: list[BinaryIO] = []
        self._objects: dict[bytes, tuple[str, bytes]] = {}
        self._trees: dict[str, Mapping[bytes, Node]] = {}
        self._index: bytes | None = None
        self._kept_bytes = 0
        self._nodes = 0

    def close(self) -> None:
        """Close the packs."""
        for file in self._files:
            file.close()
        self._files, self._packs = [], None

    # objects

    def read(self, name: str) -> tuple[str, bytes]:
        """Return the kind and the bytes of an object; raise Unknown if it is not here."""
        return self._read(bytes.fromhex(name), 0)

    def _read(self, name: bytes, depth: int) -> tuple[str, bytes]:
        known = self._objects.get(name)
        if known is not None:
            return known
        self._folder.budget.spend()
        found = self._read_loose(name.hex()) or self._read_packed(name, depth)
        if found is None:
            raise Unknown("an object is missing")
        if found[0] == "commit":
            self._objects[name] = found
        return found

    def _read_loose(self, name: str) -> tuple[str, bytes] | None:
        raw = self._folder.read(f".git/objects/{name[:2]}/{name[2:]}", most=MOST_OBJECT_BYTES)
        if raw is None:
            return None
        try:
            data = zlib.decompressobj().decompress(raw, MOST_OBJECT_BYTES)
        except zlib.error as error:
            raise Unknown("a damaged object") from error
        head, _, body = data.partition(b"\0")
        kind, _, size = head.partition(b" ")
        if not size.isdigit() or int(size) != len(body):
            raise Unknown("a damaged or huge object")
        return kind.decode("ascii", "replace"), body

    def _read_packed(self, name: bytes, depth: int) -> tuple[str, bytes] | None:
        for pack in self._open_packs():
            offset = pack.find(name)
            if offset is not None:
                return self._read_entry(pack, offset, depth)
        return None

    def _read_entry(self, pack: _Pack, offset: int, depth: int) -> tuple[str, bytes]:
        chain: list[tuple[int, bytes]] = []
        while True:
            known = pack.inflated.get(offset)
            if known is not None:
                word, data = known
                break
            self._folder.budget.spend()
            if len(chain) + depth > _MOST_DELTAS:
                raise Unknown("a chain of deltas is too long")
            kind, base, data = pack.read(offset)
            if base is None:
                if kind not in _KINDS:
                    raise Unknown("a damaged pack")
                word = _KINDS[kind]
                self._keep(pack, offset, word, data)
                break
            chain.append((offset, data))
            if isinstance(base, bytes):
                word, data = self._read(base, depth + len(chain))
                break
            offset = base
        for place, delta in reversed(chain):
            data = _apply_delta(data, delta)
            self._keep(pack, place, word, data)
        return word, data

    def _keep(self, pack: _Pack, offset: int, word: str, data: bytes) -> None:
        """Remember a folder in a pack: others are stored as differences from it."""
        if word != "tree":
            return
        self._kept_bytes += len(data)
        if self._kept_bytes > _MOST_KEPT_BYTES:
            pack.inflated.clear()
            self._kept_bytes = len(data)
        pack.inflated[offset] = word, data

    def _open_packs(self) -> list[_Pack]:
        if self._packs is None:
            names = self._folder.names(".git/objects/pack")
            self._packs = []
            for name in [name for name in names if name.endswith(".idx")][:_MOST_PACKS]:
                index = self._folder.open(f".git/objects/pack/{name}")
                data = self._folder.open(f".git/objects/pack/{name.removesuffix('.idx')}.pack")
                self._files += [file for file in (index, data) if file is not None]
                if index is not None and data is not None:
                    self._packs.append(_Pack(index, data))
        return self._packs

    # commits and trees

    def commit(self, name: str) -> Commit:
        """Return a commit; raise Unknown for anything else."""
        kind, data = self.read(name)
        fields = _FIELDS.match(data)
        if kind != "commit" or fields is None:
            raise Unknown("not a commit")
        tree, parent, time = fields.groups()
        return Commit(name, tree.decode(), None if parent is None else parent.decode(), int(time))

    def tree(self, name: str) -> Mapping[bytes, Node]:
        """Return what is in a folder."""
        if name not in self._trees:
            kind, data = self.read(name)
            if kind != "tree":
                raise Unknown("not a folder")
            nodes = _parse_tree(data)
            self._nodes += len(nodes)
            if self._nodes > _MOST_NODES:
                self._trees.clear()
                self._nodes = len(nodes)
            self._trees[name] = nodes
        return self._trees[name]

    def find(self, tree: str, path: str) -> Node | None:
        """Return what is at a path below a tree, None if nothing is."""
        node = Node(_FOLDER, tree)
        for part in path.encode("utf-8", "surrogateescape").split(b"/"):
            if not node.is_folder:
                return None
            below = self.tree(node.id).get(part)
            if below is None:
                return None
            node = below
        return node

    def content(self, tree: str, path: str) -> bytes | None:
        """Return the bytes of a file of a tree, None if there is none."""
        node = self.find(tree, path)
        if node is None or node.is_folder:
            return None
        kind, data = self.read(node.id)
        return data if kind == "blob" else None

    # references

    def head(self) -> str | None:
        """Return the commit that is checked out; None in an empty repository."""
        return self.resolve("HEAD")

    def resolve(self, ref: str) -> str | None:
        """Return the commit of a reference, None if there is no such reference."""
        for _ in range(_MOST_HOPS):
            target = self.target(ref)
            if target is None:
                return self._packed(ref)
            if _ID.fullmatch(target):
                return target.decode()
            ref = target.removeprefix(b"ref: ").decode("utf-8", "replace")
            if not target.startswith(b"ref: ") or not _REF.fullmatch(ref):
                return None
        return None

    def target(self, ref: str) -> bytes | None:
        """Return the text of a reference's file: a commit, or `ref: ` and another reference."""
        if not _REF.fullmatch(ref):
            return None
        data = self._folder.read(f".git/{ref}", most=_FIRST_READ)
        return None if data is None else data.strip()

    def _packed(self, ref: str) -> str | None:
        data = self._folder.read(".git/packed-refs", most=_MOST_REFS_BYTES) or b""
        line = re.search(rb"^([0-9a-f]{40}) %s$" % re.escape(ref.encode()), data, re.MULTILINE)
        return None if line is None else line[1].decode()

    def has_branch(self, name: str) -> bool:
        """Whether there is such a branch, here or at a remote as far as it was fetched."""
        if self.resolve(f"refs/heads/{name}") is not None:
            return True
        remotes = self._folder.names(".git/refs/remotes")
        packed = self._folder.read(".git/packed-refs", most=_MOST_REFS_BYTES) or b""
        is_packed = re.search(rb" refs/remotes/[^/\n]+/%s$" % re.escape(name.encode()), packed, re.MULTILINE)
        return bool(is_packed) or any(self.target(f"refs/remotes/{remote}/{name}") for remote in remotes)

    def former_branches(self) -> dict[str, str | None]:
        """Return the branches that were once checked out here, each with its later name if it was renamed."""
        log = self._folder.read_end(".git/logs/HEAD", most=_MOST_LOG_BYTES) or b""
        names: dict[str, str | None] = {}
        for line in log.split(b"\n"):
            for name in moves.groups() if (moves := _MOVES.search(line)) else ():
                names.setdefault(name.decode("utf-8", "replace"), None)
            if (rename := _RENAMES.search(line)) is not None:
                names[rename[1].decode("utf-8", "replace")] = rename[2].decode("utf-8", "replace")
        return names

    # the index

    @property
    def index(self) -> bytes:
        """The bytes of the index; empty if there is none, or if it is of the form that shortens paths."""
        if self._index is None:
            data = self._folder.read(".git/index", most=_MOST_INDEX_BYTES) or b""
            version = int.from_bytes(data[4:8], "big")
            self._index = data if data[:4] == b"DIRC" and version in {2, 3} else b""
        return self._index

    def is_huge(self) -> bool:
        """Whether more files are tracked than are checked; the head of the index counts them."""
        file = self._folder.open(".git/index")
        if file is None:
            return False
        with file:
            head = file.read(12)
        return int.from_bytes(head[8:12], "big") > MOST_FILES

    def is_tracked(self, path: str) -> bool:
        """Whether a file is in the index, or any file below a folder."""
        name = path.encode("utf-8", "surrogateescape")
        return any(
            len(name) == length or length == 0xFFF or self.index[place + len(name) : place + len(name) + 1] == b"/"
            for place in self._find_all(b"%s" % name)
            for length in [int.from_bytes(self.index[place - 2 : place], "big") & 0xFFF]
            if length >= len(name)
        )

    def _find_all(self, text: bytes) -> list[int]:
        return [match.start() for match in re.finditer(re.escape(text), self.index)]

    def has_name(self, name: str) -> bool:
        """Whether a tracked file has this name, in any folder."""
        return b"/%s\0" % name.encode("utf-8", "surrogateescape") in self.index or self.is_tracked(name)

    def list_named(self, name: str) -> list[str]:
        """Return the tracked files with a name."""
        text = b"%s\0" % name.encode("utf-8", "surrogateescape")
        paths = []
        for place in self._find_all(text):
            # the length of a path stands before it, as far back as the path is long
            for start in range(place, max(0, place - _MOST_PATH), -1):
                length = place + len(text) - 1 - start
                if int.from_bytes(self.index[start - 2 : start], "big") & 0xFFF == length:
                    paths.append(self.index[start : start + length])
                    break
        return [path.decode("utf-8", "surrogateescape") for path in paths if path.rpartition(b"/")[2] == text[:-1]]

    def find_staged(self, node: Node) -> str | None:
        """Return a path under which a file is in the index."""
        place = self.index.find(bytes.fromhex(node.id))
        if place < 0:
            return None
        flags = int.from_bytes(self.index[place + 20 : place + 22], "big")
        start = place + (24 if flags & 0x4000 else 22)
        path = self.index[start : self.index.find(b"\0", start)]
        return path.decode("utf-8", "replace") if len(path) == flags & 0xFFF else None

    def is_midway(self) -> bool:
        """Whether a merge or the like is unfinished, or only a part of the files is checked out."""
        with suppress(Unknown):
            return any(self._folder.kind(f".git/{name}") for name in (*_MIDWAY, "info/sparse-checkout"))
        return True


def _parse_tree(data: bytes) -> dict[bytes, Node]:
    nodes, place = {}, 0
    while place < len(data):
        end = data.find(b"\0", place)
        mode, _, name = data[place:end].partition(b" ")
        if end < 0 or not name or not _MODE.fullmatch(mode) or len(data) < end + 21:
            raise Unknown("a damaged folder")
        nodes[name] = Node(int(mode, 8), data[end + 1 : end + 21].hex())
        place = end + 21
    return nodes


def open_repository(folder: Folder) -> Repository | None:
    """Return the repository of a folder; None without one of its own, or in a form that is not read here."""
    if folder.kind(".git") != "folder" or folder.kind(".git/objects") != "folder":
        return None
    return Repository(folder)

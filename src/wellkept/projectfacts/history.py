"""The history of a project: its commits along the first parents, and what left it or was renamed on the way."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Final

from msgspec import Struct

from wellkept.core.text import expression
from wellkept.projectfacts.folder import Unknown
from wellkept.projectfacts.git import Commit, Node, Repository

_MOST_COMMITS: Final = 50_000
_MOST_CHANGES: Final = 3_000
"""Files that one commit may add and remove, for a rename to be looked for."""
_MOST_COMPARED: Final = 15
_LEAST_ALIKE: Final = 0.5
"""Share of common bytes from which git calls it a rename."""
_LEAST_LIKE_NAMESAKE: Final = 0.2
"""The same for a file that kept its name."""
_COMMON_NAMES: Final = expression(
    r"(?i:readme|index|main|mod|lib|app|util|utils|config|settings|test|__init__)\..*|[A-Z]\w*file"
)
_TELLING_BYTES: Final = 32
"""Shorter files are alike by chance."""


class Departure(Struct, frozen=True):
    """The last commit that had something, and the next one."""

    before: Commit
    after: Commit


class History:
    """The commits of HEAD, read as far as necessary."""

    def __init__(self, repository: Repository, head: str) -> None:
        self.repository = repository
        self._commits = [repository.commit(head)]

    @property
    def head(self) -> Commit:
        """The commit that is checked out."""
        return self._commits[0]

    def walk(self) -> Iterator[Commit]:
        """Yield the commits, the newest first."""
        place = 0
        while place < len(self._commits):
            yield self._commits[place]
            place += 1
            if place == len(self._commits) < _MOST_COMMITS and (parent := self._commits[-1].parent) is not None:
                self._commits.append(self.repository.commit(parent))

    def at(self, moment: float) -> Commit | None:
        """Return the commit of a moment, None if that was before the first."""
        return next((commit for commit in self.walk() if commit.time <= moment), None)

    def contains(self, name: str, *, since: float) -> bool:
        """Whether a commit is among those after a moment, or a bit before it."""
        for commit in self.walk():
            if commit.id == name:
                return True
            if commit.time < since:
                return False
        return False

    def find_departure(self, has: Callable[[Commit], bool], *, known: Commit | None) -> Departure | None:
        """Return where something left that HEAD does not have; None if no commit had it.

        `known` is a commit that has it, if one is known: then few commits between are looked at.
        """
        if known is not None:
            commits = list(takewhile(lambda commit: commit.id != known.id, self.walk()))
            commits.append(known)
            place = bisect_left(commits, True, key=has)
            return Departure(commits[place], commits[place - 1])
        newer = self.head
        for commit in self.walk():
            if has(commit):
                return Departure(commit, newer)
            newer = commit
        return None

    def find_new_path(self, path: str, departure: Departure) -> str | None:
        """Return what a file or folder was renamed to by the commit that removed it."""
        node = self.repository.find(departure.before.tree, path)
        if node is None:
            return None
        changes = _Changes(self.repository)
        changes.compare(departure.before.tree, departure.after.tree, "")
        if node.is_folder:
            return changes.find_folder(path)
        return changes.find_file(path, node) or self._find_namesake(path, node, departure)

    def _find_namesake(self, path: str, node: Node, departure: Departure) -> str | None:
        """Return a file of the same name that is somewhat like a removed one, and was not there beside it."""
        kind, data = self.repository.read(node.id)
        for other in self.repository.list_named(_name(path))[:_MOST_COMPARED]:
            now = self.repository.find(self.head.tree, other)
            if now is None or self.repository.find(departure.before.tree, other) is not None or kind != "blob":
                continue
            if len(data) >= _TELLING_BYTES and _likeness(data, self.repository.read(now.id)[1]) >= _LEAST_LIKE_NAMESAKE:
                return other
        return None


class _Changes:
    """The files that are in only one of two trees."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._removed: dict[str, Node] = {}
        self._added: dict[str, Node] = {}

    def compare(self, old: str | None, new: str | None, prefix: str) -> None:
        before = self._repository.tree(old) if old is not None else {}
        after = self._repository.tree(new) if new is not None else {}
        for name in {**before, **after}:
            was, now = before.get(name), after.get(name)
            if was is not None and now is not None and (was.id == now.id or was.is_folder is now.is_folder is False):
                continue
            path = prefix + name.decode("utf-8", "surrogateescape")
            old_folder, new_folder = (node.id if node is not None and node.is_folder else None for node in (was, now))
            if old_folder is not None or new_folder is not None:
                self.compare(old_folder, new_folder, f"{path}/")
            if was is not None and old_folder is None:
                self._removed[path] = was
            if now is not None and new_folder is None:
                self._added[path] = now
            if len(self._removed) + len(self._added) > _MOST_CHANGES:
                raise Unknown("a commit that changes too many files")

    def find_file(self, path: str, node: Node) -> str | None:
        name = _name(path)
        data = self._read(node)
        is_telling = len(data) >= _TELLING_BYTES
        same = [
            other for other, now in self._added.items() if now.id == node.id and (is_telling or _name(other) == name)
        ]
        if same:
            return min(same, key=lambda other: (_name(other) != name, other))
        if not is_telling:
            return None
        ending = name.rpartition(".")[2]
        nearest = sorted(self._added, key=lambda other: (_name(other) != name, not other.endswith(ending), other))
        scores = [(_likeness(data, self._read(self._added[other])), other) for other in nearest[:_MOST_COMPARED]]
        score, best = max(scores, default=(0.0, ""))
        namesakes = [other for other in self._added if _name(other) == name]
        if len(namesakes) == 1 and not _COMMON_NAMES.fullmatch(name):
            return namesakes[0]  # moved and rewritten in one commit
        return best if score >= (_LEAST_LIKE_NAMESAKE if _name(best) == name else _LEAST_ALIKE) else None

    def find_folder(self, path: str) -> str | None:
        """Return the folder to which most files of a folder went."""
        left = {name: was for name, was in self._removed.items() if name.startswith(f"{path}/")}
        targets: Counter[str] = Counter()
        for name, was in left.items():
            end = name.removeprefix(path)
            same = (other for other, now in self._added.items() if now.id == was.id and other.endswith(end))
            # a file goes to one folder only, however often its content is there
            targets.update({other.removesuffix(end) for other in same})
        best, count = next(iter(targets.most_common(1)), ("", 0))
        return best if best and count * 2 >= len(left) else None

    def _read(self, node: Node) -> bytes:
        kind, data = self._repository.read(node.id)
        return data if kind == "blob" else b""


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _likeness(old: bytes, new: bytes) -> float:
    """Return the share of bytes in common lines, as git counts it."""
    if not old or not new or b"\0" in old[:8_000]:
        return 0.0
    common = Counter(old.split(b"\n")) & Counter(new.split(b"\n"))
    return sum((len(line) + 1) * count for line, count in common.items()) / max(len(old), len(new))

"""The check of entries against a project: a verdict on each claim, or none where nothing is certain."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar, assert_never, cast

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.clock import from_epoch, iso_moment
from wellkept.core.text import JSON, expression, printable
from wellkept.projectfacts import manifests
from wellkept.projectfacts.claims import (
    BranchClaim,
    Claim,
    CommandClaim,
    PathClaim,
    TargetClaim,
    ValueClaim,
    VersionClaim,
    read_claims,
)
from wellkept.projectfacts.folder import Budget, Folder, Unknown
from wellkept.projectfacts.git import Commit, Node, Repository, open_repository
from wellkept.projectfacts.history import Departure, History
from wellkept.projectfacts.remembered import Remembered, digest_question

T = TypeVar("T")

MOST_ENTRIES: Final = 100
_MOST_NEW_COMMITS: Final = 60
"""How many commits after a thorough check its answers are still used."""
_MOST_HOPS: Final = 5
"""How often a name is followed from one rename to the next."""
_MOST_CONFIG_BYTES: Final = 256_000
_MOST_CONFIG_FILES: Final = 40
_MOST_FOLDERS: Final = 40
_CONFIG_FILES: Final = expression(
    r"(?:docker-)?compose[\w.-]*\.ya?ml|\.env\.\w+|Dockerfile|Procfile|Makefile|justfile|package\.json"
    r"|[\w.-]+\.(?:toml|ya?ml|ini|cfg|conf|properties|env)|[\w-]+\.config\.[cm]?[jt]s|settings\.\w+|config\.\w+"
)
_CONFIG_FOLDERS: Final = ("config", "conf", "settings", "etc", "deploy", "docker", ".devcontainer")
_MAIN_BRANCHES: Final = ("refs/remotes/origin/HEAD", "refs/heads/main", "refs/heads/master")


class Verdict(StrEnum):
    """What the project says about a claim, the gravest first."""

    GONE = "gone"
    RENAMED = "renamed"
    DIFFERS = "differs"
    """A lock file has another version."""
    CHANGED = "changed"
    HOLDS = "holds"


_WORDS: Final = {
    Verdict.GONE: "is gone",
    Verdict.RENAMED: "was renamed",
    Verdict.DIFFERS: "is another version in the lock file",
    Verdict.CHANGED: "changed since",
    Verdict.HOLDS: "still so",
}


class Finding(Struct, frozen=True):
    """A claim and its verdict."""

    claim: str
    """In words, as the entry names it: `src/app.py`, `make lint`, `django 4.2`."""
    verdict: Verdict
    now: str | None = None
    """The new name of what was renamed, or the locked version."""
    since: float | None = None
    """When the commit was made that changed it."""
    is_file: bool = False
    """Whether it is about a file or folder as such."""
    is_committed: bool = True
    """Whether the change is in a commit, and not only in the working tree."""

    @property
    def line(self) -> str:
        """The finding for a person to read."""
        day = "" if self.since is None else f", since {from_epoch(self.since):%Y-%m-%d}"
        how = "" if self.is_committed else ", not committed"
        now = "" if self.now is None else f": {printable(self.now)}"
        return f"{self.claim} {_WORDS[self.verdict]}{now}{day}{how}"

    def as_json(self) -> dict[str, JSON]:
        """Return the finding as `kept memory check --json` prints it."""
        since = None if self.since is None else iso_moment(self.since)
        return {"claim": self.claim, "verdict": self.verdict.value, "now": self.now, "since": since,
                "committed": self.is_committed}  # fmt: skip


class Limits(Struct, frozen=True):
    """How much a check may read, and how closely it looks."""

    seconds: float
    steps: int
    """Files and objects that are read."""
    is_thorough: bool
    """Whether files that changed since an entry was written are found as well."""


START: Final = Limits(0.015, 2_000, is_thorough=False)
"""At the start of a session, which nobody may have to wait for."""
SHOWN: Final = Limits(0.25, 50_000, is_thorough=True)
"""For a screen that a person has opened."""
THOROUGH: Final = Limits(10.0, 500_000, is_thorough=True)


class Checked(Struct, frozen=True):
    """What could be said with certainty about entries, and what to remember for the next check."""

    findings: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    """By entry, the gravest first."""
    remembered: Remembered | None = None
    """None where there is no history."""


def check_entries(
    root: Path,
    entries: Mapping[str, float | None],
    limits: Limits = THOROUGH,
    *,
    remembered: Remembered | None = None,
) -> Checked:
    """Check entries, each given with the time of its last change.

    Reads only below `root` and runs nothing. What would exceed the limits is left out. `remembered` is what an earlier
    check of the same project found; a thorough one looks again.
    """
    folder = Folder(root, Budget(seconds=limits.seconds, steps=limits.steps))
    project = _Project(folder, thorough=limits.is_thorough, remembered=remembered or Remembered())
    try:
        if project.is_huge():
            return Checked()
        findings = {
            entry: tuple(found)
            for entry, written in list(entries.items())[:MOST_ENTRIES]
            if not folder.budget.is_over and (found := project.check(entry, written))
        }
        return Checked(findings, project.remembered)
    finally:
        project.close()


class _Project:
    """A project during one check."""

    def __init__(self, folder: Folder, *, thorough: bool, remembered: Remembered) -> None:
        self._folder = folder
        self._thorough = thorough
        self._known = remembered
        self._steps: dict[str, tuple[str, ...]] = {}
        self._question: Claim | None = None
        self._repository: Repository | None = None
        self._history: History | None = None
        try:
            self._repository = open_repository(folder)
            head = self._repository.head() if self._repository is not None else None
            if self._repository is not None and head is not None:
                self._history = History(self._repository, head)
        except Unknown:
            pass
        self._readings: dict[tuple[str, bytes], object] = {}
        self._config_files: list[str] | None = None

    def close(self) -> None:
        if self._repository is not None:
            self._repository.close()

    def is_huge(self) -> bool:
        try:
            return self._repository is not None and self._repository.is_huge()
        except Unknown:
            return True

    def check(self, entry: str, written: float | None) -> list[Finding]:
        findings = []
        for claim in read_claims(entry):
            self._question = claim
            try:
                finding = self._judge(claim, written)
            except Unknown:
                continue
            if finding is not None:
                findings.append(finding)
        if any(not finding.is_file for finding in findings):
            # of a file that is named as the place of something, only that something counts
            findings = [_without_change(finding) for finding in findings]
        order = list(Verdict)
        return sorted(findings, key=lambda finding: order.index(finding.verdict))

    def _judge(self, claim: Claim, written: float | None) -> Finding | None:
        match claim:
            case PathClaim():
                return self._judge_path(claim, written)
            case TargetClaim():
                return self._judge_target(claim, written)
            case CommandClaim():
                return self._judge_command(claim, written)
            case VersionClaim():
                return self._judge_version(claim, written)
            case ValueClaim():
                return self._judge_value(claim, written)
            case BranchClaim():
                return self._judge_branch(claim)
            case _:
                assert_never(claim)

    # files and folders

    def _judge_path(self, claim: PathClaim, written: float | None) -> Finding | None:
        kind = self._folder.kind(claim.path)
        if kind is not None:
            is_changed = kind == "file" and self._has_changed(claim.path, written)
            return Finding(claim.text, Verdict.CHANGED if is_changed else Verdict.HOLDS, is_file=True)
        history = self._history
        if history is None or history.repository.is_midway() or self._is_ignored(claim.path):
            return None
        if "/" not in claim.path and history.repository.has_name(claim.path):
            return Finding(claim.text, Verdict.HOLDS, is_file=True)  # in some folder
        node = history.repository.find(history.head.tree, claim.path)
        if node is not None:
            return self._judge_uncommitted(claim, node, history.repository)
        # what may be no path at all is looked up only in the tree of its time
        has = partial(_has_path, history.repository, claim.path)
        departure = self._find_departure(has, written, only_then=not claim.is_sure)
        if departure is None or self._is_elsewhere(claim.path, departure):
            return None
        return self._follow(claim, departure)

    def _judge_uncommitted(self, claim: PathClaim, node: Node, repository: Repository) -> Finding | None:
        """Judge what HEAD has and the working tree has not."""
        if not repository.index:
            return None
        is_staged = not repository.is_tracked(claim.path) and not node.is_folder
        new = repository.find_staged(node) if is_staged else None
        if new is not None and self._folder.kind(new) is not None:
            return Finding(claim.text, Verdict.RENAMED, new, is_file=True, is_committed=False)
        return Finding(claim.text, Verdict.GONE, is_file=True, is_committed=False)

    def _has_changed(self, path: str, written: float | None) -> bool:
        if not self._thorough or written is None or self._history is None:
            return False
        then = self._find_then(written)
        if then is None:
            return False
        nodes = [self._history.repository.find(tree, path) for tree in (then.tree, self._history.head.tree)]
        return nodes[0] is not None and nodes[1] is not None and nodes[0].id != nodes[1].id

    def _follow(self, claim: PathClaim, departure: Departure) -> Finding:
        """Follow a name from rename to rename, to a file that is there or to its end."""
        history, path, since = self._history, claim.path, float(departure.after.time)
        assert history is not None
        for _ in range(_MOST_HOPS):
            new = history.find_new_path(path, departure)
            if new is None:
                break
            if self._folder.kind(new) is not None:
                return Finding(claim.text, Verdict.RENAMED, new, since, is_file=True)
            has = partial(_has_path, history.repository, new)
            if has(history.head) or not has(departure.after):
                break
            further = history.find_departure(has, known=departure.after)
            assert further is not None
            path, departure = new, further
        return Finding(claim.text, Verdict.GONE, None, since, is_file=True)

    def _is_elsewhere(self, path: str, departure: Departure) -> bool:
        """Whether a main branch that is not a part of this history still has a path."""
        history = self._history
        assert history is not None
        for ref in _MAIN_BRANCHES:
            tip = history.repository.resolve(ref)
            if tip is None or tip == history.head.id or history.contains(tip, since=departure.before.time):
                continue
            commit = history.repository.commit(tip)
            # what is older than the removal cannot know of it
            if commit.time > departure.after.time and history.repository.find(commit.tree, path) is not None:
                return True
        return False

    def _is_ignored(self, path: str) -> bool:
        """Whether git ignores a path; only the file in the root is read, and what it takes back counts as ignored."""
        data = self._folder.read(".gitignore", most=_MOST_CONFIG_BYTES)
        parts = path.split("/")
        names = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        for line in manifests.decode(data or b"").splitlines():
            rule = line.strip().lstrip("!").rstrip("/")
            if not rule or rule.startswith("#"):
                continue
            if "/" in rule:
                if any(fnmatchcase(name, rule.lstrip("/").removeprefix("**/")) for name in names):
                    return True
            elif any(fnmatchcase(part, rule) for part in parts):
                return True
        return False

    def _find_departure(
        self, has: Callable[[Commit], bool], written: float | None, *, only_then: bool = False
    ) -> Departure | None:
        history = self._history
        if history is None:
            return None

        def search() -> tuple[Commit, ...]:
            then = self._find_then(written)
            known = then if then is not None and has(then) else None
            found = history.find_departure(has, known=known) if known is not None or not only_then else None
            return () if found is None else (found.before, found.after)

        steps = self._remember((self._question, written), search)
        return Departure(steps[0], steps[1]) if len(steps) == 2 else None

    def _find_then(self, written: float | None) -> Commit | None:
        """Return the commit after which an entry was written."""
        history = self._history
        if written is None or history is None:
            return None

        def search() -> tuple[Commit, ...]:
            commit = history.at(written)
            return () if commit is None else (commit,)

        return next(iter(self._remember(("at", written), search)), None)

    def _remember(self, question: object, search: Callable[[], tuple[Commit, ...]]) -> tuple[Commit, ...]:
        """Return the commits that answer a question, from the last thorough check if it was of this history."""
        history, key = self._history, digest_question(question)
        assert history is not None
        if not self._thorough and key in self._known.steps and self._is_known_history:
            return tuple(history.repository.commit(name) for name in self._known.steps[key])
        commits = search()
        self._steps[key] = tuple(commit.id for commit in commits)
        return commits

    @cached_property
    def _is_known_history(self) -> bool:
        history = self._history
        assert history is not None
        return any(commit.id == self._known.head for commit in islice(history.walk(), _MOST_NEW_COMMITS))

    @property
    def remembered(self) -> Remembered | None:
        return None if self._history is None else Remembered(self._history.head.id, self._steps)

    # targets and commands

    def _judge_target(self, claim: TargetClaim, written: float | None) -> Finding | None:
        files = {"make": manifests.MAKEFILES, "just": manifests.JUSTFILES, "npm run": ("package.json",)}[claim.runner]
        now = self._recipes(claim.runner, files, None)
        if now is None:
            return None
        if claim.name in now:
            then = self._find_then(written)
            earlier = None if then is None else self._recipes(claim.runner, files, then)
            was = None if earlier is None else earlier.get(claim.name)
            is_same = was is None or was == now[claim.name]
            return Finding(claim.text, Verdict.HOLDS if is_same else Verdict.CHANGED)
        steps = self._leave(lambda commit: claim.name in (self._recipes(claim.runner, files, commit) or {}), written)
        if steps is None:
            return None
        before, after = (self._recipes(claim.runner, files, state) or {} for state in steps)
        new = [name for name in after if name not in before and after[name] == before[claim.name]]
        since = None if steps[1] is None else float(steps[1].time)
        if len(new) == 1 and new[0] in now and before[claim.name].strip():
            name = f"{claim.runner} {new[0]}"
            return Finding(claim.text, Verdict.RENAMED, name, since, is_committed=since is not None)
        return Finding(claim.text, Verdict.GONE, None, since, is_committed=since is not None)

    def _recipes(self, runner: str, files: Sequence[str], state: Commit | None) -> Mapping[str, str] | None:
        for file in files:
            data = self._read(file, state)
            if data is not None:
                return self._once(f"recipes {runner}", data, partial(manifests.read_recipes, runner))
        return {}

    def _judge_command(self, claim: CommandClaim, written: float | None) -> Finding | None:
        def has(state: Commit | None) -> bool:
            return any(
                claim.name in self._once(f"commands {file}", data, partial(manifests.read_commands, file))
                for file in ("pyproject.toml", "package.json")
                if (data := self._read(file, state)) is not None
            )

        if has(None):
            return Finding(claim.text, Verdict.HOLDS)
        return self._report_left(claim, Verdict.GONE, self._leave(has, written))

    # versions

    def _judge_version(self, claim: VersionClaim, written: float | None) -> Finding | None:
        package = manifests.ALIASES.get(claim.package, claim.package)
        files = self._list_locks(package)

        def read(state: Commit | None) -> set[str]:
            return {
                version
                for file in files
                if (data := self._read(file, state)) is not None
                for version in self._once(f"{package} in {file}", data, partial(_read_version, package, file))
            }

        def agrees(state: Commit | None) -> bool:
            return any(manifests.agree(claim.version, locked, is_least=claim.is_least) for locked in read(state))

        locked = read(None)
        if agrees(None):
            return Finding(claim.text, Verdict.HOLDS)
        # a number beside the name of a package need not be its version, unless it once was
        steps = self._leave(agrees, written)
        if not locked:
            return self._report_left(claim, Verdict.GONE, steps)
        if steps is None and "." not in claim.version:
            return None
        now = next(iter(locked)) if len(locked) == 1 else None
        since = None if steps is None or steps[1] is None else float(steps[1].time)
        return Finding(claim.text, Verdict.DIFFERS, now, since, is_committed=steps is None or steps[1] is not None)

    def _list_locks(self, package: str) -> list[str]:
        if package in manifests.TOOLS:
            return list(manifests.TOOLS[package])
        folders = ["", *(f"{name}/" for name in self._list_folders())]
        return [f"{folder}{name}" for folder in folders for name in self._names(folder) if name in manifests.LOCKS]

    def _list_folders(self) -> list[str]:
        if self._history is None:
            return []
        nodes = self._history.repository.tree(self._history.head.tree)
        return [manifests.decode(name) for name, node in nodes.items() if node.is_folder][:_MOST_FOLDERS]

    def _names(self, folder: str) -> list[str]:
        """Return the files of a folder that are tracked, or all of them without a repository."""
        if self._history is None:
            return self._folder.names(folder.rstrip("/"))
        repository, tree = self._history.repository, self._history.head.tree
        node = repository.find(tree, folder.rstrip("/")) if folder else None
        nodes = repository.tree(tree if node is None else node.id)
        return [manifests.decode(name) for name in nodes]

    # settings and ports

    def _judge_value(self, claim: ValueClaim, written: float | None) -> Finding | None:
        named = [file for file in claim.files if self._folder.kind(file) == "file"]
        files = named or self._list_config_files()

        def holds(state: Commit | None, file: str) -> bool:
            data = self._read(file, state)
            if data is None:
                return False
            if claim.key is None:
                return bool(self._once(f"port {claim.value}", data, lambda data: manifests.has_port(data, claim.value)))
            return manifests.normalize(claim.value) in self._values(claim.key, data)

        def has(state: Commit | None) -> bool:
            return any(holds(state, file) for file in files)

        if has(None):
            return Finding(claim.text, Verdict.HOLDS)
        steps = self._leave(has, written)
        if steps is None:
            return None
        held = [file for file in files if holds(steps[0], file)]
        is_there = claim.key is None or any(
            self._values(claim.key, data) for file in held if (data := self._read(file, None)) is not None
        )
        return self._report_left(claim, Verdict.CHANGED if is_there else Verdict.GONE, steps)

    def _values(self, key: str, data: bytes) -> set[str]:
        return self._once(f"values {key}", data, lambda data: manifests.read_values(data, key))

    def _list_config_files(self) -> list[str]:
        if self._config_files is None:
            here = [name for name in self._names("") if _CONFIG_FILES.fullmatch(name)] if self._history else []
            folders = [name for name in _CONFIG_FOLDERS if name in self._list_folders()]
            below = [
                f"{name}/{file}"
                for name in folders
                for file in self._names(f"{name}/")
                if _CONFIG_FILES.fullmatch(file)
            ]
            locks = set(manifests.LOCKS)
            self._config_files = [file for file in (*here, *below) if file not in locks][:_MOST_CONFIG_FILES]
        return self._config_files

    # branches

    def _judge_branch(self, claim: BranchClaim) -> Finding | None:
        repository = self._repository
        if repository is None or self._history is None:
            return None
        if claim.is_default and (target := repository.target("refs/remotes/origin/HEAD")) is not None:
            name = manifests.decode(target).rpartition("refs/remotes/origin/")[2]
            return Finding(claim.text, Verdict.HOLDS if name == claim.name else Verdict.CHANGED)
        if repository.has_branch(claim.name):
            return Finding(claim.text, Verdict.HOLDS)
        former = repository.former_branches()
        if claim.name not in former:
            return None
        new = former[claim.name]
        if new is not None and repository.has_branch(new):
            return Finding(claim.text, Verdict.RENAMED, f"branch {new}")
        return Finding(claim.text, Verdict.GONE)

    # states: a commit, or None for the working tree

    def _read(self, file: str, state: Commit | None) -> bytes | None:
        if state is None:
            return self._folder.read(file)
        assert self._history is not None
        return self._history.repository.content(state.tree, file)

    def _leave(
        self, has: Callable[[Commit | None], bool], written: float | None
    ) -> tuple[Commit, Commit | None] | None:
        """Return the last state that had something, and the next one; None if no commit had it."""
        if self._history is None or self._history.repository.is_midway():
            return None
        if has(self._history.head):
            return self._history.head, None
        departure = self._find_departure(has, written)
        return None if departure is None else (departure.before, departure.after)

    @staticmethod
    def _report_left(claim: Claim, verdict: Verdict, steps: tuple[Commit, Commit | None] | None) -> Finding | None:
        if steps is None:
            return None
        since = None if steps[1] is None else float(steps[1].time)
        return Finding(claim.text, verdict, None, since, is_committed=since is not None)

    def _once(self, what: str, data: bytes, read: Callable[[bytes], T]) -> T:
        """Return what is read from the bytes of a file; many commits have the same file."""
        key = (what, data)
        if key not in self._readings:
            self._readings[key] = read(data)
        return cast("T", self._readings[key])


def _has_path(repository: Repository, path: str, commit: Commit) -> bool:
    return repository.find(commit.tree, path) is not None


def _read_version(package: str, file: str, data: bytes) -> set[str]:
    if package in manifests.TOOLS:
        return manifests.read_tool_version(package, file, data)
    return manifests.read_versions(file, data, package)


def _without_change(finding: Finding) -> Finding:
    is_changed = finding.is_file and finding.verdict is Verdict.CHANGED
    return replace(finding, verdict=Verdict.HOLDS) if is_changed else finding

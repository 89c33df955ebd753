"""The parts of a restore: pages, conversations, skills and files of a backup, each merged into the home.

Every function can be repeated: restored items are recognised as unchanged. With `is_preview` nothing is changed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.places import Nature, find_place
from wellkept.core.errors import Refused, Unreadable
from wellkept.core.ids import SessionId, UserId
from wellkept.core.text import JSON, dumps
from wellkept.operations.storage import Move
from wellkept.storage.files import move, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from wellkept.app.caller import Caller
    from wellkept.core.ports import Database
    from wellkept.sessions.ports import Sessions
    from wellkept.skills.merge import SkillMerge

_OF_THIS_MACHINE = ("pending/", "spool/", "connect/", "chat_history")
"""Restored only if the home has none yet: decisions, deliveries and connections made since must not be reverted."""
_MERGED = ("memories/", "skills/", "state.db", "kept.db")
"""Files that are merged separately."""


class PartResult(Struct):
    """What a restore did with one part, or would do."""

    counts: Counter[str] = field(default_factory=Counter)
    """How many are new, updated, unchanged, in conflict, held back or forgotten."""
    conflicts: list[str] = field(default_factory=list)
    held_back: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, JSON]:
        """Return the counts that are not zero."""
        return {name: count for name, count in sorted(self.counts.items()) if count}


class Source(Struct, frozen=True):
    """The unpacked files of a backup that belong to one user, beside the folder of that user here."""

    user: UserId
    folder: Path
    own: Path
    aside: Path
    """Where to put a file of the backup that differs from the one here."""
    is_fresh: bool
    """Whether nothing was stored here before."""
    holds_new: bool = False
    """Whether files that do not exist here are held back, because something was forgotten after the backup."""


# pages


def restore_pages(caller: Caller, source: Source, *, is_preview: bool) -> PartResult:
    """Place the pages and the ledger of a user, or merge them into those that are here."""
    result, staged, own = PartResult(), source.folder / "memories", source.own / "memories"
    if not staged.is_dir():
        return result
    pages = [*staged.glob("*.md"), *staged.glob("projects/*/*.md"), *staged.glob("archive/**/*.md")]
    server = caller.app.server
    if server is not None and source.is_fresh:
        result.counts["new"] = len(pages)
        if not is_preview:
            Move(server, source.user, staged).copy_pages_forward()
        return result
    if server is None and not _has_pages(own):
        result.counts["new"] = len(pages)
        if not is_preview:
            place_folder(staged, own)
        return result
    _merge_pages(caller, source, result, is_preview=is_preview)
    for path in sorted(path for path in staged.rglob("*") if path.is_file()):
        if path not in pages and not path.name.startswith("ledger.db") and server is None:
            _place_file(path, own / path.relative_to(staged), source, result, is_preview=is_preview)
    return result


def _has_pages(own: Path) -> bool:
    return (own / "ledger.db").exists() or any(own.glob("*.md")) or any(own.glob("projects/*/*.md"))


def _merge_pages(caller: Caller, source: Source, result: PartResult, *, is_preview: bool) -> None:
    from wellkept.memory.merge import ORIGIN, apply_merge, plan_merge
    from wellkept.memory.page import Author, Target
    from wellkept.memory.store import MemoryStore

    space = caller.app.space(source.user)
    author = Author(origin=ORIGIN, reason="from a backup")
    theirs = MemoryStore(source.folder / "memories", space.memory.settings, user=source.user)
    try:
        whole, mine = theirs.for_project(None), space.memory.for_project(None)
        pairs = [(mine, whole, target) for target in whole.targets]
        pairs += [(mine.for_project(project.project), project, Target.PROJECT) for project in whole.projects()]
        for own, other, target in pairs:
            name = other.pages.name(target)
            try:
                plan = plan_merge(own, other, target)
                if not plan.changes_nothing and not is_preview:
                    done = apply_merge(own, other, target, author)
                    if isinstance(done, Refused):
                        result.conflicts.append(f"{name}: {done.error} {done.remedy}")
            except Unreadable as error:
                result.conflicts.append(f"{name}: {error.message}")
                continue
            result.counts["unchanged" if plan.changes_nothing else "updated"] += 1
            result.counts["entries added"] += len(plan.added)
            result.counts["entries removed"] += len(plan.removed)
            result.counts["texts archived"] += len(plan.archived)
            result.counts["conflicts"] += len(plan.conflicts)
            result.conflicts += [f"{name}: an entry was changed here and in the backup" for _ in plan.conflicts]
            result.held_back += [f"{name}: the scanner holds an entry of the backup" for _ in plan.held]
    finally:
        theirs.close()


# conversations


def restore_sessions(database: Database, own: Sessions, theirs: Sessions, *, is_preview: bool) -> PartResult:
    """Merge the conversations of one user: by session, then by message.

    A conversation that continued on both sides stays as it is here; the backup's continuation becomes a branch.
    A conversation that was imported here under another id stays as it is.
    """
    from wellkept.imports.record import copy_captures, find_sessions

    result = PartResult()
    with theirs.unit() as source, database.reading() as unit:
        imported, here = find_sessions(source, own.user), find_sessions(unit, own.user)
    elsewhere = {imported[source] for source in imported if here.get(source, imported[source]) != imported[source]}
    # compare first: the import changes the stored sessions
    changed = dict(_compare_sessions(own, theirs, result, elsewhere))
    if is_preview or not (imported or any(result.counts[name] for name in ("new", "updated", "conflicts"))):
        return result
    report = own.transfer.import_lines(_rewrite(theirs, changed), source="restore", is_own=True)
    result.counts["messages"] = report.messages
    result.conflicts += [f"conversations: {problem}" for _, problem in report.problems]
    with theirs.unit() as source, database.writing() as unit:
        copy_captures(source, unit, own.user, report.ids)
    database.sync()  # the backup that a later process would continue from is removed next
    return result


def _compare_sessions(
    own: Sessions, theirs: Sessions, result: PartResult, elsewhere: set[str]
) -> Iterator[tuple[str, _Branch | None]]:
    """Yield the sessions to import, with the branch for messages that only the backup has."""
    for head, messages in _group(theirs.transfer.export(raw=True)):
        name = str(head["session_id"])
        if own.transfer.was_forgotten(dumps(head).encode()):
            result.counts["forgotten"] += 1
            continue
        if name in elsewhere:
            result.counts["unchanged"] += 1
            continue
        mine = [
            line for line in own.transfer.export(session_id=SessionId(name), raw=True) if line.get("type") != "session"
        ]
        is_known = own.session(SessionId(name)) is not None
        missing = _find_missing(own, messages, mine)
        if not is_known:
            result.counts["new"] += 1
            yield name, None
        elif not missing:
            result.counts["unchanged"] += 1
            yield name, None
        elif not (extra := _find_missing(own, mine, messages)):
            result.counts["updated"] += 1
            yield name, None
        else:
            branch = _Branch(
                name,
                frozenset(int(str(line["id"])) for line in missing),
                hashlib.sha256("\n".join(map(_key, missing)).encode("utf-8", "surrogatepass")).hexdigest()[:8],
            )
            if own.session(SessionId(branch.name)) is not None:
                result.counts["unchanged"] += 1
                continue
            result.counts["conflicts"] += 1
            told = f"{len(extra)} messages only here, {len(missing)} only in the backup: those are in {branch.name}"
            result.conflicts.append(f"session {name}: {told}")
            yield name, branch


class _Branch(Struct, frozen=True):
    """The session for messages that only the backup has."""

    origin: str
    moved: frozenset[int]
    """The ids of those messages in the backup."""
    digest: str

    @property
    def name(self) -> str:
        return f"{self.origin}-restored-{self.digest}"


def _group(lines: Iterable[dict[str, JSON]]) -> Iterator[tuple[dict[str, JSON], list[dict[str, JSON]]]]:
    """Yield the line of each session with the lines of its messages."""
    head: dict[str, JSON] | None = None
    messages: list[dict[str, JSON]] = []
    for line in lines:
        if line.get("type") == "session":
            if head is not None:
                yield head, messages
            head, messages = line, []
        else:
            messages.append(line)
    if head is not None:
        yield head, messages


def _find_missing(
    own: Sessions, lines: Iterable[dict[str, JSON]], known: Iterable[dict[str, JSON]]
) -> list[dict[str, JSON]]:
    """Return the messages that are not among the known ones and were not forgotten here."""
    there = Counter(_key(line) for line in known)
    missing = []
    for line in lines:
        key = _key(line)
        if there[key]:
            there[key] -= 1
        elif not own.transfer.was_forgotten(dumps(line).encode()):
            missing.append(line)
    return missing


def _key(line: Mapping[str, JSON]) -> str:
    """Return the identity of a message: its id in the source, or its role, content and time."""
    if line.get("external_id") is not None:
        return f"id {line['external_id']}"
    return dumps([line.get(name) for name in ("role", "content", "tool_calls", "timestamp")])


def _rewrite(theirs: Sessions, changed: Mapping[str, _Branch | None]) -> Iterator[bytes]:
    """Yield the lines to import; messages that only the backup has go to a branch that includes the common part."""
    for head, messages in _group(theirs.transfer.export(raw=True)):
        name = str(head["session_id"])
        if name not in changed:
            continue
        branch = changed[name]
        shared = [line for line in messages if branch is None or int(str(line["id"])) not in branch.moved]
        for line in (head, *shared):
            yield dumps(line).encode()
        if branch is None:
            continue
        active = [line["id"] for line in shared if "state" not in line]
        context: dict[str, JSON] = {"carried": active, "context_from": active[-1] if active else None}
        relation: dict[str, JSON] = {"session_id": branch.name, "parent_session_id": name, "link": "branch"}
        yield dumps({**head, **relation, **context}).encode()
        for line in messages:
            if int(str(line["id"])) in branch.moved:
                yield dumps({**line, "session_id": branch.name}).encode()


# skills


def restore_skills(caller: Caller, source: Source, *, is_preview: bool) -> PartResult:
    """Place the skills of a user, or merge them by their versions."""
    from wellkept.skills.merge import SkillMerge

    result, staged, own = PartResult(), source.folder / "skills", source.own / "skills"
    if not staged.is_dir():
        return result
    is_empty = not own.exists()
    merge = SkillMerge(caller.app.space(source.user).skill_tools.editor, staged)
    if is_empty and not source.holds_new:
        result.counts["new"] = len(merge.find())
        if not is_preview:
            if caller.app.server is not None:
                merge.apply_usage()  # it is not in the folder
            place_folder(staged, own)
        return result
    _merge_skills(merge, source, result, is_preview=is_preview)
    for path in sorted(path for path in staged.glob(".*/**/*") if path.is_file()):
        name = path.relative_to(source.folder)
        if name.parts[1] != ".versions" and not is_kept_out(name.as_posix()):
            _place_file(path, source.own / name, source, result, is_preview=is_preview)
    return result


def _merge_skills(merge: SkillMerge, source: Source, result: PartResult, *, is_preview: bool) -> None:
    from wellkept.skills.merge import SkillChange

    for name, folder in merge.find().items():
        change = merge.decide(name, folder)
        if change is SkillChange.NEW and source.holds_new:
            result.counts["held back"] += 1
            result.held_back.append(f"skill {name}")
            continue
        result.counts["conflicts" if change is SkillChange.BOTH else change.value] += 1
        if change is SkillChange.BOTH:
            result.conflicts.append(f"skill {name}: changed here and in the backup; see `kept skills log {name}`")
        if not is_preview:
            merge.apply(name, folder)
    if not is_preview:
        merge.apply_histories()
        merge.apply_usage()


def is_kept_out(name: str) -> bool:
    """Whether backups never contain a file of this name, so that one in an archive is not trusted."""
    place = find_place(name)
    return place is None or bool(place.left_out)


# everything else


def restore_files(source: Source, *, with_settings: bool, is_preview: bool) -> PartResult:
    """Restore the other files of a user or of the home; a file that differs is put beside the existing one."""
    result = PartResult()
    for path in sorted(path for path in source.folder.rglob("*") if path.is_file()):
        name = path.relative_to(source.folder).as_posix()
        if name.startswith(("users/", *_MERGED)):
            continue
        place = find_place(name)
        target = source.own / name
        if place is None or place.left_out:
            continue
        if place.nature is Nature.SETTINGS and name != "user.json":
            _place_setting(path, target, source, result, with_settings=with_settings, is_preview=is_preview)
        elif name.startswith(_OF_THIS_MACHINE) and not source.is_fresh:
            result.counts["held back"] += 1
        else:
            _place_file(path, target, source, result, is_preview=is_preview)
    return result


def _place_setting(
    path: Path, target: Path, source: Source, result: PartResult, *, with_settings: bool, is_preview: bool
) -> None:
    if target.exists() and read_bytes(path) == read_bytes(target):
        result.counts["unchanged"] += 1
    elif source.is_fresh or with_settings:
        result.counts["updated" if target.exists() else "new"] += 1
        if not is_preview:
            move(path, target)
    else:
        result.counts["held back"] += 1
        result.held_back.append(f"{target.name}: settings are restored with --settings")


def _place_file(path: Path, target: Path, source: Source, result: PartResult, *, is_preview: bool) -> None:
    """Restore a missing file; one that differs is put aside, so that both are kept."""
    if not target.exists():
        if source.holds_new:
            result.counts["held back"] += 1
            result.held_back.append(str(target.name))
            return
        result.counts["new"] += 1
    elif path.stat().st_size == target.stat().st_size and read_bytes(path) == read_bytes(target):
        result.counts["unchanged"] += 1
        return
    else:
        target = source.aside / path.relative_to(source.folder)
        result.counts["unchanged" if target.exists() else "conflicts"] += 1
        if target.exists():
            return
        result.conflicts.append(f"{path.relative_to(source.folder)}: yours stays, the backup's version is {target}")
    if not is_preview:
        move(path, target)


def place_folder(staged: Path, own: Path) -> None:
    """Move a folder into place with one rename; a folder already there contains only locks and is removed."""
    if own.exists():
        move(own, staged.with_name(f"{staged.name}.before"))
    move(staged, own)

"""Import of everything but conversations and pages: skills, settings, secrets, documents and leftovers of a source."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.app.caller import Caller, Scope
from wellkept.core.errors import KeptError, Reason, Refused, StorageError
from wellkept.core.regular_files import explain_errors
from wellkept.core.text import dumps
from wellkept.formats.port import Asset, Caution, Document, Leftover, MemoryFile, Problem, Secret, Setting, SkillFolder
from wellkept.imports.record import Journal, Part
from wellkept.storage.files import (
    copy_bytes,
    make_folder,
    read_bytes,
    sync_file,
    sync_folder,
    sync_tree,
    write_atomically,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from wellkept.skills.editor import SkillEditor


class AssetTally(Struct):
    """How each asset of a source was handled."""

    entries: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("added", "archived", "held", "blocked"), 0))
    skills: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("added", "updated", "unchanged", "conflicts", "blocked"), 0)
    )
    others: dict[str, dict[str, int]] = field(default_factory=dict)
    """The same for settings, secrets and documents, if the source has any."""
    merged: int = 0
    """Entries that replaced or removed what an earlier import wrote."""
    present: int = 0
    """Entries that were here already."""
    entry_conflicts: int = 0
    conflicts: list[tuple[str, str]] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    is_incomplete: bool = False
    """Whether the disk refused to store something, which another run would store."""
    cautions: list[str] = field(default_factory=list)
    overflow: list[tuple[str, str]] = field(default_factory=list)
    """Entries that did not fit their page, each with the file that they came from."""
    left: list[tuple[str, str]] = field(default_factory=list)
    """What was stored among the leftovers, and why."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was changed."""
        entries = sum(self.entries[name] for name in ("added", "archived", "held"))
        others = sum(counts["added"] + counts["updated"] for counts in (self.skills, *self.others.values()))
        return not (entries or others or self.merged or self.left)

    def count(self, kind: str, outcome: str) -> None:
        """Count a setting, secret or document."""
        counts = self.others.setdefault(kind, dict.fromkeys(("added", "updated", "unchanged", "conflicts"), 0))
        counts[outcome] += 1


class AssetImport(Struct, frozen=True):
    """One run over the assets of a source; a preview decides everything and changes nothing."""

    caller: Caller
    source: str
    import_id: str
    number: int
    folder: Path
    """Where report, overflow and leftovers of this import go."""
    known: Mapping[tuple[str, str], Sequence[Part]]
    """What earlier imports of the source added, by kind and name."""
    overwrite: bool = False
    skill_conflict: str = "skip"
    is_preview: bool = False
    tally: AssetTally = field(default_factory=AssetTally)

    def run(self, assets: Sequence[Asset]) -> None:
        """Apply all assets; a failure is reported as a problem of its asset."""
        from wellkept.imports.memory import import_memory

        import_memory(self, [asset for asset in assets if isinstance(asset, MemoryFile)])
        names = [asset.name for asset in assets if isinstance(asset, SkillFolder)]
        for asset in assets:
            try:
                if isinstance(asset, SkillFolder):
                    self._take_skill(asset, names)
                elif not isinstance(asset, MemoryFile):
                    self._take(asset)
            except KeptError as error:
                self.tally.problems.append((describe(asset), error.message))
                self.tally.is_incomplete |= isinstance(error, StorageError)

    def _take(self, asset: Setting | Secret | Document | Leftover | Caution | Problem) -> None:
        match asset:
            case Setting():
                self._take_setting(asset)
            case Secret():
                self._take_secret(asset)
            case Document():
                self._take_document(asset)
            case Leftover():
                self._keep_leftover(asset)
            case Caution(text):
                self.tally.cautions.append(text)
            case Problem(where, what):
                self.tally.problems.append((where, what))
            case _:
                assert_never(asset)

    def remember(self, kind: str, name: str, parts: Sequence[Part]) -> None:
        """Note what was imported under a name."""
        if not self.is_preview:
            with self.caller.database.writing() as unit:
                Journal(self.caller.user).put(unit, self.source, kind, name, parts)

    def find_known(self, kind: str, name: str) -> Part | None:
        """Return what an earlier import added under a name."""
        return next(iter(self.known.get((kind, name), ())), None)

    # skills

    def _take_skill(self, asset: SkillFolder, names: Sequence[str]) -> None:

        outcome = import_skill(self, asset, names)
        if isinstance(outcome, Refused):
            self.tally.problems.append((f"skill {asset.name}", f"{outcome.error}: {outcome.remedy}"))
            outcome = "blocked"
        self.tally.skills[outcome] += 1
        if outcome == "conflicts":
            self.tally.conflicts.append((f"skill {asset.name}", "there is another skill with this name"))

    # settings, secrets and documents: each has a value and a hash

    def _decide(self, kind: str, name: str, new: str, current: str | None) -> str:
        """Return whether a value is added, updated, unchanged, or in conflict with what is here."""
        known = self.find_known(kind, name)
        if current == new or (known is not None and known.mark == mark_text(new)):
            return "unchanged"  # also if a person removed it after an earlier import
        if current is None:
            return "added"
        is_ours = known is not None and known.state == "added" and known.mark == mark_text(current)
        return "updated" if is_ours or self.overwrite else "conflicts"

    def _put(self, kind: str, name: str, new: str, current: str | None, write: Callable[[], object]) -> None:
        outcome = self._decide(kind, name, new, current)
        if outcome in {"added", "updated"} and not self.is_preview:
            known = self.find_known(kind, name)
            is_ours = current is None or (known is not None and known.state == "added")
            write()
            state = "added" if is_ours else "replaced"
            self.remember(kind, name, [Part(kind, name, 0, mark_text(new), state, import_number=self.number)])
        self.tally.count(f"{kind}s", outcome)
        if outcome == "conflicts":
            self.tally.conflicts.append((f"{kind} {name}", "has another value here"))

    def _take_setting(self, asset: Setting) -> None:
        from wellkept.config.settings import find_value, from_text, set_value

        self.caller.require(Scope.ADMIN)
        home = self.caller.app.home
        value = find_value(home.config_file, asset.key)
        current = None if value is None else dumps(value)
        new = dumps(from_text(asset.key, asset.value))
        why = self.caller.why_no_person
        self._put(
            "setting", asset.key, new, current, lambda: set_value(home, asset.key, asset.value, why_no_person=why)
        )

    def _take_secret(self, asset: Secret) -> None:
        from wellkept.config.settings import read_secrets, set_secret

        self.caller.require(Scope.ADMIN)
        self.caller.require_person("`kept import`")  # a variable can also name the endpoint that gets the memory
        path = self.caller.app.home.env_file
        current = read_secrets(path).get(asset.name)
        self._put("secret", asset.name, asset.value, current, lambda: set_secret(path, asset.name, asset.value))

    def _take_document(self, asset: Document) -> None:
        if asset.path.is_relative_to(self.caller.app.home.path):
            self.caller.require(Scope.ADMIN)
        self.caller.require_person("`kept import`")  # SOUL.md and AGENTS.md are instructions in every prompt
        raw = read_bytes(asset.path)
        current = None if raw is None else raw.decode("utf-8", "replace")

        def write() -> None:
            if raw is not None:
                make_folder(self.folder / "before")
                write_atomically(self.folder / "before" / asset.path.name, raw)
            make_folder(asset.path.parent, mode=0o777)
            write_atomically(asset.path, asset.text.encode())

        self._put("document", str(asset.path), asset.text, current, write)

    def _keep_leftover(self, asset: Leftover) -> None:
        known = self.find_known("leftover", asset.name)
        mark = mark_text(_describe_content(asset.content))
        if known is not None and known.mark == mark:
            return
        self.tally.left.append((asset.name, asset.why))
        if self.is_preview:
            return
        place = (self.folder / "archive" / asset.name).resolve()
        if not place.is_relative_to((self.folder / "archive").resolve()):
            self.tally.problems.append((asset.name, "leads out of the archive"))
            return
        _copy(asset.content, place)
        part = Part("leftover", asset.name, 0, mark, "added", import_number=self.number)
        self.remember("leftover", asset.name, [part])


def describe(asset: Asset) -> str:
    """Return the name of an asset for problems."""
    match asset:
        case Setting():
            return f"setting {asset.key}"
        case Secret():
            return f"secret {asset.name}"
        case Caution() | Problem():
            return "source"
        case _:
            return asset.name


def mark_text(text: str) -> str:
    """Return a short hash of a text: enough to notice a change, too short to guess a secret from."""
    words = " ".join(text.split())
    return hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _describe_content(content: bytes | Path) -> str:
    """Return a text that differs if the content does."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    files = sorted(path for path in content.rglob("*") if path.is_file()) if content.is_dir() else [content]
    stamps = [(path, path.stat()) for path in files if path.exists()]
    return dumps([[str(path), status.st_size, status.st_mtime_ns] for path, status in stamps])


def _copy(content: bytes | Path, place: Path) -> None:
    make_folder(place.parent)
    if isinstance(content, bytes):
        write_atomically(place, content)
        return
    with explain_errors("copy", content):
        if content.is_dir():
            shutil.copytree(content, place, symlinks=True, dirs_exist_ok=True, copy_function=copy_bytes)
            sync_tree(place)
        else:
            copy_bytes(content, place)
            sync_file(place)
        sync_folder(place.parent)


def group_parts(parts: Sequence[Part]) -> dict[tuple[str, str], list[Part]]:
    """Return parts by kind and name."""
    groups: dict[tuple[str, str], list[Part]] = {}
    for part in parts:
        groups.setdefault((part.kind, part.name), []).append(part)
    return groups


_MOST_RENAMES = 100


def import_skill(run: AssetImport, asset: SkillFolder, names: Sequence[str]) -> str | Refused:
    """Copy one skill; return whether it is added, updated, unchanged or in conflict, or why it is refused."""
    from wellkept.skills.document import refuse_name

    refused = refuse_name(asset.name)
    files = _read(asset.folder)
    if refused is not None or isinstance(files, Refused):
        return refused if refused is not None else files  # type: ignore[return-value] # one of the two is a refusal
    known = run.find_known("skill", asset.name)
    source = _fingerprint(files)
    if known is not None and known.mark.partition(":")[0] == source:
        return "unchanged"  # also one that a person changed or deleted after the last import
    editor = run.caller.space.skill_tools.editor
    outcome = _decide(run, editor, asset.name, source, known)
    if outcome in {"unchanged", "conflicts"} and not (outcome == "conflicts" and run.skill_conflict == "rename"):
        return outcome
    name = asset.name
    if outcome == "conflicts":
        name, outcome = _free_name(editor, asset.name, names), "added"
    refused = _refuse_dangerous(files)
    if refused is None and not run.is_preview:
        run.caller.require_person("`kept import`")  # an agent may have written the folder that it names
        refused = _place(run, editor, replace(asset, name=name), files, source, asset.name)
    return outcome if refused is None else refused


def _read(folder: Path) -> dict[str, bytes] | Refused:
    """Return the files of a skill; links are left out."""
    from wellkept.skills.roots import MAIN, MOST_FILES, MOST_SKILL_BYTES
    from wellkept.skills.versions import state_of

    state = state_of(folder)
    large = [path for path, checksum in state.files.items() if checksum not in state.data]
    if MAIN not in state.files:
        return Refused(Reason.INVALID, f"{folder.name!r} has no {MAIN}", "a skill is a folder with this file")
    if large or len(state.files) > MOST_FILES + 1:
        what = f"{large[0]} is too large" if large else f"it has {len(state.files)} files"
        return Refused(Reason.INVALID, what, f"keep at most {MOST_FILES:,} support files, each below a megabyte")
    total = sum(len(data) for data in state.data.values())
    if total > MOST_SKILL_BYTES:
        what = f"it has {total:,} bytes"
        return Refused(Reason.INVALID, what, f"keep all files together below {MOST_SKILL_BYTES:,} bytes")
    return {path: state.data[checksum] for path, checksum in state.files.items()}


def _fingerprint(files: Mapping[str, bytes]) -> str:
    """Return the fingerprint of files regardless of their modes, which a copy may not keep."""
    from wellkept.skills.versions import digest, fingerprint

    return fingerprint({path: digest(data) for path, data in files.items()})


def _decide(run: AssetImport, editor: SkillEditor, name: str, source: str, known: Part | None) -> str:
    own = editor.library.home_folder(name)
    if own is None:
        return "added"
    present = _read(own)
    current = "" if isinstance(present, Refused) else _fingerprint(present)
    if current == source:
        return "unchanged"
    is_ours = known is not None and known.mark.partition(":")[2] == current
    return "updated" if is_ours or run.overwrite or run.skill_conflict == "overwrite" else "conflicts"


def _free_name(editor: SkillEditor, name: str, names: Sequence[str]) -> str:
    candidates = (f"{name}-{number}" for number in range(2, _MOST_RENAMES))
    return next(
        candidate
        for candidate in candidates
        if candidate not in names and editor.library.home_folder(candidate) is None
    )


def _refuse_dangerous(files: Mapping[str, bytes]) -> Refused | None:
    """Return why the guard refuses the files; nobody reviews them before they are used."""
    from wellkept.skills.guard import Policy, Trust, inspect, policy

    report = inspect(dict(files))
    if policy(Trust.AGENT, report.danger) is Policy.ALLOW:
        return None
    remedy = "read it, then copy it yourself if you trust it"
    return Refused(Reason.BLOCKED, f"the guard considers it dangerous: {', '.join(report.rules)}", remedy)


def _place(
    run: AssetImport, editor: SkillEditor, asset: SkillFolder, files: Mapping[str, bytes], source: str, original: str
) -> Refused | None:
    from wellkept.skills.changes import Author
    from wellkept.skills.document import normalize
    from wellkept.skills.roots import MAIN
    from wellkept.skills.usage import parse_usage

    main = files[MAIN].decode("utf-8-sig", "replace")
    if asset.name != original:
        main = re.sub(r"^name:.*$", f"name: {asset.name}", main, count=1, flags=re.MULTILINE)
    text = normalize(main, asset.name)
    if isinstance(text, Refused):
        return text
    made = {**files, MAIN: text.encode()}
    with editor.lock(asset.name):
        folder = editor.library.home_folder(asset.name)
        place = folder or editor.home.joinpath(*filter(None, (asset.category, asset.name)))
        author = Author("import", reason=f"from {run.source}")
        changed = editor.place_files(
            asset.name, place, files=made, author=author, action="install" if folder is None else "update"
        )
    mark = f"{source}:{_fingerprint(made)}"
    state = "added" if folder is None else "replaced"
    where = f"{asset.name}:{changed.number}"
    run.remember("skill", original, [Part("skill", original, 0, mark, state, where, run.number)])
    if asset.use and folder is None:
        use = parse_usage(json.dumps({asset.name: dict(asset.use)}).encode())[asset.name]
        editor.library.usage.change({asset.name: lambda own: replace(use, created_by=own.created_by)})
    return None


def is_unchanged(caller: Caller, part: Part) -> bool:
    """Whether a skill is still as an import left it."""
    folder = caller.space.skill_tools.editor.library.home_folder(part.place.partition(":")[0])
    present = _read(folder) if folder is not None else Refused(Reason.NO_MATCH, "", "")
    return not isinstance(present, Refused) and _fingerprint(present) == part.mark.partition(":")[2]


def remove_skill(caller: Caller, part: Part) -> Refused | None:
    """Remove a skill that an import added, or restore what it replaced."""
    from wellkept.skills.changes import Author
    from wellkept.skills.editor import undo

    editor = caller.space.skill_tools.editor
    name, _, number = part.place.partition(":")
    if part.state == "added":
        done = editor.purge(name)
    else:
        done = undo(editor, name, Author("import", reason="import undone"), number=int(number))
    return done if isinstance(done, Refused) else None

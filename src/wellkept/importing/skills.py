"""Import of skills into the library, checked by the guard; and their removal."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wellkept.core.errors import Reason, Refused
from wellkept.importers.import_record import Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from wellkept.app.caller import Caller
    from wellkept.importers.port import SkillFolder
    from wellkept.importing.assets import AssetImport
    from wellkept.skills.editor import SkillEditor

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
    return next(one for one in candidates if one not in names and editor.library.home_folder(one) is None)


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

"""Taking changes of a skill back, one by one or by number."""

from dataclasses import replace

from kept.core.errors import Reason, Refused
from kept.skills.document import bad_name
from kept.skills.editor import ARCHIVE_FOLDER, Author, Changed, SkillEditor, moved
from kept.skills.usage import Status
from kept.skills.versions import Version, state_of


def undo(editor: SkillEditor, name: str, author: Author, *, number: int | None = None) -> Changed | Refused:
    """Take back the change `number`, by default the newest that still stands, so that repeating it walks back.

    The undo is a change itself: undoing its number brings the text back.
    """
    refused = bad_name(name)
    if refused is not None:
        return refused
    with editor.lock(name):
        versions = [version for version in editor.library.versions.of(name) if not version.voided]
        chosen = _chosen(versions, number)
        if chosen is None:
            wanted = "nothing left" if number is None else f"no change {number}"
            return Refused(
                Reason.NO_MATCH, f"{name!r} has {wanted} to undo", f"`kept skills log {name}` lists its changes"
            )
        present = state_of(editor.home / versions[-1].place)
        moved_on = [path for path in chosen.touched if present.files.get(path) != chosen.after.get(path)]
        if moved_on:
            error = f"{name!r} moved on: {', '.join(moved_on[:5])} changed after change {chosen.number}"
            return Refused(Reason.MOVED_ON, error, f"undo the later changes first: `kept skills log {name}`")
        return _taken_back(editor, name, chosen, author)


def _chosen(versions: list[Version], number: int | None) -> Version | None:
    if number is not None:
        return next((version for version in versions if version.number == number), None)
    taken = {version.undoes for version in versions if version.undoes is not None and not _undone(version, versions)}
    standing = [version for version in versions if version.undoes is None and version.number not in taken]
    return standing[-1] if standing else None


def _undone(version: Version, versions: list[Version]) -> bool:
    return any(later.undoes == version.number and not _undone(later, versions) for later in versions)


def _taken_back(editor: SkillEditor, name: str, chosen: Version, author: Author) -> Changed:
    place = editor.home / chosen.place
    present = state_of(place)
    after = dict(present.files)
    for path in chosen.touched:
        after.pop(path, None)
        if path in chosen.before:
            after[path] = chosen.before[path]
    version = Version("undo", chosen.place, present.files, after, undoes=chosen.number)
    archived = editor.home / ARCHIVE_FOLDER / chosen.place
    numbered = editor.begin(name, version, present.data, author)
    if not present.files and archived.is_dir() and dict(state_of(archived).files) == after:
        moved(archived, place)
        editor.tidy(archived.parent)
    else:
        editor.library.versions.apply(name, numbered)
    state = Status.ACTIVE if after else Status.ARCHIVED
    editor.library.usage.change(
        {name: lambda use: replace(use, state=state, archived_at=None if after else numbered.time)}
    )
    message = f"Change {chosen.number} ({chosen.action}) of {name!r} taken back."
    return Changed(name, "undo", numbered.number, numbered.id, message)

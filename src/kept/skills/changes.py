"""Changes of skills, as values, and what each makes of the files that are there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from kept.core.errors import Reason, Refused
from kept.skills.document import strictly
from kept.skills.patch import patched
from kept.skills.places import MAIN, MOST_FILE_BYTES, MOST_FILES


@dataclass(frozen=True, slots=True)
class Create:
    """A new skill."""

    name: str
    content: str
    category: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """The whole SKILL.md written anew."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class Patch:
    """One passage of a file replaced."""

    name: str
    old: str
    new: str
    file_path: str = MAIN
    replace_all: bool = False


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A support file written."""

    name: str
    file_path: str
    content: str


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A support file removed."""

    name: str
    file_path: str


@dataclass(frozen=True, slots=True)
class Delete:
    """The skill moved to the archive."""

    name: str


Change: TypeAlias = Create | Edit | Patch | WriteFile | RemoveFile | Delete
Writing: TypeAlias = Create | Edit | Patch | WriteFile | RemoveFile


@dataclass(frozen=True, slots=True)
class Made:
    """What a change makes: new bytes by path, None where a file goes."""

    files: Mapping[str, bytes | None]
    message: str


def made(change: Writing, present: Mapping[str, bytes]) -> Made | Refused:
    """Return what `change` makes of the files that are `present`, or why it cannot be."""
    match change:
        case Create(name, content) | Edit(name, content):
            verb = "created" if isinstance(change, Create) else "rewritten"
            return _main(name, content, f"Skill {name!r} {verb}.")
        case Patch():
            return _patched(change, present)
        case WriteFile(name, file_path, content):
            return _written(name, file_path, content, present=present)
        case RemoveFile(name, file_path):
            if file_path not in present:
                support = sorted(path for path in present if path != MAIN)
                detail = {"files": support}
                return Refused(Reason.NO_MATCH, f"{name!r} has no file {file_path!r}", "name one of its files", detail)
            return Made({file_path: None}, f"{file_path} removed from {name!r}.")
        case _:
            assert_never(change)


def _main(name: str, content: str, message: str) -> Made | Refused:
    text = strictly(content, name)
    return text if isinstance(text, Refused) else Made({MAIN: text.encode()}, message)


def _patched(change: Patch, present: Mapping[str, bytes]) -> Made | Refused:
    data = present.get(change.file_path)
    if data is None:
        remedy = "read the skill with skill_view, which lists its files"
        return Refused(Reason.NO_MATCH, f"{change.name!r} has no file {change.file_path!r}", remedy)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return Refused(Reason.INVALID, f"{change.file_path} is not text", "replace it with write_file")
    new = patched(text, change.old, change.new, replace_all=change.replace_all)
    if isinstance(new, Refused):
        return new
    how = "" if new.matched == "exact" else f" (matched but for {new.matched})"
    times = "" if new.count == 1 else f" in {new.count} places"
    message = f"{change.file_path} of {change.name!r} patched{times}{how}."
    if change.file_path == MAIN:
        return _main(change.name, new.text, message)
    return _written(change.name, change.file_path, new.text, present=present, message=message)


def _written(
    name: str, file_path: str, content: str, *, present: Mapping[str, bytes], message: str | None = None
) -> Made | Refused:
    data = content.encode()
    if len(data) > MOST_FILE_BYTES:
        error = f"{file_path!r} would have {len(data):,} bytes"
        return Refused(Reason.OVER_BUDGET, error, f"keep each file below {MOST_FILE_BYTES:,} bytes: split it")
    if file_path not in present and len([path for path in present if path != MAIN]) >= MOST_FILES:
        return Refused(Reason.OVER_BUDGET, f"{name!r} has {MOST_FILES} files already", "remove or merge files first")
    return Made({file_path: data}, message or f"{file_path} of {name!r} written.")

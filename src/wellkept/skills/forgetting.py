"""Forgetting in skills: passages leave the files of a skill, its archived copies and every recorded version."""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from wellkept.core.text import JSON, dumps
from wellkept.skills.document import BadFrontmatter, Document, Field, parse, read_frontmatter, render_frontmatter
from wellkept.skills.editor import ARCHIVE_FOLDER, SkillEditor
from wellkept.skills.roots import MAIN, is_text
from wellkept.skills.versions import VERSIONS_FOLDER, remove_empty
from wellkept.storage.files import read_bytes, write_atomically
from wellkept.storage.texts import Texts

NO_DESCRIPTION = "The description of this skill was forgotten."
_MOST_BYTES = 64 * 1_048_576
_LEAST_LINE = 8
"""Shorter lines, such as `---` and ```` ``` ````, are in every skill."""


class SkillPassages(Struct, frozen=True):
    """A skill with passages that hold the texts."""

    name: str
    files: tuple[Path, ...]
    """Its own and its archived files."""
    lines: int
    versions: int
    """Recorded versions of its files."""

    def as_json(self) -> dict[str, JSON]:
        """Return the counts without any content."""
        return {"skill": self.name, "files": len(self.files), "lines": self.lines, "versions": self.versions}


def find_passages(editor: SkillEditor, texts: Texts) -> list[SkillPassages]:
    """Return the user's own skills that hold one of the texts."""
    files = _files_holding(editor, texts)
    versions = {
        name: found for name in _version_names(editor) if (found := editor.library.versions.holding(name, texts))
    }
    return [
        SkillPassages(
            name,
            tuple(files.get(name, ())),
            sum(_count_lines(path, texts) for path in files.get(name, ())),
            versions.get(name, 0),
        )
        for name in sorted({*files, *versions})
    ]


def forget_passages(editor: SkillEditor, texts: Texts) -> tuple[SkillPassages, ...]:
    """Remove the passages; a binary file keeps them, and a recorded binary file is removed.

    The versions come first: if the process dies in between, the next run finds the rest by itself.
    """
    found = find_passages(editor, texts)
    for skill in found:
        with editor.lock(skill.name):
            editor.library.versions.forget(skill.name, texts, partial(rewrite, folder=skill.name, texts=texts))
            for path in skill.files:
                _rewrite_file(path, texts)
    if found:
        editor.library.rebuild()
    return tuple(found)


def list_sources(editor: SkillEditor) -> set[str]:
    """Return every source that a version of the user's own skills came from."""
    names = _version_names(editor)
    return {one.source for name in names for one in editor.library.versions.of(name) if one.source}


def find_learnt(editor: SkillEditor, is_from: Callable[[str], bool]) -> list[SkillPassages]:
    """Return the user's own skills with something that was learnt from a source, and how much of each."""
    found = []
    for name in _version_names(editor):
        texts = _read_learnt(editor, name, is_from)
        if texts:
            files = [path for path in _files_of(editor, name) if texts.are_found_in_file(path)]
            lines = sum(_count_lines(path, texts) for path in files)
            found.append(SkillPassages(name, tuple(files), lines, editor.library.versions.holding(name, texts)))
    return found


def forget_learnt(editor: SkillEditor, is_from: Callable[[str], bool]) -> tuple[SkillPassages, ...]:
    """Remove what was learnt from a source: the whole skill if the source created it, else the lines that it added."""
    found = find_learnt(editor, is_from)
    for skill in found:
        versions = editor.library.versions
        with editor.lock(skill.name):
            texts = _read_learnt(editor, skill.name, is_from)
            first = next(one for one in versions.of(skill.name) if not one.voided)
            if is_from(first.source) and not first.before:
                for path in _files_of(editor, skill.name):
                    path.unlink(missing_ok=True)
                    remove_empty(editor.home, path.parent)
                versions.drop(skill.name)
                continue
            versions.forget(skill.name, texts, partial(rewrite, folder=skill.name, texts=texts))
            for path in skill.files:
                _rewrite_file(path, texts)
    if found:
        editor.library.rebuild()
    return tuple(found)


def _read_learnt(editor: SkillEditor, name: str, is_from: Callable[[str], bool]) -> Texts:
    """Return the lines that versions from a source added to a skill, except those too short to be distinctive."""
    versions = editor.library.versions
    lines: set[str] = set()
    for one in versions.of(name):
        if one.source and is_from(one.source):
            before, after = (_lines_of(editor, name, files.values()) for files in (one.before, one.after))
            lines |= after - before
    return Texts(sorted(line for line in lines if len(line) >= _LEAST_LINE))


def _lines_of(editor: SkillEditor, name: str, checksums: Iterable[str]) -> set[str]:
    data = [editor.library.versions.content(name, checksum) or b"" for checksum in checksums]
    return {line.strip() for one in data if is_text(one) for line in one.decode().splitlines()}


def _files_of(editor: SkillEditor, name: str) -> list[Path]:
    return [path for path in _files(editor.home) if _skill_of(path, editor.home) == name]


def rewrite(path: str, data: bytes, *, folder: str, texts: Texts) -> bytes | None:
    """Return a file of the skill in `folder` without the lines that hold one of the texts; None if it is not text."""
    if not is_text(data):
        return None
    text = data.decode()
    rest, count = texts.without_lines(text)
    if not count:
        return data
    if path.rpartition("/")[2] == MAIN:
        rest = _with_required_fields(text, rest, folder=folder, texts=texts)
    return rest.encode()


def _with_required_fields(before: str, rest: str, *, folder: str, texts: Texts) -> str:
    """Return the rest of a SKILL.md; if it can no longer be loaded, with a neutral name or description."""
    head = read_frontmatter(before)
    if isinstance(head, BadFrontmatter) or isinstance(parse(rest, folder), Document):
        return rest
    fields: dict[str, Field] = {"name": folder, "description": NO_DESCRIPTION}
    fields |= {key: value for key, value in head.fields.items() if not texts.are_in(f"{key}: {dumps(value)}")}
    body, _ = texts.without_lines(head.body)
    return f"{render_frontmatter(fields)}\n{body.lstrip()}"


def _rewrite_file(path: Path, texts: Texts) -> None:
    data = read_bytes(path)
    if data is None:
        return
    rest = rewrite(path.name, data, folder=path.parent.name, texts=texts)
    if rest is not None and rest != data:
        write_atomically(path, rest)


def _count_lines(path: Path, texts: Texts) -> int:
    data = read_bytes(path) or b""
    return len(texts.lines_in(data.decode())) if is_text(data) else 0


def _version_names(editor: SkillEditor) -> list[str]:
    folder = editor.home / VERSIONS_FOLDER
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []


def _files_holding(editor: SkillEditor, texts: Texts) -> dict[str, list[Path]]:
    """Return the files that hold one of the texts, by skill."""
    found: dict[str, list[Path]] = {}
    for path in _files(editor.home):
        if path.stat().st_size <= _MOST_BYTES and texts.are_found_in_file(path):
            found.setdefault(_skill_of(path, editor.home), []).append(path)
    return found


def _files(home: Path) -> Iterator[Path]:
    """Yield the regular files of live and archived skills; the other hidden folders hold no skills."""
    for base, folders, names in os.walk(home):
        inside = Path(base) != home
        folders[:] = sorted(name for name in folders if inside or not name.startswith(".") or name == ARCHIVE_FOLDER)
        for name in sorted(names):
            path = Path(base, name)
            if path.is_file() and not path.is_symlink() and (inside or not name.startswith(".")):
                yield path


def _skill_of(path: Path, home: Path) -> str:
    """Return the name of the nearest folder with a SKILL.md; for a file outside of skills, that of its folder."""
    for folder in path.parents:
        if folder == home:
            break
        if (folder / MAIN).exists():
            return folder.name
    return path.parent.name

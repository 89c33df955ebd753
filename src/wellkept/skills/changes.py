"""Changes of a skill as values, and the files that each of them produces."""

import difflib
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import TypeAlias, assert_never

from msgspec import Struct, field

from wellkept.core.errors import Reason, Refused
from wellkept.core.text import JSON
from wellkept.core.values import JsonStruct
from wellkept.skills.document import normalize
from wellkept.skills.guard import Trust
from wellkept.skills.roots import MAIN, MOST_FILE_BYTES, MOST_FILES, MOST_SKILL_BYTES


class Create(Struct, frozen=True, forbid_unknown_fields=True, tag="create"):
    """Create a skill."""

    name: str
    content: str
    category: str = ""


class Edit(Struct, frozen=True, forbid_unknown_fields=True, tag="edit"):
    """Replace the whole SKILL.md."""

    name: str
    content: str


class Patch(Struct, frozen=True, forbid_unknown_fields=True, tag="patch"):
    """Replace one passage of a file."""

    name: str
    old: str
    new: str
    file_path: str = MAIN
    replace_all: bool = False


class WriteFile(Struct, frozen=True, forbid_unknown_fields=True, tag="write_file"):
    """Write a support file."""

    name: str
    file_path: str
    content: str


class RemoveFile(Struct, frozen=True, forbid_unknown_fields=True, tag="remove_file"):
    """Remove a support file."""

    name: str
    file_path: str


class Delete(Struct, frozen=True, forbid_unknown_fields=True, tag="delete"):
    """Move the skill to the archive."""

    name: str


Change: TypeAlias = Create | Edit | Patch | WriteFile | RemoveFile | Delete
Writing: TypeAlias = Create | Edit | Patch | WriteFile | RemoveFile


def action_of(change: Change) -> str:
    """Return the word for a change, as the tool and the log call it."""
    return str(change.__struct_config__.tag)


class Author(Struct, frozen=True):
    """Who changes a skill, and how far the guard trusts them."""

    origin: str = "person"
    session_id: str | None = None
    trust: Trust | None = None
    """The guard's policy for this author; None for a person, whom the guard does not stop."""
    reason: str = ""
    source: str = ""
    """The untrusted source that a model had read before it wrote."""


class Changed(JsonStruct, frozen=True):
    """The result of a change."""

    name: str
    action: str
    number: int = field(name="change")
    version: str
    message: str
    warnings: tuple[str, ...] = field(default=(), name="_warnings")

    def as_json(self) -> dict[str, JSON]:
        """Return the change as JSON."""
        return {"success": True, **super().as_json()}


class FileChanges(Struct, frozen=True):
    """The files that a change writes, by path; None for a file that it removes."""

    files: Mapping[str, bytes | None]
    message: str


def compute_files(change: Writing, present: Mapping[str, bytes]) -> FileChanges | Refused:
    """Apply `change` to the `present` files and return the new ones, or why it is refused."""
    match change:
        case Create(name, content) | Edit(name, content):
            verb = "created" if isinstance(change, Create) else "rewritten"
            return _write_main(name, content, f"Skill {name!r} {verb}.")
        case Patch():
            return _patch_file(change, present)
        case WriteFile(name, file_path, content):
            return _write_file(name, file_path, content, present=present)
        case RemoveFile(name, file_path):
            if file_path not in present:
                support = sorted(path for path in present if path != MAIN)
                detail = {"files": support}
                return Refused(Reason.NO_MATCH, f"{name!r} has no file {file_path!r}", "name one of its files", detail)
            return FileChanges({file_path: None}, f"{file_path} removed from {name!r}.")
        case _:
            assert_never(change)


def _write_main(name: str, content: str, message: str) -> FileChanges | Refused:
    text = normalize(content, name)
    return text if isinstance(text, Refused) else FileChanges({MAIN: text.encode()}, message)


def _patch_file(change: Patch, present: Mapping[str, bytes]) -> FileChanges | Refused:
    data = present.get(change.file_path)
    if data is None:
        remedy = "read the skill with skill_view, which lists its files"
        return Refused(Reason.NO_MATCH, f"{change.name!r} has no file {change.file_path!r}", remedy)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return Refused(Reason.INVALID, f"{change.file_path} is not text", "replace it with write_file")
    new = apply_patch(text, change.old, change.new, replace_all=change.replace_all)
    if isinstance(new, Refused):
        return new
    how = "" if new.matched == "exact" else f" (matched ignoring {new.matched})"
    times = "" if new.count == 1 else f" in {new.count} places"
    message = f"{change.file_path} of {change.name!r} patched{times}{how}."
    if change.file_path == MAIN:
        return _write_main(change.name, new.text, message)
    return _write_file(change.name, change.file_path, new.text, present=present, message=message)


def _write_file(
    name: str, file_path: str, content: str, *, present: Mapping[str, bytes], message: str | None = None
) -> FileChanges | Refused:
    data = content.encode()
    if len(data) > MOST_FILE_BYTES:
        error = f"{file_path!r} would have {len(data):,} bytes"
        return Refused(Reason.OVER_BUDGET, error, f"keep each file below {MOST_FILE_BYTES:,} bytes: split it")
    if file_path not in present and len([path for path in present if path != MAIN]) >= MOST_FILES:
        return Refused(Reason.OVER_BUDGET, f"{name!r} has {MOST_FILES:,} files already", "remove or merge files first")
    total = len(data) + sum(len(content) for path, content in present.items() if path != file_path)
    if total > MOST_SKILL_BYTES:
        error = f"{name!r} would have {total:,} bytes"
        return Refused(Reason.OVER_BUDGET, error, f"keep all files together below {MOST_SKILL_BYTES:,}")
    return FileChanges({file_path: data}, message or f"{file_path} of {name!r} written.")


_MOST_CHARS = 50_000
_PREVIEW = 80
_MOST_PREVIEWS = 5


class PatchResult(Struct, frozen=True):
    """The patched text, the number of replacements, and how the passage was matched."""

    text: str
    count: int
    matched: str


class _Span(Struct, frozen=True):
    start: int
    end: int
    new: str


def apply_patch(text: str, old: str, new: str, *, replace_all: bool = False) -> PatchResult | Refused:
    """Return `text` with `old` replaced by `new`.

    The matchers are tried in order: exact; ignoring trailing white space; ignoring indentation,
    in which case the new text takes the indentation of the place; ignoring all white space. The
    first matcher that finds anything decides, and without `replace_all` it must find one place.
    """
    refused = _refuse_passage(old, new)
    if refused is not None:
        return refused
    for matched, find in _MATCHERS:
        spans = find(text, old, new)
        if not spans:
            continue
        if len(spans) > 1 and not replace_all:
            return _refuse_ambiguous(text, spans)
        pieces, at, replaced = [], 0, _disjoint(spans)
        for span in replaced:
            pieces += [text[at : span.start], span.new]
            at = span.end
        return PatchResult("".join([*pieces, text[at:]]), len(replaced), matched)
    return _refuse_missing(text, old)


def _refuse_passage(old: str, new: str) -> Refused | None:
    if not old.strip():
        return Refused(
            Reason.EMPTY, "old_string is empty", "copy the passage to replace from skill_view into old_string"
        )
    if old == new:
        return Refused(Reason.INVALID, "old_string and new_string are the same", "give the changed text as new_string")
    if len(old) > _MOST_CHARS:
        return Refused(
            Reason.OVER_BUDGET, f"old_string has {len(old):,} characters", "patch a shorter passage, or use edit"
        )
    return None


def _find_exact(text: str, old: str, new: str) -> list[_Span]:
    spans, at = [], text.find(old)
    while at >= 0:
        spans.append(_Span(at, at + len(old), new))
        at = text.find(old, at + 1)
    return spans


def _find_by_lines(text: str, old: str, normal: Callable[[str], str], replacement: Callable[[str], str]) -> list[_Span]:
    wanted = [normal(line) for line in old.strip("\n").split("\n")]
    lines = text.split("\n")
    alike = [normal(line) for line in lines]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    return [
        _Span(starts[at], starts[at + len(wanted)] - 1, replacement(lines[at]))
        for at in range(len(lines) - len(wanted) + 1)
        if alike[at] == wanted[0] and alike[at : at + len(wanted)] == wanted
    ]


def _find_ignoring_trailing_space(text: str, old: str, new: str) -> list[_Span]:
    return _find_by_lines(text, old, str.rstrip, lambda _line: new.strip("\n"))


def _find_ignoring_indentation(text: str, old: str, new: str) -> list[_Span]:
    if not old.strip("\n").split("\n")[0].strip():
        return []  # a blank first line has no indentation to compare
    own = _indentation(old.strip("\n"))
    return _find_by_lines(text, old, str.strip, lambda line: _reindent(new.strip("\n"), own, _indentation(line)))


def _find_ignoring_white_space(text: str, old: str, new: str) -> list[_Span]:
    """Search the text with white space collapsed, which takes linear time, and map the hits back."""
    words = list(re.finditer(r"\S+", text))
    plain = " ".join(word[0] for word in words)
    starts = list(accumulate((len(word[0]) + 1 for word in words[:-1]), initial=0))

    def place(at: int) -> int:
        word = bisect_right(starts, at) - 1
        return words[word].start() + at - starts[word]

    wanted = " ".join(old.split())
    return [_Span(place(span.start), place(span.end - 1) + 1, new.strip()) for span in _find_exact(plain, wanted, new)]


_MATCHERS: tuple[tuple[str, Callable[[str, str, str], list[_Span]]], ...] = (
    ("exact", _find_exact),
    ("trailing white space", _find_ignoring_trailing_space),
    ("indentation", _find_ignoring_indentation),
    ("white space", _find_ignoring_white_space),
)


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _reindent(new: str, own: str, found: str) -> str:
    lines = new.split("\n")
    return "\n".join(found + line[len(own) :] if line.startswith(own) and line.strip() else line for line in lines)


def _disjoint(spans: list[_Span]) -> list[_Span]:
    chosen: list[_Span] = []
    for span in spans:
        if not chosen or span.start >= chosen[-1].end:
            chosen.append(span)
    return chosen


def _refuse_ambiguous(text: str, spans: list[_Span]) -> Refused:
    places = [text.count("\n", 0, span.start) + 1 for span in spans]
    previews = [f"line {line}: {text.splitlines()[line - 1].strip()[:_PREVIEW]}" for line in places[:_MOST_PREVIEWS]]
    return Refused(
        Reason.AMBIGUOUS,
        f"old_string is found {len(spans)} times",
        "add lines before or after it until it is found once, or set replace_all to true",
        {"matches": previews},
    )


def _refuse_missing(text: str, old: str) -> Refused:
    first = next(line.strip() for line in old.split("\n") if line.strip())
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    near = difflib.get_close_matches(first[:200], [line[:200] for line in lines[:3_000]], n=3, cutoff=0.5)
    remedy = "look at the file with skill_view and copy the passage exactly"
    return Refused(Reason.NO_MATCH, "old_string is not in the file", remedy, {"closest": near})

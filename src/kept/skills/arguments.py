"""The arguments of the skill tools, read from whatever JSON a model sent."""

from collections.abc import Mapping
from typing import TypeAlias

from kept.core.errors import Reason, Refused
from kept.core.text import JSON, is_encodable
from kept.skills.changes import Change, Create, Delete, Edit, Patch, RemoveFile, WriteFile
from kept.skills.document import composed
from kept.skills.places import MAIN

Arguments: TypeAlias = Mapping[str, JSON]
_NEEDS = {
    "create": ("name", "content"),
    "patch": ("name", "old_string", "new_string"),
    "edit": ("name", "content"),
    "delete": ("name",),
    "write_file": ("name", "file_path", "file_content"),
    "remove_file": ("name", "file_path"),
}
_MOST_CHARS = 2_000_000
_FLAGS = frozenset({"replace_all", "confirm_new"})
_MAY_BE_EMPTY = frozenset({"new_string", "file_content"})


def read_change(arguments: Arguments) -> Change | Refused:
    """Return the change that a call of `skill_manage` asks for, or why it cannot be read."""
    action = arguments.get("action")
    if not isinstance(action, str) or action not in _NEEDS:
        error = f"{str(action)[:40]!r} is no action" if action else "there is no action"
        return Refused(Reason.INVALID, error, f"use one of {', '.join(_NEEDS)}", {"actions": [*_NEEDS]})
    allowed = (
        "action", "name", "content", "description", "category", "file_path", "file_content", "old_string", "new_string",
        "replace_all", "confirm_new",
    )  # fmt: skip
    refused = unfit(arguments, allowed, required=_NEEDS[action])
    if refused is not None:
        return refused
    return _built(
        action, {key: text_of(arguments, key) for key in allowed}, replace_all=arguments.get("replace_all") is True
    )


def _built(action: str, given: Mapping[str, str], *, replace_all: bool) -> Change:
    name = given["name"].strip()
    match action:
        case "create":
            return Create(name, _with_head(given), given["category"].strip("/ "))
        case "edit":
            return Edit(name, _with_head(given))
        case "patch":
            return Patch(
                name, given["old_string"], given["new_string"], given["file_path"] or MAIN, replace_all=replace_all
            )
        case "write_file":
            return WriteFile(name, given["file_path"], given["file_content"])
        case "remove_file":
            return RemoveFile(name, given["file_path"])
        case _:
            return Delete(name)


def _with_head(given: Mapping[str, str]) -> str:
    """Return the content, with a frontmatter made of name and description where it has none."""
    content = given["content"]
    if given["description"].strip() and not content.lstrip("\ufeff").startswith("---"):
        return composed(given["name"].strip(), given["description"], content)
    return content


def unfit(arguments: Arguments, allowed: tuple[str, ...], *, required: tuple[str, ...]) -> Refused | None:
    """Return why the arguments cannot be used, or None."""
    unknown = sorted(set(arguments) - set(allowed))
    if unknown:
        error = f"unknown argument {unknown[0][:40]!r}"
        return Refused(Reason.INVALID, error, f"the arguments are {', '.join(allowed)}")
    for key, value in arguments.items():
        if value is None:
            continue
        wanted = bool if key in _FLAGS else str
        if not isinstance(value, wanted):
            kind = "true or false" if wanted is bool else "text"
            return Refused(Reason.INVALID, f"{key} is {type(value).__name__}", f"give {key} as {kind}")
        if isinstance(value, str) and (len(value) > _MOST_CHARS or not is_encodable(value)):
            return Refused(Reason.INVALID, f"{key} is too long or not valid Unicode", "give shorter, valid text")
    for key in required:
        if arguments.get(key) is None or (key not in _MAY_BE_EMPTY and arguments[key] == ""):
            return Refused(Reason.INVALID, f"{key} is missing", f"give {', '.join(required)}")
    return None


def text_of(arguments: Arguments, key: str) -> str:
    """Return an argument that is text; empty when it is absent."""
    value = arguments.get(key)
    return value if isinstance(value, str) else ""

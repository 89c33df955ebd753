"""The SKILL.md document: read leniently, written strictly."""

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.skills.frontmatter import BadFrontmatter, Field, read_frontmatter, render_frontmatter
from wellkept.skills.paths import MAIN, read_regular

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MOST_NAME = 64
MOST_DESCRIPTION = 1_024
MOST_COMPATIBILITY = 500
MOST_CHARS = 100_000
"""The longest SKILL.md that kept writes."""
MOST_READ_CHARS = 400_000
"""The longest one that is read: published skills exceed what is wise to write."""
MOST_BYTES = MOST_READ_CHARS * 4
FIELDS = ("name", "description", "license", "compatibility", "allowed-tools", "metadata")
"""The fields of the public format, in the order in which they are written."""
DERIVED = "(derived: SKILL.md has no frontmatter)"
"""The mark of a description that the author did not write."""
_MOST_DERIVED = 300
_SENTENCE = re.compile(r".{1,240}?(?:[.!?](?=\s|$)|$)|.{1,240}")
_HEADING = re.compile(r"^#{1,4}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_NAME_REMEDY = "use 1 to 64 lowercase letters, digits and single hyphens, such as 'rotate-api-keys'"


class Document(Struct, frozen=True):
    """The parsed text of one skill."""

    name: str
    description: str
    body: str
    fields: Mapping[str, Field]
    warnings: tuple[str, ...] = ()
    strict: bool = True

    @property
    def headings(self) -> tuple[str, ...]:
        """Return the Markdown headings of the body, levels one to four."""
        return tuple(found[1] for found in _HEADING.finditer(_without_code(self.body)))

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the tags, in whichever place the author's agent puts them."""
        return list_items(self.lookup("tags"))

    def lookup(self, key: str) -> Field:
        """Return a field from the top level, `metadata` or `metadata.hermes`; empty when absent."""
        metadata = self.fields.get("metadata")
        inner = metadata.get("hermes") if isinstance(metadata, dict) else None
        for place in (self.fields, metadata, inner):
            if isinstance(place, Mapping) and place.get(key):
                return place[key]
        return ""


def list_items(value: Field) -> tuple[str, ...]:
    """Return the items of a list field; the public format writes lists as one string, `a, b`."""
    match value:
        case list():
            return tuple(item.strip() for item in value if isinstance(item, str) and item.strip())
        case str():
            return tuple(item.strip() for item in value.strip("[]").split(",") if item.strip())
        case _:
            return ()


def parse(text: str, folder: str) -> Document | BadFrontmatter:
    """Parse the SKILL.md text of the folder named `folder`, or return why it cannot be loaded."""
    if len(text) > MOST_READ_CHARS:
        return BadFrontmatter(
            f"SKILL.md has {len(text):,} characters", f"keep it below {MOST_CHARS:,}: move parts to references/"
        )
    head = read_frontmatter(text)
    if isinstance(head, BadFrontmatter):
        return head if text.lstrip("\ufeff").startswith("---") else _derive(text, folder, head)
    name, description = _single_line(head.fields.get("name", "")), _single_line(head.fields.get("description", ""))
    if _is_empty(description):
        return BadFrontmatter("there is no description", "add `description:` with what it does and when to use it")
    warnings = [*head.warnings, *_deviations(name, description, folder)]
    if len(text) > MOST_CHARS:
        warnings.append(f"SKILL.md has {len(text):,} characters, which fill much of a context when it is loaded")
    return Document(
        name if NAME.fullmatch(name) and len(name) <= MOST_NAME else folder,
        description[:MOST_DESCRIPTION],
        head.body.lstrip("\n"),
        head.fields,
        warnings=tuple(warnings),
        strict=head.strict,
    )


def _derive(text: str, folder: str, missing: BadFrontmatter) -> Document | BadFrontmatter:
    """Return a skill without frontmatter under the name of its folder, described by its title and first sentence."""
    body = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").strip()
    plain = _without_code(body)
    title = next(iter(_HEADING.findall(plain)), "")
    prose = next((line for line in plain.split("\n") if _is_prose(line)), "")
    sentence = _SENTENCE.match(_single_line(prose))
    parts = [part for part in (title, sentence[0] if sentence else "") if part]
    if not parts or not NAME.fullmatch(folder):
        return missing
    description = f"{': '.join(parts)[:_MOST_DERIVED]} {DERIVED}"
    warning = "there is no frontmatter; name and description are derived from the folder and the text"
    return Document(folder, description, body, {}, warnings=(warning,), strict=False)


def _is_prose(line: str) -> bool:
    return bool(line.strip()) and line.lstrip()[0] not in "#>|<![`-*+=_"


def read_skill(folder: Path) -> Document | BadFrontmatter:
    """Read the SKILL.md in `folder`, or return why it cannot be loaded."""
    data = read_regular(folder / MAIN, most_bytes=MOST_BYTES)
    if data is None:
        return BadFrontmatter("SKILL.md cannot be read", "check the file's owner and permissions")
    try:
        return parse(data.decode("utf-8-sig"), folder.name)
    except UnicodeDecodeError as error:
        return BadFrontmatter(f"SKILL.md is not UTF-8 (byte {error.start:,})", "save it as UTF-8")


def _deviations(name: str, description: str, folder: str) -> list[str]:
    """Return deviations from the format that can still be read."""
    found = []
    if not name:
        found.append(f"there is no name; the folder name {folder!r} is used")
    elif not NAME.fullmatch(name) or len(name) > MOST_NAME:
        found.append(f"the name {name[:80]!r} is not valid; the folder name {folder!r} is used")
    elif name != folder:
        found.append(f"the name {name!r} differs from the folder {folder!r}")
    if len(description) > MOST_DESCRIPTION:
        found.append(f"the description has {len(description):,} characters; {MOST_DESCRIPTION:,} are read")
    return found


def _single_line(value: Field) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _without_code(body: str) -> str:
    if "```" not in body:
        return body
    return "\n".join(part for place, part in enumerate(body.split("```")) if place % 2 == 0)


def refuse_name(name: str) -> Refused | None:
    """Return why `name` is not a valid skill name, or None when it is."""
    if len(name) <= MOST_NAME and NAME.fullmatch(name) and not _is_device(name):
        return None
    return Refused(Reason.INVALID, f"{name[:80]!r} cannot be the name of a skill", _NAME_REMEDY)


def _is_device(name: str) -> bool:
    from wellkept.security.paths import inside

    try:
        inside(Path("/nowhere"), name)
    except UsageError:
        return True
    return False


def normalize(text: str, name: str) -> str | Refused:
    """Return `text` as a SKILL.md for `name` that every reader of the format accepts.

    Frontmatter that is already strict keeps its bytes. Other frontmatter is rendered again, with
    fields that the format does not define moved below `metadata`.
    """
    if len(text) > MOST_CHARS:
        remedy = f"keep SKILL.md below {MOST_CHARS:,} characters: move parts to files under references/ with write_file"
        return Refused(Reason.OVER_BUDGET, f"SKILL.md would have {len(text):,} characters", remedy)
    head = read_frontmatter(text)
    if isinstance(head, BadFrontmatter):
        return Refused(Reason.INVALID, head.problem, head.fix)
    wrong = _refuse_fields(head.fields, name)
    if wrong is not None:
        return wrong
    if not head.body.strip():
        return Refused(Reason.EMPTY, "the skill has no body", "write the steps below the frontmatter, in Markdown")
    fields = _public_fields(head.fields, name)
    body = "\n" + head.body.lstrip("\n").rstrip() + "\n"
    if head.strict and dict(fields) == dict(head.fields) and not text.startswith("\ufeff") and "\r" not in text:
        return text if text.endswith("\n") else text + "\n"
    return render_frontmatter(fields) + body


def _is_empty(description: str) -> bool:
    """Tell whether a description is empty; YAML's null values count as empty."""
    return not description or description in {"~", "null"}


def _refuse_fields(fields: Mapping[str, Field], name: str) -> Refused | None:
    given, description = _single_line(fields.get("name", "")), fields.get("description", "")
    if given and given != name:
        remedy = f"write `name: {name}`; a skill is renamed by creating it under the new name and deleting the old one"
        return Refused(Reason.INVALID, f"the frontmatter names {given[:80]!r}, the skill is {name!r}", remedy)
    if not isinstance(description, str) or _is_empty(description.strip()):
        return Refused(
            Reason.INVALID, "there is no description", "add `description:` with what it does and when to use it"
        )
    if len(description.strip()) > MOST_DESCRIPTION:
        error = f"the description has {len(description.strip()):,} characters"
        return Refused(Reason.OVER_BUDGET, error, f"say what it does and when to use it in {MOST_DESCRIPTION:,}")
    compatibility = fields.get("compatibility", "")
    if not isinstance(compatibility, str) or len(compatibility) > MOST_COMPATIBILITY:
        return Refused(
            Reason.INVALID, "compatibility is too long or no text", f"use at most {MOST_COMPATIBILITY} characters"
        )
    return None


def _public_fields(fields: Mapping[str, Field], name: str) -> dict[str, Field]:
    """Return `fields` with only fields of the format at the top level."""
    given = {**fields, "name": name, "description": str(fields["description"]).strip()}
    metadata = given.get("metadata")
    moved: dict[str, Field] = dict(metadata) if isinstance(metadata, dict) else {}
    for key, value in given.items():
        if key not in FIELDS and value != "":
            moved.setdefault(key, value)
    given["metadata"] = moved
    tools = given.get("allowed-tools")
    if isinstance(tools, list):
        given["allowed-tools"] = " ".join(item for item in tools if isinstance(item, str))
    return {key: given[key] for key in FIELDS if given.get(key)}


def compose(name: str, description: str, body: str) -> str:
    """Build a SKILL.md from its parts."""
    return render_frontmatter({"name": name, "description": " ".join(description.split())}) + "\n" + body.strip() + "\n"

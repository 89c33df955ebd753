"""The schema of the `memory` tool, which servers list without loading the tier."""

from collections.abc import Mapping
from typing import cast

from msgspec.structs import replace

from wellkept.core.text import JSON, resource_text
from wellkept.core.tools import ToolSchema, read_schema


def memory_schema(*, has_project: bool = False) -> ToolSchema:
    """Return the schema.

    `has_project` adds the page of the project; without it the bytes are the same everywhere.
    """
    plain = read_schema("memory", "memory", "wellkept.memory", "tool.md")
    if not has_project:
        return plain
    properties = cast("Mapping[str, Mapping[str, JSON]]", plain.parameters["properties"])
    meaning = "'memory' for your own notes, 'user' for who the user is, 'project' for what holds here only."
    target: JSON = {**properties["target"], "enum": ["memory", "user", "project"], "description": meaning}
    more = resource_text("wellkept.memory", "tool_project.md").strip()
    parameters = {**plain.parameters, "properties": {**properties, "target": target}}
    return replace(plain, description=f"{plain.description}\n\n{more}", parameters=parameters)

"""The toolbox: the tools of an agent in a fixed order, and the `todo` tool."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kept.core.text import JSON
from kept.core.tools import Tool, ToolContext, ToolSchema

log = logging.getLogger(__name__)

CORE = (
    "memory", "session_search", "skills_list", "skill_view", "skill_manage", "todo", "delegate_task",
    "read_file", "write_file", "edit_file", "list_files", "search_files", "terminal",
)  # fmt: skip
"""Tool names that plugins cannot use."""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Tools by name, in the order in which they are sent to models."""

    tools: Mapping[str, Tool]

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The schemas, as they are sent to models."""
        return tuple(tool.schema for tool in self.tools.values())

    def only(self, names: Iterable[str]) -> "Toolbox":
        """Return a toolbox with these tools only."""
        wanted = set(names)
        return Toolbox({name: tool for name, tool in self.tools.items() if name in wanted})


def build_toolbox(core: Sequence[Tool], plugins: Sequence[Tool], toolsets: Sequence[str] | None) -> Toolbox:
    """Return the tools of the chosen toolsets; plugin tools come after core tools and cannot replace them."""
    found: dict[str, Tool] = {}
    for tool in (*core, *plugins):
        name = tool.schema.name
        if toolsets is not None and tool.schema.toolset not in toolsets:
            continue
        if name in found or (name in CORE and tool not in core):
            log.warning("a tool named %s exists already; the second one is left out", name)
            continue
        found[name] = tool
    return Toolbox(found)


STATES = ("pending", "in_progress", "done", "cancelled")


@dataclass(slots=True)
class TodoList:
    """The plan of the current task, by session."""

    steps: dict[str, list[Mapping[str, JSON]]] = field(default_factory=dict)

    def tool(self) -> Tool:
        """Return the tool."""
        step: JSON = {
            "type": "object",
            "properties": {"text": {"type": "string"}, "state": {"type": "string", "enum": list(STATES)}},
            "required": ["text", "state"],
        }
        return Tool(
            ToolSchema(
                "todo",
                "Keep the plan of a task with several steps. Send the whole list to replace it, nothing to read it.",
                {
                    "type": "object",
                    "properties": {"steps": {"type": "array", "items": step, "description": "The whole plan."}},
                },
                "todo",
            ),
            self.call,
            parallel=False,
        )

    def call(self, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        """Replace or read the list."""
        key = str(context.session_id)
        given = arguments.get("steps")
        if isinstance(given, list):
            self.steps[key] = [item for item in given if isinstance(item, Mapping)]
        return {"success": True, "steps": list(self.steps.get(key, []))}

"""The `todo` tool: the plan of the task at hand, kept for the conversation."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kept.core.text import JSON
from kept.core.tools import Tool, ToolContext, ToolSchema

STATES = ("pending", "in_progress", "done", "cancelled")


@dataclass(slots=True)
class TodoList:
    """The steps of the task at hand, by session."""

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

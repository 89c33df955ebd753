"""`delegate_task`: a sub-agent with its own session, without memory writes and providers."""

from collections.abc import Callable, Mapping

import anyio
from msgspec import Struct

from wellkept.agent.agent import Agent, Opening
from wellkept.agent.dependencies import Parts
from wellkept.agent.offload import is_cancelled
from wellkept.agent.toolbox import Approve, Toolbox, deny
from wellkept.agent.turn import Answer
from wellkept.core.errors import KeptError
from wellkept.core.ids import SessionId
from wellkept.core.provenance import FROM, Stated
from wellkept.core.text import JSON, resource_text
from wellkept.core.tools import Tool, ToolContext, ToolSchema
from wellkept.llm.retry import close

WITHHELD = frozenset({"skill_manage", "delegate_task"})
WITHHELD_TOOLSETS = frozenset({"memory", "context"})
"""A sub-agent writes no memory, uses no provider, and has no compacted context to search."""
_POLL_SECONDS = 0.2
"""How often to check whether the parent conversation was interrupted."""


class Delegation(Struct, frozen=True):
    """Starts sub-agents on behalf of a conversation."""

    parts: Callable[[Toolbox], Parts]
    """Builds the parts of a sub-agent with a toolbox: no providers, no pages in its prompt."""
    toolbox: Callable[[], Toolbox]
    done: Callable[[str, str, SessionId, SessionId | None], None]
    """Reports a finished task: its text, the result, the child session and the parent session."""
    approve: Approve = deny
    """Approves the sub-agent's tool calls, as for the parent conversation."""

    def tool(self) -> Tool:
        """Return the tool."""
        properties: dict[str, JSON] = {
            "task": {"type": "string", "description": "What the sub-agent should do and report."},
            "context": {"type": "string", "description": "What the sub-agent must know; it sees nothing else."},
            "toolset": {"type": "string", "description": "Limit it to one toolset, e.g. workspace."},
        }
        return Tool(
            ToolSchema(
                "delegate_task",
                "Give a separate task to a sub-agent with a fresh context; its report comes back as the answer.",
                {"type": "object", "properties": properties, "required": ["task"]},
                "delegation",
            ),
            self.call,
        )

    def call(self, arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        """Run one sub-agent and return its report."""
        task = arguments.get("task")
        if not isinstance(task, str) or not task.strip():
            return {"success": False, "error": "the task is empty", "remedy": "say what the sub-agent should do"}
        background = arguments.get("context")
        prompt = f"{task}\n\n{background}" if isinstance(background, str) and background else task
        opening = Opening(
            platform=context.platform,
            user_id=context.user_id,
            system_message=resource_text("wellkept.agent", "subagent.md").strip(),
            source="subagent",
            parent=context.session_id,
            approve=self.approve,
        )
        toolset = arguments.get("toolset")
        tools = self.toolbox().tools
        names = [
            name
            for name, tool in tools.items()
            if name not in WITHHELD
            and tool.schema.toolset not in WITHHELD_TOOLSETS
            and (not isinstance(toolset, str) or not toolset or tool.schema.toolset == toolset)
        ]
        agent = Agent(self.parts(Toolbox(tools).only(names)), opening)
        try:
            taint = context.find_taint(prompt)
            answer = anyio.run(_run_interruptible, agent, prompt, None if taint is None else taint.source)
        except KeptError as error:
            return {"success": False, "error": f"the sub-agent failed: {error.message}", "remedy": error.remedy}
        finally:
            agent.close()
        self.done(task, answer.text, agent.session.id, context.session_id)
        read = list(dict.fromkeys(row.source for row in agent.conversation.record.rows if row.source is not None))
        return {
            "success": True, "result": answer.text, "session_id": agent.session.id, "calls": len(answer.tool_calls),
            **({FROM: read} if read else {}),
        }  # fmt: skip


async def _run_interruptible(agent: Agent, prompt: str, source: Stated) -> Answer:
    """Run the sub-agent's turn; interrupt it when the parent conversation is interrupted."""

    async def watch() -> None:
        while not is_cancelled():  # noqa: ASYNC110 - the waiting caller lives in another thread's event loop
            await anyio.sleep(_POLL_SECONDS)
        agent.interrupt()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            answer = await agent.turn(prompt, source=source)
            group.cancel_scope.cancel()
    finally:
        # the event loop ends here; connections that stay open would leak
        if agent.parts.model is not None:
            with anyio.CancelScope(shield=True):
                await close(agent.parts.model)
    return answer

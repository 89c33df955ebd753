"""Tools of MCP servers: the one adapter that turns configured servers into tools of ours."""

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kept.core.events import Warned
from kept.core.jsontypes import JSON
from kept.core.ports import EventSink
from kept.core.tools import Tool, ToolContext, ToolSchema

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

log = logging.getLogger(__name__)

READ_SECONDS = 60.0
"""How long a server may take over one answer."""
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class McpTools:
    """The configured MCP servers while they are connected; a server that fails is left out, with a warning."""

    def __init__(self, servers: Mapping[str, Mapping[str, Any]], sink: EventSink) -> None:
        self._servers = servers
        self._sink = sink
        self._closing: list[Callable[[], object]] = []
        self.tools: list[Tool] = []

    def connect(self) -> None:
        """Connect every server and list its tools, in the order of the configuration."""
        from anyio.from_thread import start_blocking_portal

        running = start_blocking_portal()
        portal = running.__enter__()
        self._closing.append(lambda: running.__exit__(None, None, None))
        for name, settings in self._servers.items():
            try:
                self.tools += self._connected(portal, name, settings)
            except Exception as error:  # plugin call: a foreign server must not stop the start
                log.warning("mcp server %s cannot be used", name, exc_info=True)
                self._sink(Warned(f"the MCP server {name!r} cannot be used: {_reason(error)}", "check mcp_servers"))

    def _connected(self, portal: "BlockingPortal", name: str, settings: Mapping[str, Any]) -> list[Tool]:
        # entered and left in one task of the portal's, as the client's task groups demand
        session = portal.wrap_async_context_manager(_client(settings))
        client = session.__enter__()
        self._closing.append(lambda: session.__exit__(None, None, None))
        listed = portal.call(client.list_tools)
        return [_tool(name, each, client, portal) for each in sorted(listed.tools, key=lambda tool: tool.name)]

    def close(self) -> None:
        """Disconnect, and end the servers that were started."""
        for close in reversed(self._closing):
            try:
                close()
            except Exception:  # plugin call: a server that dies badly must not hold the exit
                log.warning("mcp server did not close well", exc_info=True)
        self._closing.clear()


def _client(settings: Mapping[str, Any]) -> Any:
    try:
        from mcp import Client, StdioServerParameters
    except ImportError as error:
        raise RuntimeError("the extra is missing: pip install 'kept[mcp]'") from error
    if url := settings.get("url"):
        return Client(str(url), read_timeout_seconds=READ_SECONDS)
    if command := settings.get("command"):
        environment = {str(key): str(value) for key, value in (settings.get("env") or {}).items()}
        return Client(
            StdioServerParameters(
                command=str(command), args=[str(word) for word in settings.get("args") or []], env=environment or None
            ),
            read_timeout_seconds=READ_SECONDS,
        )
    raise RuntimeError("it has neither `command` nor `url`")


def _tool(server: str, listed: Any, client: Any, portal: "BlockingPortal") -> Tool:
    name = _NOT_A_NAME.sub("_", f"mcp_{server}_{listed.name}")[:64]
    schema = ToolSchema(name, listed.description or listed.name, dict(listed.input_schema), "mcp")

    def call(arguments: Mapping[str, JSON], _context: ToolContext) -> Mapping[str, JSON]:
        result = portal.call(partial(client.call_tool, listed.name, dict(arguments)))
        return _answer(result)

    return Tool(schema, call)


def _answer(result: Any) -> dict[str, JSON]:
    texts = [part.text for part in result.content if getattr(part, "type", "") == "text"]
    others = [part.type for part in result.content if getattr(part, "type", "") != "text"]
    answer: dict[str, JSON] = {"success": not result.is_error, "text": "\n".join(texts)}
    if result.structured_content is not None:
        answer["structured"] = result.structured_content
    if others:
        answer["other_parts"] = list(others)
    if result.is_error:
        answer["error"] = answer.pop("text")
    return answer


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__

"""Tools of MCP servers: the adapter that turns configured servers into agent tools."""

import logging
import re
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wellkept.core.agency import mark_command, mark_environment
from wellkept.core.events import Warned
from wellkept.core.installation import name_install
from wellkept.core.ports import EventSink
from wellkept.core.text import JSON
from wellkept.core.tools import Tool, ToolContext, ToolSchema

if TYPE_CHECKING:
    import anyio
    from anyio.from_thread import BlockingPortal

log = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0
"""Total time for all servers to start; a chat does not wait longer."""
READ_SECONDS = 60.0
"""Time for one answer of a server, unless its `timeout` setting differs."""
_CLOSE_SECONDS = 5.0
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class _Connection(Struct):
    """A server whose connection is held open by a task of the portal."""

    name: str
    settings: Mapping[str, Any]
    listed: "Future[tuple[Any, list[Any]]]"
    """The client and its tools, once connected."""
    task: "Future[None] | None" = None
    leave: "anyio.Event | None" = None


class McpTools:
    """The connected MCP servers; a server that fails is left out with a warning."""

    def __init__(self, servers: Mapping[str, Mapping[str, Any]], sink: EventSink, *, logs: Path | None = None) -> None:
        self._servers = servers
        self._sink = sink
        self._logs = logs
        self._connections: list[_Connection] = []
        self._running: Any = None
        self._portal: BlockingPortal | None = None
        self.tools: list[Tool] = []

    def connect(self) -> None:
        """Connect the servers in parallel and list their tools in the order of the configuration."""
        from anyio.from_thread import start_blocking_portal

        self._running = start_blocking_portal()
        portal = self._portal = self._running.__enter__()
        self._connections = [_Connection(name, settings, Future()) for name, settings in self._servers.items()]
        for connection in self._connections:
            connection.task = portal.start_task_soon(self._keep_connected, connection)
        deadline = time.monotonic() + CONNECT_SECONDS
        for connection in self._connections:
            try:
                client, listed = connection.listed.result(max(0.0, deadline - time.monotonic()))
                self._add_tools(connection, listed, client, portal)
            except Exception as error:  # plugin call: a foreign server must not stop the start
                log.warning("mcp server %s cannot be used", connection.name, exc_info=True)
                what = f"the MCP server {connection.name!r} cannot be used: {_reason(error)}"
                self._sink(Warned(what, f"check mcp_servers.{connection.name} in the configuration"))
                if connection.task is not None:
                    connection.task.cancel()

    async def _keep_connected(self, connection: _Connection) -> None:
        """Keep the connection open in one task; the client's task groups must be left in the task that entered them."""
        import anyio

        connection.leave = anyio.Event()
        try:
            with self._open_log(connection.name) as errors:
                async with _client(connection, errors) as client:
                    connection.listed.set_result((client, (await client.list_tools()).tools))
                    await connection.leave.wait()
        except Exception as error:  # plugin call: the waiting `connect` reports the failure
            if connection.listed.done():
                log.warning("mcp server %s ended", connection.name, exc_info=True)
            else:
                connection.listed.set_exception(error)

    def _open_log(self, name: str) -> Any:
        """Open the log file for a server's stderr, which must not reach the user's screen."""
        if self._logs is None:
            return Path("/dev/null").open("w", encoding="utf-8")
        self._logs.mkdir(parents=True, exist_ok=True)
        return (self._logs / f"mcp-{_NOT_A_NAME.sub('_', name)}.log").open("w", encoding="utf-8")

    def _add_tools(self, connection: _Connection, listed: list[Any], client: Any, portal: "BlockingPortal") -> None:
        taken = {tool.schema.name for tool in self.tools}
        for description in sorted(listed, key=lambda tool: str(tool.name)):
            tool = _tool(connection, description, client, portal)
            if tool.schema.name in taken:
                what = f"the tool {description.name!r} of the MCP server {connection.name!r} is left out"
                self._sink(Warned(what, f"another tool is already called {tool.schema.name!r}; rename one server"))
                continue
            taken.add(tool.schema.name)
            self.tools.append(tool)

    def close(self) -> None:
        """Disconnect, and stop the servers that were started."""
        if self._portal is None:
            return
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        for connection in self._connections:
            if connection.leave is not None:
                self._portal.call(connection.leave.set)
        wait(tasks, _CLOSE_SECONDS)
        for task in tasks:
            task.cancel()
        self._connections.clear()
        self._portal = None
        self._running.__exit__(None, None, None)


def _client(connection: _Connection, errors: Any) -> Any:
    try:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client
    except ImportError as error:
        raise RuntimeError(f"the extra is missing: {name_install('mcp')}") from error
    settings = connection.settings
    timeout = settings.get("timeout", READ_SECONDS)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        raise RuntimeError(f"its `timeout` must be a number of seconds above 0, not {timeout!r}")
    seconds = float(timeout)
    if url := settings.get("url"):
        return Client(str(url), read_timeout_seconds=seconds)
    if command := settings.get("command"):
        environment = {str(key): str(value) for key, value in (settings.get("env") or {}).items()}
        arguments = [str(word) for word in settings.get("args") or []]
        if shutil.which(str(command), path=environment.get("PATH")) is None:
            raise RuntimeError(f"there is no program {str(command)!r}")
        program, *words = mark_command([str(command), *arguments])  # a tool of the server may be a shell
        started = StdioServerParameters(command=program, args=words, env=mark_environment(environment))
        return Client(stdio_client(started, errlog=errors), read_timeout_seconds=seconds)
    raise RuntimeError("it has neither `command` nor `url`")


def _tool(connection: _Connection, listed: Any, client: Any, portal: "BlockingPortal") -> Tool:
    name = _NOT_A_NAME.sub("_", f"mcp_{connection.name}_{listed.name}")[:64]
    schema = ToolSchema(name, listed.description or listed.name, dict(listed.input_schema), "mcp")

    def call(arguments: Mapping[str, JSON], _context: ToolContext) -> Mapping[str, JSON]:
        try:
            return _answer(portal.call(partial(client.call_tool, listed.name, dict(arguments))))
        except Exception as error:  # plugin call: a server that fails is reported to the model
            log.warning("mcp server %s: %s failed", connection.name, listed.name, exc_info=True)
            return {"success": False, "error": f"the MCP server {connection.name!r} failed: {_reason(error)}"}

    hints = getattr(listed, "annotations", None)
    reads = hints is not None and hints.read_only_hint is True and hints.destructive_hint is not True
    return Tool(schema, call, asks=connection.settings.get("approve") is not True, only_reads=reads)


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
    if isinstance(error, TimeoutError):
        return f"it did not answer in time{f' ({error})' if str(error) else ''}"
    return str(error) or type(error).__name__

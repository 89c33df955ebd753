"""Anthropic's memory tool (`memory_20250818`) for its SDK, over anything that runs the commands."""

from collections.abc import Mapping
from typing import Any, Protocol

from anthropic.lib.tools import BetaAbstractMemoryTool, ToolError

from wellkept.core.errors import KeptError


class RunsCommands(Protocol):
    """Runs the commands of the memory tool."""

    def run(self, command: Mapping[str, Any]) -> str:
        """Run one command; raises a KeptError with a message for the model."""
        ...


class SdkMemoryTool(BetaAbstractMemoryTool):
    """The tool that `client.beta.messages.run_tools` takes; a refusal is a result with `is_error`."""

    def __init__(self, commands: RunsCommands) -> None:
        super().__init__()
        self._commands = commands

    def call(self, input: object) -> str:  # noqa: A002 - the name of the SDK
        """Run a command as the model sent it."""
        command = input if isinstance(input, Mapping) else {}
        try:
            return self._commands.run(command)
        except KeptError as error:
            raise ToolError(error.message) from error

    def execute(self, command: Any) -> str:
        """Run a command as the SDK parsed it."""
        return self.call(command.to_dict())

    view = create = str_replace = insert = delete = rename = execute  # the six commands share one implementation

"""Anthropic's memory tool over kept's memory, for programs that call the Claude API themselves."""

from pathlib import Path

from wellkept.llm.anthropic_memory_tool import SdkMemoryTool
from wellkept.memory.anthropic_files import MemoryFiles
from wellkept.memory.approval import Approvals
from wellkept.memory.store import MemoryStore


class AnthropicMemoryTool(SdkMemoryTool):
    """The tool `memory_20250818`, opened with the folder of the two pages; other files are in its subfolder `files`.

    With `approvals`, writes that need a person's decision become pending; without, they are refused.
    """

    def __init__(
        self, folder: Path | str, *, store: MemoryStore | None = None, approvals: Approvals | None = None
    ) -> None:
        self.store = store or MemoryStore(folder)
        super().__init__(MemoryFiles(self.store, Path(folder) / "files", approvals))

    def close(self) -> None:
        """Close the store."""
        self.store.close()

"""The readers by the name of their client; each is loaded when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kept.importers.port import Reader

CLIENTS = ("claude-code", "codex", "opencode")
"""The clients whose transcripts can be read, in the order in which they are listed."""


def find_reader(client: str) -> Reader | None:
    """Return the reader of a client's transcripts, or None."""
    match client:
        case "claude-code":
            from kept.importers.claude_code import ClaudeCode

            return ClaudeCode()
        case "codex":
            from kept.importers.codex import Codex

            return Codex()
        case "opencode":
            from kept.importers.opencode import Opencode

            return Opencode()
        case _:
            return None

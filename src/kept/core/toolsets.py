"""Toolsets: the groups in which tools are switched on and off."""

from typing import Literal

Toolset = Literal["memory", "session_search", "skills", "todo", "delegation", "workspace", "terminal", "mcp", "context"]

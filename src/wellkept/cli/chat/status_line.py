"""The status line under the prompt of a chat: model, tokens, cost, fill of memory."""

from shutil import get_terminal_size
from typing import TYPE_CHECKING

from wellkept.core.errors import StorageError
from wellkept.operations import memory

if TYPE_CHECKING:
    from wellkept.agent.agent import Agent
    from wellkept.app import Caller
    from wellkept.cli.chat.screen import Screen
    from wellkept.memory.page import Target


def status_line(caller: "Caller", agent: "Agent", screen: "Screen") -> str:
    """Return the line under the prompt: model, tokens, cache share, cost, fill of memory."""
    usage, model = screen.usage, agent.parts.model
    share = f", {usage.cache_read_tokens * 100 // usage.prompt_tokens} % from cache" if usage.prompt_tokens else ""
    tokens = f"{usage.prompt_tokens + usage.output_tokens:,} tokens{share}"
    cost = [f"${screen.cost:.4f}"] if screen.cost else []
    fill = ", ".join(f"{page.value} {_describe_fill(caller, page)}" for page in memory.list_pages(caller))
    return wrap_parts([model.name if model is not None else "none", tokens, *cost, fill], get_terminal_size().columns)


def _describe_fill(caller: "Caller", target: "Target") -> str:
    try:
        return f"{memory.read_page(caller, target).percent} %"
    except StorageError:  # the line is drawn after every key; the commands report what is wrong with the page
        return "unreadable"


def wrap_parts(parts: list[str], columns: int) -> str:
    """Return the parts next to each other, on as many lines as the terminal needs."""
    lines = [f" {parts[0]} "]
    for part in parts[1:]:
        longer = f"{lines[-1]}· {part} "
        if len(longer) <= columns:
            lines[-1] = longer
        else:
            lines.append(f" {part} ")
    return "\n".join(lines)

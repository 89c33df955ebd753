"""Slash commands on chat platforms: runs them, with the result as a text. The table is in `operations`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.agent.offload import offload
from wellkept.core.errors import UsageError
from wellkept.operations import memory
from wellkept.operations.slash_commands import (
    Call,
    LoadedSkill,
    Place,
    describe_session,
    format_minute,
    list_commands,
    suggest,
    use_skill,
)

if TYPE_CHECKING:
    from wellkept.agent.agent import Agent
    from wellkept.app import Caller
    from wellkept.operations.slash_commands import Result

COMMANDS = list_commands(Place.PLATFORM)
_ALIASES = {"start": "help"}
"""Telegram's first message to a bot is /start."""
_WORD = re.compile(r"/([A-Za-z0-9_-]{1,64})(?:@\w+)?(?:\s+|$)")
_MOST_SKILLS = 10
_PASSAGE_CHARS = 300
_NEAR = 0.75
"""A word that is less alike is no mistyped command but the beginning of a message."""


class Command(Struct, frozen=True):
    """A command with its arguments."""

    name: str
    rest: str = ""


def read_command(text: str) -> Command | None:
    """Parse a message as a command; None for any other text. Platforms may add a name: /new@bot."""
    match = _WORD.match(text.strip())
    if match is None:
        return None
    name = match[1].lower()
    return Command(_ALIASES.get(name, name), text.strip()[match.end() :].strip())


async def run_command(caller: Caller, agent: Agent, command: Command) -> str | LoadedSkill | None:
    """Run a command in an open conversation; None if there is no such command, so that it is a message.

    Raises KeptError with the next step for the person.
    """
    if command.name == "help":
        return "\n".join(f"/{name}: {other.words}" for name, other in COMMANDS.items())
    if command.name == "status":
        return await offload(_describe_status, caller, agent)
    known, call = COMMANDS.get(command.name), Call(caller, agent, Place.PLATFORM, command.rest)
    if known is not None and known.run_async is not None:
        return await offload(_render, await known.run_async(call))
    if known is not None and known.run is not None:
        return await offload(_render, await offload(known.run, call))
    # the commands of Telegram cannot contain hyphens, so _ may replace them
    for name in dict.fromkeys((command.name, command.name.replace("_", "-"))):
        skill = await offload(use_skill, caller, agent, name)
        if skill is not None:
            return skill
    near = suggest(command.name, Place.PLATFORM, cutoff=_NEAR)
    if near is not None:
        raise UsageError(f"there is no command /{command.name}; did you mean /{near}?", "/help lists the commands")
    return None


def _describe_status(caller: Caller, agent: Agent) -> str:
    views = memory.show_pages(caller).views
    fill = ", ".join(f"{view.target.value} {view.page.percent} %" for view in views if view.page is not None)
    return f"{describe_session(agent)}\nmemory of {caller.user}: {fill}"


def _render(result: Result) -> str:
    from wellkept.operations.skills import SkillList

    match result:
        case None:
            return "Nothing was used yet."
        case str():
            return result
        case memory.PageViews():
            return _render_pages(result)
        case SkillList():
            shown = result.skills[:_MOST_SKILLS]
            return "\n".join(f"/{listed.skill.name}: {listed.skill.description}" for listed in shown)
        case _:
            from wellkept.sessions.search.occurrences import Marker

            answer = result.profiles[0].conversations
            marker = Marker(answer.found.terms)
            lines = []
            for match in answer.matches:
                message = match.message.message
                passage = marker.around(" ".join(marker.show(message).split()), width=_PASSAGE_CHARS)
                when, title = format_minute(match.message.timestamp), match.session.title or "untitled"
                lines += [f"**{when}** {title} ({match.session.id})", f"{message.role.value}: {passage}"]
            return "\n".join(lines) or answer.reason or "Nothing was found."


def _render_pages(found: memory.PageViews) -> str:
    lines = []
    for view in found.views:
        if view.page is not None:
            lines.append(f"**{view.target.value}** [{view.page.usage}]")
            lines += [f"- {entry}" for entry in found.masked.get(view.target, ())] or ["(empty)"]
        if view.error is not None:
            lines.append(view.error.message)
    if found.waiting:
        lines.append(f"{found.waiting} waiting: /memory pending")
    return "\n".join(lines)

"""Slash commands on chat platforms: the commands of `kept chat`, with their result as a text."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.agent.offload import offload
from wellkept.core.clock import from_epoch
from wellkept.core.errors import Refused, UsageError
from wellkept.core.ids import OWNER
from wellkept.forgetting import requests as forget_requests
from wellkept.operations import pages, sessions
from wellkept.operations.conversations import use_model
from wellkept.operations.models import choose_offered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from wellkept.agent.agent import Agent
    from wellkept.app import Caller

COMMANDS = {
    "new": "begin a new conversation",
    "reset": "same as /new",
    "stop": "stop the running answer",
    "undo": "undo the last exchange",
    "memory": "[pending | approve ID | reject ID | undo]: the two pages; ID may be all",
    "search": "QUESTION: look in past conversations",
    "resume": "[ID]: continue an earlier conversation",
    "branch": "continue in a branch; this conversation stays as it is",
    "title": "[TEXT]: name this conversation",
    "compress": "[FOCUS]: make the context smaller now",
    "skills": "[WORDS]: the skills, or those that match the words; /NAME uses one",
    "model": "[NAME]: show the model; the owner can change it",
    "usage": "tokens and cost of this conversation",
    "status": "show the status",
    "help": "this list",
}
_ALIASES = {"start": "help"}
"""Telegram's first message to a bot is /start."""
_WORD = re.compile(r"/([A-Za-z0-9_-]{1,64})(?:@\w+)?(?:\s+|$)")
_MOST_LISTED = 10
_PASSAGE_CHARS = 300


class Command(Struct, frozen=True):
    """A command with its arguments."""

    name: str
    rest: str = ""


class LoadedSkill(Struct, frozen=True):
    """A skill that the model gets with the message."""

    text: str


def read_command(text: str) -> Command | None:
    """Parse a message as a command; None for any other text. Platforms may add a name: /new@bot."""
    found = _WORD.match(text.strip())
    if found is None:
        return None
    name = found[1].lower()
    return Command(_ALIASES.get(name, name), text.strip()[found.end() :].strip())


async def run_command(caller: Caller, agent: Agent, command: Command) -> str | LoadedSkill | None:
    """Run a command in an open conversation; None if there is no such command, so that it is a message.

    Raises KeptError with the next step for the person.
    """
    run = _RUNS.get(command.name)
    if run is not None:
        return await run(caller, agent, command.rest)
    loaded = await offload(_use_skill, caller, agent, command)
    if loaded is not None:
        return loaded
    close = difflib.get_close_matches(command.name, COMMANDS, n=1, cutoff=0.75)
    if close:
        raise UsageError(f"there is no command /{command.name}; did you mean /{close[0]}?", "/help lists the commands")
    return None


def _use_skill(caller: Caller, agent: Agent, command: Command) -> str | LoadedSkill | None:
    """Return the text that uses a skill; Telegram commands cannot contain hyphens, so _ may replace them."""
    from wellkept.operations.skills import invoke_skill

    runs = agent.parts.model is not None
    for name in dict.fromkeys((command.name, command.name.replace("_", "-"))):
        text = invoke_skill(caller, name, session_id=agent.session.id, runs=runs)
        if isinstance(text, Refused):
            return f"{text.error} {text.remedy}"
        if text is not None:
            return LoadedSkill(text) if runs else text
    return None


def _begin_new(_caller: Caller, agent: Agent, _rest: str) -> str:
    agent.new("new")
    return "A new conversation."


def _reset(_caller: Caller, agent: Agent, _rest: str) -> str:
    agent.new("reset")
    return "A new conversation."


async def _undo(_caller: Caller, agent: Agent, _rest: str) -> str:
    said = await agent.undo()
    return f"Undone: {said}" if said is not None else "There is nothing to undo."


def _help(_caller: Caller, _agent: Agent, _rest: str) -> str:
    return "\n".join(f"/{name}: {words}" for name, words in COMMANDS.items())


def _resume(caller: Caller, agent: Agent, rest: str) -> str:
    if rest:
        agent.resume(sessions.resolve_sessions(caller, [rest])[0])
        count = len(agent.conversation.record.rows)
        return f"Resumed {agent.session.id}: {agent.session.title or 'untitled'}, {count} messages."
    listed = sessions.list_sessions(caller, sessions.Listed(limit=_MOST_LISTED)).sessions
    lines = [f"{one.id}  {_day(one.last_active or one.started)}  {one.title or 'untitled'}" for one in listed]
    return "\n".join(lines) or "There is no earlier conversation."


def _day(time: float) -> str:
    return f"{from_epoch(time).astimezone():%Y-%m-%d %H:%M}"


def _branch(_caller: Caller, agent: Agent, _rest: str) -> str:
    return f"Now in the branch {agent.branch()}."


def _title(caller: Caller, agent: Agent, rest: str) -> str:
    if not agent.conversation.record.exists:
        raise UsageError("this conversation is not stored yet", "say something first")
    if rest:
        return f"Title: {sessions.rename_session(caller, agent.session.id, rest).title}"
    return sessions.show_session(caller, agent.session.id, first=1).session.title or "untitled"


async def _compress(_caller: Caller, agent: Agent, rest: str) -> str:
    if agent.parts.engine is None:
        raise UsageError("without a model there is no context to compress", "connect a model first")
    outcome = await agent.compress(rest)
    if outcome.saved:
        return "Compressed: the older part of this conversation is now a summary."
    return f"Nothing was compressed: {getattr(outcome, 'reason', 'nothing to do')}.".replace("_", " ")


def _memory(caller: Caller, _agent: Agent, rest: str) -> str:
    word, _, argument = rest.partition(" ")
    match word:
        case "":
            return _show_pages(caller)
        case "pending":
            lines = [f"{one.id}  {one.target.value}: {one.summary}" for one in pages.list_pending(caller)]
            for request in forget_requests.list_requests(caller):
                step = f"`kept memory approve {request.id}` in a terminal, or the start page of the web app"
                lines.append(f"{request.origin} asks to {request.summary} ({step})")
            return "\n".join(lines) or "Nothing is pending."
        case "approve" | "reject":
            chosen = pages.choose_pending(caller, argument.strip())
            if isinstance(chosen, Refused):
                return chosen.error
            return "\n".join(pages.decide_pending(caller, one, approves=word == "approve") for one in chosen)
        case "undo":
            result = pages.undo(caller)
            return result.error if isinstance(result, Refused) else " ".join(one.message for one in result.outcomes)
        case _:
            raise UsageError(
                f"there is no /memory {word}", "write /memory, or /memory pending, approve ID, reject ID, undo"
            )


def _show_pages(caller: Caller) -> str:
    found, lines = pages.show_pages(caller), []
    for view in found.views:
        if view.page is not None:
            lines.append(f"**{view.target.value}** [{view.page.usage}]")
            lines += [f"- {entry}" for entry in found.masked.get(view.target, ())] or ["(empty)"]
        if view.error is not None:
            lines.append(view.error.message)
    if found.waiting:
        lines.append(f"{found.waiting} waiting: /memory pending")
    return "\n".join(lines)


def _list_skills(caller: Caller, _agent: Agent, rest: str) -> str:
    from wellkept.operations.skills import list_skills

    found = list_skills(caller, rest, usable=True).skills[:_MOST_LISTED]
    lines = [f"/{one.skill.name}: {one.skill.description}" for one in found]
    return "\n".join(lines) or ("No skill matches." if rest else "There are no skills yet.")


def _search(caller: Caller, _agent: Agent, rest: str) -> str:
    from wellkept.operations.search import Filters, search
    from wellkept.sessions.search.occurrences import Marker

    if not rest:
        raise UsageError("the question is empty", "write it like: /search when did we move the database?")
    answer = search(caller, rest, Filters(limit=5)).profiles[0].conversations
    marker = Marker(answer.found.terms)
    lines = []
    for match in answer.matches:
        shown = marker.around(" ".join(marker.show(match.message.message).split()), width=_PASSAGE_CHARS)
        lines.append(f"**{_day(match.message.timestamp)}** {match.session.title or 'untitled'} ({match.session.id})")
        lines.append(f"{match.message.message.role.value}: {shown}")
    return "\n".join(lines) or answer.reason or "Nothing was found."


def _model(caller: Caller, agent: Agent, rest: str) -> str:
    if rest:
        if caller.user != OWNER:  # the owner pays for the model
            raise UsageError("only the owner of this memory can change the model", "ask the owner")
        use_model(caller, agent, choose_offered(caller, rest))
    return agent.parts.model.name if agent.parts.model is not None else "no model: answers come from memory"


def _usage(caller: Caller, agent: Agent, _rest: str) -> str:
    from wellkept.operations.usage import sum_sessions

    whole = sum_sessions(caller, sorted(agent.conversation.lineage))
    if whole is None:
        return "Nothing was used yet."
    usage, cost = whole.usage, "price unknown" if whole.cost is None else f"${whole.cost:.4f}"
    sent = f"sent {usage.prompt_tokens:,} tokens ({usage.cache_read_tokens:,} from cache)"
    return f"{sent}, received {usage.output_tokens:,}; {cost}"


def _status(caller: Caller, agent: Agent, _rest: str) -> str:
    count = len(agent.conversation.record.rows)
    name = agent.parts.model.name if agent.parts.model is not None else "none"
    views = pages.show_pages(caller).views
    fill = ", ".join(f"{view.target.value} {view.page.percent} %" for view in views if view.page is not None)
    return f"session {agent.session.id}, {count} messages, model {name}\nmemory of {caller.user}: {fill}"


def _offload(run: Callable[[Caller, Agent, str], str]) -> Callable[[Caller, Agent, str], Awaitable[str]]:
    async def run_offloaded(caller: Caller, agent: Agent, rest: str) -> str:
        return await offload(run, caller, agent, rest)

    return run_offloaded


_RUNS: dict[str, Callable[[Caller, Agent, str], Awaitable[str]]] = {
    "compress": _compress,
    "undo": _undo,
    **{
        name: _offload(run)
        for name, run in {
            "new": _begin_new, "reset": _reset, "help": _help, "resume": _resume, "branch": _branch,
            "title": _title, "memory": _memory, "skills": _list_skills, "search": _search, "model": _model,
            "usage": _usage, "status": _status,
        }.items()
    },
}  # fmt: skip
"""What each command does; `stop` is handled earlier, because it must not wait for the turn that it stops."""

"""Slash commands: one table for chats in a terminal and on platforms, and what each command does.

A place parses the line, runs the command and renders the result; `help`, `status`, `stop` and `quit` it runs itself.
"""

from __future__ import annotations

import difflib
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from wellkept.core.clock import from_epoch
from wellkept.core.errors import Refused, StorageError, UsageError
from wellkept.core.ids import OWNER
from wellkept.forgetting import requests as forget_requests
from wellkept.operations import memory, sessions
from wellkept.operations.conversations import CompactionPreview, use_model
from wellkept.operations.models import choose_offered, sum_sessions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from wellkept.agent.agent import Agent
    from wellkept.app import Caller
    from wellkept.core.messages import Usage
    from wellkept.operations.search import SearchAnswer
    from wellkept.operations.skills import SkillList

_MOST_LISTED = 10


class Place(Enum):
    """Where a person types a command."""

    TERMINAL = "terminal"
    PLATFORM = "platform"


class Call(Struct, frozen=True):
    """A command that a person gave in an open conversation."""

    caller: Caller
    agent: Agent
    place: Place
    rest: str = ""
    """What stands after the name of the command."""


Result: TypeAlias = "str | memory.PageViews | SkillList | SearchAnswer | None"
"""A text, or a value that each place renders in its own form; None when `/usage` finds nothing stored."""


class SlashCommand(Struct, frozen=True):
    """A line of the table."""

    help: str
    arguments: str = ""
    run: Callable[[Call], Result] | None = None
    run_async: Callable[[Call], Awaitable[Result]] | None = None
    """Neither for what every place does itself."""
    only: Place | None = None
    """The only place that has it."""
    in_loop: bool = False
    """It changes the open conversation, so a terminal runs it in the event loop, where a review may be using it."""

    @property
    def words(self) -> str:
        """Return arguments and help, as lists of commands show them."""
        return f"{self.arguments}: {self.help}" if self.arguments else self.help


class LoadedSkill(Struct, frozen=True):
    """A skill that the model gets with the message."""

    text: str


def list_commands(place: Place) -> dict[str, SlashCommand]:
    """Return the commands of a place by name."""
    return {name: command for name, command in COMMANDS.items() if command.only in {None, place}}


def suggest(name: str, place: Place, *, cutoff: float = 0.6) -> str | None:
    """Return the command that a wrong name may mean."""
    return next(iter(difflib.get_close_matches(name, list_commands(place), n=1, cutoff=cutoff)), None)


def use_skill(caller: Caller, agent: Agent, name: str) -> LoadedSkill | str | None:
    """Load a skill for a message; without a model, return its text. None when there is no such skill."""
    from wellkept.operations.skills import invoke_skill

    runs = agent.parts.model is not None
    text = invoke_skill(caller, name, session_id=agent.session.id, runs=runs)
    if isinstance(text, Refused):
        return f"{text.error} {text.remedy}"
    return LoadedSkill(text) if runs and text is not None else text


def describe_session(agent: Agent) -> str:
    """Return id, number of messages and model of an open conversation, in a line."""
    model = agent.parts.model.name if agent.parts.model is not None else "none"
    return f"session {agent.session.id}, {len(agent.conversation.record.rows)} messages, model {model}"


def describe_usage(usage: Usage, cost: float | None) -> str:
    """Return tokens and cost in a line."""
    money = "price unknown" if cost is None else f"${cost:.4f}"
    return (
        f"sent {usage.prompt_tokens:,} tokens ({usage.cache_read_tokens:,} from cache, "
        f"{usage.cache_write_tokens:,} written to it), received {usage.output_tokens:,}; {money}"
    )


def format_minute(time: float) -> str:
    """Return a moment as lists of conversations show it, in local time."""
    return f"{from_epoch(time).astimezone():%Y-%m-%d %H:%M}"


def _begin_new(call: Call) -> str:
    call.agent.new("new")
    return "A new conversation."


def _reset(call: Call) -> str:
    call.agent.new("reset")
    return "A new conversation."


def _resume(call: Call) -> str:
    agent = call.agent
    if call.rest:
        agent.resume(sessions.resolve_sessions(call.caller, [call.rest])[0])
        count = len(agent.conversation.record.rows)
        return f"Resumed {agent.session.id}: {agent.session.title or 'untitled'}, {count} messages."
    recent = sessions.list_sessions(call.caller, sessions.Listed(limit=_MOST_LISTED)).sessions
    lines = [
        f"{session.id}  {format_minute(session.last_active or session.started)}  {session.title or 'untitled'}"
        for session in recent
    ]
    return "\n".join(lines) or "There is no earlier conversation."


def _branch(call: Call) -> str:
    return f"Now in the branch {call.agent.branch()}."


async def _undo(call: Call) -> str:
    message = await call.agent.undo()
    return f"Undone: {message}" if message is not None else "There is nothing to undo."


def _title(call: Call) -> str:
    caller, record, session_id = call.caller, call.agent.conversation.record, call.agent.session.id
    if record.exists:
        if call.rest:
            return f"Title: {sessions.rename_session(caller, session_id, call.rest).title}"
        return sessions.show_session(caller, session_id, first=1).session.title or "untitled"
    if not call.rest:
        return "untitled"
    if record.trouble:
        raise StorageError(f"this conversation is not stored: {record.trouble}", "give it a title when it is")
    raise UsageError("this conversation is not stored yet", "say something first")


async def _compress(call: Call) -> str:
    engine, record = call.agent.parts.engine, call.agent.conversation.record
    if engine is None:
        raise UsageError("without a model there is no context to compress", "connect a model first")
    if call.rest == "--preview":
        preview = engine.preview(call.agent.conversation.rows_sent)
        return CompactionPreview(record.session.id, len(record.rows), preview).describe()
    outcome = await call.agent.compress(call.rest)
    if not outcome.saved:
        return f"Nothing was compressed: {getattr(outcome, 'reason', 'nothing to do')}.".replace("_", " ")
    # the terminal has shown what was compressed, as an event
    is_shown = call.place is Place.TERMINAL
    return "" if is_shown else "Compressed: the older part of this conversation is now a summary."


def _memory(call: Call) -> str | memory.PageViews:
    caller = call.caller
    word, _, argument = call.rest.partition(" ")
    match word:
        case "" | "show":
            return memory.show_pages(caller)
        case "pending":
            return _list_pending(call)
        case "approve" | "reject":
            pending = memory.choose_pending(caller, argument.strip())
            if isinstance(pending, Refused):
                return pending.error
            return "\n".join(
                memory.decide_pending(caller, pending_id, approves=word == "approve") for pending_id in pending
            )
        case "undo":
            undone = memory.undo(caller)
            return (
                undone.error
                if isinstance(undone, Refused)
                else " ".join(outcome.message for outcome in undone.outcomes)
            )
        case _:
            raise UsageError(
                f"there is no /memory {word}", "write /memory, or /memory pending, approve ID, reject ID, undo"
            )


def _list_pending(call: Call) -> str:
    lines = [f"{write.id}  {write.target.value}: {write.summary}" for write in memory.list_pending(call.caller)]
    for request in forget_requests.list_requests(call.caller):
        what, step = f"{request.origin} asks to {request.summary}", f"`kept memory approve {request.id}`"
        if call.place is Place.TERMINAL:
            lines.append(f"{request.id}  {what}: {step}")
        else:
            lines.append(f"{what} ({step} in a terminal, or the start page of the web app)")
    return "\n".join(lines) or "Nothing is pending."


def _list_skills(call: Call) -> SkillList | str:
    from wellkept.operations.skills import list_skills

    skills = list_skills(call.caller, call.rest, usable=True)
    if skills.skills:
        return skills
    return "No skill matches." if call.rest else "There are no skills yet."


def _search(call: Call) -> SearchAnswer:
    from wellkept.operations.search import Filters, search

    if not call.rest:
        raise UsageError("the question is empty", "write it like: /search when did we move the database?")
    return search(call.caller, call.rest, Filters() if call.place is Place.TERMINAL else Filters(limit=5))


def _model(call: Call) -> str:
    if call.rest and call.place is Place.TERMINAL:
        use_model(call.caller, call.agent, call.rest)
    elif call.rest:
        if call.caller.user != OWNER:  # the owner pays for the model
            raise UsageError("only the owner of this memory can change the model", "ask the owner")
        use_model(call.caller, call.agent, choose_offered(call.caller, call.rest))
    model = call.agent.parts.model
    return model.name if model is not None else "no model: answers come from memory"


def _usage(call: Call) -> str | None:
    """Return tokens and cost of all sessions of the conversation, earlier processes included."""
    total = sum_sessions(call.caller, sorted(call.agent.conversation.lineage))
    return None if total is None else describe_usage(total.usage, total.cost)


COMMANDS = {
    "new": SlashCommand("begin a new conversation", run=_begin_new, in_loop=True),
    "reset": SlashCommand("same as /new", run=_reset, in_loop=True),
    "stop": SlashCommand("stop the running answer", only=Place.PLATFORM),
    "resume": SlashCommand("continue an earlier conversation", "[ID]", _resume, in_loop=True),
    "branch": SlashCommand(
        "continue in a branch; this conversation stays as it is", run=_branch, in_loop=True
    ),
    "undo": SlashCommand("undo the last exchange", run_async=_undo),
    "title": SlashCommand("name this conversation", "[TEXT]", _title),
    "compress": SlashCommand("make the context smaller now; --preview only shows", "[FOCUS]", run_async=_compress),
    "memory": SlashCommand("the two pages; ID may be all", "[pending | approve ID | reject ID | undo]", _memory),
    "skills": SlashCommand("the skills, or those that match the words; /NAME uses one", "[WORDS]", _list_skills),
    "search": SlashCommand("look in past conversations", "QUESTION", _search),
    "model": SlashCommand("show the model; the owner can change it", "[NAME]", _model, in_loop=True),
    "usage": SlashCommand("tokens and cost of this conversation", run=_usage),
    "status": SlashCommand("show the status"),
    "help": SlashCommand("this list"),
    "quit": SlashCommand("leave", only=Place.TERMINAL),
}  # fmt: skip
"""`/stop` is handled before other commands, because it must not wait for the turn that it stops."""

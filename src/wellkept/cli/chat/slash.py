"""Slash commands of a chat, and the status line under its prompt."""

import difflib
from collections.abc import Callable
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.cli.chat.loop import Talk
from wellkept.cli.chat.screen import Screen
from wellkept.cli.commands.memory import show_page
from wellkept.cli.terminal import indent_lines, note, say
from wellkept.core.clock import from_epoch
from wellkept.core.errors import Refused, StorageError, UsageError
from wellkept.core.messages import Usage
from wellkept.forgetting import requests as forget_requests
from wellkept.memory.page import Target
from wellkept.operations import pages, sessions
from wellkept.operations.conversations import use_model

if TYPE_CHECKING:
    from wellkept.app import Caller

COMMANDS = {
    "new": "begin a new conversation",
    "reset": "same as /new",
    "resume": "ID: continue an earlier conversation",
    "branch": "continue in a branch; this conversation stays as it is",
    "undo": "undo the last exchange",
    "title": "TEXT: name this conversation",
    "compress": "[FOCUS]: make the context smaller now; --preview only shows",
    "memory": "[pending | approve ID | reject ID | undo]: the two pages; ID may be all",
    "skills": "[WORDS]: the skills, or those that match the words",
    "search": "QUESTION: look in past conversations",
    "model": "[NAME]: show or change the model",
    "usage": "tokens and cost of this conversation",
    "status": "show the status",
    "help": "this list",
    "quit": "leave",
}
_MOST_SKILLS = 20
"""How many skills `/skills` lists, so that they fit one screen."""


class Slash(Struct):
    """Runs slash commands."""

    caller: "Caller"
    talk: Talk
    screen: Screen
    leaving: bool = False

    def handle(self, line: str) -> bool:
        """Run a slash command; return False when the line is a message."""
        if not line.startswith("/") or line.startswith("//"):
            return False
        name, _, rest = line[1:].strip().partition(" ")
        name = {"exit": "quit", "q": "quit", "?": "help"}.get(name, name)
        if name in COMMANDS:
            command: Callable[[str], None] = getattr(self, f"do_{name}")
            command(rest.strip())
            return True
        return self._skill(name, line)

    def _skill(self, name: str, line: str) -> bool:
        if self._use_skill(name, line):
            return True
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean /{close[0]}?" if close else ""
        raise UsageError(f"there is no command /{name}{hint}", "/help lists the commands")

    def _use_skill(self, name: str, line: str) -> bool:
        """Load a skill for the message in `line`; without a model, show it. False when there is no such skill."""
        from wellkept.operations.skills import invoke_skill

        agent = self.talk.agent
        runs = agent.parts.model is not None
        text = invoke_skill(self.caller, name, session_id=agent.session.id, runs=runs)
        if text is None:
            return False
        if isinstance(text, Refused):
            say(f"{text.error} {text.remedy}")
        elif runs:
            from wellkept.cli.chat.command import exchange

            exchange(self, line, loaded=text)
        else:
            say(text)
        return True

    def do_help(self, _rest: str) -> None:
        """List the commands."""
        for name, words in COMMANDS.items():
            say(f"/{name:<9} {words}")

    def do_quit(self, _rest: str) -> None:
        """Leave."""
        self.leaving = True

    def do_new(self, _rest: str) -> None:
        """Begin a new conversation."""
        self.talk.portal.call(self.talk.agent.new, "new")
        say("A new conversation.")

    def do_reset(self, _rest: str) -> None:
        """Begin a new conversation."""
        self.talk.portal.call(self.talk.agent.new, "reset")
        say("A new conversation.")

    def do_resume(self, rest: str) -> None:
        """Continue an earlier conversation; without an id, list the recent ones."""
        if rest:
            self.talk.portal.call(self.talk.agent.resume, sessions.resolve_sessions(self.caller, [rest])[0])
            agent = self.talk.agent
            count = len(agent.conversation.record.rows)
            say(f"Resumed {agent.session.id}: {agent.session.title or 'untitled'}, {count} messages.")
            return
        for session in sessions.list_sessions(self.caller, sessions.Listed(limit=10)).sessions:
            when = f"{from_epoch(session.last_active or session.started).astimezone():%Y-%m-%d %H:%M}"
            say(f"{session.id}  {when}  {session.title or 'untitled'}")

    def do_branch(self, _rest: str) -> None:
        """Continue in a branch."""
        say(f"Now in the branch {self.talk.portal.call(self.talk.agent.branch)}.")

    def do_undo(self, _rest: str) -> None:
        """Undo the last exchange."""
        said = self.talk.run(self.talk.agent.undo)
        say(f"Undone: {said}" if said is not None else "There is nothing to undo.")

    def do_title(self, rest: str) -> None:
        """Name the conversation."""
        agent = self.talk.agent
        if not rest:
            exists = agent.conversation.record.exists
            stored = sessions.show_session(self.caller, agent.session.id, first=1).session if exists else None
            say((stored.title if stored else None) or "untitled")
        elif not agent.conversation.record.exists:
            trouble = agent.conversation.record.trouble
            if trouble:
                raise StorageError(f"this conversation is not stored: {trouble}", "give it a title when it is")
            raise UsageError("this conversation is not stored yet", "say something first")
        else:
            say(f"Title: {sessions.rename_session(self.caller, agent.session.id, rest).title}")

    def do_compress(self, rest: str) -> None:
        """Compact now."""
        engine, conversation = self.talk.agent.parts.engine, self.talk.agent.conversation
        if engine is None:
            raise UsageError("without a model there is no context to compress", "connect a model first")
        if rest == "--preview":
            from wellkept.cli.commands.sessions_upkeep import describe_preview
            from wellkept.operations.conversations import CompactionPreview

            record, found = conversation.record, engine.preview(conversation.rows_sent)
            say(describe_preview(CompactionPreview(record.session.id, len(record.rows), found)))
            return
        outcome = self.talk.run(self.talk.agent.compress, rest)
        if not outcome.saved:
            say(f"Nothing was compressed: {getattr(outcome, 'reason', 'nothing to do')}.".replace("_", " "))

    def do_memory(self, rest: str) -> None:
        """Show the pages, or approve and reject pending writes."""
        word, _, argument = rest.partition(" ")
        match word:
            case "pending":
                waiting = pages.list_pending(self.caller)
                for item in waiting:
                    say(f"{item.id}  {item.target.value}: {item.summary}")
                requests = forget_requests.list_requests(self.caller)
                for request in requests:
                    say(f"{request.id}  {request.origin} asks to {request.summary}: `kept memory approve {request.id}`")
                if not waiting and not requests:
                    say("Nothing is pending.")
            case "approve" | "reject":
                self._decide(word, argument.strip())
            case "undo":
                self._undo_memory()
            case "" | "show":
                self._show_pages()
            case _:
                raise UsageError(
                    f"there is no /memory {word}", "write /memory, or /memory pending, approve ID, reject ID, undo"
                )

    def _show_pages(self) -> None:
        found = pages.show_pages(self.caller)
        for view in found.views:
            show_page(view, found.masked.get(view.target, ()))
            if view.error is not None:
                note(f"kept: {view.error.message}\n  next: {view.error.remedy}")
        if found.waiting:
            say(f"{found.waiting} waiting: /memory pending")

    def _decide(self, word: str, which: str) -> None:
        chosen = pages.choose_pending(self.caller, which)
        if isinstance(chosen, Refused):
            say(chosen.error)
            return
        for pending_id in chosen:
            say(pages.decide_pending(self.caller, pending_id, approves=word == "approve"))

    def _undo_memory(self) -> None:
        result = pages.undo(self.caller)
        say(result.error if isinstance(result, Refused) else " ".join(one.message for one in result.outcomes))

    def do_skills(self, rest: str) -> None:
        """List the skills, or those that match the words."""
        from wellkept.operations.skills import list_skills

        found = list_skills(self.caller, rest, usable=True).skills
        for one in found[:_MOST_SKILLS]:
            say(f"/{one.skill.name}\n{indent_lines(one.skill.description)}")
        if not found:
            say("No skill matches." if rest else "There are no skills yet.")

    def do_search(self, rest: str) -> None:
        """Look in past conversations."""
        from wellkept.cli.commands.sessions import show_hits
        from wellkept.operations.search import search

        if not rest:
            raise UsageError("the question is empty", "write it like: /search when did we move the database?")
        for hits in search(self.caller, rest).profiles:
            show_hits(hits)

    def do_model(self, rest: str) -> None:
        """Show or change the model of this conversation."""
        agent = self.talk.agent
        if rest:
            self.talk.portal.call(use_model, self.caller, agent, rest)
        say(agent.parts.model.name if agent.parts.model is not None else "no model: answers come from memory")

    def do_usage(self, _rest: str) -> None:
        """Show the tokens and the cost of this conversation."""
        usage, cost = self._spent()
        money = "price unknown" if cost is None else f"${cost:.4f}"
        say(
            f"sent {usage.prompt_tokens:,} tokens ({usage.cache_read_tokens:,} from cache, "
            f"{usage.cache_write_tokens:,} written to it), received {usage.output_tokens:,}; {money}"
        )

    def _spent(self) -> tuple[Usage, float | None]:
        """Return tokens and cost of all sessions of the conversation, earlier processes included."""
        from wellkept.operations.usage import sum_sessions

        conversation = self.talk.agent.conversation
        if not conversation.record.exists:
            return self.screen.usage, self.screen.cost
        whole = sum_sessions(self.caller, sorted(conversation.lineage))
        return (Usage(), 0.0) if whole is None else (whole.usage, whole.cost)

    def do_status(self, _rest: str) -> None:
        """Show the status."""
        agent = self.talk.agent
        count = len(agent.conversation.record.rows)
        say(f"session {agent.session.id}, {count} messages, model {self._model_name()}")
        say(self.status_line())
        if agent.conversation.record.trouble:
            note(f"not stored: {agent.conversation.record.trouble}")

    def _model_name(self) -> str:
        model = self.talk.agent.parts.model
        return model.name if model is not None else "none"

    def _fill(self, target: Target) -> str:
        try:
            return f"{pages.read_page(self.caller, target).percent} %"
        except (
            StorageError
        ):  # the status line is drawn after every key; the commands report what is wrong with the page
            return "unreadable"

    def status_line(self) -> str:
        """Return the line under the prompt: model, tokens, cache share, cost, fill of memory."""
        usage = self.screen.usage
        share = f", {usage.cache_read_tokens * 100 // usage.prompt_tokens} % from cache" if usage.prompt_tokens else ""
        tokens = f"{usage.prompt_tokens + usage.output_tokens:,} tokens{share}"
        cost = [f"${self.screen.cost:.4f}"] if self.screen.cost else []
        fill = ", ".join(f"{page.value} {self._fill(page)}" for page in pages.list_pages(self.caller))
        return _lines([self._model_name(), tokens, *cost, fill], get_terminal_size().columns)


def _lines(parts: list[str], columns: int) -> str:
    """Return the parts next to each other, on as many lines as the terminal needs."""
    lines = [f" {parts[0]} "]
    for part in parts[1:]:
        longer = f"{lines[-1]}· {part} "
        if len(longer) <= columns:
            lines[-1] = longer
        else:
            lines.append(f" {part} ")
    return "\n".join(lines)

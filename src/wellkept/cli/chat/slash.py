"""Slash commands in a terminal: runs them, and prints their results. The table is in `operations`."""

from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.cli.chat.loop import Talk
from wellkept.cli.chat.screen import Screen, status_line
from wellkept.cli.commands.memory import show_page
from wellkept.cli.terminal import indent_lines, note, say
from wellkept.core.errors import UsageError
from wellkept.operations.memory import PageViews
from wellkept.operations.slash_commands import (
    Call,
    LoadedSkill,
    Place,
    Result,
    SlashCommand,
    describe_session,
    describe_usage,
    list_commands,
    suggest,
    use_skill,
)

if TYPE_CHECKING:
    from wellkept.app import Caller
    from wellkept.operations.search import SearchAnswer
    from wellkept.operations.skills import SkillList

COMMANDS = list_commands(Place.TERMINAL)
_ALIASES = {"exit": "quit", "q": "quit", "?": "help"}
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
        name = _ALIASES.get(name, name)
        if name in COMMANDS:
            self.run(name, rest.strip())
        else:
            self._use_skill(name, line)
        return True

    def run(self, name: str, rest: str) -> None:
        """Run a command of the table."""
        match name:
            case "help":
                for other, command in COMMANDS.items():
                    say(f"/{other:<9} {command.words}")
            case "status":
                say(describe_session(self.talk.agent))
                say(self.status_line())
                if trouble := self.talk.agent.conversation.record.trouble:
                    note(f"not stored: {trouble}")
            case "quit":
                self.leaving = True
            case _:
                self._show(self._call(COMMANDS[name], rest))

    def status_line(self) -> str:
        """Return the line under the prompt."""
        return status_line(self.caller, self.talk.agent, self.screen)

    def _call(self, command: SlashCommand, rest: str) -> Result:
        call = Call(self.caller, self.talk.agent, Place.TERMINAL, rest)
        if command.run is None:
            assert command.run_async is not None
            result: Result = self.talk.run(command.run_async, call)
            return result
        return self.talk.portal.call(command.run, call) if command.in_loop else command.run(call)

    def _show(self, result: Result) -> None:
        match result:
            case None:  # an incognito conversation: its figures are only here
                say(describe_usage(self.screen.usage, self.screen.cost))
            case str():
                if result:
                    say(result)
            case PageViews():
                for view in result.views:
                    show_page(view, result.masked.get(view.target, ()))
                    if view.error is not None:
                        note(f"kept: {view.error.message}\n  next: {view.error.remedy}")
                if result.waiting:
                    say(f"{result.waiting} waiting: /memory pending")
            case _:
                _show_list(result)

    def _use_skill(self, name: str, line: str) -> None:
        """Use a skill for the message in `line`; without a model, show it."""
        skill = use_skill(self.caller, self.talk.agent, name)
        if skill is None:
            near = suggest(name, Place.TERMINAL)
            hint = f"; did you mean /{near}?" if near else ""
            raise UsageError(f"there is no command /{name}{hint}", "/help lists the commands")
        if isinstance(skill, LoadedSkill):
            from wellkept.cli.chat.command import exchange

            exchange(self, line, loaded=skill.text)
        else:
            say(skill)


def _show_list(found: "SkillList | SearchAnswer") -> None:
    from wellkept.operations.skills import SkillList

    if not isinstance(found, SkillList):
        from wellkept.cli.commands.sessions import show_hits

        for hits in found.profiles:
            show_hits(hits)
        return
    for listed in found.skills[:_MOST_SKILLS]:
        say(f"/{listed.skill.name}\n{indent_lines(listed.skill.description)}")

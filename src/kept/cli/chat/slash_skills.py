"""Skills in a chat: `/skills`, and `/skill-name` for one turn."""

from typing import TYPE_CHECKING

from kept.cli.terminal import indented, printable, say
from kept.core.errors import Refused

if TYPE_CHECKING:
    from kept.cli.chat.slash import Slash


def list_skills(slash: "Slash", query: str) -> None:
    """List the skills, or those that fit the words."""
    library = slash.caller.space.skill_tools.library
    found = [ranked.skill for ranked in library.search(query)] if query else library.usable()
    for skill in found[:20]:
        say(f"/{skill.name}\n{indented(printable(skill.description))}")
    if not found:
        say("No skill fits." if query else "There are no skills yet.")


def use_skill(slash: "Slash", name: str, arguments: str) -> bool:
    """Load a skill for one turn; without a model it is shown. False when there is no such skill."""
    tools, agent = slash.caller.space.skill_tools, slash.talk.agent
    if tools.library.skill(name) is None:
        return False
    runs = agent.parts.model is not None
    text = tools.invoke(name, arguments, session_id=agent.session.id, runs=runs)
    if isinstance(text, Refused):
        say(f"{text.error} {text.remedy}")
        return True
    if not runs:
        say(text)
        return True
    from kept.cli.chat.command import exchange

    exchange(slash, text)
    return True

"""Writes to a home without an end: a page, conversations and a skill; prints how far it is."""

import sys

from wellkept.app import open_app
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.memory.page import Add, Remove
from wellkept.skills.changes import Author, Create, Edit

SKILL = "---\nname: {0}\ndescription: Does {0} well\n---\n\n1. Step {1}\n"


def main(home, name):
    """Each round adds the same number everywhere, first to the conversation, last to the skill."""
    space = open_app(home, environ={}).owner
    session = SessionId(f"session-{name}")
    space.sessions.create(Session(id=session, source="cli", started=1.0))
    for number in range(1, 100_000):
        space.sessions.append(session, [NewMessage(Message(Role.USER, f"{name} {number}"), number, Origin.PERSON)])
        space.memory.apply("memory", Add(f"{name} {number}."))
        if number > 5:
            space.memory.apply("memory", Remove(f"{name} {number - 5}."))
        text = SKILL.format(f"skill-{name}", number)
        change = Create(f"skill-{name}", text) if number == 1 else Edit(f"skill-{name}", text)
        space.skill_tools.editor.apply(change, Author())
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

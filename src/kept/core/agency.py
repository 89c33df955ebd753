"""Who runs this process: a person, a script, or an agent; read from its environment and the processes above it.

`agency.json` lists the variables that mean "an agent runs this command", each with its source. Variables that an
editor also sets in the terminals of a person are not in it.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from kept.core.errors import NotAllowed
from kept.core.text import resource_text

MARK = "KEPT_AGENT"
"""Set in the environment of every process that kept starts on its own or for an agent."""
_AGENT_COMMANDS = frozenset({b"chat", b"hook", b"mcp", b"run", b"serve", b"tool"})
"""The commands of kept in which a model runs, or which an agent starts: what is below them is not a person's."""
_MOST_ANCESTORS = 64


def mark_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that no person starts: it cannot take a person's decisions."""
    return {**environ, MARK: "1"}


def refuse_decision(why: str, command: str) -> NotAllowed:
    """Return the error for a decision that only a person may take, with how a person takes it."""
    return NotAllowed(
        f"only a person can decide this: {why}", f"a person runs it in a terminal of their own: {command}"
    )


def find_agent(environ: Mapping[str, str]) -> str:
    """Return the sign that an agent started this process, in words; empty if there is none.

    The processes above count too, where the system shows them (Linux): a command cannot remove their variables.
    """
    name = next((name for name in list_variables() if environ.get(name) or os.environ.get(name)), None)
    return f"{name} is set" if name is not None else _find_agent_above()


@cache
def list_variables() -> tuple[str, ...]:
    """Return the names of all variables that show an agent."""
    return (MARK, *json.loads(resource_text("kept.core", "agency.json")))


@cache
def _find_agent_above() -> str:
    signs = tuple(f"{name}=".encode() for name in list_variables())
    for folder in _list_ancestors():
        if _is_agent(_read_words(folder / "cmdline") or [b""]):
            return f"it runs below `kept`, process {folder.name}"
        for variable in _read_words(folder / "environ"):
            if variable.startswith(signs) and not variable.endswith(b"="):
                return f"{variable.partition(b'=')[0].decode()} is set in process {folder.name}, which started it"
    return ""


def _list_ancestors() -> Iterator[Path]:
    """Yield the folders of the processes above this one, the nearest first; none where there is no `/proc`."""
    process = os.getppid() if sys.platform == "linux" else 0
    for _ in range(_MOST_ANCESTORS):
        if process <= 0:
            return
        folder = Path("/proc") / str(process)
        yield folder
        try:
            # the name in brackets may contain anything, so count from its end: state, then the parent
            process = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return


def _read_words(path: Path) -> list[bytes]:
    """Return the parts of a file of `/proc`; none if it belongs to another account."""
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


def _is_agent(command: list[bytes]) -> bool:
    """Whether a command line is kept with a command in which a model runs."""
    names = [word.rpartition(b"/")[2] for word in command[:4]]
    starts = names[:1] if not names[0].startswith(b"python") else names
    place = next((number for number, name in enumerate(starts) if name == b"kept"), None)
    return place is not None and not _AGENT_COMMANDS.isdisjoint(command[place + 1 :])

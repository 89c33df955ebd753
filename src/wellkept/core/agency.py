"""Who runs this process: a person, a script, or an agent; read from its environment and the processes above it.

`agency.json` lists the variables that mean "an agent runs this command", each with its source. Variables that an
editor also sets in the terminals of a person are not in it.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from wellkept.core.errors import NotAllowed
from wellkept.core.text import resource_text

MARK = "KEPT_AGENT"
"""Set in the environment of every process that kept starts on its own or for an agent."""
_MARK_BYTES = 700_001
"""The mark as a limit: how many bytes of POSIX message queues a process may use. Systems allow 819,200."""
_MARK_AND_RUN = f"""
import os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1]
if hard == resource.RLIM_INFINITY or hard > {_MARK_BYTES}:
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, ({_MARK_BYTES}, {_MARK_BYTES}))
os.execvp(sys.argv[1], sys.argv[1:])
"""
_AGENT_COMMANDS = frozenset({b"chat", b"hook", b"mcp", b"run", b"serve", b"tool"})
"""The commands of kept in which a model runs, or which an agent starts: what is below them is not a person's."""
_MOST_ANCESTORS = 64
_ALL_USERS = [b"0", b"0", b"4294967295"]
"""The line of `/proc/self/uid_map` of a process that shares the users of the system."""
_LIMIT_WORDS = ("Max", "msgqueue", "size", "SOFT", "HARD")
"""The words of a line of `/proc/PID/limits`."""


def mark_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that no person starts: it cannot take a person's decisions."""
    return {**environ, MARK: "1"}


def mark_process(process: int) -> None:
    """Mark a started process and everything below it by a limit that only the system's administrator can raise again.

    Unlike a variable, a limit stays when the process cleans its environment, and when those that started it have ended.
    """
    if sys.platform != "linux":
        return
    import resource

    with suppress(OSError, ValueError):  # the process has ended, or its limit is lower already
        if _read_limit(f"/proc/{process}/limits") > _MARK_BYTES:
            resource.prlimit(process, resource.RLIMIT_MSGQUEUE, (_MARK_BYTES, _MARK_BYTES))


def mark_command(program: Sequence[str]) -> list[str]:
    """Return a command that marks its own process as `mark_process` does, and then becomes `program`."""
    return [sys.executable, "-I", "-S", "-c", _MARK_AND_RUN, *program] if sys.platform == "linux" else [*program]


def _has_marked_limit() -> bool:
    """Whether this process, but not the whole system, has the limit of the mark or a lower one."""
    own, whole = _read_limit("/proc/self/limits"), _read_limit("/proc/1/limits")
    if not 0 <= own < _MARK_BYTES:
        return own == _MARK_BYTES
    # in a namespace of its own users, the process may have made itself the first one that is seen
    users = b"".join(_read_words(Path("/proc/self/uid_map"))).split()
    return whole < 0 or own < whole or (bool(users) and users != _ALL_USERS)


def _read_limit(path: str) -> float:
    """Return the hard limit of message queues in a file of `/proc`; -1 if it cannot be read."""
    lines = b"\n".join(_read_words(Path(path))).splitlines()
    words = next((line.split() for line in lines if line.startswith(b"Max msgqueue size")), [])
    if len(words) < len(_LIMIT_WORDS):
        return -1
    return float("inf") if words[4] == b"unlimited" else float(words[4])


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
    if name is not None:
        return f"{name} is set"
    return "it has the limits of a command that an agent ran" if _has_marked_limit() else _find_agent_above()


@cache
def list_variables() -> tuple[str, ...]:
    """Return the names of all variables that show an agent."""
    return (MARK, *json.loads(resource_text("wellkept.core", "agency.json")))


@cache
def _find_agent_above() -> str:
    signs = tuple(f"{name}=".encode() for name in list_variables())
    for folder in _list_ancestors():
        # the first process adopts whatever has lost its parent: below a server in a container that is anybody's
        if folder.name != "1" and _is_agent(_read_words(folder / "cmdline") or [b""]):
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
    place = next((number for number, name in enumerate(starts) if name in {b"kept", b"wellkept"}), None)
    return place is not None and not _AGENT_COMMANDS.isdisjoint(command[place + 1 :])

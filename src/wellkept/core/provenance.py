"""Provenance: where a text came from, as values, as they are stored, and as people read them.

What follows from it, that is the rules of taint and policy, is in `security/taint.py`.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from wellkept.core.ids import MessageId, SessionId, SourceName
from wellkept.core.text import JSON


class Kind(StrEnum):
    """The kinds of sources, the least trusted last."""

    MESSAGE = "message"
    """What the person quoted, reported or asked in a message, which is not their own statement."""
    PROJECT = "project"
    """A file of the project that the agent works in."""
    AGENT = "agent"
    """What a connected agent reported by itself; nobody knows what it had read."""
    OUTSIDE = "outside"
    """A page that was changed without kept."""
    TOOL = "tool"
    PROVIDER = "provider"
    IMPORT = "import"
    FILE = "file"
    """A file outside the project, or one that others put into it."""
    WEB = "web"


COMMAND_SOURCE = SourceName(f"{Kind.TOOL}:kept")
"""The source of what an agent writes by a command or a request, so that nobody knows what it had read."""
RANK = {kind: place for place, kind in enumerate(Kind)}
"""The larger, the less trusted."""
_WORDS = {
    Kind.MESSAGE: "the user's",
    Kind.PROJECT: "the project file",
    Kind.AGENT: "the agent",
    Kind.OUTSIDE: "an edit of the file",
    Kind.TOOL: "the tool",
    Kind.PROVIDER: "the provider",
    Kind.IMPORT: "the import",
    Kind.FILE: "the file",
    Kind.WEB: "the web page",
}
_MOST_NAME_CHARS = 500
_MOST_SHOWN_CHARS = 60
_UNSAFE = r"[^\w./:@~+-]+"
"""Replaced before a source is shown: an attacker can choose an address or a file name that reads as a sentence."""


class Source(Struct, frozen=True):
    """Where a text came from."""

    kind: Kind
    name: str

    @property
    def stored(self) -> SourceName:
        """Return the form in which it is stored, and given on a command line: `web:https://…`."""
        return SourceName(f"{self.kind}:{' '.join(self.name.split())[:_MOST_NAME_CHARS]}")

    @property
    def is_own(self) -> bool:
        """Whether the source is the project or the person's message, so that nothing that came from it has to wait."""
        return self.kind in {Kind.PROJECT, Kind.MESSAGE} or (self.kind is Kind.TOOL and self.name == _TERMINAL)

    def __str__(self) -> str:
        """Return it in words for a person or a model: one line without anything that could be read as a sentence."""
        name = host_of(self.name) or self.name if self.kind is Kind.WEB else self.name
        shown = re.sub(_UNSAFE, "_", name)
        if len(shown) > _MOST_SHOWN_CHARS:
            shown = f"…{shown[-_MOST_SHOWN_CHARS:]}"
        return f"{_WORDS[self.kind]} {shown}".strip()


class Basis(StrEnum):
    """Why a text is tainted."""

    REPEATS = "repeats"
    """It repeats a source, or may: not all of the source is known."""
    TURN = "turn"
    """A source was read in the same turn."""
    CONTEXT = "context"
    """A source was read earlier, or may have been."""


class Taint(Struct, frozen=True):
    """The source that taints what a model writes, and why; `security/taint.py` finds it."""

    source: SourceName
    basis: Basis = Basis.REPEATS
    is_ambient: bool = False
    """Whether the source accompanies every turn."""


class Unstated(Enum):
    """The source of a message about which a surface says nothing: only the text shows who may have written it."""

    UNSTATED = "unstated"


UNSTATED: Final = Unstated.UNSTATED
Stated: TypeAlias = SourceName | Literal[Unstated.UNSTATED] | None
"""The source of a message of the user role: None only if a surface knows that the person typed it."""


def find_prompt_source(text: str, stated: Stated, program: str) -> SourceName | None:
    """Return the source of a message: a text of several lines that nobody is known to have typed is the program's."""
    if stated is not UNSTATED:
        return stated
    return Source(Kind.AGENT, program).stored if len(text.strip().splitlines()) > 1 else None


ATTACHED = "\n\n["
"""Begins what was attached to a person's message; their own words come before it."""
_ATTACHMENT = "attachment "


def attached_source(name: str) -> SourceName:
    """Return the source of a message with a text that the person attached, after `ATTACHED`."""
    return Source(Kind.FILE, f"{_ATTACHMENT}{name}").stored


def find_typed(text: str, source: Source | None) -> str:
    """Return what the person typed of a message that has this source."""
    if source is None:
        return text
    is_attachment = source.kind is Kind.FILE and source.name.startswith(_ATTACHMENT)
    return f"\n\n{text}".partition(ATTACHED)[0].strip() if is_attachment else ""


def read_source(stored: str) -> Source:
    """Return the source that a stored name stands for; an unknown kind is a tool, which nobody trusts."""
    kind, _, name = stored.partition(":")
    return Source(Kind(kind), name) if kind in RANK else Source(Kind.TOOL, stored)


def describe(stored: SourceName | None) -> str:
    """Return a stored source in words; empty if there is none."""
    return "" if stored is None else str(read_source(stored))


def label(stored: SourceName) -> str:
    """Return the marker that precedes a text that nobody has confirmed."""
    return f"[unverified, from {read_source(stored)}]"


def mark_unverified(stored: SourceName, text: str) -> str:
    """Return a text that nobody has confirmed with its marker: one line, so that no part of it stands unmarked."""
    return f"{label(stored)} {' '.join(' '.join(text.splitlines()).split())}"


def host_of(address: str) -> str:
    """Return the host of an address, empty for anything else."""
    match = re.match(r"(?i)[a-z][a-z0-9+.-]*://(?:[^/\s@]*@)?([^/\s?#]+)", address)
    return match[1].lower() if match is not None else ""


def covers(wanted: str, stored: SourceName) -> bool:
    """Whether a source that a person names is, or includes, a stored one: a host its pages, a folder its files."""
    asked, source = read_source(wanted), read_source(stored)
    if asked.kind is not source.kind:
        return False
    mine, theirs = asked.name.rstrip("/").casefold(), source.name.rstrip("/").casefold()
    if not mine or mine == theirs or theirs.startswith((f"{mine}/", f"{mine} ")):
        return True
    host = host_of(source.name)
    return source.kind is Kind.WEB and (host == mine or host.endswith(f".{mine}"))


def least_trusted(stored: Iterable[SourceName | None]) -> SourceName | None:
    """Return the least trusted of several sources, None if there is none."""
    sources = [source for source in stored if source is not None]
    return max(sources, key=lambda one: RANK[read_source(one).kind], default=None)


def accept_claim(claimed: SourceName | None, imported: SourceName | None) -> SourceName | None:
    """Return the source of a text in a file: the one that the file names, unless it claims more trust than the file.

    `imported` is None for files that this home wrote itself.
    """
    if claimed is None or imported is None:
        return claimed or imported
    source = read_source(claimed)
    is_better = source.is_own or source.kind is Kind.AGENT
    return imported if is_better or source.stored != claimed else claimed


# which source a tool's output has

_TERMINAL = "terminal"
_ADDRESS = r"(?i)\b(?:https?|ftp|wss?)://[^\s\"'<>)\]]+"
_REMOTE = (
    r"(?:^|[\s;&|(`])(?:curl|wget|ssh|scp|sftp|rsync|nc|ncat|telnet|dig|gh|glab|aws|gcloud|az|kubectl|lynx|w3m|http)\s"
    r"|\bgit\s+(?:clone|fetch|pull|remote|ls-remote)\b|\b(?:pip|npm|yarn|pnpm|cargo|gem|docker)\s+"
    r"(?:view|info|show|search|index|download|pull)\b"
)
"""Commands whose output other machines write."""
OWN_TOOLS = frozenset({"memory", "skill_manage", "todo", "write_file", "edit_file"})
"""Tools that print only what the person or the agent wrote."""
_RELAYS = frozenset({"session_search", "delegate_task", "skills_list", "skill_view"})
"""Tools that pass on what others wrote, and name it in their answer."""
_FILE_TOOLS = frozenset({"read_file", "list_files", "search_files"})
_CLIENT_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("bash", "shell", "local_shell", "exec_command", "run_shell_command", "run_terminal_cmd",
                     "execute_command"), "terminal"),
    **dict.fromkeys(("read", "view", "grep", "glob", "ls", "list_dir", "list_directory", "read_many_files",
                     "search_file_content", "codebase_search", "notebookread"), "read_file"),
    **dict.fromkeys(("write", "edit", "multiedit", "apply_patch", "replace", "notebookedit", "todowrite", "todo_write",
                     "update_plan", "exitplanmode"), "edit_file"),
}  # fmt: skip
"""Names of other agents' tools, mapped to our tools that do the same."""
_CLIENT_PREFIX = "mcp__kept__"
"""What precedes the names of our own tools in other agents."""
_FOREIGN_FOLDERS = frozenset(
    {
        "node_modules", "vendor", "third_party", "site-packages", "dist-packages", ".venv", "venv", "bower_components",
        "Pods", "downloads", "Downloads", "attachments", "inbox", "tmp",
    }
)  # fmt: skip
"""Folders of a project that contain other people's files."""
FROM = "from"
"""The key under which an answer of our own tools names the source of a text."""


def find_client_source(tool: str, arguments: Mapping[str, JSON], *, folder: str = "") -> SourceName | None:
    """Return the source of what a tool of another agent printed, read from its transcript."""
    name = _CLIENT_NAMES.get(tool.lower()) or tool.removeprefix(_CLIENT_PREFIX)
    command = arguments.get("command") or arguments.get("cmd")

    known = {
        "path": arguments.get("file_path") or arguments.get("path") or arguments.get("notebook_path"),
        "command": " ".join(map(str, command)) if isinstance(command, list) else str(command or ""),
    }
    if name in _RELAYS:  # what it found is stored here, and each of its messages has its own source
        return Source(Kind.TOOL, name).stored
    is_known = name in OWN_TOOLS or name in _FILE_TOOLS or name == _TERMINAL
    found = find_call_sources(name, {**arguments, **known} if is_known else arguments, folder=folder)
    return found[0].stored if found else None


def find_call_sources(
    tool: str, arguments: Mapping[str, JSON], answer: JSON = None, *, folder: str = "", provider: str = ""
) -> tuple[Source, ...]:
    """Return the sources of a tool's output, the least trusted first; `folder` is the project, if there is one."""
    if provider:
        return (Source(Kind.PROVIDER, provider),)
    if tool in OWN_TOOLS:
        return ()
    if tool in _RELAYS:
        return _find_named(answer) if answer else (Source(Kind.TOOL, tool),)
    if tool in _FILE_TOOLS:
        # a file that was read is named without links
        path = answer.get("path") if isinstance(answer, Mapping) else None
        return (_find_file(str(path or arguments.get("path") or "."), folder),)
    return (_find_outside(tool, arguments),)


def _find_outside(tool: str, arguments: Mapping[str, JSON]) -> Source:
    """Return the source of what a command, a server or a plugin printed."""
    texts = [text for text in arguments.values() if isinstance(text, str)]
    address = next((found[0] for text in texts if (found := re.search(_ADDRESS, text))), "")
    if address:
        return Source(Kind.WEB, address.rstrip(".,;:"))
    if tool == _TERMINAL:
        command = str(arguments.get("command", ""))
        is_remote = re.search(_REMOTE, command) is not None
        return Source(Kind.TOOL, f"{_TERMINAL} {command.strip()[:80]}" if is_remote else _TERMINAL)
    path = next((str(arguments[key]) for key in ("path", "file_path", "file") if arguments.get(key)), "")
    return Source(Kind.TOOL, f"{tool} {path}".strip())


def _find_named(answer: JSON) -> tuple[Source, ...]:
    found: dict[Source, None] = {}

    def walk(value: JSON) -> None:
        if isinstance(value, Mapping):
            named = value.get(FROM)
            for source in named if isinstance(named, list) else [named]:
                if isinstance(source, str):
                    found.setdefault(read_source(source))
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                walk(inner)

    walk(answer)
    return tuple(sorted(found, key=lambda source: -RANK[source.kind]))


def _find_file(path: str, folder: str) -> Source:
    inside = path
    if path.startswith("/"):
        inside = path.removeprefix(folder.rstrip("/")).lstrip("/") if folder and _is_below(path, folder) else ""
        if not inside and path.rstrip("/") == folder.rstrip("/"):
            inside = "."
    parts = inside.split("/")
    if not inside or ".." in parts or path.startswith("~"):
        return Source(Kind.FILE, path)
    return Source(Kind.PROJECT if _FOREIGN_FOLDERS.isdisjoint(parts) else Kind.FILE, inside)


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder.rstrip('/')}/")


# what providers recall

_FRAME = r"\s*[═━─=_*#~-]{4,}\s*"
"""A line that could look like the frame of a page."""
_RECALLED = "Recalled by {name}; nobody has confirmed it:"


def label_recalled(text: str, providers: Iterable[str]) -> str:
    """Return what providers recalled, with a first line that says so."""
    named = ", ".join(re.sub(_UNSAFE, "_", name) for name in providers)
    lines = [line for line in text.splitlines() if not re.fullmatch(_FRAME, line)]
    return "\n".join([_RECALLED.format(name=f"the provider {named}"), *lines]) if text.strip() else ""


def find_recalling_provider(text: str) -> SourceName | None:
    """Return the provider that recalled a text, None if none did."""
    match = re.search(_RECALLED.format(name=r"the provider ([\w./:@~+, -]+)"), text)
    return None if match is None else Source(Kind.PROVIDER, match[1]).stored


# skills that the person loads with a message

_LOADED = '[The person loaded the skill "{name}"{source} with this message. Follow it:]'


def label_skill(name: str, source: SourceName | None, text: str) -> str:
    """Return the text of a skill with a first line that names it, and its source if others wrote it."""
    written = "" if source is None else f" (from {source})"
    return f"{_LOADED.format(name=name, source=written)}\n\n{text}"


def find_loaded_skill(text: str) -> SourceName | None:
    """Return the source of a skill that was loaded with a message: others, or the person's own; None without one."""
    pattern = re.escape(_LOADED).replace(r"\{name\}", r"([^\"\n]+)").replace(r"\{source\}", r"(?: \(from (\S.*?)\))?")
    match = re.search(pattern, text)
    if match is None:
        return None
    return SourceName(match[2]) if match[2] else Source(Kind.MESSAGE, f"skill {match[1]}").stored


# Every process loads this module, so expressions that few of them use are strings here: `re` compiles and caches them.
_SOURCE_PREFIX = "\n  — "
_MESSAGE_SOURCE = r"(?m)^  — (?:you|assistant), [^,\n]*, session (?P<session>.+), message (?P<message>\d{1,18})$"
_PAGE_SOURCE = r"(?m)^  — (?:(?:projects/[^/\n]+/)?MEMORY|USER)\.md\b"


def quote(text: str, source: str) -> str:
    """Return `text` with its source on the next line."""
    return f"{text}{_SOURCE_PREFIX}{source}"


def message_source(who: str, when: str, session_id: SessionId, message_id: MessageId) -> str:
    """Return the source line of a message from a past conversation; `find_quoted_messages` parses it."""
    return f"{who}, {when}, session {session_id}, message {message_id}"


def find_quoted_messages(text: str) -> list[tuple[SessionId, MessageId]]:
    """Return the messages that `text` quotes, so that forgetting a message can find its quotations."""
    match = re.finditer(_MESSAGE_SOURCE, text)
    return [(SessionId(quotation["session"]), MessageId(int(quotation["message"]))) for quotation in match]


def quotes_a_page(text: str) -> bool:
    """Whether `text` quotes an entry of a memory page."""
    return re.search(_PAGE_SOURCE, text) is not None


def quotes_memory(text: str) -> bool:
    """Whether `text` quotes a memory page or a message of a past conversation, with its source."""
    return _SOURCE_PREFIX in f"\n{text}" and (quotes_a_page(text) or bool(find_quoted_messages(text)))

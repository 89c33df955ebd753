"""OpenClaw, and Clawdbot and Moltbot before it: sessions of all agents, workspaces, skills and settings."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from wellkept.core.errors import StorageError
from wellkept.core.messages import Link
from wellkept.core.regular_files import load_bytes
from wellkept.core.text import JSON
from wellkept.formats.agent_files import list_skills, read_text
from wellkept.formats.json_files import UNEXPECTED, JsonlReading, open_own, unpack
from wellkept.formats.messages import as_text
from wellkept.formats.openclaw_config import (
    FOLDERS,
    SECRETS,
    find_running,
    find_workspaces,
    list_secrets,
    list_settings,
    load_config,
    name_home,
)
from wellkept.formats.openclaw_entries import EntryParser, Key
from wellkept.formats.port import (
    START,
    Asset,
    Caution,
    Conversation,
    Document,
    Item,
    Kind,
    Left,
    Leftover,
    MemoryFile,
    Option,
    Position,
    Problem,
    Reading,
    Request,
    Source,
    Unusable,
    unknown,
)
from wellkept.memory.page import Target

_EVENTS, _ARCHIVES, _COLD = "transcript_events", "session_transcript_archives", "session_transcript_cold_archives"
_LISTS = ("session_entries", "sessions", "session_nodes", "session_windows")
"""Tables that describe sessions, older ones first: what a later one says counts."""
_MOST_UNPACKED = 2_000_000_000
_LINKS = {"fork": Link.BRANCH, "rewind": Link.BRANCH, "compaction": Link.COMPRESSION}
"""Why a session window follows another one; after a reset a new conversation begins."""


class SessionList(Struct):
    """What an agent's lists say about its sessions."""

    agent: str
    _facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By session id."""
    _sessions: dict[str, list[str]] = field(default_factory=dict)
    """The sessions of each key, the newest last."""

    def add(self, session: str, key: str | None, facts: Mapping[str, Any]) -> None:
        """Add what a list says about a session."""
        known = self._facts.setdefault(session, {})
        known.update({name: value for name, value in facts.items() if value not in (None, "")})
        if key:
            known["session_key"] = key
            sessions = self._sessions.setdefault(key, [])
            if session not in sessions:
                sessions.append(session)

    def describe(self, session: str) -> tuple[Conversation, bool]:
        """Return a session as far as the lists know it, and whether several people talk in it."""
        facts = self._facts.get(session, {})
        text = as_text(facts.get("session_key")) or ""
        key = Key.parse(text)
        kind = key.kind
        if kind is Kind.PERSON and facts.get("created_via") == "cron":
            kind = Kind.HEADLESS
        parent, link = self._find_parent(facts, kind)
        about: dict[str, JSON] = {
            "agent": self.agent,
            "route": text,  # a name with "key" in it is redacted
            "channel": as_text(facts.get("channel")) or key.channel,
        }
        conversation = Conversation(
            self.name(session),
            kind,
            model=as_text(facts.get("model")),
            title=as_text(facts.get("label"))
            or as_text(facts.get("displayName"))
            or as_text(facts.get("display_name")),
            parent=None if parent is None else self.name(parent),
            link=link,
            metadata={name: value for name, value in about.items() if value},
        )
        is_group = key.is_group or facts.get("chatType", facts.get("chat_type")) in {"group", "channel"}
        return conversation, is_group

    def _find_parent(self, facts: Mapping[str, Any], kind: Kind) -> tuple[str | None, Link | None]:
        if kind is Kind.SUBAGENT:
            spawner = facts.get("spawnedBy") or facts.get("spawned_by") or facts.get("parent_session_key")
            return self._find_session(str(spawner), _began(facts)), None
        link = _LINKS.get(str(facts.get("reason")))
        previous = as_text(facts.get("fork_source_session_id")) or as_text(facts.get("previous_session_id"))
        return (previous, link) if link is not None and previous else (None, None)

    def _find_session(self, key: str, moment: float) -> str | None:
        """Return the session of a key at a moment: after a reset the key leads to a newer one."""
        began = ((_began(self._facts[session]), session) for session in self._sessions.get(key, ()))
        earlier = [(start, session) for start, session in began if not (start and moment) or start <= moment]
        return max(earlier)[1] if earlier else None

    def name(self, session: str) -> str:
        """Return the id of a conversation; ids that people chose are the same in several agents."""
        return session if len(session) == 36 and session.count("-") >= 4 else f"{self.agent}/{session}"


def _began(facts: Mapping[str, Any]) -> float:
    """Return when a session began; 0 if its list does not say."""
    names = ("sessionStartedAt", "startedAt", "created_at")
    return next((float(facts[name]) for name in names if isinstance(facts.get(name), int | float)), 0.0)


def load_list(folder: Path) -> SessionList:
    """Return what `sessions.json` in a folder of transcripts says; nothing if it cannot be read."""
    found = SessionList(folder.parent.name)
    try:
        value = json.loads(load_bytes(folder / "sessions.json").decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return found
    for key, entry in value.items() if isinstance(value, dict) else ():
        session = entry.get("sessionId") if isinstance(entry, dict) else None
        if isinstance(session, str):
            found.add(session, key, entry)
    return found


class AgentDatabase(Reading):
    """Reads an agent's database: the position is the time of the newest entry."""

    def __init__(self, path: Path, position: Position) -> None:
        from wellkept.storage.foreign import open_copy

        self._path = path
        self._copied = open_copy(path, rescue=(_EVENTS, _ARCHIVES, _COLD, *_LISTS))
        try:
            self._tables = self._copied.__enter__()
            self._columns = {name: self._tables.columns(name) for name in (_EVENTS, _ARCHIVES, _COLD, *_LISTS)}
            self._has_sessions = {"session_id", "seq", "event_json", "created_at"} <= self._columns[_EVENTS]
            if not self._has_sessions and not self._tables.columns("schema_meta"):
                self.close()
                raise Unusable(f"{str(path)!r} is not a readable database of OpenClaw", "give its folder")
            last = self._find_last()
            self._list = self._load_list()
        except StorageError as error:
            raise Unusable(error.message, error.remedy) from error
        self.was_rewritten = position.offset > last
        self._since = (START if self.was_rewritten else position).offset
        self._last = last
        self._is_done = False

    def _find_last(self) -> int:
        if not self._has_sessions:
            return 0  # the first version had none, and was beside files that did
        ((last,),) = self._tables.rows("SELECT coalesce(max(created_at), 0) FROM transcript_events")
        return int(last)

    def __iter__(self) -> Iterator[Item]:
        """Yield the archived sessions, then those that have new entries, the one that began first at the beginning."""
        if self._tables.damage:
            yield Problem(str(self._path), self._tables.damage)
        yield from self._read_archives()
        if not self._has_sessions:
            return
        query = """SELECT session_id FROM transcript_events GROUP BY session_id HAVING max(created_at) >= :since
            ORDER BY min(created_at), session_id"""
        for (session,) in list(self._tables.rows(query, {"since": self._since})):
            yield from self._parse(str(session), self._load_events(str(session)))
        self._is_done = True

    def position(self) -> Position:
        """Return the position: the newest entry, once everything was read."""
        return Position(self._last if self._is_done and not self._tables.damage else self._since)

    def close(self) -> None:
        """Remove the copy."""
        self._copied.__exit__(None, None, None)

    def _parse(self, session: str, rows: Iterator[dict[str, Any] | None]) -> Iterator[Item]:
        facts, is_group = self._list.describe(session)
        parser = EntryParser({}, facts, is_group=is_group)
        for row in rows:
            if row is None:
                yield Left("cannot be read")
                continue
            try:
                yield from parser.take(row, 0)
            except UNEXPECTED:
                yield unknown(row)

    def _load_events(self, session: str) -> Iterator[dict[str, Any] | None]:
        packed = "event_zstd" if "event_zstd" in self._columns[_EVENTS] else "NULL"
        query = f"SELECT event_json, {packed} FROM transcript_events WHERE session_id = :session ORDER BY seq"  # noqa: S608
        for text, data in self._tables.rows(query, {"session": session}):
            yield _load(text if text is not None else data)

    def _read_archives(self) -> Iterator[Item]:
        """Yield the sessions that were reset or put aside; those that the person deleted stay deleted."""
        for table, moment in ((_ARCHIVES, "created_at"), (_COLD, "archived_at")):
            columns = self._columns[table]
            if not {"session_id", moment, "archive_name", "archive_blob"} <= columns:
                continue
            chosen = "WHERE reason = 'reset'" if "reason" in columns else ""
            query = f"SELECT session_id, archive_name, archive_blob, {moment} FROM {table} {chosen} ORDER BY {moment}"  # noqa: S608
            for session, name, data, when in self._tables.rows(query):
                if int(when) >= self._since:
                    yield from self._read_archive(str(session), str(name), data)

    def _read_archive(self, session: str, name: str, data: bytes | None) -> Iterator[Item]:
        try:
            whole = self._find_file(name) if data is None else data
            lines = unpack(whole, _MOST_UNPACKED).splitlines()
        except (OSError, ValueError) as error:
            yield Problem(f"{self._path}: {name}", f"an archived session cannot be read: {error}")
            return
        yield from self._parse(session, (_load(line) for line in lines if line.strip()))

    def _find_file(self, name: str) -> bytes:
        agent = self._path.parent.parent
        for path in agent.rglob(name):
            return load_bytes(path)
        raise FileNotFoundError(f"there is no file {name!r} below {str(agent)!r}")

    def _load_list(self) -> SessionList:
        found = SessionList(self._path.parent.parent.name)
        for table in (name for name in _LISTS if self._columns[name]):
            names = sorted(self._columns[table])
            query = f"SELECT {', '.join(names)} FROM {table}"  # noqa: S608
            for row in self._tables.rows(query):
                facts = dict(zip(names, row, strict=True))
                entry = _load(facts.pop("entry_json", None)) or {}
                key = as_text(facts.get("session_key"))
                current = facts.get("current_session_id") or facts.get("session_id") or entry.get("sessionId")
                if isinstance(current, str):
                    found.add(current, key, {**entry, **facts})
        return found


def _load(data: str | bytes | None) -> dict[str, Any] | None:
    """Return an entry from JSON, compressed or not; None if it cannot be read."""
    try:
        text = data if isinstance(data, str) else unpack(data or b"", _MOST_UNPACKED).decode("utf-8", "replace")
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


_EMPTY_BLOCK = re.compile(r"^```[^\n`]*\n[^\w`]*```[^\S\n]*$", re.MULTILINE)
_EMPTY_FIELD = re.compile(r"^[^\S\n]*[-*][^\S\n]+\*\*[^*\n]{1,60}:\*\*[^\S\n]*(?:_\([^\n]*\)_)?[^\S\n]*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CONFIG = "config.yaml"
_FIRST_CONFIG = "# Settings of kept: `kept config show` lists them all, `kept config set KEY VALUE` changes one.\n"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_OTHERS = ("TOOLS.md", "HEARTBEAT.md", "BOOT.md", "BOOTSTRAP.md")
"""Instructions for parts of OpenClaw that kept does not have."""
_MOST_BYTES = 100_000_000
"""A larger index of a memory backend stays where it is: it was derived from files that are imported."""


@cache
def _templates() -> frozenset[str]:
    text = resources.files("wellkept.formats").joinpath("openclaw_templates.txt").read_text(encoding="utf-8")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())


def hash_line(line: str) -> str:
    """Return the hash of a line, whatever its spaces and capitals."""
    return hashlib.blake2b(" ".join(line.split()).casefold().encode("utf-8", "replace"), digest_size=4).hexdigest()


def remove_template(text: str) -> str:
    """Return what people and agents wrote into a file, without the lines that OpenClaw had filled it with."""
    known = _templates()
    kept = "\n".join(line for line in text.splitlines() if hash_line(line) not in known)
    kept = _EMPTY_FIELD.sub("", _EMPTY_BLOCK.sub("", _COMMENT.sub("", kept)))
    return kept.strip() if re.search(r"\w", kept) else ""


def list_openclaw(root: Path, request: Request) -> Iterator[Asset]:
    """Yield everything of a state folder besides transcripts."""
    try:
        config = load_config(root)
    except (OSError, ValueError, RecursionError) as error:
        config = {}
        yield Problem("openclaw.json", f"cannot be read, so only the usual workspaces are: {error}")
    if (running := find_running(config)) is not None:
        yield Caution(f"{running}: stop it first, or what it writes meanwhile is left out")
    is_first = True
    for agent, folder in find_workspaces(root, config, name_home(request.environ)):
        name = _name_workspace(root, folder)
        yield from _list_memory(folder, name)
        yield from _list_persona(folder, name, agent, request, is_first=is_first)
        yield from list_skills(folder / "skills")
        is_first = False
    yield from list_skills(root / "skills")
    if request.options.get("preset") != "user-data":
        if not (request.home / _CONFIG).exists():
            yield Document(_CONFIG, _FIRST_CONFIG, request.home / _CONFIG)  # before the settings, which change it
        yield from list_settings(config)
        yield from _list_leftovers(root)
    if request.options.get("migrate-secrets"):
        secrets = list(list_secrets(root, config))
        taken = ", ".join(f"{secret.name} from {secret.origin}" for secret in secrets) or "none was found"
        yield Caution(f"credentials that are copied: {taken}; only these names are searched for: {', '.join(SECRETS)}")
        yield from secrets


def _name_workspace(root: Path, folder: Path) -> str:
    try:
        return folder.relative_to(root.resolve()).as_posix()
    except ValueError:
        return f"elsewhere{folder.as_posix()}"


def _list_memory(folder: Path, name: str) -> Iterator[Asset]:
    """Yield what an agent knows: curated memory first, then notes, the newest first."""
    main = folder / "MEMORY.md"
    # on file systems that ignore case both names are one file
    yield from _read(main if main.is_file() else folder / "memory.md", f"{name}/MEMORY.md", Target.MEMORY)
    yield from _read(folder / "USER.md", f"{name}/USER.md", Target.USER)
    yield from _read(folder / "IDENTITY.md", f"{name}/IDENTITY.md", Target.MEMORY, heading="Identity of the assistant")
    notes = [path for path in (folder / "memory").rglob("*.md") if not _is_hidden(path.relative_to(folder))]
    for path in sorted(notes, key=lambda path: (_DATE.match(path.name) is not None, path.name), reverse=True):
        within = path.relative_to(folder).as_posix()
        yield from _read(path, f"{name}/{within}", Target.MEMORY, heading=path.stem)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts) or path.name == "DREAMS.md"


def _read(path: Path, name: str, target: Target, *, heading: str = "") -> Iterator[Asset]:
    text = read_text(path)
    if isinstance(text, Problem):
        yield text
    elif text is not None and (own := remove_template(text)):
        yield MemoryFile(name, target, own, heading=heading)


def _list_persona(folder: Path, name: str, agent: str, request: Request, *, is_first: bool) -> Iterator[Asset]:
    """Yield SOUL.md and AGENTS.md of the default agent as documents; those of others go to the archive."""
    target = request.options.get("workspace-target")
    places = {
        "SOUL.md": request.home / "SOUL.md",
        "AGENTS.md": Path(target).expanduser() / "AGENTS.md" if target else None,
    }
    for file in (*places, *_OTHERS):
        text = read_text(folder / file)
        if isinstance(text, Problem):
            yield text
        if not isinstance(text, str) or not remove_template(text):
            continue  # nobody changed it
        place = places.get(file)
        if is_first and place is not None:
            yield Document(f"{name}/{file}", text, place)
        elif file == "AGENTS.md" and is_first:
            yield Leftover(
                f"{name}/{file}", text.encode(), "--workspace-target FOLDER copies it into a folder of yours"
            )
        else:
            why = "has no counterpart here" if file in _OTHERS else f"of the agent {agent}; there is one per home"
            yield Leftover(f"{name}/{file}", text.encode(), why)


def _list_leftovers(root: Path) -> Iterator[Asset]:
    """Yield scheduled jobs and the indexes of memory backends."""
    from wellkept.security.secrets import redact

    jobs = read_text(root / "cron" / "jobs.json")
    if isinstance(jobs, str):
        yield Leftover("cron/jobs.json", redact(jobs).encode(), "scheduled jobs: add them to your scheduler")
    for path in [
        *sorted((root / "memory").glob("*.sqlite")),
        root / "lancedb",
        root / "memory" / "lancedb",
        root / "qmd",
    ]:
        if not path.exists():
            continue
        name = path.relative_to(root).as_posix()
        if _measure(path) <= _MOST_BYTES:
            yield Leftover(name, path, "the index of a memory backend; it was derived from files that are imported")
        else:
            yield Problem(name, f"the index of a memory backend is larger than {_MOST_BYTES:,} bytes and stays there")


def _measure(path: Path) -> int:
    files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


_TRANSCRIPT = re.compile(r"(?P<session>.+?)\.jsonl(?:\.reset\..+)?(?:\.zst)?")
_NOT_READ = re.compile(r"\.(?:checkpoint|trajectory|deleted|bak|lock)(?:[.-]|$)")
"""Copies, traces of runs, and sessions that were deleted."""


class OpenClaw(Source):
    """Finds and reads everything of OpenClaw; sub-agents have sessions of their own in the same folder."""

    client = "openclaw"
    options: tuple[Option, ...] = (
        Option("preset", ("user-data", "full"), "full"),
        Option("workspace-target"),
        Option("migrate-secrets", ("yes",)),
    )

    def __init__(self) -> None:
        self._lists: dict[Path, SessionList] = {}

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the state folder, or the usual ones with those of profiles."""
        chosen = environ.get("OPENCLAW_STATE_DIR")
        if chosen:
            return [Path(chosen).expanduser()]
        home = Path(environ.get("HOME") or "~").expanduser()
        return [*(home / name for name in FOLDERS), *sorted(home.glob(".openclaw-*"))]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return the transcripts and databases of all agents, the oldest first."""
        if root.is_file():
            return [root]
        agents = [root, *(root / "agents").glob("*")]
        files = (path for agent in agents for path in (agent / "sessions").glob("*.jsonl*") if is_transcript(path))
        databases = (agent / "agent" / "openclaw-agent.sqlite" for agent in agents)
        transcripts = [*files, *(path for path in databases if path.is_file())]
        return sorted(transcripts, key=lambda path: (path.stat().st_mtime, path.name))

    def open(self, path: Path, position: Position) -> Reading:
        """Open a transcript or a database."""
        if path.suffix == ".sqlite":
            open_own(path).close()
            return AgentDatabase(path, position)
        if path.parent not in self._lists:
            self._lists[path.parent] = load_list(path.parent)
        named = _TRANSCRIPT.fullmatch(path.name)
        facts, is_group = self._lists[path.parent].describe(named["session"] if named else path.stem)
        return JsonlReading(path, position, lambda state: EntryParser(state, facts, is_group=is_group))

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield memory, notes, persona and skills of all workspaces; with the preset `full` settings too."""
        if root.is_dir():
            yield from list_openclaw(root, request)


def is_transcript(path: Path) -> bool:
    """Whether a file in a folder of sessions is one, and neither a copy nor deleted."""
    return _TRANSCRIPT.fullmatch(path.name) is not None and _NOT_READ.search(path.name) is None

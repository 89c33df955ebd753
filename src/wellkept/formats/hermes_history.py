"""The conversations of Hermes: its database and older JSON files, each message once, tokens and withdrawn turns."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from wellkept.core.clock import from_program
from wellkept.core.errors import StorageError
from wellkept.core.messages import Link, Message, Origin, Role, ToolCall, Usage
from wellkept.core.text import JSON
from wellkept.formats.json_files import UNEXPECTED
from wellkept.formats.messages import (
    MOST_CHARS,
    MOST_TOOL_CHARS,
    OUR_RESULT,
    PrivateTurns,
    as_blocks,
    as_text,
    clean_answer,
    clean_arguments,
    clean_result,
    describe_block,
    is_our_tool,
    join_texts,
    remove_machine_blocks,
    shorten,
    starts_with_any,
)
from wellkept.formats.port import (
    START,
    UNKNOWN,
    Conversation,
    Item,
    Kind,
    Left,
    Position,
    Problem,
    Reading,
    Said,
    Spent,
    Unusable,
    Withdrawn,
    unknown,
)

MACHINE_SOURCES = frozenset(("cron", "webhook", "batch"))
"""Values of `sessions.source` whose prompts a program wrote."""
_PARTS_PREFIX = "\x00json:"
_SKILL = re.compile(r'\A\[[A-Z]+: The user has invoked the "([^"\n]{1,100})" skill')
_SKILL_ARGUMENTS = re.compile(r"alongside the skill invocation: (.*)\Z", re.DOTALL)
_SUMMARY_END = re.compile(r"--- END OF CONTEXT SUMMARY[^\n]*---\s*")
_NOTES = re.compile(r"\A\s*(?:\[(?:System note|Note|IMPORTANT|SYSTEM):[^\]]{0,20000}\]\s*)+")
_STEERING = re.compile(
    r"\s*\[OUT-OF-BAND USER MESSAGE[^\]\n]{0,200}\]\n(.*?)\n?\[/OUT-OF-BAND USER MESSAGE\]", re.DOTALL
)
_SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY")
_MACHINE_TEXTS = ("[ASYNC DELEGATION", "[IMPORTANT: Background process", "[SYSTEM: Background process")
_MOST_JSON_BYTES = 256_000_000
_MOST_JOINED = 20_000
"""Prompts that nobody answered are joined up to this length; without a bound a long run of them costs its square."""
_BURST_SECONDS = 0.05
"""Rows written in one go, without a person or a model between them, are at most this far apart."""
_END_OF_COPIES_SECONDS = 0.5
"""A row that comes later than this after copied rows and is not a copy was said after them."""


# what a row says


class Spoken(Struct, frozen=True):
    """The part of a row that is stored."""

    message: Message | None
    """None if nothing is stored."""
    why: str = ""
    """Why nothing is stored."""
    steering: tuple[str, ...] = ()
    """What the person wrote while the tool ran; Hermes appends it to the tool's result."""


def interpret(row: Mapping[str, Any], kind: Kind) -> Spoken:
    """Return what of a row is stored: without notes, summaries and prompts that a machine wrote."""
    content = _content(row.get("content"))
    match row.get("role"):
        case "user":
            return _interpret_prompt(content, kind)
        case "assistant":
            return _interpret_answer(row, content)
        case "tool":
            name, call_id = as_text(row.get("tool_name")), as_text(row.get("tool_call_id"))
            text = OUR_RESULT if is_our_tool(name) else clean_result(_STEERING.sub("", content))
            result = Message(Role.TOOL, text, tool_call_id=call_id, tool_name=name)
            return Spoken(result, steering=tuple(found.strip() for found in _STEERING.findall(content)))
        case "system" | "developer" | "session_meta" | None:
            return Spoken(None, "machine text")
        case _:
            return Spoken(None, UNKNOWN)


def _content(value: Any) -> str:
    """Return content as text; a list of parts is stored as JSON behind a prefix, in older files as a list."""
    if isinstance(value, str) and value.startswith(_PARTS_PREFIX):
        try:
            value = json.loads(value.removeprefix(_PARTS_PREFIX))
        except (ValueError, RecursionError):
            return ""
    if isinstance(value, dict):
        value = [value]
    return value if isinstance(value, str) else join_texts(describe_block(block) for block in as_blocks(value))


def _interpret_prompt(content: str, kind: Kind) -> Spoken:
    if is_summary(content):
        end = _SUMMARY_END.search(content)
        if end is None or not content[end.end() :].strip():
            return Spoken(None, "summary")
        content = content[end.end() :]  # the first message that was kept is appended to the summary
    skill = _SKILL.match(content)
    if skill is not None:
        arguments = _SKILL_ARGUMENTS.search(content)
        text = f"/{skill[1]} {arguments[1].strip()}" if arguments else ""
    elif starts_with_any(content, _MACHINE_TEXTS):
        text = ""
    else:
        text = remove_machine_blocks(_NOTES.sub("", content)).strip()
    return Spoken(Message(Role.USER, shorten(text, MOST_CHARS))) if text else Spoken(None, _why_empty(kind))


def _why_empty(kind: Kind) -> str:
    return "machine text" if kind is Kind.PERSON else "empty"


def is_summary(content: str) -> bool:
    """Whether a text is the summary that takes the place of compacted messages."""
    return starts_with_any(content, _SUMMARIES)


def _interpret_answer(row: Mapping[str, Any], content: str) -> Spoken:
    if is_summary(content):
        return Spoken(None, "summary")
    thoughts = as_text(row.get("reasoning_content")) or as_text(row.get("reasoning")) or ""
    answer = Message(
        Role.ASSISTANT,
        clean_answer(content),
        tuple(_calls(row.get("tool_calls"))),
        reasoning=shorten(clean_answer(thoughts), MOST_TOOL_CHARS) or None,
    )
    return Spoken(answer) if answer.content or answer.tool_calls else Spoken(None, "empty")


def _calls(value: Any) -> Iterator[ToolCall]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return
    for call in as_blocks(value):
        function = call.get("function")
        if isinstance(function, dict):
            name = as_text(function.get("name")) or "tool"
            yield ToolCall(str(call.get("id") or ""), name, clean_arguments(function.get("arguments") or {}))


# copies


class Originals(Struct):
    """The rows of a session so far, by what they say; each has the id under which its message is stored."""

    externals: list[str] = field(default_factory=list)
    _places: dict[int, list[int]] = field(default_factory=dict)
    _prompt: str = ""
    """The prompts since the last answer; Hermes joins them when it copies a session."""

    def add(self, row: Mapping[str, Any], external: str) -> None:
        """Add a row."""
        place = len(self.externals)
        self.externals.append(external)
        self._places.setdefault(_mark(row), []).append(place)
        if row.get("role") != "user":
            self._prompt = ""
            return
        before, text = self._prompt, _content(row.get("content"))
        if len(before) > _MOST_JOINED:
            before = ""
        self._prompt = f"{before}\n\n{text}" if before else text
        if before:
            self._places.setdefault(_mark({"role": "user", "content": self._prompt}), []).append(place)

    def find(self, row: Mapping[str, Any], start: int) -> int | None:
        """Return the place of the first row from `start` on that says the same."""
        places = self._places.get(_mark(row), [])
        found = bisect_left(places, start)
        return places[found] if found < len(places) else None


def _mark(row: Mapping[str, Any]) -> int:
    """Return a hash of what a row says; the results of tools are shortened in copies, so their call counts."""
    role, call_id = row.get("role"), row.get("tool_call_id")
    calls = [call.id for call in _calls(row.get("tool_calls"))]
    said = str(call_id) if role == "tool" and call_id else _content(row.get("content"))
    whole = "\0".join((str(role), said, *calls))
    return int.from_bytes(hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=8).digest(), "big")


class Copies:
    """Recognises rows that repeat earlier ones, which come in the order of their originals and are written at once.

    A branch begins with them. After a compaction the messages that stay in the context are written again.
    """

    def __init__(self, originals: Originals, *, is_own: bool) -> None:
        self._originals = originals
        self._is_own = is_own
        """Whether the originals are rows of the same session, so that copies can begin anywhere."""
        self._is_open = not is_own
        self._next = 0
        self._last = 0.0

    def find(self, row: Mapping[str, Any], moment: float, following: float | None) -> str | None:
        """Return the id of the message that a row repeats, or None if it is new; `following` is when the next came."""
        is_late = moment - self._last >= _END_OF_COPIES_SECONDS
        self._last = moment
        if self._is_own and (is_late or not self._is_open):
            is_burst = following is not None and 0 <= following - moment < _BURST_SECONDS
            self._is_open = is_burst and row.get("role") != "tool"
            self._next = 0
        if not self._is_open:
            return None
        place = self._originals.find(row, self._next)
        if place is None:
            self._is_open = not is_late if not self._is_own else self._next > 0
            return None
        self._next = place + 1
        return self._originals.externals[place]


# older files


def read_json(path: Path, data: bytes) -> dict[str, Any]:
    """Return the content of a JSON session; raise Unusable for anything else."""
    if len(data) > _MOST_JSON_BYTES:
        raise Unusable(f"{str(path)!r} is larger than {_MOST_JSON_BYTES:,} bytes", "split it")
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{str(path)!r} is not JSON", "it may have been cut off; the other files are read") from error
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        raise Unusable(f"{str(path)!r} is not a session of Hermes", "give the folder of Hermes")
    return value


def name_rows(session: str, rows: Sequence[Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the messages of a JSON session with ids that stay when the file grows: they have none of their own."""
    counts: dict[int, int] = {}
    for row in rows:
        if isinstance(row, dict):
            mark = _mark(row)
            counts[mark] = counts.get(mark, 0) + 1
            yield row, f"{session}:{mark:016x}:{counts[mark]}"


def from_local(value: Any) -> float | None:
    """Return epoch seconds of a time as old versions wrote it: in the zone of this machine, without naming it."""
    try:
        return datetime.fromisoformat(str(value)).astimezone().timestamp()
    except (ValueError, OverflowError):
        return None


def choose_origin(role: Role, kind: Kind) -> Origin:
    """Return who said a message; prompts of conversations that a machine led are not a person's."""
    return Origin.SYNTHETIC if role is Role.USER and kind is not Kind.PERSON else Origin.usual(role)


_SESSION_COLUMNS = (
    "id", "source", "model", "model_config", "parent_session_id", "started_at", "ended_at", "end_reason", "title",
    "cwd", "git_branch", "display_name", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
)  # fmt: skip
_MESSAGE_COLUMNS = (
    "id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp", "token_count", "reasoning",
    "reasoning_content", "observed", "active", "compacted",
)  # fmt: skip
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_SESSIONS_REMEMBERED = 200
"""The newest sessions, whose tokens and withdrawn turns may still change."""


class HermesDatabase(Reading):
    """Reads a `state.db`: the position is the id of the last message that was read."""

    def __init__(self, path: Path, position: Position, profile: str) -> None:
        from wellkept.storage.foreign import open_copy

        self._path = path
        self._prefix = f"{profile}/" if profile else ""  # the same id can occur in the databases of two profiles
        self._copied = open_copy(path, rescue=("sessions", "messages", "session_model_usage"))
        try:
            self._tables = self._copied.__enter__()
            self._columns = {name: self._tables.columns(name) for name in ("sessions", "messages")}
            if not {"id", "started_at"} <= self._columns["sessions"] or "session_id" not in self._columns["messages"]:
                self.close()
                raise Unusable(f"{str(path)!r} is not a readable database of Hermes", "give the folder of Hermes")
            names = [name for name in _SESSION_COLUMNS if name in self._columns["sessions"]]
            rows = self._tables.rows(f"SELECT {', '.join(names)} FROM sessions ORDER BY started_at")  # noqa: S608
            self._sessions = {str(row[0]): dict(zip(names, row, strict=True)) for row in rows}
            ((last,),) = self._tables.rows("SELECT coalesce(max(id), 0) FROM messages")
        except StorageError as error:
            raise Unusable(error.message, error.remedy) from error
        self.was_rewritten = position.offset > last
        start = START if self.was_rewritten else position
        self._since, self._last = start.offset, int(last)
        self._before: dict[str, Any] = dict(start.state)
        self._after = dict(self._before)
        self._is_done = False
        self._originals: dict[str, Originals] = {}

    def __iter__(self) -> Iterator[Item]:
        """Yield the sessions that have new messages, each after the one that it was derived from."""
        if self._tables.damage:
            yield Problem(str(self._path), self._tables.damage)
        query = "SELECT DISTINCT session_id FROM messages WHERE id > :since"
        changed = {str(name) for (name,) in self._tables.rows(query, {"since": self._since})}
        for name in changed - set(self._sessions):
            self._sessions[name] = {"id": name}  # its row is lost, or was never written
        for name in self._sort():
            if name in changed:
                try:
                    yield from self._read_session(name)
                except UNEXPECTED:
                    yield unknown()
        self._is_done = True

    def position(self) -> Position:
        """Return the position: the last message, once everything was read."""
        if not self._is_done or self._tables.damage:
            return Position(self._since, state=self._before)
        recent = dict(list(self._after.items())[-_SESSIONS_REMEMBERED:])
        return Position(self._last, state=recent)

    def close(self) -> None:
        """Remove the copy."""
        self._copied.__exit__(None, None, None)

    # sessions

    def _sort(self) -> list[str]:
        """Return the sessions by their beginning, parents before what was derived from them."""
        ordered: dict[str, None] = {}
        for first in self._sessions:
            line: list[str] = []
            name = first
            while name in self._sessions and name not in ordered and name not in line:
                line.append(name)
                name = str(self._sessions[name].get("parent_session_id"))
            ordered |= dict.fromkeys(reversed(line))
        return list(ordered)

    def _describe(self, name: str) -> Conversation:
        info = self._sessions[name]
        settings = _parse(info.get("model_config"))
        parent = as_text(info.get("parent_session_id"))
        source = str(info.get("source") or "")
        delegated = as_text(settings.get("_delegate_from")) or (parent if source == "subagent" else None)
        kind = Kind.HEADLESS if source in MACHINE_SOURCES else Kind.PERSON
        parent = delegated or as_text(settings.get("_branched_from")) or parent
        facts: dict[str, JSON] = {
            "platform": source,
            "branch": as_text(info.get("git_branch")),
            "chat": as_text(info.get("display_name")),
        }
        return Conversation(
            f"{self._prefix}{name}",
            Kind.SUBAGENT if delegated else kind,
            folder=as_text(info.get("cwd")) or as_text(self._sessions.get(str(parent), {}).get("cwd")),
            model=as_text(info.get("model")),
            title=as_text(info.get("title")),
            parent=f"{self._prefix}{parent}" if parent in self._sessions else None,
            link=None if delegated else self._find_link(settings, parent),
            metadata={key: value for key, value in facts.items() if value},
        )

    def _find_link(self, settings: Mapping[str, Any], parent: str | None) -> Link | None:
        ended = self._sessions.get(str(parent), {}).get("end_reason")
        is_compressed = ended == "compression" and not settings.get("_branched_from")
        return Link.COMPRESSION if is_compressed else Link.BRANCH if parent in self._sessions else None

    # messages

    def _read_session(self, name: str) -> Iterator[Item]:
        facts = self._describe(name)
        yield facts
        yield from self._read_withdrawals(name, facts)
        private = PrivateTurns()
        last_copy: str | None = None
        for row, external, original in self._walk(name, facts):
            if original is not None:
                last_copy = original
                yield Left("copy")
            elif row.get("active") == 0 and not row.get("compacted"):
                yield Left("withdrawn")
            elif row.get("observed"):
                yield Left("not addressed")
            else:
                yield from self._repeat(last_copy, facts)
                last_copy = None
                yield from speak(row, external, facts, private)
            for said in self._read_steering(row, facts, private):
                yield from self._repeat(last_copy, facts)
                yield said
        yield from self._read_usage(name, facts)

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        names = [column for column in _MESSAGE_COLUMNS if column in self._columns["messages"]]
        query = f"SELECT {', '.join(names)} FROM messages WHERE session_id = :session ORDER BY id"  # noqa: S608
        for row in self._tables.rows(query, {"session": name}):
            yield dict(zip(names, row, strict=True))

    def _walk(self, name: str, facts: Conversation) -> Iterator[tuple[dict[str, Any], str, str | None]]:
        """Yield the rows of a session, each with its id and that of the message that it repeats, if it does."""
        own = self._originals[name] = Originals()
        inherited = Copies(self._load_originals(facts), is_own=False)
        repeated = Copies(own, is_own=True)
        was_compacted = False
        waiting: dict[str, Any] | None = None
        for row in chain(self._rows(name), (None,)):
            if waiting is not None:
                moment, following = read_moment(waiting), None if row is None else read_moment(row)
                external = f"{self._prefix}{name}:{waiting['id']}"
                original = inherited.find(waiting, moment, following)
                if original is None and was_compacted:
                    original = repeated.find(waiting, moment, following)
                was_compacted = was_compacted or bool(waiting.get("compacted"))
                own.add(waiting, original or external)
                yield waiting, external, original
            waiting = row

    def _load_originals(self, facts: Conversation) -> Originals:
        """Return the rows of the session that this one was derived from; none for a sub-agent."""
        parent = (facts.parent or "").removeprefix(self._prefix)
        if facts.link is None or parent not in self._sessions or facts.external_id == facts.parent:
            return Originals()
        if parent not in self._originals:
            for _ in self._walk(parent, self._describe(parent)):
                pass
        return self._originals[parent]

    def _repeat(self, external: str | None, facts: Conversation) -> Iterator[Item]:
        """Yield the last message that a branch shares with its parent, so that the store knows where it begins."""
        if external is None or facts.link is not Link.BRANCH:
            return
        names = [column for column in _MESSAGE_COLUMNS if column in self._columns["messages"]]
        query = f"SELECT {', '.join(names)} FROM messages WHERE id = :id"  # noqa: S608
        for found in self._tables.rows(query, {"id": int(external.rpartition(":")[2])}):
            yield from speak(dict(zip(names, found, strict=True)), external, facts, PrivateTurns())

    def _read_steering(self, row: Mapping[str, Any], facts: Conversation, private: PrivateTurns) -> Iterator[Item]:
        """Yield what the person wrote while a tool ran; only some copies of the tool's result hold it."""
        for text in interpret(row, facts.kind).steering if row.get("role") == "tool" else ():
            message = private.take(Message(Role.USER, shorten(text, MOST_CHARS)))
            digest = hashlib.blake2b(f"{row.get('tool_call_id')}\0{text}".encode("utf-8", "replace"), digest_size=8)
            if message is not None:
                external = f"{self._prefix}steering:{digest.hexdigest()}"
                yield Said(facts.external_id, external, message, read_moment(row), Origin.PERSON)

    def _read_withdrawals(self, name: str, facts: Conversation) -> Iterator[Item]:
        """Yield how many turns were withdrawn since the last reading, which had stored them."""
        if not {"active", "compacted"} <= self._columns["messages"]:
            return
        query = """SELECT count(*) FROM messages WHERE session_id = :session AND role = 'user' AND active = 0
            AND compacted = 0 AND id <= :since"""
        ((count,),) = self._tables.rows(query, {"session": name, "since": self._since})
        known = self._before.get(name)
        self._after[name] = {"withdrawn": self._count_withdrawn(name)}
        before = known.get("withdrawn") if isinstance(known, dict) else None
        if isinstance(before, int) and count > before:
            yield Withdrawn(facts.external_id, f"{facts.external_id}:{count}", count - before)

    def _count_withdrawn(self, name: str) -> int:
        query = """SELECT count(*) FROM messages WHERE session_id = :session AND role = 'user' AND active = 0
            AND compacted = 0"""
        ((count,),) = self._tables.rows(query, {"session": name})
        return int(count)

    # tokens

    def _read_usage(self, name: str, facts: Conversation) -> Iterator[Item]:
        """Yield the tokens that a session spent since the last reading; its counts are sums over all calls."""
        info = self._sessions[name]
        moment = from_program(info.get("ended_at") or info.get("started_at")) or 0.0
        counts = self._count_tokens(name) or {facts.model or "": [int(info.get(key) or 0) for key in _TOKENS]}
        known = self._before.get(name)
        before = known.get("tokens", {}) if isinstance(known, dict) else {}
        self._after.setdefault(name, {})["tokens"] = counts
        for model, total in counts.items():
            old = before.get(model) or [0] * len(_TOKENS)
            spent = [max(0, new - past) for new, past in zip(total, old, strict=True)]
            if model and any(spent):
                external = f"{facts.external_id}:{model}" + (f":{sum(total)}" if any(old) else "")
                yield Spent(facts.external_id, external, model, Usage(*spent), moment)

    def _count_tokens(self, name: str) -> dict[str, list[int]]:
        if not {"session_id", "model", *_TOKENS} <= self._tables.columns("session_model_usage"):
            return {}
        sums = ", ".join(f"sum({key})" for key in _TOKENS)
        query = f"SELECT model, {sums} FROM session_model_usage WHERE session_id = :session GROUP BY model"  # noqa: S608
        found = self._tables.rows(query, {"session": name})
        return {str(model): [int(count or 0) for count in counts] for model, *counts in found}


def speak(row: Mapping[str, Any], external: str, facts: Conversation, private: PrivateTurns) -> Iterator[Item]:
    """Yield what a row says, or why nothing of it is stored."""
    spoken: Spoken = interpret(row, facts.kind)
    if spoken.message is None:
        yield unknown(row) if spoken.why == UNKNOWN else Left(spoken.why)
        return
    origin = choose_origin(spoken.message.role, facts.kind)
    message = private.take(spoken.message)
    if message is None:
        yield Left("private")
        return
    tokens = row.get("token_count")
    yield Said(
        facts.external_id,
        external,
        message,
        read_moment(row),
        origin,
        token_count=tokens if isinstance(tokens, int) else None,
        turn=external if origin is Origin.PERSON else None,
    )


def read_moment(row: Mapping[str, Any]) -> float:
    """Return when a message was written; 0 if it does not say."""
    return from_program(row.get("timestamp")) or 0.0


def _parse(value: Any) -> dict[str, Any]:
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}

"""Codex: rollouts of three generations (command line, desktop program, IDE extension), and its database of threads."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from wellkept.core.clock import from_program
from wellkept.core.errors import StorageError
from wellkept.core.messages import Message, Origin, Role, ToolCall, Usage
from wellkept.core.regular_files import load_bytes
from wellkept.core.text import JSON
from wellkept.formats.json_files import UNEXPECTED, JsonlReading, RowParser, WholeReading, open_own, read_row
from wellkept.formats.messages import (
    MOST_CHARS,
    OUR_RESULT,
    PrivateSpans,
    as_blocks,
    as_text,
    clean_answer,
    clean_arguments,
    clean_result,
    describe_block,
    is_our_tool,
    join_texts,
    remove_machine_blocks,
    result_text,
    shorten,
    starts_with_any,
)
from wellkept.formats.port import (
    Asset,
    Conversation,
    Item,
    Kind,
    Left,
    Position,
    Reading,
    Request,
    Said,
    Source,
    Spent,
    Unusable,
    Withdrawn,
    unknown,
)
from wellkept.storage.foreign import ForeignTables, open_copy

_ITEMS = frozenset(("message", "reasoning", "function_call", "function_call_output", "local_shell_call"))
"""The rows of the first generation that are items themselves, without an envelope."""
_CALLS = frozenset(("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"))
_OUTPUTS = frozenset(("function_call_output", "custom_tool_call_output", "tool_search_output"))
_WITHOUT_MESSAGES = frozenset(
    (
        "compacted", "inter_agent_communication", "inter_agent_communication_metadata", "response_item",
        "security_risk_score", "token_usage_record", "world_state",
    )
)  # fmt: skip
_WITHOUT_TEXT = frozenset(
    (
        "agent_message", "compaction", "compaction_summary", "context_compaction", "ghost_snapshot",
        "image_generation_call", "other", "reasoning",
    )
)  # fmt: skip
"""Items that repeat texts, that only a server can read, or that hold pictures."""
_MACHINE_TEXTS = (
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
    "<permissions instructions>",
    "<user_shell_command",
    "<hook_prompt",
    "<codex_internal_context",
)
_IDE_START, _IDE_REQUEST = "# Context from my IDE setup:", "## My request for Codex:"
_PASSED_THROUGH = "internal_chat_message_metadata_passthrough"
CODEX_BACKGROUND = ("thread_title", "memory_consolidation")
"""Sources of threads that Codex starts for itself."""
_HEADLESS = frozenset(("exec", "mcp"))
_CALLS_REMEMBERED = 64


class RolloutParser(RowParser):
    """Parses the rows of rollouts."""

    def __init__(self, state: Mapping[str, Any], titles: Mapping[str, str]) -> None:
        self._titles = titles
        self._facts = Conversation("")
        self._is_told = False
        self._thread = str(state.get("thread") or "")
        self._lineage = str(state.get("lineage") or "")
        self._number = int(state.get("number") or 0)
        self._turn = as_text(state.get("turn"))
        self._calls: dict[str, str] = dict(state.get("calls") or {})
        self._last = float(state.get("last") or 0.0)
        self._private = PrivateSpans(is_open=bool(state.get("private")))
        self._is_hidden = bool(state.get("hidden"))
        self._is_paginated = bool(state.get("paginated"))
        """Whether completed items hold the conversation; other assistant messages are then answers to compactions."""
        self._is_background = bool(state.get("background"))
        """Whether the thread is a request of Codex itself."""
        self._is_copied = bool(state.get("copied"))
        """Whether the rows are the parent's history, copied into the rollout of a sub-agent."""
        self._began = float(state.get("began") or 0.0)
        if self._thread:
            self._facts = Conversation(
                self._thread,
                Kind(str(state.get("kind") or Kind.PERSON)),
                folder=as_text(state.get("folder")),
                model=as_text(state.get("model")),
                title=self._titles.get(self._thread),
                parent=as_text(state.get("parent")),
            )

    def state(self) -> Mapping[str, JSON]:
        """Return the thread, its facts, the turn, and the names of recent calls."""
        recent = dict(list(self._calls.items())[-_CALLS_REMEMBERED:])
        state: dict[str, JSON] = {
            "thread": self._thread,
            "lineage": self._lineage,
            "number": self._number,
            "turn": self._turn,
            "calls": recent,
            "last": self._last,
            "private": self._private.is_open,
            "hidden": self._is_hidden,
            "paginated": self._is_paginated,
            "background": self._is_background,
            "copied": self._is_copied,
            "began": self._began,
            "kind": self._facts.kind.value,
            "folder": self._facts.folder,
            "model": self._facts.model,
            "parent": self._facts.parent,
        }
        return {key: value for key, value in state.items() if value}

    def take(self, row: dict[str, Any], start: int) -> Iterator[Item]:
        """Yield what a row holds."""
        del start
        kind, payload = _open_envelope(row)
        moment = from_program(row.get("timestamp"))
        self._last = self._last if moment is None else moment
        match kind:
            case "session_meta":
                yield from self._take_meta(payload)
            case _ if self._is_background:
                yield Left("background request")
            case "turn_context":
                self._turn = as_text(payload.get("turn_id")) or self._turn
                facts = replace(
                    self._facts,
                    folder=self._facts.folder or as_text(payload.get("cwd")),
                    model=as_text(payload.get("model")) or self._facts.model,
                )
                self._is_told = self._is_told and facts == self._facts
                self._facts = facts
            case "event_msg":
                yield from self._take_event(payload)
            case "response_item" if not self._is_copied:
                yield from self._take_item(payload)
            case _:
                is_known = self._is_copied or kind in _WITHOUT_MESSAGES or "record_type" in row
                yield Left("copied" if self._is_copied else "no message") if is_known else unknown(row)

    # facts

    def _take_meta(self, payload: dict[str, Any]) -> Iterator[Item]:
        thread = str(payload.get("id") or "")
        if self._thread and thread != self._thread:
            # a fork or a sub-agent embeds the header of the history that it copies
            self._is_copied = self._facts.kind is Kind.SUBAGENT
            yield Left("copied header")
            return
        source = payload.get("source")
        parent = as_text(payload.get("parent_thread_id")) or _find(source, "parent_thread_id")
        is_subagent = isinstance(source, dict)
        self._thread = thread
        self._is_background = payload.get("thread_source") in CODEX_BACKGROUND
        self._is_paginated = payload.get("history_mode") == "paginated"
        self._lineage = str(payload.get("session_id") or payload.get("forked_from_id") or thread)
        self._began = self._began or from_program(payload.get("timestamp")) or self._last
        facts: dict[str, JSON] = {
            "entrypoint": as_text(payload.get("originator")),
            "client_version": as_text(payload.get("cli_version")),
            "branch": _find(payload.get("git"), "branch"),
        }
        headless = Kind.HEADLESS if isinstance(source, str) and source in _HEADLESS else Kind.PERSON
        self._facts = Conversation(
            thread,
            Kind.SUBAGENT if is_subagent else headless,
            folder=self._facts.folder or as_text(payload.get("cwd")),
            model=self._facts.model,
            title=self._titles.get(thread) or _find(source, "agent_nickname"),
            parent=(parent or as_text(payload.get("forked_from_id")))
            if is_subagent
            else as_text(payload.get("forked_from_id")),
            metadata={key: value for key, value in facts.items() if value},
        )
        self._is_told = False

    def _take_event(self, payload: dict[str, Any]) -> Iterator[Item]:
        match payload.get("type"):
            case "task_started":
                started = from_program(payload.get("started_at"))
                # the turns of a copied history began before the sub-agent did
                self._is_copied = self._is_copied and (started is None or started < int(self._began))
                self._turn = as_text(payload.get("turn_id")) or self._turn
            case "thread_rolled_back" if not self._is_copied:
                turns = payload.get("num_turns")
                name = f"{self._lineage}:{self._number}:{self._last}"
                yield Withdrawn(self._thread, name, turns if isinstance(turns, int) and turns > 0 else 1)
                return
            case "item_completed" if self._is_paginated and not self._is_copied:
                yield from self._take_completed(payload)
                return
            case "token_count" if not self._is_copied:
                yield from self._take_tokens(payload.get("info"))
                return
        yield Left("mirror of a message" if payload.get("type") in {"user_message", "agent_message"} else "no message")

    def _take_completed(self, payload: dict[str, Any]) -> Iterator[Item]:
        item = payload.get("item")
        if not isinstance(item, dict) or item.get("type") != "AgentMessage":
            yield Left("mirror of a message")
            return
        named = {"id": item.get("id"), _PASSED_THROUGH: {"turn_id": payload.get("turn_id")}}
        yield from self._take_answer({**named, "content": item.get("content") or item.get("text")})

    def _take_answer(self, payload: dict[str, Any]) -> Iterator[Item]:
        text = clean_answer(join_texts(describe_block(block) for block in as_blocks(payload.get("content"))))
        yield from self._say(payload, Message(Role.ASSISTANT, text), Origin.MODEL) if text else (Left("empty"),)

    def _take_tokens(self, info: Any) -> Iterator[Item]:
        last, total = (_find_counts(info, name) for name in ("last_token_usage", "total_token_usage"))
        if not last or self._facts.model is None:
            yield Left("no message")
            return
        cached, written = last.get("cached_input_tokens", 0), last.get("cache_write_input_tokens", 0)
        fresh = max(0, last.get("input_tokens", 0) - cached - written)
        # totals are cumulative, so an equal total is a repeated report of the same call
        name = f"{self._lineage}:{total.get('total_tokens', 0) or self._last}"
        usage = Usage(fresh, last.get("output_tokens", 0), cached, written)
        yield Spent(self._thread, name, self._facts.model, usage, self._last)

    # items

    def _take_item(self, payload: dict[str, Any]) -> Iterator[Item]:
        kind = payload.get("type")
        if kind == "message" and payload.get("role") == "user":
            yield from self._take_prompt(payload)
        elif kind == "message" and payload.get("role") == "assistant" and not self._is_paginated:
            yield from self._take_answer(payload)
        elif kind in _CALLS:
            call_id = str(payload.get("call_id") or payload.get("id") or "")
            words = (payload.get("namespace"), payload.get("name") or str(payload.get("type")).removesuffix("_call"))
            name = ".".join(str(word) for word in words if word)
            arguments = payload.get("arguments") or payload.get("input") or payload.get("action") or {}
            self._calls[call_id] = name
            call = ToolCall(call_id, name, clean_arguments(arguments))
            yield from self._say(payload, Message(Role.ASSISTANT, "", (call,)), Origin.MODEL)
        elif kind in _OUTPUTS:
            yield from self._take_output(payload)
        elif kind != "message":
            yield Left("no message") if kind in _WITHOUT_TEXT else unknown(payload, "item")
        else:
            is_mirror = payload.get("role") == "assistant"
            yield Left("mirror of a message" if is_mirror else "machine text")

    def _take_prompt(self, payload: dict[str, Any]) -> Iterator[Item]:
        blocks = as_blocks(payload.get("content"))
        kinds = _is_passed_through(payload).get("content_item_kinds")
        if isinstance(kinds, list):
            own = [str(kind).startswith("user.") for kind in kinds]
            blocks = [block for block, is_own in zip(blocks, own, strict=False) if is_own]
        text = _human_text(join_texts(describe_block(block) for block in blocks))
        if not text:
            yield Left("machine text")
            return
        is_delegated = self._facts.kind is Kind.SUBAGENT
        if not is_delegated:
            text = self._private.remove(text).strip()
            self._is_hidden = not text
        message = Message(Role.USER, shorten(text, MOST_CHARS))
        yield from self._say(payload, message, Origin.SYNTHETIC if is_delegated else Origin.PERSON)

    def _take_output(self, payload: dict[str, Any]) -> Iterator[Item]:
        call_id = str(payload.get("call_id") or "")
        name = self._calls.get(call_id)
        output = payload.get("output")
        if isinstance(output, dict):
            output = output.get("content") or output.get("content_items")
        text = OUR_RESULT if is_our_tool(name) else clean_result(result_text(output))
        yield from self._say(payload, Message(Role.TOOL, text, tool_call_id=call_id, tool_name=name), Origin.TOOL)

    def _say(self, payload: dict[str, Any], message: Message, origin: Origin) -> Iterator[Item]:
        self._number += 1
        is_person = origin is Origin.PERSON
        if (is_person and not message.text) or (not is_person and (self._private.is_open or self._is_hidden)):
            yield Left("private")
            return
        if not self._is_told:
            self._is_told = True
            yield self._facts
        yield Said(
            self._thread,
            self._external_id(payload, message),
            message,
            self._last,
            origin,
            turn=(as_text(_is_passed_through(payload).get("turn_id")) or self._turn) if is_person else None,
        )

    def _external_id(self, payload: dict[str, Any], message: Message) -> str:
        """Return an id that copies of the row share: that of the item in its turn, or its place in the history.

        Some servers number every item and call alike, so the content is part of it.
        """
        whole = f"{message.role.value}\0{message.text}\0{message.tool_calls}"
        digest = hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        turn = as_text(_is_passed_through(payload).get("turn_id"))
        own = as_text(payload.get("id")) or as_text(payload.get("call_id"))
        if turn is not None and own is not None:
            return f"{turn}:{own}:{digest}"
        return f"{self._lineage}:{self._number}:{digest}"


def _open_envelope(row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type and the content of a row of any generation."""
    payload = row.get("payload")
    if isinstance(payload, dict):
        return str(row.get("type") or ""), payload
    if row.get("type") in _ITEMS:
        return "response_item", row
    if "id" in row and "timestamp" in row and "type" not in row:
        return "session_meta", row
    return "", row


def _human_text(whole: str) -> str:
    text = whole
    if text.lstrip().startswith(_IDE_START):
        _, found, request = text.partition(_IDE_REQUEST)
        text = request if found else ""
    if starts_with_any(text, _MACHINE_TEXTS):
        return ""
    text = remove_machine_blocks(text).strip()
    return "" if starts_with_any(text, _MACHINE_TEXTS) else text


def _is_passed_through(payload: dict[str, Any]) -> dict[str, Any]:
    found = payload.get(_PASSED_THROUGH)
    return found if isinstance(found, dict) else {}


def _find(value: Any, name: str, depth: int = 4) -> str | None:
    """Return the text under `name` at any depth."""
    if not isinstance(value, dict) or depth == 0:
        return None
    return as_text(value.get(name)) or next(
        (hit for one in value.values() if (hit := _find(one, name, depth - 1))), None
    )


def _find_counts(info: Any, name: str) -> dict[str, int]:
    counts = info.get(name) if isinstance(info, dict) else None
    if not isinstance(counts, dict):
        return {}
    return {str(key): value for key, value in counts.items() if isinstance(value, int) and value >= 0}


_THREAD = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FACTS_FILE = "state_5.sqlite"
_THREAD_ITEMS = """SELECT rowid, thread_id, turn_id, item_id, created_at_ms, item_json FROM thread_items
    WHERE rowid > :after ORDER BY thread_id, rollout_ordinal"""


class CodexHistoryReading(Reading):
    """Reads rows; the position is the number of the newest row that was read."""

    def __init__(self, path: Path, position: Position) -> None:
        open_own(path).close()
        self._path = path
        self._after = self._newest = position.offset
        names = (
            one.name
            for folder in ("sessions", "archived_sessions")
            for one in path.parent.glob(f"{folder}/**/rollout-*")
        )
        self._with_rollout = {thread for name in names for thread in _THREAD.findall(name)}
        self._private = PrivateSpans()

    def __iter__(self) -> Iterator[Item]:
        """Yield the items of every thread that has no rollout any more."""
        try:
            with open_copy(self._path) as tables:
                yield from self._read(tables)
        except StorageError as error:
            raise Unusable(error.message, error.remedy) from error

    def _read(self, tables: ForeignTables) -> Iterator[Item]:
        if not {"thread_id", "turn_id", "item_json"} <= tables.columns("thread_items"):
            raise Unusable(f"{str(self._path)!r} has no items that can be read", "give the folder of Codex")
        facts = self._read_facts()
        newest, current = self._after, None
        for number, thread, turn, name, created, text in tables.rows(_THREAD_ITEMS, {"after": self._after}):
            newest = max(newest, number)
            if thread in self._with_rollout:
                continue
            if thread != current:
                current = thread
                self._private = PrivateSpans()
                yield facts.get(thread) or Conversation(thread)
            try:
                yield from self._take(json.loads(text), thread, f"{turn}:{name}", created / 1_000)
            except UNEXPECTED:
                yield unknown()
        self._newest = newest

    def _take(self, item: dict[str, Any], thread: str, name: str, moment: float) -> Iterator[Item]:
        match item.get("type"):
            case "userMessage":
                whole = join_texts(describe_block(block) for block in as_blocks(item.get("content")))
                text = shorten(self._private.remove(remove_machine_blocks(whole)).strip(), MOST_CHARS)
                said, origin = Message(Role.USER, text), Origin.PERSON
            case "agentMessage":
                said, origin = Message(Role.ASSISTANT, clean_answer(str(item.get("text") or ""))), Origin.MODEL
            case "commandExecution":
                call = ToolCall(name, "exec_command", clean_arguments({"cmd": item.get("command")}))
                yield Said(thread, name, Message(Role.ASSISTANT, "", (call,)), moment, Origin.MODEL)
                output = clean_result(as_text(item.get("aggregatedOutput")) or "")
                said, origin = Message(Role.TOOL, output, tool_call_id=name, tool_name=call.name), Origin.TOOL
                name = f"{name}:output"
            case _:
                yield Left("no message")
                return
        is_private = self._private.is_open and origin is not Origin.PERSON
        if said.text and not is_private:
            yield Said(thread, name, said, moment, origin)
        else:
            yield Left("private" if is_private or origin is Origin.PERSON else "empty")

    def _read_facts(self) -> dict[str, Conversation]:
        """Return folder and model of each thread, from the database beside this one."""
        place = self._path.with_name(_FACTS_FILE)
        try:
            open_own(place).close()
            with open_copy(place) as tables:
                rows = list(tables.rows("SELECT id, cwd, model, source FROM threads"))
        except (Unusable, StorageError):
            return {}
        return {
            thread: Conversation(
                thread,
                Kind.HEADLESS if source == "exec" else Kind.SUBAGENT if str(source).startswith("{") else Kind.PERSON,
                folder=as_text(folder),
                model=as_text(model),
            )
            for thread, folder, model, source in rows
        }

    def position(self) -> Position:
        """Return the newest row that was read whole."""
        return Position(self._newest)

    def close(self) -> None:
        """Do nothing: the copy is removed when it has been read."""


_TITLES_BYTES = 2_000_000
_ENDINGS = (".jsonl", ".jsonl.zst", ".json")
"""Of rollouts: JSONL, the same after a week without use, and one JSON object as the first versions wrote it."""


class Codex(Source):
    """Finds and reads the rollouts of Codex; threads of sub-agents are rollouts like all others."""

    client = "codex"

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the folder of Codex."""
        chosen = environ.get("CODEX_HOME")
        return [Path(chosen) if chosen else Path(environ.get("HOME") or "~").expanduser() / ".codex"]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return every rollout below a folder, the oldest first by their names, then the database of items."""
        if root.is_file():
            return [root]
        folders = [root / name for name in ("sessions", "archived_sessions")]
        bases = [folder for folder in folders if folder.is_dir()] or [root]
        found = [path for base in bases for path in base.rglob("rollout-*") if path.name.endswith(_ENDINGS)]
        return [*sorted(found, key=lambda path: path.name), *sorted(root.glob("thread_history_*.sqlite"))]

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield AGENTS.md and memories of the person and of each project, and the skills."""
        from wellkept.formats.agent_files import list_codex_assets

        del request
        return list_codex_assets(root) if root.is_dir() else iter(())

    def open(self, path: Path, position: Position) -> Reading:
        """Open a rollout of any generation; a compressed one is unpacked into a temporary file."""
        if path.suffix == ".sqlite":
            return CodexHistoryReading(path, position)
        titles = _read_titles(path)
        if path.suffix == ".json":
            return WholeReading(path, position, lambda value: _read_whole(value, RolloutParser({}, titles)))
        return JsonlReading(path, position, lambda state: RolloutParser(state, titles))


def _read_whole(value: Any, parser: RolloutParser) -> Iterator[Item]:
    """Yield the items of a rollout of early 2025: one object, whose items have the time at which the session began."""
    for row in [value["session"], *value["items"]]:
        yield from read_row(lambda one: parser.take(one, 0), row, "row")


def _read_titles(path: Path) -> dict[str, str]:
    """Return the names of threads, which rollouts do not hold; the last line of a thread wins."""
    titles: dict[str, str] = {}
    folder = next((parent for parent in path.parents if parent.name in {"sessions", "archived_sessions"}), None)
    if folder is None:
        return titles
    try:
        data = load_bytes(folder.parent / "session_index.jsonl")[-_TITLES_BYTES:]
    except OSError:
        return titles
    for line in data.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("thread_name"), str) and row["thread_name"]:
            titles[str(row.get("id"))] = row["thread_name"]
    return titles

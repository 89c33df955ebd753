"""Copilot CLI's sessions: a JSONL file of events per session; before that a JSON file with the messages of an API."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wellkept.core.clock import from_program
from wellkept.core.messages import Usage
from wellkept.core.text import JSON, dumps
from wellkept.formats.agent_files import list_skills, read_memory
from wellkept.formats.json_files import JsonlReading, RowParser, WholeReading, modification_time, read_row
from wellkept.formats.messages import (
    Speech,
    as_blocks,
    as_count,
    as_objects,
    as_text,
    describe_block,
    join_texts,
    name_unknown,
    result_text,
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
    Source,
    Spent,
    unknown,
)
from wellkept.memory.page import Target

_WITHOUT_MESSAGES = frozenset(
    (
        "abort", "assistant.idle", "assistant.intent", "assistant.message_delta", "assistant.message_start",
        "assistant.reasoning", "assistant.reasoning_delta", "assistant.streaming_delta", "assistant.turn_end",
        "assistant.turn_start", "assistant.usage", "tool.execution_partial_result", "tool.execution_progress",
        "tool.execution_start", "tool.user_requested",
    )
)  # fmt: skip
"""Events of a turn whose texts are in its messages as well."""
_CLIENT_FAMILIES = frozenset(
    (
        "capabilities", "command", "commands", "elicitation", "exit_plan_mode", "external_tool", "hook", "mcp",
        "pending_messages", "permission", "sampling", "session", "skill", "subagent", "system", "user_input",
    )
)  # fmt: skip
"""The first words of events about the session and the client."""


class Copilot(Source):
    """Finds and reads the sessions of Copilot CLI; the events of sub-agents are in the file of their session."""

    client = "copilot"

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the folder of the program."""
        folder = environ.get("COPILOT_HOME") or f"{environ.get('HOME') or '~'}/.copilot"
        return [Path(folder).expanduser()]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return the sessions of both generations, the oldest first."""
        if root.is_file():
            return [root]
        base = root / "session-state" if (root / "session-state").is_dir() else root
        events = [*base.rglob("events.jsonl"), *base.glob("*.jsonl")]
        older = (root / "history-session-state").glob("*.json")
        return sorted({*events, *older}, key=lambda path: (modification_time(path), str(path)))

    def open(self, path: Path, position: Position) -> Reading:
        """Open a session."""
        if path.suffix == ".json":
            return WholeReading(path, position, lambda value: _read_messages(value, path.stem))
        name = path.parent.name if path.name == "events.jsonl" else path.stem
        return JsonlReading(path, position, lambda state: _Parser(state, name))

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield the instructions of the person, and the skills."""
        del request
        if root.is_dir():
            yield from read_memory(root / "copilot-instructions.md", "copilot-instructions.md", Target.MEMORY)
            yield from list_skills(root / "skills")


class _Parser(RowParser):
    """Parses the events of a session and of its sub-agents."""

    def __init__(self, state: Mapping[str, Any], session: str) -> None:
        self._session = as_text(state.get("session")) or session
        self._folder = as_text(state.get("folder"))
        self._model = as_text(state.get("model"))
        self._branch = as_text(state.get("branch"))
        self._agents: dict[str, str] = dict(state.get("agents") or {})
        """The names of sub-agents by the calls that started them."""
        self._speeches: dict[str, Speech] = {}
        self._states: Mapping[str, Any] = state.get("speeches") or {}
        self._told: dict[str, Conversation] = {}

    def state(self) -> Mapping[str, JSON]:
        """Return the facts of the session, and what each of its agents said last."""
        spoken = {name: speech.state() for name, speech in self._speeches.items()}
        return {
            "session": self._session,
            "folder": self._folder,
            "model": self._model,
            "branch": self._branch,
            "agents": dict(self._agents),
            "speeches": {**self._states, **spoken},
        }

    def take(self, row: dict[str, Any], start: int) -> Iterator[Item]:
        """Yield what an event says."""
        del start
        kind, data = row.get("type"), row.get("data")
        if not isinstance(kind, str) or not isinstance(data, dict):
            yield unknown(row)
            return
        agent = as_text(row.get("agentId")) or as_text(data.get("parentToolCallId"))
        match kind:
            case "user.message":
                yield from self._take_prompt(row, data, agent)
            case "assistant.message":
                yield from self._take_answer(row, data, agent)
            case "tool.execution_complete":
                result, error = data.get("result"), data.get("error")
                content = result.get("content") if isinstance(result, dict) else result
                if content is None and isinstance(error, dict):
                    content = error.get("message")
                speech, facts = self._open(agent)
                yield from facts
                call = as_text(data.get("toolCallId"))
                yield from speech.result(_name(row), result_text(content), _moment(row), call=call)
            case "session.usage_record":
                yield from self._take_usage(row, data)
            case _:
                self._learn(kind, data)
                is_known = kind in _WITHOUT_MESSAGES or kind.partition(".")[0] in _CLIENT_FAMILIES
                yield Left("no message") if is_known else unknown(row)

    def _learn(self, kind: str, data: Mapping[str, Any]) -> None:
        """Note the facts that an event without a message has."""
        context = data.get("context")
        if kind in {"session.start", "session.resume"}:
            self._session = as_text(data.get("sessionId")) or self._session
            self._model = as_text(data.get("selectedModel")) or self._model
            if isinstance(context, dict):
                self._folder = as_text(context.get("cwd")) or self._folder
                self._branch = as_text(context.get("branch")) or self._branch
        elif kind == "session.model_change":
            self._model = as_text(data.get("newModel")) or self._model
        elif kind == "subagent.started":
            name = as_text(data.get("agentDisplayName")) or as_text(data.get("agentName"))
            self._agents[str(data.get("toolCallId"))] = name or "sub-agent"

    def _open(self, agent: str | None) -> tuple[Speech, Iterator[Item]]:
        """Return the speech of the session or of a sub-agent, and its facts if they are new."""
        external = self._session if agent is None else f"{self._session}/{agent}"
        facts = Conversation(
            external,
            Kind.PERSON if agent is None else Kind.SUBAGENT,
            folder=self._folder,
            model=self._model,
            title=self._agents.get(agent or ""),
            parent=None if agent is None else self._session,
            metadata={"branch": self._branch} if self._branch else {},
        )
        if external not in self._speeches:
            state = self._states.get(external) or {}
            self._speeches[external] = Speech(external, state, is_delegate=agent is not None)
        fresh = [facts] if self._told.get(external) != facts else []
        self._told[external] = facts
        return self._speeches[external], iter(fresh)

    def _take_prompt(self, row: Mapping[str, Any], data: Mapping[str, Any], agent: str | None) -> Iterator[Item]:
        if data.get("source") not in {None, "", "user"}:
            yield Left("machine text")
            return
        blocks = as_blocks(data["content"])
        yield from name_unknown(blocks)
        files = [
            f"[file {name}]"
            for one in as_objects(data.get("attachments"))
            if (name := (as_text(one.get("displayName")) or as_text(one.get("path"))))
        ]
        speech, facts = self._open(agent)
        yield from facts
        text = join_texts((*map(describe_block, blocks), *files))
        yield from speech.prompt(_name(row), text, _moment(row), turn=as_text(data.get("interactionId")))

    def _take_answer(self, row: Mapping[str, Any], data: Mapping[str, Any], agent: str | None) -> Iterator[Item]:
        if agent is None:
            self._model = as_text(data.get("model")) or self._model
        speech, facts = self._open(agent)
        yield from facts
        speech.think(as_text(data.get("reasoningText")) or "")
        calls = [
            (str(call.get("toolCallId") or ""), str(call.get("name") or "tool"), call.get("arguments") or {})
            for call in as_objects(data.get("toolRequests"))
        ]
        blocks, tokens = as_blocks(data.get("content")), as_count(data, "outputTokens") or None
        yield from name_unknown(blocks)
        text = join_texts(map(describe_block, blocks))
        yield from speech.answer(_name(row), text, _moment(row), calls=calls, tokens=tokens)

    def _take_usage(self, row: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Item]:
        usage = data.get("usage")
        model = as_text(usage.get("model")) if isinstance(usage, dict) else None
        if not isinstance(usage, dict) or model is None:
            yield Left("no message")
            return
        cached, written = as_count(usage, "cacheReadTokens"), as_count(usage, "cacheWriteTokens")
        fresh = max(0, as_count(usage, "inputTokens") - cached - written)
        _, facts = self._open(None)
        yield from facts
        spent = Usage(fresh, as_count(usage, "outputTokens"), cached, written)
        yield Spent(self._session, _name(row), model, spent, _moment(row) or 0.0)


def _name(row: Mapping[str, Any]) -> str:
    """Return the id of an event; a fork copies events with their ids."""
    return str(row["id"])


def _moment(row: Mapping[str, Any]) -> float | None:
    return from_program(row.get("timestamp"))


def _read_messages(value: Any, name: str) -> Iterator[Item]:
    """Yield a session of 2025: its messages as an API had them, which have neither ids nor times."""
    facts = Conversation(
        as_text(value.get("sessionId")) or name, model=as_text(value.get("selectedModel")), is_tree=True
    )
    start = from_program(value.get("startTime"))
    speech, last = Speech(facts.external_id), facts.external_id

    def take(message: dict[str, Any]) -> Iterator[Item]:
        nonlocal last
        # ids derive from the previous id and the content, so that copies have the same
        digest = hashlib.blake2b(f"{last}\0{dumps(message)}".encode("utf-8", "surrogatepass"), digest_size=12)
        last = digest.hexdigest()
        blocks = as_blocks(message.get("content"))
        yield from name_unknown(blocks)
        text = join_texts(map(describe_block, blocks))
        match message.get("role"):
            case "user":
                yield from speech.prompt(last, text, start)
            case "assistant":
                yield from speech.answer(last, text, start, calls=[*_read_calls(message)])
            case "tool":
                yield from speech.result(last, text, start, call=as_text(message.get("tool_call_id")))
            case "system" | "developer":
                yield Left("machine text")
            case _:
                yield unknown(message, "message")

    yield facts
    for message in value["chatMessages"]:
        yield from read_row(take, message)


def _read_calls(message: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for call in as_objects(message.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, dict):
            yield str(call.get("id") or ""), str(function.get("name") or "tool"), function.get("arguments") or {}

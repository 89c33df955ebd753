"""Claude Code's transcripts: a JSONL file per session and sub-agent, one row per content block."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.clock import from_program
from wellkept.core.messages import Message, Origin, Role, ToolCall, Usage
from wellkept.core.regular_files import load_text
from wellkept.core.text import JSON
from wellkept.formats.json_files import JsonlReading, RowParser, modification_time
from wellkept.formats.messages import (
    MOST_CHARS,
    MOST_TOOL_CHARS,
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
    name_unknown,
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
    unknown,
)

_MACHINE_TEXTS = (
    "Caveat: The messages below",
    "[Request interrupted by user",
    "Stop hook feedback",
    "This session is being continued from a previous conversation",
    "<task-notification",
    "<command-stdout",
)
_MACHINE_SOURCES = frozenset(("system", "loop_wakeup", "schedule_wakeup", "poll_event", "hook", "cron"))
_COMMAND = re.compile(r"<command-name>\s*(/?[^<]{1,200}?)\s*</command-name>")
_COMMAND_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_SHELL = re.compile(r"<bash-input>(.*?)</bash-input>", re.DOTALL)
_WITHOUT_MESSAGES = frozenset(
    (
        "agent-color", "agent-name", "agent-setting", "attribution-snapshot", "bridge-session", "content-replacement",
        "continued-in", "cost-state", "file-history-delta", "file-history-snapshot", "fork-context-ref", "frame-link",
        "last-prompt", "marble-origami-commit", "marble-origami-snapshot", "mode", "permission-mode", "pr-link",
        "progress", "queue-operation", "relocated", "result", "started", "summary", "system", "tag", "worktree-state",
    )
)  # fmt: skip
"""Rows about the session and its files; their texts are copies, or of the client."""
_TOOLS_REMEMBERED = 64
"""Calls whose results may still come; a call and its result are close together."""


class ClaudeCode(Source):
    """Finds and reads the transcripts of Claude Code."""

    client = "claude-code"

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the folders of projects."""
        home = Path(environ.get("HOME") or "~").expanduser()
        chosen = environ.get("CLAUDE_CONFIG_DIR")
        folders = [Path(chosen)] if chosen else [home / ".claude", home / ".config" / "claude"]
        return [folder / "projects" for folder in folders]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return every transcript below a folder, sessions before their sub-agents, the oldest first."""
        if root.is_file():
            return [root]
        base = root / "projects" if (root / "projects").is_dir() else root
        transcripts = [path for path in base.rglob("*.jsonl") if path.name not in {"history.jsonl", "journal.jsonl"}]
        return sorted(transcripts, key=lambda path: (path.name.startswith("agent-"), modification_time(path)))

    def list_related(self, path: Path) -> list[Path]:
        """Return the transcripts of the session's sub-agents."""
        if path.name.startswith("agent-"):
            return []
        return sorted(path.with_suffix("").glob("subagents/**/agent-*.jsonl"), key=modification_time)

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield CLAUDE.md, rules and memories of the person and of each project, and the skills."""
        from wellkept.formats.agent_files import list_claude_assets

        del request
        return list_claude_assets(root) if root.is_dir() else iter(())

    def open(self, path: Path, position: Position) -> Reading:
        """Open a transcript."""
        purpose = _read_purpose(path) if path.name.startswith("agent-") else None
        return JsonlReading(path, position, lambda state: _Parser(state, purpose=purpose))


def _read_purpose(path: Path) -> str | None:
    """Return what a sub-agent was asked for, from the file beside its transcript."""
    place = path.with_suffix(".meta.json")
    try:
        value = json.loads(load_text(place))
    except (FileNotFoundError, PermissionError, IsADirectoryError, ValueError):
        return None
    except OSError as error:  # it may pass: the next import reads the whole conversation
        raise Unusable(f"cannot read {str(place)!r}: {error.strerror}", "import again") from error
    return as_text(value.get("description")) if isinstance(value, dict) else None


class _Answer(Struct):
    """The rows of one assistant message so far."""

    conversation: str
    message_id: str
    uuid: str
    start: int
    timestamp: float
    model: str | None
    blocks: list[dict[str, Any]]
    usage: dict[str, Any]
    is_finished: bool = False


class _Parser(RowParser):
    """Parses the rows of a transcript."""

    def __init__(self, state: Mapping[str, Any], *, purpose: str | None) -> None:
        self.held: int | None = None
        self._purpose = purpose
        self._answer: _Answer | None = None
        self._tools: dict[str, str] = dict(state.get("tools") or {})
        self._titles: dict[str, str] = dict(state.get("titles") or {})
        self._last = float(state.get("last") or 0.0)
        self._private = PrivateSpans(is_open=bool(state.get("private")))
        self._is_hidden = bool(state.get("hidden"))
        """Whether the last prompt was private as a whole; its answer is then left out as well."""
        self._yielded: dict[str, Conversation] = {}

    def state(self) -> Mapping[str, JSON]:
        """Return the names of recent tool calls, titles, and whether a private span is open."""
        recent = dict(list(self._tools.items())[-_TOOLS_REMEMBERED:])
        state: dict[str, JSON] = {
            "tools": recent,
            "titles": self._titles,
            "last": self._last,
            "private": self._private.is_open,
            "hidden": self._is_hidden,
        }
        return {key: value for key, value in state.items() if value}

    def take(self, row: dict[str, Any], start: int) -> Iterator[Item]:
        """Yield what a row completes."""
        kind = row.get("type")
        if kind == "assistant":
            yield from self._take_answer(row, start)
            return
        if kind in {"user", "attachment"}:
            yield from self.flush()
            yield from self._take_user(row) if kind == "user" else self._take_attachment(row)
        elif kind in {"ai-title", "custom-title"}:
            yield from self._take_title(row, is_custom=kind == "custom-title")
        else:
            yield Left("no message") if kind in _WITHOUT_MESSAGES else unknown(row)

    # assistant rows

    def _take_answer(self, row: dict[str, Any], start: int) -> Iterator[Item]:
        message = row.get("message")
        if not isinstance(message, dict) or message.get("model") == "<synthetic>" or row.get("isApiErrorMessage"):
            yield from self.flush()
            yield Left("client text")
            return
        conversation = self._describe(row, model=as_text(message.get("model")))
        message_id = str(message.get("id") or row.get("uuid"))
        open_one = self._answer
        if open_one is None or (open_one.message_id, open_one.conversation) != (message_id, conversation.external_id):
            yield from self.flush()
            yield from self._yield_changed(conversation)
            uuid = str(row.get("uuid") or message_id)
            self._answer = open_one = _Answer(
                conversation.external_id, message_id, uuid, start, self._moment(row), conversation.model, [], {}
            )
            self.held = start
        blocks = as_blocks(message.get("content"))
        yield from name_unknown(blocks)
        open_one.blocks += blocks
        open_one.usage = message.get("usage") or open_one.usage
        open_one.is_finished = open_one.is_finished or bool(message.get("stop_reason"))

    def flush(self) -> Iterator[Item]:
        """Yield the assistant message so far."""
        answer, self._answer, self.held = self._answer, None, None
        if answer is None:
            return
        if self._private.is_open or self._is_hidden:
            yield Left("private")
            return
        message = self._assemble(answer.blocks)
        if not message.content and not message.tool_calls:
            yield Left("empty")
        else:
            tokens = answer.usage.get("output_tokens")
            yield Said(
                answer.conversation,
                answer.uuid,
                message,
                answer.timestamp,
                Origin.MODEL,
                token_count=tokens if isinstance(tokens, int) else None,
            )
        if answer.is_finished and answer.model and answer.usage:
            spent = _usage(answer.usage)
            yield Spent(answer.conversation, answer.message_id, answer.model, spent, answer.timestamp)

    def _assemble(self, blocks: list[dict[str, Any]]) -> Message:
        texts, thoughts = [], []
        calls: dict[str, ToolCall] = {}
        for block in blocks:
            match block.get("type"):
                case "thinking":
                    thoughts.append(str(block.get("thinking") or ""))
                case "tool_use" | "server_tool_use":
                    call_id, name = str(block.get("id") or ""), str(block.get("name") or "tool")
                    calls[call_id] = ToolCall(call_id, name, clean_arguments(block.get("input") or {}))
                    self._tools[call_id] = name
                case _:
                    texts.append(describe_block(block))
        return Message(
            Role.ASSISTANT,
            clean_answer(join_texts(texts)),
            tool_calls=tuple(calls.values()),
            reasoning=shorten(clean_answer(join_texts(thoughts)), MOST_TOOL_CHARS) or None,
        )

    # user rows

    def _take_user(self, row: dict[str, Any]) -> Iterator[Item]:
        message = row.get("message")
        if not isinstance(message, dict):
            yield unknown(row)
            return
        blocks = as_blocks(message.get("content"))
        yield from name_unknown(blocks)
        conversation = self._describe(row)
        if any(block.get("type") == "tool_result" for block in blocks):
            yield from self._take_results(row, blocks, conversation)
        elif row.get("isMeta") or row.get("isCompactSummary") or row.get("planContent") or not _is_human(row):
            yield Left("machine text")
        else:
            yield from self._take_prompt(row, blocks, conversation)

    def _take_prompt(
        self, row: dict[str, Any], blocks: list[dict[str, Any]], conversation: Conversation
    ) -> Iterator[Item]:
        whole = join_texts(describe_block(block) for block in blocks)
        text = _human_text(whole)
        if not text.strip():
            yield Left("machine text")
            return
        if conversation.kind is Kind.SUBAGENT:
            if text.strip() == "Warmup":
                yield Left("warm-up")
                return
        else:
            text = self._private.remove(text)
            self._is_hidden = not text.strip()
        if not text.strip():
            yield Left("private")
            return
        yield from self._yield_changed(conversation)
        yield Said(
            conversation.external_id,
            str(row.get("uuid") or ""),
            Message(Role.USER, shorten(text.strip(), MOST_CHARS)),
            self._moment(row),
            Origin.SYNTHETIC if conversation.kind is Kind.SUBAGENT else Origin.PERSON,
        )

    def _take_attachment(self, row: dict[str, Any]) -> Iterator[Item]:
        """Take a prompt that the person sent while the agent worked; all other attachments are machine context."""
        attachment = row.get("attachment")
        if not isinstance(attachment, dict) or attachment.get("type") != "queued_command":
            yield Left("machine context")
            return
        if attachment.get("commandMode") not in {None, "prompt"} or not (_is_human(row) and _is_human(attachment)):
            yield Left("machine text")
            return
        yield from self._take_prompt(row, as_blocks(attachment.get("prompt")), self._describe(row))

    def _take_results(
        self, row: dict[str, Any], blocks: list[dict[str, Any]], conversation: Conversation
    ) -> Iterator[Item]:
        if self._private.is_open or self._is_hidden:
            yield Left("private")
            return
        yield from self._yield_changed(conversation)
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for place, block in enumerate(results):
            call_id = str(block.get("tool_use_id") or "")
            name = self._tools.get(call_id)
            text = OUR_RESULT if is_our_tool(name) else clean_result(result_text(block.get("content")))
            number = f":{place}" if place else ""
            yield Said(
                conversation.external_id,
                f"{row.get('uuid')}{number}",
                Message(Role.TOOL, text, tool_call_id=call_id, tool_name=name),
                self._moment(row),
                Origin.TOOL,
            )

    # conversations

    def _describe(self, row: dict[str, Any], *, model: str | None = None) -> Conversation:
        session = str(row.get("sessionId") or "")
        agent = as_text(row.get("agentId"))
        is_side = bool(row.get("isSidechain") or agent)
        external = f"{session}/{agent or 'sidechain'}" if is_side else session
        before = self._yielded.get(external) or Conversation(external)
        kind = Kind.HEADLESS if str(row.get("entrypoint") or "").startswith("sdk") else before.kind
        facts: dict[str, JSON] = {
            "entrypoint": as_text(row.get("entrypoint")),
            "client_version": as_text(row.get("version")),
            "branch": as_text(row.get("gitBranch")),
        }
        return replace(
            before,
            kind=Kind.SUBAGENT if is_side else kind,
            folder=before.folder or as_text(row.get("cwd")),
            model=model or before.model,
            title=self._purpose if is_side else self._titles.get(external, before.title),
            parent=session if is_side else None,
            metadata=before.metadata or {key: value for key, value in facts.items() if value},
        )

    def _yield_changed(self, conversation: Conversation) -> Iterator[Item]:
        if self._yielded.get(conversation.external_id) != conversation:
            self._yielded[conversation.external_id] = conversation
            yield conversation

    def _take_title(self, row: dict[str, Any], *, is_custom: bool) -> Iterator[Item]:
        session = as_text(row.get("sessionId"))
        title = as_text(row.get("customTitle" if is_custom else "aiTitle"))
        if session is None or title is None or (not is_custom and self._titles.get(f"{session}:custom")):
            yield Left("no message")
            return
        self._titles[session] = title
        if is_custom:
            self._titles[f"{session}:custom"] = "1"
        yield from self._yield_changed(replace(self._yielded.get(session) or Conversation(session), title=title))

    def _moment(self, row: dict[str, Any]) -> float:
        moment = from_program(row.get("timestamp"))
        self._last = self._last if moment is None else moment
        return self._last


def _human_text(whole: str) -> str:
    """Return what the person typed; commands are written as they were typed."""
    command = _COMMAND.search(whole)
    if command is not None:
        arguments = _COMMAND_ARGUMENTS.search(whole)
        text = arguments[1].strip() if arguments else ""
        return f"{command[1]} {text}" if text else ""
    shell = _SHELL.search(whole)
    if shell is not None:
        return f"! {shell[1].strip()}"
    text = remove_machine_blocks(whole)
    return "" if starts_with_any(text, _MACHINE_TEXTS) else text


def _is_human(row: dict[str, Any]) -> bool:
    origin = row.get("origin")
    if isinstance(origin, dict) and origin.get("kind") not in {None, "human"}:
        return False
    return row.get("promptSource") not in _MACHINE_SOURCES and row.get("turnOrigin") not in _MACHINE_SOURCES


def _usage(usage: Mapping[str, Any]) -> Usage:
    def count(name: str) -> int:
        value = usage.get(name)
        return value if isinstance(value, int) and value > 0 else 0

    return Usage(
        count("input_tokens"),
        count("output_tokens"),
        count("cache_read_input_tokens"),
        count("cache_creation_input_tokens"),
    )

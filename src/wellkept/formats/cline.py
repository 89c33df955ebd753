"""Cline's history: a folder per task of the editor's extension, and a folder per session of its command line."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from wellkept.core.clock import from_program
from wellkept.core.messages import Usage
from wellkept.core.regular_files import load_text
from wellkept.core.text import dumps
from wellkept.formats.json_files import WholeReading, modification_time, read_row
from wellkept.formats.messages import (
    Speech,
    as_blocks,
    as_count,
    as_objects,
    as_text,
    join_texts,
    speak_answer,
    speak_prompt,
)
from wellkept.formats.port import Conversation, Item, Kind, Position, Reading, Source, Spent, unknown

_EXTENSION = "saoudrizwan.claude-dev"
_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
_SETTINGS = ((".config",), ("Library", "Application Support"), ("AppData", "Roaming"))
_HISTORY = "api_conversation_history.json"
_MESSAGES = ".messages.json"

_TYPED = re.compile(r"<(task|feedback|user_message|answer|user_input)\b[^>]*>(.*?)</\1>", re.DOTALL)
_ENVIRONMENT = re.compile(r"<environment_details>.*?(?:</environment_details>|\Z)", re.DOTALL)
_RESULT = re.compile(r"\A\s*\[(?P<name>[a-z_]+)[^\n]*\]\s+Result:\s*(?P<text>.*)\Z", re.DOTALL)
"""How a result follows a call that the model wrote as markup."""
_TOOLS = (
    "access_mcp_resource", "apply_diff", "browser_action", "execute_command", "list_code_definition_names",
    "list_files", "load_mcp_documentation", "new_rule", "new_task", "read_file", "replace_in_file",
    "search_files", "use_mcp_tool", "web_fetch", "write_to_file",
)  # fmt: skip
_SPOKEN = ("attempt_completion", "ask_followup_question", "plan_mode_respond", "condense", "thinking")
_CALL = re.compile(rf"<({'|'.join(_TOOLS)})>(.*?)</\1>", re.DOTALL)
_FIELD = re.compile(r"<(\w+)>(.*?)</\1>", re.DOTALL)
_SPOKEN_MARKUP = re.compile(rf"</?(?:{'|'.join(_SPOKEN)}|result|question|response|command|task_progress)>")
"""Markup around what the model says to the person."""


class Cline(Source):
    """Finds and reads the history of Cline; sub-agents have sessions of their own."""

    client = "cline"

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the folder of the command line, and those of the extension in each editor that has one."""
        home = Path(environ.get("HOME") or "~").expanduser()
        chosen = environ.get("CLINE_DATA_DIR") or f"{environ.get('CLINE_DIR') or home / '.cline'}/data"
        settings = [home.joinpath(*parts) for parts in _SETTINGS]
        folders = (base / editor / "User" / "globalStorage" / _EXTENSION for base in settings for editor in _EDITORS)
        return [Path(chosen).expanduser(), *(folder for folder in folders if folder.is_dir())]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return every task and session below a folder, the oldest first."""
        if root.is_file():
            return [root]
        transcripts = [*root.rglob(_HISTORY), *root.rglob(f"*{_MESSAGES}")]
        return sorted(transcripts, key=lambda path: (modification_time(path), str(path)))

    def open(self, path: Path, position: Position) -> Reading:
        """Open a task or a session."""
        read = _read_task if path.name == _HISTORY else _read_session
        return WholeReading(path, position, lambda value: read(value, path))


def _load(path: Path) -> Any:
    """Return the JSON value of a file beside a transcript, None if it cannot be read."""
    try:
        return json.loads(load_text(path))
    except (OSError, ValueError, RecursionError):
        return None


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# the command line


def _read_session(value: Any, path: Path) -> Iterator[Item]:
    """Yield a session of the command line; its messages have ids and times."""
    stem = path.name.removesuffix(_MESSAGES)
    about = _fields(_load(path.with_name(f"{stem}.json")))
    session, parent = as_text(value.get("sessionId")) or stem, as_text(about.get("parent_session_id"))
    is_delegate = bool(parent or about.get("is_subagent"))
    is_headless = about.get("interactive") is False and about.get("source") not in {"vscode", "jetbrains"}
    facts = Conversation(
        session,
        Kind.SUBAGENT if is_delegate else Kind.HEADLESS if is_headless else Kind.PERSON,
        folder=as_text(about.get("cwd")),
        model=as_text(about.get("model")),
        title=as_text(_fields(about.get("metadata")).get("title")),
        parent=parent,
    )
    speech = Speech(session, is_delegate=is_delegate)

    def take(message: dict[str, Any]) -> Iterator[Item]:
        name, moment = f"{session}:{message.get('id')}", from_program(message.get("ts"))
        blocks = [_as_text_block(block) for block in as_blocks(message["content"])]
        if message.get("role") == "user":
            yield from speak_prompt(
                speech, name, blocks, moment, find_words=lambda text: _find_typed(text, is_first=True)
            )
        elif message.get("role") == "assistant":
            yield from _speak(speech, name, blocks, moment, _fields(message.get("metrics")))
            metrics = _fields(message.get("metrics"))
            model = as_text(_fields(message.get("modelInfo")).get("id")) or facts.model
            counts = [
                as_count(metrics, key) for key in ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
            ]
            if model is not None and any(counts):
                yield Spent(facts.external_id, name, model, Usage(*counts), moment or 0.0)
        else:
            yield unknown(message, "message")

    yield facts
    for message in value["messages"]:
        yield from read_row(take, message)


def _as_text_block(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block in the form of the API: a file that the person named by its name, a result as one text."""
    if block.get("type") == "file" and isinstance(block.get("content"), str):
        return {"type": "text", "text": f"[file {block.get('path') or ''}]"}
    if block.get("type") == "tool_result":
        parts = [as_text(one.get("result")) or as_text(one.get("error")) for one in as_objects(block.get("content"))]
        return {**block, "content": join_texts(part for part in parts if part)} if any(parts) else block
    return block


def _speak(
    speech: Speech, name: str, blocks: Sequence[dict[str, Any]], moment: float | None, metrics: Mapping[str, Any]
) -> Iterator[Item]:
    yield from speak_answer(speech, name, blocks, moment, tokens=as_count(metrics, "outputTokens") or None)


# the extension


def _read_task(value: Any, path: Path) -> Iterator[Item]:
    """Yield a task of the extension: a list of messages without ids, times are in a file beside it."""
    task = path.parent.name
    listed = _load(path.parent.parents[1] / "state" / "taskHistory.json") if len(path.parent.parents) > 1 else None
    about = next((one for one in as_objects(listed) if str(one.get("id")) == path.parent.name), {})
    folder, model = as_text(about.get("cwdOnTaskInitialization")), as_text(about.get("modelId"))
    facts = Conversation(task, folder=folder, model=model, title=_first_line(about.get("task")), is_tree=True)
    speech, last = Speech(task), task
    times = _read_times(path.with_name("ui_messages.json"))
    began = int(task) / 1_000 if task.isdecimal() else modification_time(path)
    speech.at(began)

    def take(message: dict[str, Any], place: int) -> Iterator[Item]:
        nonlocal last
        blocks = as_blocks(message["content"])
        # ids derive from the previous id and the content, so that copies of a task have the same
        content = dumps([message.get("role"), [_without_environment(block) for block in blocks]])
        last = hashlib.blake2b(f"{last}\0{content}".encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        moment = from_program(message.get("ts")) or times.get(place)
        if message.get("role") == "user":
            yield from _take_user(speech, last, blocks, moment, is_first=place == 0)
        elif message.get("role") == "assistant":
            yield from _speak(speech, last, _parse_calls(blocks, last), moment, _fields(message.get("metrics")))
        else:
            yield unknown(message, "message")

    yield facts
    for place, message in enumerate(value):
        yield from read_row(partial(take, place=place), message)


def _take_user(
    speech: Speech, name: str, blocks: Sequence[dict[str, Any]], moment: float | None, *, is_first: bool
) -> Iterator[Item]:
    """Yield the results of calls that were markup, then the rest of a user message."""
    for place, (tool, text) in enumerate(_find_results(blocks)):
        yield from speech.result(f"{name}:{place}", text, moment, name=tool)
    yield from speak_prompt(speech, name, blocks, moment, find_words=lambda text: _find_typed(text, is_first=is_first))


def _find_results(blocks: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the tools whose results a user message holds as text, each with the result: it may be the next block."""
    found: list[tuple[str, list[str]]] = []
    for block in blocks:
        text = _ENVIRONMENT.sub("", as_text(block.get("text")) or "") if block.get("type") == "text" else ""
        begun = _RESULT.match(text)
        if begun is not None:
            found.append((begun["name"], [begun["text"]]))
        elif found:
            found[-1][1].append(text)
    results = [(tool, _TYPED.sub("", join_texts(texts)).strip()) for tool, texts in found]
    return [(tool, text) for tool, text in results if tool not in _SPOKEN]


def _find_typed(text: str, *, is_first: bool) -> str:
    """Return what the person typed: what is marked so, or a first message, which has no markup."""
    typed = [words for _, words in _TYPED.findall(text)]
    return join_texts(typed) if typed or not is_first else _ENVIRONMENT.sub("", text)


def _parse_calls(blocks: Sequence[dict[str, Any]], message: str) -> list[dict[str, Any]]:
    """Return the blocks of an answer, with the calls that the model wrote as markup as blocks of their own."""
    found: list[dict[str, Any]] = []
    for place, block in enumerate(blocks):
        text = as_text(block.get("text")) if block.get("type") == "text" else None
        if text is None:
            found.append(block)
            continue
        calls = [
            {
                "type": "tool_use",
                "id": f"{message}:{place}:{number}",
                "name": call[1],
                "input": {key: content.strip() for key, content in _FIELD.findall(call[2])},
            }
            for number, call in enumerate(_CALL.finditer(text))
        ]
        words = _CALL.sub("", text).strip()
        if any(f"<{name}>" in words for name in _SPOKEN):
            words = _SPOKEN_MARKUP.sub("", words).strip()
        found += [{"type": "text", "text": words}, *calls] if words else calls
    return found


def _without_environment(block: dict[str, Any]) -> dict[str, Any]:
    text = block.get("text")
    return {**block, "text": _ENVIRONMENT.sub("", text)} if isinstance(text, str) else block


def _read_times(path: Path) -> dict[int, float]:
    """Return when each message of a task was written: the events that the editor shows name the message before them."""
    times: dict[int, float] = {}
    for event in as_objects(_load(path)):
        place, moment = event.get("conversationHistoryIndex"), from_program(event.get("ts"))
        if isinstance(place, int) and moment is not None:
            times.setdefault(place + 1, moment)
    return times


def _first_line(text: Any) -> str | None:
    lines = text.strip().splitlines() if isinstance(text, str) else []
    return lines[0][:120] if lines else None

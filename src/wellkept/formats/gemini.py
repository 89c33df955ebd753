"""Gemini CLI's history: a JSONL file per session, appended to as messages grow; in older versions one JSON file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from wellkept.core.clock import from_program
from wellkept.core.messages import Usage
from wellkept.core.text import JSON
from wellkept.formats.exports import open_conversations
from wellkept.formats.json_files import JsonlReading, RowParser, modification_time, open_own, read_row
from wellkept.formats.messages import Speech, as_count, as_objects, as_text, describe_block, join_texts, result_text
from wellkept.formats.port import (
    Asset,
    Conversation,
    Item,
    Kind,
    Left,
    MemoryFile,
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
from wellkept.memory.page import Target

_PARTS = frozenset(
    (
        "text", "thought", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode",
        "codeExecutionResult",
    )
)  # fmt: skip
_NOTES = frozenset(("info", "warning", "error"))
"""Rows that the client only displays; nobody said them."""
_REFERENCED = "--- Content from referenced files ---"
_PROMPTS_REMEMBERED = 500
_MOST_PAGE_BYTES = 1_000_000


class Gemini(Source):
    """Finds and reads the history of Gemini CLI."""

    client = "gemini"

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the folder of Gemini CLI."""
        chosen = environ.get("GEMINI_CLI_HOME") or environ.get("HOME") or "~"
        return [Path(chosen).expanduser() / ".gemini"]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return the files of all projects, sessions before their sub-agents, the oldest first."""
        if root.is_file():
            return [root]
        transcripts = [path for path in root.rglob("*.json*") if _is_chat(path)]
        return sorted(transcripts, key=lambda path: (path.parent.name != "chats", modification_time(path)))

    def list_related(self, path: Path) -> list[Path]:
        """Return the files of the session's sub-agents: a folder beside it with the session's id."""
        short = path.stem.rpartition("-")[2]
        folders = [place for place in path.parent.glob(f"{short}*") if place.is_dir()] if len(short) >= 8 else []
        return sorted((one for place in folders for one in place.glob("*.jsonl")), key=modification_time)

    def open(self, path: Path, position: Position) -> Reading:
        """Open a session."""
        folder = _find_folder(path)
        parent = None if path.parent.name == "chats" else path.parent.name
        if path.suffix == ".json":
            return open_conversations(path, position, r".*\.json", lambda _files: _Whole(folder).read)
        return JsonlReading(path, position, lambda state: _Parser(state, folder=folder, parent=parent))

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield what Gemini CLI reads at the start of a session: its own page, and those of the projects it knows."""
        del request
        if not root.is_dir():
            return
        yield from _list_page(root / "GEMINI.md", "GEMINI.md", Target.MEMORY, None)
        for folder in sorted((root / "tmp").glob("*")):
            project = _read_text(folder / ".project_root")
            if not project:
                continue
            page = Path(project) / "GEMINI.md"
            yield from _list_page(page, str(page), Target.PROJECT, project)
            for memory in sorted((folder / "memory").glob("*.md")):
                yield from _list_page(memory, str(memory.relative_to(root)), Target.PROJECT, project)


def _is_chat(path: Path) -> bool:
    is_session = path.parent.name == "chats" and path.name.startswith("session-")
    return path.suffix in {".json", ".jsonl"} and (is_session or path.parent.parent.name == "chats")


def _find_folder(path: Path) -> str | None:
    """Return the working folder: a file beside `chats` names it, since the name of that folder may be a hash."""
    for parent in list(path.parents)[:3]:
        folder = _read_text(parent / ".project_root")
        if folder:
            return folder
    return None


def _read_text(path: Path) -> str:
    try:
        with open_own(path) as file:
            return file.read(_MOST_PAGE_BYTES).decode("utf-8", "replace").strip()
    except (Unusable, OSError):
        return ""


def _list_page(path: Path, name: str, target: Target, folder: str | None) -> Iterator[Asset]:
    text = _read_text(path)
    if text:
        yield MemoryFile(name, target, text=text, folder=folder)


class _Messages:
    """Turns messages into items; the two forms of files have the same messages."""

    def __init__(self, facts: Conversation, state: Mapping[str, Any]) -> None:
        self.facts = facts
        self._told: Conversation | None = None
        self._speech = Speech(facts.external_id, state, is_delegate=facts.kind is Kind.SUBAGENT)

    def state(self) -> dict[str, JSON]:
        return self._speech.state()

    def take(self, message: Mapping[str, Any]) -> Iterator[Item]:
        """Yield a message, with the conversation whenever a fact of it has changed."""
        name, kind = as_text(message.get("id")), message.get("type")
        if kind in _NOTES:
            yield Left("client text")
        elif name is None or kind not in {"user", "gemini"}:
            yield unknown(message)
        else:
            if model := as_text(message.get("model")):
                self.facts = replace(self.facts, model=model)
            if self._told != self.facts:
                self._told = self.facts
                yield self.facts
            moment = from_program(message.get("timestamp"))
            yield from (
                self._take_prompt(name, message, moment) if kind == "user" else self._take_answer(name, message, moment)
            )

    def _take_prompt(self, name: str, message: Mapping[str, Any], moment: float | None) -> Iterator[Item]:
        parts = _parts(message.get("displayContent") or message.get("content"))
        if any("functionResponse" in part for part in parts):
            yield Left("copy of a tool result")
            return
        yield from _name_unknown(parts)
        text = join_texts(_describe(part) for part in parts)
        if text.lstrip().startswith(("/", "?")):
            yield Left("command")
            return
        yield from self._speech.prompt(name, text, moment, turn=name)

    def _take_answer(self, name: str, message: Mapping[str, Any], moment: float | None) -> Iterator[Item]:
        for thought in as_objects(message.get("thoughts")):
            self._speech.think(f"{thought.get('subject') or ''}\n{thought.get('description') or ''}")
        parts = _parts(message.get("content"))
        yield from _name_unknown(parts)
        text = "".join(_describe(part) for part in parts if not part.get("thought"))
        tools = as_objects(message.get("toolCalls"))
        calls = [(str(tool.get("id") or ""), str(tool.get("name") or "tool"), tool.get("args") or {}) for tool in tools]
        tokens = message.get("tokens") if isinstance(message.get("tokens"), dict) else {}
        assert isinstance(tokens, dict)
        items = list(self._speech.answer(name, text, moment, calls=calls, tokens=as_count(tokens, "output")))
        yield from items
        for call, one in zip(calls, tools, strict=True):
            result = _result(one)
            if result is not None and any(isinstance(item, Said) for item in items):
                ended = from_program(one.get("timestamp")) or moment
                yield from self._speech.result(f"{name}:{call[0]}", result, ended, call=call[0], name=call[1])
        if self.facts.model and any(isinstance(value, int) and value for value in tokens.values()):
            conversation = self.facts.external_id
            yield Spent(conversation, name, self.facts.model, _usage(tokens), moment or self._speech.moment)


class _Parser(RowParser):
    """Parses the rows of a session: a message is written again, whole, when it has grown."""

    def __init__(self, state: Mapping[str, Any], *, folder: str | None, parent: str | None) -> None:
        self.held: int | None = None
        self._folder = folder
        self._parent = parent
        self._open: dict[str, Any] | None = None
        self._session = str(state.get("session") or "")
        self._facts: dict[str, Any] = dict(state.get("facts") or {})
        self._prompts: list[str] = list(state.get("prompts") or ())
        """The ids of the prompts in order, to count those that are withdrawn."""
        self._messages: _Messages | None = None
        if self._session:
            self._messages = _Messages(self._describe(), state.get("speech") or {})

    def state(self) -> Mapping[str, JSON]:
        """Return the session, its facts, and what the next message needs to know."""
        return {
            "session": self._session,
            "facts": self._facts,
            "prompts": [*self._prompts[-_PROMPTS_REMEMBERED:]],
            "speech": self._messages.state() if self._messages else {},
        }

    def take(self, row: dict[str, Any], start: int) -> Iterator[Item]:
        """Yield what a row completes."""
        if isinstance(changed := row.get("$set"), dict):
            self._learn(changed)
            for message in changed.get("messages") or ():
                yield from read_row(lambda one: self._take_message(one, start), message)
        elif isinstance(place := row.get("$rewindTo"), str):
            yield from self.flush()
            yield from self._rewind(place, start)
        elif "sessionId" in row and "type" not in row:
            self._learn(row)
        elif "id" in row and "type" in row:
            yield from self._take_message(row, start)
        else:
            yield unknown(row)

    def _learn(self, facts: Mapping[str, Any]) -> None:
        self._session = self._session or str(facts.get("sessionId") or "")
        for name in ("summary", "kind", "directories"):
            if facts.get(name):
                self._facts[name] = facts[name]
        if self._messages is not None:
            self._messages.facts = replace(self._describe(), model=self._messages.facts.model)
        elif self._session:
            self._messages = _Messages(self._describe(), {})

    def _describe(self) -> Conversation:
        return describe_session(self._session, self._facts, folder=self._folder, parent=self._parent)

    def _take_message(self, message: dict[str, Any], start: int) -> Iterator[Item]:
        if self._open is not None and self._open.get("id") == message.get("id"):
            self._open = message
            return
        yield from self.flush()
        if message.get("type") == "gemini":
            self._open, self.held = message, start
        else:
            yield from self._yield_message(message)

    def flush(self) -> Iterator[Item]:
        """Yield the answer so far."""
        message, self._open, self.held = self._open, None, None
        if message is not None:
            yield from self._yield_message(message)

    def _yield_message(self, message: dict[str, Any]) -> Iterator[Item]:
        if self._messages is None:
            yield unknown(message)
            return
        for item in self._messages.take(message):
            if isinstance(item, Said) and item.turn is not None and item.external_id not in self._prompts:
                self._prompts.append(item.external_id)
            yield item

    def _rewind(self, place: str, start: int) -> Iterator[Item]:
        """Withdraw a prompt and everything after it."""
        if place not in self._prompts:
            yield Left("no message")
            return
        turns = len(self._prompts) - self._prompts.index(place)
        del self._prompts[-turns:]
        yield Withdrawn(self._session, f"{self._session}:{place}:{start}", turns)


class _Whole:
    """Reads a session that is one JSON object."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def read(self, record: Mapping[str, Any]) -> Iterator[Item]:
        """Yield the messages of the session."""
        session = as_text(record.get("sessionId"))
        if session is None or not isinstance(record.get("messages"), list):
            yield unknown(record)
            return
        messages = _Messages(describe_session(session, record, folder=self._folder, parent=None), {})
        for message in record["messages"]:
            yield from read_row(messages.take, message)


def describe_session(session: str, facts: Mapping[str, Any], *, folder: str | None, parent: str | None) -> Conversation:
    """Return what a file says about its session."""
    is_delegate = facts.get("kind") == "subagent" or parent is not None
    listed = facts.get("directories")
    first = as_text(listed[0]) if isinstance(listed, list) and listed else None
    return Conversation(
        session,
        Kind.SUBAGENT if is_delegate else Kind.PERSON,
        folder=folder or first,
        title=as_text(facts.get("summary")),
        parent=parent,
    )


def _parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"text": content}]
    if isinstance(content, dict):
        return [content]
    listed = content if isinstance(content, list) else [] if content is None else [content]
    return [
        part if isinstance(part, dict) else {"text": part} if isinstance(part, str) else {type(part).__name__: part}
        for part in listed
    ]


def _name_unknown(parts: list[dict[str, Any]]) -> Iterator[Item]:
    """Yield the parts without anything that a known version writes."""
    for part in parts:
        if part and _PARTS.isdisjoint(part):
            yield unknown({"type": next(iter(part))}, "part")


def _describe(part: Mapping[str, Any]) -> str:
    """Return the text of a part, or a placeholder for an image or a file."""
    text = as_text(part.get("text"))
    if text is not None:
        return "" if text.lstrip().startswith(_REFERENCED) else text
    for name in ("inlineData", "fileData"):
        data = part.get(name)
        if isinstance(data, dict):
            source = {"media_type": data.get("mimeType"), "data": data.get("data") or data.get("fileUri")}
            return describe_block({"type": "image", "source": source})
    return ""


def _result(call: Mapping[str, Any]) -> str | None:
    """Return the result of a call, None if it has none."""
    texts = []
    for part in _parts(call.get("result")):
        answer = part.get("functionResponse")
        response = answer.get("response") if isinstance(answer, dict) else None
        if isinstance(response, dict):
            texts.append(result_text(response.get("output") or response.get("error") or response))
        elif text := _describe(part):
            texts.append(text)
    shown = call.get("resultDisplay")
    return join_texts(texts) if texts else as_text(shown)


def _usage(tokens: Mapping[str, Any]) -> Usage:
    cached = as_count(tokens, "cached")
    output = as_count(tokens, "output") + as_count(tokens, "thoughts")
    return Usage(max(0, as_count(tokens, "input") - cached), output, cached)

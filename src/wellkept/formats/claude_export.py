"""Claude's data export: conversations as lists or trees of messages, memories, and projects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.clock import from_program
from wellkept.core.text import dumps
from wellkept.formats.exports import (
    DAMAGE,
    Branch,
    ExportFiles,
    ExportReading,
    Node,
    find_names,
    list_exports,
    open_conversations,
    open_export,
    repeat_joint,
    split_branches,
)
from wellkept.formats.json_files import JsonStream, read_row
from wellkept.formats.messages import Speech, as_blocks, as_text, describe_block, join_texts, name_unknown, result_text
from wellkept.formats.port import (
    Asset,
    Conversation,
    Item,
    Left,
    Leftover,
    MemoryFile,
    Position,
    Problem,
    Request,
    Source,
    Unusable,
    unknown,
)
from wellkept.memory.page import Target

CONVERSATIONS = r"conversations(-\d+)?\.json"
_NO_PARENT = "00000000-0000-4000-8000-000000000000"
_WITHOUT_TEXT = frozenset(("token_budget", "flag"))
_UNSUPPORTED = re.compile(r"\n?```\s*\nThis block is not supported on your current device yet\.\s*\n```\n?")
_MOST_ASSET_BYTES = 64_000_000


class ClaudeExport(Source):
    """Reads data exports of Claude."""

    client = "claude"

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return the export, or the archives in a folder: a large export comes in several."""
        return [path for path in list_exports(root, CONVERSATIONS) if not path.name.startswith("memories")]

    def open(self, path: Path, position: Position) -> ExportReading:
        """Open an export; raise Unusable if it cannot be trusted or read."""
        return open_conversations(path, position, CONVERSATIONS, lambda _files: read_conversation)

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield memories as entries; instructions and files of projects, which have no place here, as leftovers."""
        del request
        for path in list_exports(root, CONVERSATIONS):
            try:
                files = open_export(path)
            except Unusable:
                continue  # reported where its conversations are opened
            try:
                projects = dict(_read_projects(files))
                yield from _list_memories(files, {name: str(one.get("name") or "") for name, one in projects.items()})
                for project in projects.values():
                    yield from _list_documents(project)
            except DAMAGE as error:
                yield Problem(str(path), str(error))
            finally:
                files.close()


# conversations


def read_conversation(record: Mapping[str, Any]) -> Iterator[Item]:
    """Yield a conversation: its current branch, then the other branches in which the person said something."""
    external = as_text(record.get("uuid"))
    listed = record.get("chat_messages")
    if external is None or not isinstance(listed, list):
        yield unknown(record)
        return
    nodes = _read_nodes(listed)
    if len(nodes) < len(listed):
        yield unknown()
    facts = Conversation(external, title=as_text(record.get("name")), model=as_text(record.get("model")), is_tree=True)
    current = as_text(record.get("current_leaf_message_uuid"))
    for place, branch in enumerate(split_branches(nodes, current)):
        if place == 0:
            yield from _read_branch(branch, facts, nodes)
        elif any(node.message and node.message.get("sender") == "human" for node in branch.own):
            own = replace(facts, external_id=f"{external}/{branch.own[0].id}", parent=external)
            yield from _read_branch(branch, own, nodes)
        else:
            yield Left("regenerated answer")


def _read_nodes(listed: list[Any]) -> dict[str, Node]:
    """Return the messages by id; older exports have no parents, and each message follows the one before it."""
    found = [one for one in listed if isinstance(one, dict) and as_text(one.get("uuid"))]
    is_tree = any(as_text(one.get("parent_message_uuid")) for one in found)
    nodes: dict[str, Node] = {}
    before: str | None = None
    for one in found:
        parent = as_text(one.get("parent_message_uuid")) if is_tree else before
        moment = from_program(one.get("created_at")) or 0.0
        before = str(one["uuid"])
        nodes[before] = Node(before, None if parent == _NO_PARENT else parent, moment, one)
    return nodes


def _read_branch(branch: Branch, facts: Conversation, nodes: Mapping[str, Node]) -> Iterator[Item]:
    yield facts
    speech = Speech(facts.external_id)

    def take(node: Node) -> Iterator[Item]:
        return read_row(lambda message: _read_message(node, message, speech), node.message or {})

    yield from repeat_joint(branch, nodes, take)
    for node in branch.own:
        yield from take(node)


def _read_message(node: Node, message: dict[str, Any], speech: Speech) -> Iterator[Item]:
    moment = node.moment or None
    match message.get("sender"):
        case "human":
            blocks = as_blocks(message.get("content"))
            yield from name_unknown(blocks, _WITHOUT_TEXT)
            text = join_texts(map(describe_block, blocks)) or as_text(message.get("text")) or ""
            yield from speech.prompt(node.id, join_texts((text, *_list_files(message))), moment)
        case "assistant":
            yield from _read_answer(node.id, message, moment, speech)
        case _:
            yield unknown(message)


def _list_files(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each file that was sent along, with its text if the export has it."""
    shown = set()
    for name in ("attachments", "files", "files_v2"):
        listed = message.get(name)
        for one in listed if isinstance(listed, list) else ():
            title = as_text(one.get("file_name")) if isinstance(one, dict) else None
            if title is None or title in shown:
                continue
            shown.add(title)
            size, text = one.get("file_size"), as_text(one.get("extracted_content"))
            detail = f" {size:,} bytes" if isinstance(size, int) else ""
            yield join_texts((f"[file {title}{detail}]", text or ""))


class _Step(Struct):
    """A part of an answer: what the model thought and said, its calls, and their results."""

    thoughts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)


def _read_answer(name: str, message: Mapping[str, Any], moment: float | None, speech: Speech) -> Iterator[Item]:
    blocks = as_blocks(message.get("content"))
    yield from name_unknown(blocks, _WITHOUT_TEXT)
    steps = _split_steps(name, blocks)
    if not any(step.texts or step.calls for step in steps):
        steps[0].texts.append(_UNSUPPORTED.sub("", as_text(message.get("text")) or ""))
    for number, step in enumerate(steps):
        own = f"{name}:{number}" if number else name
        for thought in step.thoughts:
            speech.think(thought)
        yield from speech.answer(own, join_texts(step.texts), moment, calls=step.calls)
        for place, block in enumerate(step.results):
            call, tool = as_text(block.get("tool_use_id")), as_text(block.get("name"))
            result = result_text(block.get("content"))
            yield from speech.result(f"{own}:result{place}", result, moment, call=call, name=tool)


def _split_steps(name: str, blocks: list[dict[str, Any]]) -> list[_Step]:
    """Return an answer in steps: what follows the results of calls is a step of its own."""
    steps = [_Step()]
    for place, block in enumerate(blocks):
        kind = block.get("type")
        if steps[-1].results and kind != "tool_result":
            steps.append(_Step())
        if kind == "tool_result":
            steps[-1].results.append(block)
        elif kind == "thinking":
            steps[-1].thoughts.append(str(block.get("thinking") or ""))
        elif kind == "tool_use":
            call = str(block.get("id") or f"{name}:{place}")
            steps[-1].calls.append((call, str(block.get("name") or "tool"), block.get("input")))
        elif text := describe_block(block):
            steps[-1].texts.append(text)
    return steps


# memories and projects


def _read_file(files: ExportFiles, name: str) -> Iterator[dict[str, Any]]:
    if files.size(name) <= _MOST_ASSET_BYTES:
        with files.open(name) as file:
            yield from (piece.value for piece in JsonStream(file) if piece.value is not None)


def _read_projects(files: ExportFiles) -> Iterator[tuple[str, dict[str, Any]]]:
    inside = [name for name in files.names() if re.search(r"(^|/)projects/[^/]+\.json$", name)]
    for name in [*find_names(files, r"projects(-\d+)?\.json"), *inside]:
        for project in _read_file(files, name):
            if as_text(project.get("uuid")):
                yield str(project["uuid"]), project


def _list_memories(files: ExportFiles, projects: Mapping[str, str]) -> Iterator[Asset]:
    inside = [name for name in files.names() if re.search(r"(^|/)memories/[^/]+\.json$", name)]
    for name in [*find_names(files, r"memories(-\d+)?\.json"), *inside]:
        for memory in _read_file(files, name):
            if text := as_text(memory.get("conversations_memory")):
                yield MemoryFile("memories/conversations", Target.MEMORY, text=text)
            own = memory.get("project_memories")
            for project, text in own.items() if isinstance(own, dict) else ():
                if isinstance(text, str) and text.strip():
                    heading = projects.get(project) or "a project of Claude"
                    # a project of Claude has no folder here, so its memory has no page of its own
                    yield MemoryFile(f"memories/{project}", Target.MEMORY, text=text, heading=heading, is_archive=True)
            yield from _list_memory_files(memory.get("memory_files"))


def _list_memory_files(value: Any) -> Iterator[Asset]:
    """Yield files of a newer export, whose shape may still change: a list of objects, or texts by name."""
    pairs = list(value.items()) if isinstance(value, dict) else []
    for number, one in enumerate(value if isinstance(value, list) else ()):
        if isinstance(one, dict):
            name = one.get("path") or one.get("name") or one.get("file_name") or str(number)
            pairs.append((name, one.get("content") or one.get("text")))
    for name, text in pairs:
        if isinstance(text, str) and text.strip():
            yield MemoryFile(f"memories/files/{name}", Target.MEMORY, text=text)
        elif text is not None:
            yield Leftover(f"memories/{_plain(str(name))}.json", dumps(text).encode(), "a memory of unknown form")


def _list_documents(project: Mapping[str, Any]) -> Iterator[Asset]:
    folder = f"projects/{_plain(str(project.get('name') or project.get('uuid')))}"
    if text := as_text(project.get("prompt_template")):
        yield Leftover(
            f"{folder}/instructions.md", text.encode("utf-8", "replace"), "instructions of a project of Claude"
        )
    docs = project.get("docs")
    for number, document in enumerate(docs if isinstance(docs, list) else ()):
        text = as_text(document.get("content")) if isinstance(document, dict) else None
        if text is not None:
            name = _plain(str(document.get("filename") or f"document-{number}"))
            yield Leftover(f"{folder}/{name}", text.encode("utf-8", "replace"), "a file of a project of Claude")


def _plain(name: str) -> str:
    """Return a name that is safe as one part of a path."""
    return re.sub(r"[^\w. -]", "_", name).strip(". ")[:100] or "unnamed"

"""What an MCP client is offered: the tools and resources of the memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import quote, unquote

from msgspec import Struct

from wellkept import connect, forgetting, operations
from wellkept.core.errors import KeptError, NotFound, Reason, Refused, UsageError
from wellkept.core.text import JSON, dumps, one_line, resource_text
from wellkept.mcp_server.protocol import INVALID_PARAMS, ProtocolError

if TYPE_CHECKING:
    from wellkept.app import Caller

SCHEME = "kept://"
_MARKDOWN, _JSON = "text/markdown", "application/json"
_RECENT = 20
_LEDGER_ROWS = 50
_MOST_SKILLS = 200

_FIXED: Final[Mapping[str, tuple[str, str, str]]] = {
    "memory/MEMORY.md": ("MEMORY.md", "Notes of all agents: environment, conventions, lessons.", _MARKDOWN),
    "memory/USER.md": ("USER.md", "Who the user is: preferences, role, corrections.", _MARKDOWN),
    "memory/ledger": ("ledger", "The last edits of both pages: what, when, by whom.", _JSON),
    "sessions/recent": ("recent sessions", "The conversations that were last active, with their ids.", _JSON),
}
TEMPLATES: Final[list[JSON]] = [
    {"uriTemplate": f"{SCHEME}sessions/{{session_id}}", "name": "session", "mimeType": _JSON,
     "description": "One stored conversation, its first and last messages."},
    {"uriTemplate": f"{SCHEME}skills/{{name}}", "name": "skill", "mimeType": _MARKDOWN,
     "description": "The steps of one skill."},
]  # fmt: skip


def list_resources(caller: Caller) -> list[JSON]:
    """Return the fixed resources and one for each skill."""
    found: list[JSON] = [
        {"uri": f"{SCHEME}{path}", "name": name, "description": about, "mimeType": kind}
        for path, (name, about, kind) in _FIXED.items()
    ]
    skills = operations.skills.list_skills(caller, usable=True).skills[:_MOST_SKILLS]
    return [*found, *(_describe_skill(skill.skill.name, skill.skill.description) for skill in skills)]


def _describe_skill(name: str, description: str) -> dict[str, JSON]:
    about = one_line(description, width=200)
    return {"uri": f"{SCHEME}skills/{quote(name, safe='')}", "name": name, "description": about, "mimeType": _MARKDOWN}


def read(caller: Caller, uri: str, *, client: str) -> dict[str, JSON]:
    """Return the contents of one resource; raises ProtocolError for an unknown one."""
    path = uri.removeprefix(SCHEME) if uri.startswith(SCHEME) else ""
    try:
        text = _read(caller, path, client)
    except (NotFound, UsageError):
        text = None
    if text is None:
        raise ProtocolError(INVALID_PARAMS, "Unknown resource", {"uri": uri[:200]})
    kind = _FIXED[path][2] if path in _FIXED else _MARKDOWN if path.startswith("skills/") else _JSON
    return {"uri": uri, "mimeType": kind, "text": text}


def _read(caller: Caller, path: str, client: str) -> str | None:
    match path.split("/", 1):
        case ["memory", "MEMORY.md" | "USER.md" as page]:
            return page_text(caller, page.removesuffix(".md").lower(), client=client)
        case ["memory", "ledger"]:
            return dumps(operations.memory.read_masked_log(caller, limit=_LEDGER_ROWS).as_json(), indent=1)
        case ["sessions", name] if name:
            return _recent_text(caller, client) if name == "recent" else _session_text(caller, unquote(name), client)
        case ["skills", name] if name:
            shown = operations.skills.show_skill(caller, unquote(name))
            return None if isinstance(shown, Refused) else str(shown.answer["content"])
        case _:
            return None


def page_text(caller: Caller, target: str | None, *, client: str) -> str:
    """Return one page or both as plain text, entries as a model may see them, and record that they were shown."""
    from wellkept.memory.page import Target
    from wellkept.sessions.recall import tokens
    from wellkept.sessions.receipts import ShownPage

    began = perf_counter()
    pages = operations.memory.show_pages(caller, None if target is None else Target(target))
    parts = []
    for view in pages.views:
        title = f"{view.target.value.upper()}.md"
        if view.page is None:
            assert view.error is not None
            parts.append(f"# {title}\n\n(cannot be read: {view.error.message})")
            continue
        entries = pages.masked[view.target]
        if view.target is Target.PROJECT:
            notes = operations.projectfacts.note_entries(caller, view.page.entries)
            pairs = zip(entries, view.page.entries, strict=True)
            entries = tuple(f"{shown} {notes[entry]}" if entry in notes else shown for shown, entry in pairs)
        used = f"{len(entries)} entries, {len(view.page.text)} of {view.page.limit} characters"
        parts.append("\n\n".join([f"# {title} ({used})", *entries]) if entries else f"# {title} (empty)")
    text = "\n\n".join(parts)
    operations.receipts.record_receipt(
        caller,
        kind="tool",
        client=client,
        shown=[ShownPage(view.target.value) for view in pages.views],
        tokens=tokens(text),
        milliseconds=(perf_counter() - began) * 1_000,
    )
    return text


def _recent_text(caller: Caller, client: str) -> str:
    from wellkept.sessions.recall import tokens, when
    from wellkept.sessions.receipts import ShownSession

    began = perf_counter()
    sessions = operations.sessions.list_sessions(caller, operations.sessions.Listed(limit=_RECENT))
    rows: list[JSON] = [
        {
            "session_id": session.id,
            "title": session.title or one_line(sessions.previews.get(session.id, ""), width=60),
            "source": session.source,
            "project": session.project,
            "last_active": when(session.last_active or session.started),
            "messages": session.message_count,
        }
        for session in sessions.sessions
    ]
    text = dumps(rows, indent=1)
    operations.receipts.record_receipt(
        caller,
        kind="tool",
        client=client,
        shown=[ShownSession(one.id) for one in sessions.sessions],
        tokens=tokens(text),
        milliseconds=(perf_counter() - began) * 1_000,
    )
    return text


def _session_text(caller: Caller, name: str, client: str) -> str | None:
    value = operations.tools.run_shared_tool(caller, "session_search", {"session_id": name}, client=client)
    return None if isinstance(value, Refused) or value.get("success") is False else dumps(value, indent=1)


_PROMPTS: Final[Mapping[str, tuple[str, str]]] = {
    "recall": ("Recall from earlier conversations", "Answer a question from the stored conversations."),
    "review": ("Keep what matters", "Look back over this conversation and save lasting facts and procedures."),
}


def list_prompts() -> list[JSON]:
    """Return the prompts."""
    topic: JSON = {"name": "topic", "description": "What to recall: a question or a few words.", "required": True}
    return [
        {"name": name, "title": title, "description": about, "arguments": [topic] if name == "recall" else []}
        for name, (title, about) in _PROMPTS.items()
    ]


def fill_prompt(caller: Caller, name: str, arguments: Mapping[str, Any], *, client: str) -> dict[str, JSON]:
    """Return the messages of a prompt; raises ProtocolError for an unknown name or a missing argument."""
    if name not in _PROMPTS:
        raise ProtocolError(INVALID_PARAMS, f"Unknown prompt; known: {', '.join(_PROMPTS)}")
    text = resource_text("wellkept.mcp_server", "texts", f"{name}.md").strip()
    if name == "recall":
        topic = arguments.get("topic")
        if not isinstance(topic, str) or not topic.strip():
            raise ProtocolError(INVALID_PARAMS, "recall needs the argument topic")
        answer = operations.tools.run_shared_tool(caller, "session_search", {"query": topic}, client=client)
        shown = answer.as_json() if isinstance(answer, Refused) else answer
        # one pass: the passages may themselves contain braces
        head, tail = text.split("{found}")
        text = f"{head.replace('{topic}', topic.strip())}{dumps(shown)}{tail}"
    message: JSON = {"role": "user", "content": {"type": "text", "text": text}}
    return {"description": _PROMPTS[name][1], "messages": [message]}


log = logging.getLogger(__name__)

MOST_TOKENS = 4_000
MOST_TEXT_CHARS = 30_000
"""Clients show 40,000 characters of a result whole; a longer skill is read in parts."""
_MOST_ERROR_CHARS = 600

Arguments: TypeAlias = Mapping[str, JSON]
Answer: TypeAlias = Mapping[str, JSON] | str | Refused
"""A JSON object, a plain text, or a refusal."""


class Offer(Struct, frozen=True):
    """One tool as clients see it."""

    name: str
    title: str
    description: str
    parameters: Mapping[str, JSON]
    act: Callable[[Caller, Arguments, str], Answer]
    reads_only: bool = False
    destroys: bool = False
    repeatable: bool = False
    """Whether calling it again with the same arguments changes nothing more."""
    is_always_loaded: bool = False
    """Whether clients that load tools on demand load this one at the start."""

    def as_json(self) -> dict[str, JSON]:
        """Return the description for `tools/list`."""
        value: dict[str, JSON] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.parameters,
            "annotations": {
                "title": self.title,
                "readOnlyHint": self.reads_only,
                "destructiveHint": self.destroys,
                "idempotentHint": self.reads_only or self.repeatable,
                "openWorldHint": False,
            },
        }
        return {**value, "_meta": {"anthropic/alwaysLoad": True}} if self.is_always_loaded else value


def describe(open_caller: Callable[[], Caller]) -> list[JSON]:
    """Return all tools in the order in which models see them; a home that cannot be opened has no project."""
    try:
        has_project = operations.tools.has_project(open_caller())
    except KeptError:
        has_project = False
    return [offer.as_json() for offer in _offers(has_project=has_project).values()]


def call(open_caller: Callable[[], Caller], name: str, arguments: Arguments, *, client: str) -> dict[str, JSON]:
    """Run a tool and return its result; a failure is a result with one line that says what to do."""
    offer = _offers().get(name)
    if offer is None:
        return _failure(f"there is no tool {name[:80]!r}; next: use one of {', '.join(_offers())}")
    unknown = operations.tools.find_unknown_argument(offer.parameters, arguments)
    if unknown is not None:
        return _result(unknown)
    try:
        answer = offer.act(open_caller(), arguments, known_client(client))
    except KeptError as error:
        return _failure(f"{error.message}; next: {error.remedy}" if error.remedy else error.message)
    except Exception:  # tool call: an unforeseen failure must not end the server
        log.exception("the tool %s failed", name)
        return _failure("an internal error; next: go on without it, and see logs/kept.log in the home")
    return _result(answer)


def _result(answer: Answer) -> dict[str, JSON]:
    if isinstance(answer, str):
        return {"content": [{"type": "text", "text": answer}], "isError": False}
    value = answer.as_json() if isinstance(answer, Refused) else answer
    if value.get("success") is False and not set(value) - {"success", "error", "reason", "remedy", "done"}:
        remedy = value.get("remedy")
        error = str(value.get("error"))
        return _failure(f"{error.rstrip('.')}; next: {remedy}" if remedy else error)
    text = dumps(value)
    return {
        "content": [{"type": "text", "text": text}],
        # some clients show the model only this, others only the text: both contain the whole answer
        "structuredContent": value,
        "isError": value.get("success") is False,
    }


def _failure(text: str) -> dict[str, JSON]:
    return {"content": [{"type": "text", "text": one_line(text, width=_MOST_ERROR_CHARS)}], "isError": True}


_CLIENTS = {"claude-ai": "claude-desktop", "claude": "claude-code", "codex": "codex", "opencode": "opencode",
            "gemini": "gemini", "cursor": "cursor", "visual studio code": "vscode", "vscode": "vscode"}  # fmt: skip
"""The beginnings of the names that clients send, and their names in `kept connect`."""


def known_client(name: str) -> str:
    """Return the name of a client as `kept connect` writes it, or its own on one line."""
    folded = name.strip().casefold()
    known = next((ours for theirs, ours in _CLIENTS.items() if folded.startswith(theirs)), None)
    return known or one_line(name, width=40) or "mcp"


# the tools


def _agent_tool(name: str) -> Callable[[Caller, Arguments, str], Answer]:
    """Return a tool of kept's own agent."""

    def act(caller: Caller, arguments: Arguments, client: str) -> Answer:
        return operations.tools.run_shared_tool(caller, name, arguments, client=client)

    return act


def _list_skills(caller: Caller, arguments: Arguments, client: str) -> Answer:
    """Return as many skills as fit the budget."""
    from wellkept.sessions.recall import tokens

    answer = operations.tools.run_shared_tool(caller, "skills_list", arguments, client=client)
    if isinstance(answer, Refused) or answer.get("success") is False:
        return answer
    rows = list(cast("list[JSON]", answer["skills"]))
    value = dict(answer)
    while len(rows) > 1 and tokens(dumps(value)) > MOST_TOKENS:
        rows = rows[: len(rows) * 3 // 4]
        hint = f"{answer['total']} in all: narrow it with query or category. Load one with skill_view(name)."
        value |= {"skills": rows, "count": len(rows), "hint": hint}
    return value


def _view_skill(caller: Caller, arguments: Arguments, client: str) -> Answer:
    """Return a skill, or one of its files, as plain text; a long one in parts."""
    asked = {name: value for name, value in arguments.items() if name != "offset"}
    offset = arguments.get("offset") or 0
    if not isinstance(offset, int) or offset < 0:
        return Refused(Reason.INVALID, "offset must be a whole number", "take it from the end of the part before")
    answer = operations.tools.run_shared_tool(caller, "skill_view", asked, client=client)
    if isinstance(answer, Refused) or answer.get("success") is False or not isinstance(answer.get("content"), str):
        return answer
    text = str(answer["content"])
    part, rest = text[offset : offset + MOST_TEXT_CHARS], max(0, len(text) - offset - MOST_TEXT_CHARS)
    more = f"\n\n[{rest} characters more: call again with offset {offset + MOST_TEXT_CHARS}]" if rest else ""
    return f"{part}{more}{_notes(answer) if not offset else ''}"


def _notes(found: Mapping[str, JSON]) -> str:
    """Return what a model must know besides the text: version, folder, files, missing requirements, warnings."""
    linked, ready = found.get("linked_files"), found.get("readiness")
    files = [name for group in linked.values() for name in group] if isinstance(linked, dict) else []
    missing = ""
    if isinstance(ready, dict) and not ready.get("ready"):
        names = [*ready.get("missing_environment_variables", ()), *ready.get("missing_commands", ())]
        missing = ", ".join(str(one) for one in names)
    warnings = found.get("warnings")
    lines = {
        "skill": f"{found['name']} {found.get('version', '')}".strip(),
        "folder": found.get("path"),
        "files": ", ".join(str(name) for name in files),
        "missing here": missing,
        "warnings": "; ".join(str(warning) for warning in warnings) if isinstance(warnings, list) else "",
    }
    return "\n\n---\n" + "\n".join(f"{name}: {value}" for name, value in lines.items() if value)


def _read_memory(caller: Caller, arguments: Arguments, client: str) -> Answer:
    from wellkept.mcp_server.tools import page_text

    target = arguments.get("target")
    if target not in (None, "", "memory", "user", "project", "all"):
        return Refused(Reason.INVALID, f"target is {str(target)[:40]!r}", "use memory, user, or leave it out for both")
    return page_text(caller, None if target in (None, "", "all") else str(target), client=client)


def _remember_turn(caller: Caller, arguments: Arguments, client: str) -> Answer:
    texts: dict[str, str] = {}
    for name in ("session", "user", "assistant", "key", "project"):
        value = arguments.get(name)
        if value is not None and not isinstance(value, str):
            return Refused(Reason.INVALID, f"{name} must be a text", f"give {name} as one string")
        texts[name] = (value or "").strip()
    if not texts["session"] or not texts["user"]:
        return Refused(Reason.INVALID, "session and user must not be empty", "give the conversation's id and the text")
    done = connect.capture.capture_turn(
        caller,
        client,
        session=texts["session"],
        turn=texts["key"] or None,
        project=texts["project"] or None,
        prompt=texts["user"],
        answer=texts["assistant"],
        is_reported=True,
    )
    if isinstance(done, Refused):
        return done
    return {"success": True, "session_id": done.session_id, "stored": done.added, "left_out": dict(done.left)}


def _forget(caller: Caller, arguments: Arguments, client: str) -> Answer:
    texts: dict[str, str | None] = {}
    for name in ("session_id", "query"):
        value = arguments.get(name)
        if value is not None and not isinstance(value, str):
            return Refused(Reason.INVALID, f"{name} must be a text", f"give {name} as one string")
        texts[name] = value.strip() or None if isinstance(value, str) else None
    done = forgetting.requests.request_forget(caller, session=texts["session_id"], query=texts["query"], origin=client)
    return done if isinstance(done, Refused) else done.as_json()


def _text(description: str) -> dict[str, JSON]:
    return {"type": "string", "description": description}


def _object(properties: Mapping[str, JSON], *required: str) -> dict[str, JSON]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


@cache
def _offers(*, has_project: bool = False) -> dict[str, Offer]:
    memory, search, listing, viewing, managing = operations.tools.list_shared_tools(has_project=has_project)
    pages: list[JSON] = ["memory", "user", *(["project"] if has_project else []), "all"]
    view_properties = cast("Mapping[str, JSON]", viewing.parameters["properties"])
    offset: JSON = {"type": "integer", "minimum": 0, "description": "Where to go on in a long text."}
    offers = [
        Offer(
            "memory", "Remember: save preferences and facts", memory.description, memory.parameters,
            _agent_tool("memory"), is_always_loaded=True,
        ),
        Offer(
            "memory_read", "Read the memory pages", _description("memory_read"),
            _object({"target": {"type": "string", "enum": pages,
                                "description": "One page; all without it." if has_project else
                                "One page; both without it."}}),
            _read_memory, reads_only=True,
        ),
        Offer(
            "session_search", "Search past conversations and history", search.description, search.parameters,
            _agent_tool("session_search"), reads_only=True, is_always_loaded=True,
        ),
        Offer("skills_list", "List skills (procedures)", listing.description, listing.parameters, _list_skills,
              reads_only=True),
        Offer(
            "skill_view", "Load a skill", viewing.description,
            {**viewing.parameters, "properties": {**view_properties, "offset": offset}},
            _view_skill, reads_only=True,
        ),
        Offer("skill_manage", "Create or change a skill", managing.description, managing.parameters,
              _agent_tool("skill_manage"), destroys=True),
        Offer(
            "remember_turn", "Store a turn of this conversation", _description("remember_turn"),
            _object(
                {
                    "session": _text("An id of this conversation, the same in every call."),
                    "user": _text("What the user said, word for word."),
                    "assistant": _text("What you answered."),
                    "key": _text("An id of this turn; without it, the same texts are the same turn."),
                    "project": _text("The folder of the project."),
                },
                "session", "user",
            ),
            _remember_turn, repeatable=True,
        ),
        Offer(
            "forget", "Ask to forget permanently", _description("forget"),
            _object(
                {
                    "session_id": _text("The conversation to forget."),
                    "query": _text("Exact words: every message and entry that contains them is removed."),
                }
            ),
            _forget, destroys=True, repeatable=True,
        ),
    ]  # fmt: skip
    return {offer.name: offer for offer in offers}


def _description(name: str) -> str:
    return resource_text("wellkept.mcp_server", "texts", f"{name}.md").strip()

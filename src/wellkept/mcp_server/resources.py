"""Resources (pages, ledger, recent sessions, skills) and prompts (recall, review)."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from wellkept import operations
from wellkept.core.errors import NotFound, Refused, UsageError
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
    return [*found, *(_describe_skill(one.skill.name, one.skill.description) for one in skills)]


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
            return dumps(operations.pages.read_masked_log(caller, limit=_LEDGER_ROWS).as_json(), indent=1)
        case ["sessions", name] if name:
            return _recent_text(caller, client) if name == "recent" else _session_text(caller, unquote(name), client)
        case ["skills", name] if name:
            return _skill_text(caller, unquote(name))
        case _:
            return None


def _skill_text(caller: Caller, name: str) -> str | None:
    shown = operations.skills.show_skill(caller, name)
    return None if isinstance(shown, Refused) else str(shown.answer["content"])


def page_text(caller: Caller, target: str | None, *, client: str) -> str:
    """Return one page or both as plain text, entries as a model may see them, and record that they were shown."""
    from wellkept.memory.page import Target
    from wellkept.sessions.recall import tokens
    from wellkept.sessions.receipts import ShownPage

    began = perf_counter()
    found = operations.pages.show_pages(caller, None if target is None else Target(target))
    parts = []
    for view in found.views:
        title = f"{view.target.value.upper()}.md"
        if view.page is None:
            assert view.error is not None
            parts.append(f"# {title}\n\n(cannot be read: {view.error.message})")
            continue
        entries = found.masked[view.target]
        if view.target is Target.PROJECT:
            notes = operations.facts.note_entries(caller, view.page.entries)
            pairs = zip(entries, view.page.entries, strict=True)
            entries = tuple(f"{shown} {notes[entry]}" if entry in notes else shown for shown, entry in pairs)
        used = f"{len(entries)} entries, {len(view.page.text)} of {view.page.limit} characters"
        parts.append("\n\n".join([f"# {title} ({used})", *entries]) if entries else f"# {title} (empty)")
    text = "\n\n".join(parts)
    operations.receipts.record_receipt(
        caller,
        kind="tool",
        client=client,
        shown=[ShownPage(view.target.value) for view in found.views],
        tokens=tokens(text),
        milliseconds=(perf_counter() - began) * 1_000,
    )
    return text


def _recent_text(caller: Caller, client: str) -> str:
    from wellkept.sessions.recall import tokens, when
    from wellkept.sessions.receipts import ShownSession

    began = perf_counter()
    found = operations.sessions.list_sessions(caller, operations.sessions.Listed(limit=_RECENT))
    rows: list[JSON] = [
        {
            "session_id": one.id,
            "title": one.title or one_line(found.previews.get(one.id, ""), width=60),
            "source": one.source,
            "project": one.project,
            "last_active": when(one.last_active or one.started),
            "messages": one.message_count,
        }
        for one in found.sessions
    ]
    text = dumps(rows, indent=1)
    operations.receipts.record_receipt(
        caller,
        kind="tool",
        client=client,
        shown=[ShownSession(one.id) for one in found.sessions],
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
        found = operations.tools.run_shared_tool(caller, "session_search", {"query": topic}, client=client)
        shown = found.as_json() if isinstance(found, Refused) else found
        # one pass: the passages may themselves contain braces
        head, tail = text.split("{found}")
        text = f"{head.replace('{topic}', topic.strip())}{dumps(shown)}{tail}"
    message: JSON = {"role": "user", "content": {"type": "text", "text": text}}
    return {"description": _PROMPTS[name][1], "messages": [message]}

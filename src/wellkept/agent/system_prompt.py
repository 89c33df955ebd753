"""The prompt of a session: frozen snapshots, project files, and notices of later page changes."""

import logging
import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.agent.dependencies import Parts
from wellkept.core.clock import from_epoch
from wellkept.core.errors import StorageError, Unreadable
from wellkept.core.events import Warned
from wellkept.core.ids import SessionId, SourceName
from wellkept.core.ports import EventSink
from wellkept.core.provenance import Kind, Source, label_recalled
from wellkept.core.text import JSON, dumps, resource_text
from wellkept.core.tools import ToolSchema
from wellkept.memory.history import History
from wellkept.memory.page import Target, delta_notice, page_hash
from wellkept.storage.files import find_project, read_bytes

if TYPE_CHECKING:
    from wellkept.memory.store import MemoryStore

log = logging.getLogger(__name__)

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
"""Written out, because the prompt must not depend on the locale."""


class PromptInputs(Struct, frozen=True, kw_only=True):
    """The inputs of a system prompt; equal inputs give equal bytes."""

    identity: str
    tools: Sequence[str] = ()
    """Names of the loaded tools; guidance appears only for these."""
    skill_catalogue: str | None = None
    platform_hint: str = ""
    system_message: str | None = None
    project_files: Sequence[tuple[str, str]] = ()
    """Name and text, already scanned and truncated."""
    memory_block: str | None = None
    user_block: str | None = None
    project_block: str | None = None
    """The page of the project; None where none is known."""
    provider_block: str | None = None
    started: date
    conversation_id: str
    model: str


def build_prompt(inputs: PromptInputs) -> str:
    """Return the prompt: stable, then context, then volatile, joined by blank lines."""
    context = [inputs.system_message or "", *(f"# {name}\n\n{text}" for name, text in inputs.project_files)]
    parts = [*_stable(inputs), *context, *_volatile(inputs)]
    return "\n\n".join(part.strip("\n") for part in parts if part and part.strip())


def _stable(inputs: PromptInputs) -> list[str]:
    guides = [
        guidance(name)
        for name, tool in (("memory", "memory"), ("session_search", "session_search"), ("skills", "skill_manage"))
        if tool in inputs.tools
    ]
    return [inputs.identity, *guides, inputs.skill_catalogue or "", inputs.platform_hint]


def _volatile(inputs: PromptInputs) -> list[str]:
    day = inputs.started
    started = f"{_WEEKDAYS[day.weekday()]}, {_MONTHS[day.month - 1]} {day.day}, {day.year}"
    facts = f"Conversation started: {started}\nConversation id: {inputs.conversation_id}\nModel: {inputs.model}"
    pages = [inputs.memory_block or "", inputs.user_block or "", inputs.project_block or ""]
    return [*pages, inputs.provider_block or "", facts]


@cache
def guidance(name: str) -> str:
    """Return one guidance text, byte-stable."""
    return resource_text("wellkept.agent", "guidance", f"{name}.md").strip("\n")


_UNKNOWN_WINDOW = 128_000
"""The window to assume without a model."""


def build_session_prompt(
    parts: Parts, *, root: SessionId, started: float, system_message: str | None, platform: str
) -> str:
    """Return the prompt with fresh snapshots of the pages and the catalogue."""
    memory = parts.memory if "memory" in parts.toolbox.tools else None
    if memory is not None:
        memory.load()
    window = parts.model.context_length if parts.model is not None else _UNKNOWN_WINDOW
    own = _read_text(parts.home / "SOUL.md")
    return build_prompt(
        PromptInputs(
            identity=guidance("identity") if own is None else mask_unsafe("SOUL.md", own, parts.sink),
            tools=tuple(parts.toolbox.tools),
            skill_catalogue=parts.catalogue() if "skills_list" in parts.toolbox.tools else None,
            platform_hint="You are talking in a terminal; plain Markdown is shown well." if platform == "cli" else "",
            system_message=system_message,
            project_files=project_files(parts.folder, context_length=window, sink=parts.sink),
            memory_block=memory.render_snapshot(Target.MEMORY) if memory is not None else None,
            user_block=memory.render_snapshot(Target.USER) if memory is not None else None,
            project_block=memory.render_snapshot(Target.PROJECT) if memory is not None else None,
            provider_block=_provider_block(parts),
            started=from_epoch(started).astimezone().date(),
            conversation_id=root,
            model=parts.model.name if parts.model is not None else "none",
        )
    )


def _provider_block(parts: Parts) -> str | None:
    if parts.providers is None:
        return None
    return label_recalled(parts.providers.system_prompt_block(), parts.providers.providers)


def list_prompt_sources(
    parts: Parts, system_message: str | None, platform: str, tools: Sequence[ToolSchema] = ()
) -> list[tuple[SourceName, str]]:
    """Return the texts of others in the prompt, each with its source: they taint what repeats them."""
    texts: list[tuple[SourceName, str]] = []
    for kind in KINDS:
        for folder in _list_folders(parts.folder):
            text = _read_text(folder / kind)
            if text is not None:
                texts.append((Source(Kind.PROJECT, kind).stored, text))
    if system_message:
        texts.append((Source(Kind.AGENT, platform).stored, system_message))
    if parts.providers is not None and (block := parts.providers.system_prompt_block()).strip():
        texts.append((Source(Kind.PROVIDER, ", ".join(parts.providers.providers)).stored, block))
    if parts.skills is not None:
        texts += parts.skills.list_foreign()
    # a server or a client describes these tools
    described = (
        (tool.name, f"{tool.description}\n{dumps(tool.parameters)}") for tool in tools if tool.toolset == "mcp"
    )
    return [*texts, *((Source(Kind.TOOL, name).stored, text) for name, text in described)]


class FrozenPages(Struct):
    """The pages as the session's prompt shows them, and the last page state that was reported."""

    pages: Mapping[Target, tuple[str, ...]]
    reported: str = ""
    """The hash of the page state that the user was last notified of."""

    def as_json(self) -> dict[str, JSON]:
        """Return the value to store with the session."""
        return {"pages": {page.value: list(entries) for page, entries in self.pages.items()}, "told": self.reported}


def freeze_pages(parts: Parts) -> FrozenPages:
    """Return the current pages; none while they cannot be read, and a later turn reports them as changes."""
    try:
        return FrozenPages(_read_pages(parts))
    except StorageError as error:
        log.warning("the pages could not be read: %s", error.message)
        return FrozenPages(dict.fromkeys(Target, ()))


def load_frozen_pages(value: JSON, parts: Parts) -> FrozenPages:
    """Return the stored pages of a session, or the current pages when none are stored."""
    if not isinstance(value, Mapping) or not isinstance(value.get("pages"), Mapping):
        return freeze_pages(parts)
    pages = value["pages"]
    assert isinstance(pages, Mapping)
    frozen = {}
    for page in Target:
        entries = pages.get(page.value)
        frozen[page] = tuple(str(entry) for entry in entries) if isinstance(entries, list) else ()
    return FrozenPages(frozen, str(value.get("told", "")))


def _read_pages(parts: Parts) -> dict[Target, tuple[str, ...]]:
    pages: dict[Target, tuple[str, ...]] = {}
    for page in Target:
        try:
            enabled = parts.memory is not None and parts.memory.is_enabled(page)
            pages[page] = parts.memory.page(page).entries if enabled and parts.memory is not None else ()
        except Unreadable:
            pages[page] = ()
    return pages


def page_changes(parts: Parts, frozen: FrozenPages, lineage: frozenset[str]) -> str | None:
    """Return what others changed on the pages since the prompt was built; report each state once.

    Unreadable pages do not end the turn: the next one checks again.
    """
    memory = parts.memory
    if memory is None or not memory.settings.delta_notice or "memory" not in parts.toolbox.tools:
        return None
    try:
        return _report_changes(parts, memory, frozen, lineage)
    except StorageError as error:
        log.warning("could not check the pages for changes: %s", error.message)
        return None


def _report_changes(parts: Parts, memory: "MemoryStore", frozen: FrozenPages, lineage: frozenset[str]) -> str | None:
    current = _read_pages(parts)
    state = "".join(page_hash(current[page]) for page in Target)
    if state == frozen.reported or all(current[page] == frozen.pages.get(page, ()) for page in Target):
        return None
    notice = delta_notice(
        frozen.pages,
        current,
        own=_own_entries(parts, lineage),
        allowed=memory.allowed_rules,
        unverified=memory.list_unverified,
    )
    frozen.reported = state
    return notice


def _own_entries(parts: Parts, lineage: frozenset[str]) -> dict[Target, frozenset[str]]:
    """Return the entries that this conversation wrote or removed itself."""
    assert parts.memory is not None
    own: dict[Target, set[str]] = {page: set() for page in Target}
    try:
        rows = History(parts.memory).rows()
    except StorageError:
        rows = []
    for row in rows:
        if row.session_id in lineage and row.origin == "agent":
            own[row.target] |= {text for text in (row.step.before, row.step.after) if text}
    return {page: frozenset(texts) for page, texts in own.items()}


KINDS = (".kept.md", "AGENTS.md", "CLAUDE.md", ".cursorrules")
"""File names in order of preference; only the first one found is used."""
WINDOW_SHARE = 0.06
"""The share of the model's window that a project file may take."""
CHARS_PER_TOKEN = 4


def project_files(folder: Path, *, context_length: int, sink: EventSink) -> list[tuple[str, str]]:
    """Return name and text of the project file, unsafe parts masked, truncated when too long."""
    for kind in KINDS:
        for candidate in _list_folders(folder):
            text = _read_text(candidate / kind)
            if text is not None:
                most = int(context_length * WINDOW_SHARE) * CHARS_PER_TOKEN
                return [(kind, _truncate(mask_unsafe(kind, text, sink), most))]
    return []


def _list_folders(folder: Path) -> list[Path]:
    """Return the folders that may have a project file: the working folder, and its project."""
    return list(dict.fromkeys((folder, Path(find_project(folder) or folder))))


def _read_text(path: Path) -> str | None:
    try:
        raw = read_bytes(path)
    except StorageError:
        return None
    text = raw.decode("utf-8", "replace").strip() if raw else ""
    return text or None


_PARAGRAPHS = re.compile(r"(\n[ \t]*\n)")


def mask_unsafe(name: str, text: str, sink: EventSink) -> str:
    """Return a context file with its dangerous paragraphs masked, and warn the person.

    If only the text as a whole is dangerous, all of it is masked.
    """
    from wellkept.security.scan import Scope, scan  # slow to import, and most folders have no such file

    verdict = scan(text, scope=Scope.CONTEXT)
    if not verdict.blocked:
        return text
    parts = _PARAGRAPHS.split(text)
    for index in range(0, len(parts), 2):
        part_verdict = scan(parts[index], scope=Scope.CONTEXT)
        if part_verdict.blocked:
            parts[index] = _mask(name, part_verdict.rules)
    masked = "".join(parts)
    if scan(masked, scope=Scope.CONTEXT).blocked:
        masked = _mask(name, verdict.rules)
    rules = ", ".join(verdict.rules)
    sink(Warned(f"a part of {name} is kept from the model: it matches {rules}", "read it, and rewrite that part"))
    return masked


def _mask(name: str, rules: tuple[str, ...]) -> str:
    return f"[BLOCKED: {name} matches {', '.join(rules)}; the user can look at the file]"


def _truncate(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[… cut after {most:,} of {len(text):,} characters]"

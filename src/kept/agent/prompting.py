"""The prompt of a session: built from frozen snapshots, with notices of later page changes."""

from collections.abc import Mapping
from dataclasses import dataclass

from kept.agent.parts import Parts
from kept.agent.project import project_files
from kept.core.clock import from_epoch
from kept.core.errors import StorageError, Unreadable
from kept.core.ids import SessionId
from kept.core.text import JSON
from kept.memory.edits import Target
from kept.memory.history import History
from kept.memory.page import page_hash
from kept.memory.store import delta_notice
from kept.prompt.tiers import PromptInputs, build_prompt, guidance
from kept.storage.files import read_bytes

_UNKNOWN_WINDOW = 128_000


def build_session_prompt(
    parts: Parts, *, root: SessionId, started: float, system_message: str | None, platform: str
) -> str:
    """Return the prompt with fresh snapshots of the pages and the catalogue."""
    memory = parts.memory if "memory" in parts.toolbox.tools else None
    if memory is not None:
        memory.load()
    window = parts.model.context_length if parts.model is not None else _UNKNOWN_WINDOW
    return build_prompt(
        PromptInputs(
            identity=_identity(parts),
            tools=tuple(parts.toolbox.tools),
            skill_catalogue=parts.catalogue() if "skills_list" in parts.toolbox.tools else None,
            platform_hint=_platform_hint(platform),
            system_message=system_message,
            project_files=project_files(parts.folder, context_length=window),
            memory_block=memory.render_snapshot(Target.MEMORY) if memory is not None else None,
            user_block=memory.render_snapshot(Target.USER) if memory is not None else None,
            provider_block=parts.providers.system_prompt_block() if parts.providers is not None else None,
            started=from_epoch(started).astimezone().date(),
            conversation_id=root,
            model=parts.model.name if parts.model is not None else "none",
        )
    )


def _identity(parts: Parts) -> str:
    try:
        own = (read_bytes(parts.home / "SOUL.md") or b"").decode("utf-8", "replace").strip()
    except StorageError:
        own = ""
    return own or guidance("identity")


def _platform_hint(platform: str) -> str:
    return "You are talking in a terminal; plain Markdown is shown well." if platform == "cli" else ""


@dataclass(slots=True)
class FrozenPages:
    """The pages as the session's prompt shows them, and the last page state that was reported."""

    pages: Mapping[Target, tuple[str, ...]]
    told: str = ""

    def as_json(self) -> dict[str, JSON]:
        """Return the value to store with the session."""
        return {"pages": {page.value: list(entries) for page, entries in self.pages.items()}, "told": self.told}


def freeze_pages(parts: Parts) -> FrozenPages:
    """Return the current pages."""
    return FrozenPages(_read_pages(parts))


def load_frozen_pages(value: JSON, parts: Parts) -> FrozenPages:
    """Return the stored pages of a session, or the current pages when none are stored."""
    if not isinstance(value, Mapping) or not isinstance(value.get("pages"), Mapping):
        return freeze_pages(parts)
    pages = value["pages"]
    assert isinstance(pages, Mapping)
    found = {}
    for page in Target:
        entries = pages.get(page.value)
        found[page] = tuple(str(entry) for entry in entries) if isinstance(entries, list) else ()
    return FrozenPages(found, str(value.get("told", "")))


def _read_pages(parts: Parts) -> dict[Target, tuple[str, ...]]:
    found: dict[Target, tuple[str, ...]] = {}
    for page in Target:
        try:
            enabled = parts.memory is not None and parts.memory.is_enabled(page)
            found[page] = parts.memory.page(page).entries if enabled and parts.memory is not None else ()
        except Unreadable:
            found[page] = ()
    return found


def page_changes(parts: Parts, frozen: FrozenPages, lineage: frozenset[str]) -> str | None:
    """Return what others changed on the pages since the prompt was built; report each state once."""
    memory = parts.memory
    if memory is None or not memory.settings.delta_notice or "memory" not in parts.toolbox.tools:
        return None
    current = _read_pages(parts)
    state = "".join(page_hash(current[page]) for page in Target)
    if state == frozen.told or all(current[page] == frozen.pages.get(page, ()) for page in Target):
        return None
    notice = delta_notice(frozen.pages, current, own=_own_entries(parts, lineage), allowed=memory.allowed_rules)
    frozen.told = state
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

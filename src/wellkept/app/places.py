"""Every place in a home where text is stored: one table, used by forget, backups and the privacy test.

A file that matches no row fails `tests/flows/test_privacy.py`; a text column of one of our databases without a row
fails `tests/unit/app/test_places.py`. So a change that stores text in a new place adds a row here.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import cache

from msgspec import Struct

from wellkept.storage.columns import OF_HOME, Part, TextColumn


class Nature(StrEnum):
    """Whether a file is canonical, derived, an old copy, or written by people."""

    CANONICAL = "canonical"
    """The only copy of its content."""
    DERIVED = "derived"
    """Rebuilt from canonical files when it is missing."""
    COPY = "copy"
    """An older state, or a copy made before a change."""
    SETTINGS = "settings"
    """Written by people, or by kept at their request."""


class OnForget(StrEnum):
    """What forget does with a file that contains the text."""

    ROWS = "rows"
    """Its store removes the rows and erases their bytes."""
    ENTRIES = "entries"
    """The memory store removes the entries."""
    SKILL = "skill"
    """The passages are removed from the skill and all of its versions."""
    LINES = "lines"
    """The lines that contain the text are removed."""
    OVERWRITE = "overwrite"
    """The lines are overwritten in place, because other processes append to the file."""
    MEMBERS = "members"
    """The lines are removed from the files in the archive."""
    REMOVE = "remove"
    """The file is removed; a derived one is rebuilt when it is needed."""
    REMOVE_COPY = "remove a copy"
    """The whole copy is removed, because no part of it can be removed; the plan names it with its size."""
    NAME = "name"
    """It is never changed; the report names it."""


class Place(Struct, frozen=True):
    """One kind of file."""

    pattern: str
    """Relative to the folder of the user, or with `shared` to that of the home; `**` also matches nothing."""
    holds: str
    nature: Nature
    on_forget: OnForget
    shared: bool = False
    """Whether the file belongs to the home and may contain text of every user."""
    left_out: str = ""
    """Why a backup does not contain it; empty if it does."""
    secrets: bool = False
    """Whether credentials may be in it; a backup contains it without them."""


_C, _D, _O, _S = Nature.CANONICAL, Nature.DERIVED, Nature.COPY, Nature.SETTINGS
_DATABASE = "@(state|kept).db"
REBUILT = "it is rebuilt when it is needed"
IN_COPY = "the copy of its database contains it"
_IS_BACKUP = "a backup contains no other backup"
PASSING = "it exists only while a process runs"

PLACES: tuple[Place, ...] = (
    Place("**.kept-tmp-*", "a write that was interrupted", _O, OnForget.REMOVE, left_out=PASSING),
    # conversations
    Place(f"{_DATABASE}.vectors*", "quantised vectors", _D, OnForget.REMOVE, shared=True, left_out=REBUILT),
    Place(f"{_DATABASE}.before-*", "the database before a migration", _O, OnForget.REMOVE_COPY, shared=True),
    Place(f"{_DATABASE}.damaged-*", "a damaged database", _O, OnForget.REMOVE_COPY, shared=True),
    Place(f"{_DATABASE}.salvaged-*", "an unfinished repair", _O, OnForget.REMOVE_COPY, shared=True, left_out=PASSING),
    Place(f"{_DATABASE}-@(wal|shm|journal)", "its log", _C, OnForget.ROWS, shared=True, left_out=IN_COPY),
    Place(_DATABASE, "conversations, outbox, receipts", _C, OnForget.ROWS, shared=True),
    Place("spool/*.json", "captured turns that were not stored yet", _C, OnForget.REMOVE),
    Place("chat_history", "what was typed in chats", _C, OnForget.REMOVE),
    # curated memory
    Place("memories/files/**", "files that a model keeps with Anthropic's memory tool", _C, OnForget.LINES),
    Place("memories/**ledger.db-@(wal|shm|journal)", "its log", _C, OnForget.ROWS, left_out=IN_COPY),
    Place("memories/**ledger.db", "the history of the pages", _C, OnForget.ROWS),
    Place("memories/**ledger.db.*", "an older or damaged ledger", _O, OnForget.REMOVE_COPY),
    Place("memories/**.md.bak.*", "a page before a repair", _O, OnForget.REMOVE),
    Place("memories/archive/**.md", "what left a page to make room", _C, OnForget.ENTRIES),
    Place("memories/**.md", "a page", _C, OnForget.ENTRIES),
    Place("memories/.watched", "kept has seen the pages", _D, OnForget.NAME, left_out=PASSING),
    Place("facts/*.json", "commits of projects, with digests and no text", _D, OnForget.REMOVE, left_out=REBUILT),
    Place("pending/**.json", "writes that wait for approval", _C, OnForget.REMOVE, secrets=True),
    # skills
    Place("skills/.*.lock", "the process that holds a lock", _D, OnForget.NAME, left_out=PASSING),
    Place("skills/.@(versions|curator|hub)/*.lock", "the holder of a lock", _D, OnForget.NAME, left_out=PASSING),
    Place("skills/.cache.json", "the index of skills", _D, OnForget.REMOVE, left_out=REBUILT),
    Place("skills/.usage.json*", "counters by name of skill", _C, OnForget.NAME),
    Place("skills/.outcomes.jsonl", "outcomes of turns by name of skill", _C, OnForget.LINES),
    Place("skills/.versions/**", "every version of the skills", _C, OnForget.SKILL),
    Place("skills/.curator/backups/*.tar.gz", "the skills before the curator ran", _O, OnForget.MEMBERS),
    Place("skills/.curator/@(reports|plans)/*.json", "what the curator did or plans", _C, OnForget.REMOVE),
    Place("skills/.curator/state.json", "when the curator ran", _C, OnForget.NAME),
    Place("skills/.curator/rollback.json", "which backup an unfinished rollback restores", _C, OnForget.NAME),
    Place("skills/.hub/quarantine/**", "skills that were fetched and not installed", _O, OnForget.REMOVE),
    Place("skills/.hub/**", "where skills were installed from", _C, OnForget.NAME),
    Place("skills/**", "skills, also archived ones", _C, OnForget.SKILL),
    # providers
    Place("holographic.db-@(wal|shm|journal)", "its log", _C, OnForget.ROWS, shared=True, left_out=IN_COPY),
    Place("holographic.db", "facts of the holographic provider", _C, OnForget.ROWS, shared=True),
    Place("holographic.db.*", "an older file of facts", _O, OnForget.REMOVE_COPY, shared=True),
    Place("mem0/**", "memories of Mem0 in its embedded form", _C, OnForget.NAME, shared=True),
    Place("hindsight/**", "data and log of a Hindsight server of ours", _C, OnForget.NAME, shared=True),
    Place("byterover/**", "the Markdown that ByteRover searches", _C, OnForget.NAME, shared=True),
    # other agents
    Place("connect/backups/**", "files of other agents before a connection changed them", _O, OnForget.NAME),
    Place("connect/prompts/**", "prompts of other agents whose answers have not arrived", _C, OnForget.REMOVE),
    Place("connect/*health-*", "the newest errors of a connection", _D, OnForget.REMOVE, left_out=PASSING),
    Place("connect/**", "which agents are connected", _C, OnForget.NAME),
    Place("migration/**", "reports of imports", _C, OnForget.REMOVE),
    Place("eval/last.json", "figures of the last eval, with ids and no text", _D, OnForget.REMOVE, left_out=REBUILT),
    # what belongs to the home
    Place("logs/*.log*", "logs", _C, OnForget.OVERWRITE, shared=True, left_out="logs describe this machine"),
    Place("SOUL.md", "who the agent is", _S, OnForget.LINES, shared=True),
    Place(".env", "keys of endpoints", _S, OnForget.NAME, shared=True, secrets=True, left_out="it holds keys"),
    Place("serve-token", "the start-up token", _S, OnForget.NAME, shared=True, left_out="it opens the server"),
    Place("*.lock", "the process that holds a lock", _D, OnForget.NAME, shared=True, left_out=PASSING),
    Place("@(config|kept).yaml*", "settings", _S, OnForget.NAME, shared=True, secrets=True),
    Place("*.json", "settings of a provider", _S, OnForget.NAME, shared=True, secrets=True),
    Place(".unfinished/**", "a folder being made or removed", _O, OnForget.REMOVE_COPY, shared=True, left_out=PASSING),
    Place("restoring/**", "a backup that is being restored", _O, OnForget.REMOVE_COPY, shared=True, left_out=PASSING),
    Place("restored/**", "files of a backup that differed from those here", _O, OnForget.REMOVE),
    Place("plugins/**", "plugins", _S, OnForget.NAME, shared=True),
    Place("backups/**", "backups of the home", _O, OnForget.NAME, shared=True, secrets=True, left_out=_IS_BACKUP),
    Place("backups/**", "backups of a user", _O, OnForget.NAME, left_out=_IS_BACKUP),
    Place("active_profile", "the name of a profile", _S, OnForget.NAME, shared=True),
    Place("user.json", "the id of a user", _S, OnForget.NAME),
    Place("forgotten/unfinished/**", "the sealed request of a running forget", _C, OnForget.NAME, left_out=PASSING),
    Place("forgotten/**", "reports of forget", _C, OnForget.NAME),
    Place("**.lock", "the process that holds a lock", _D, OnForget.NAME, left_out=PASSING),
)  # fmt: skip
"""The first row that matches counts."""


@cache
def _matcher(pattern: str) -> re.Pattern[str]:
    expression = re.escape(pattern)
    expression = re.sub(r"@\\\((.*?)\\\)", lambda found: f"(?:{found[1].replace(chr(92), '')})", expression)
    return re.compile(expression.replace(r"\*\*", ".*").replace(r"\*", "[^/]*"))


def find_place(path: str) -> Place | None:
    """Return the row of a file, given by its path relative to the folder of a profile.

    A user's own files are below `users/<id>/`, and other profiles below `profiles/<name>/`.
    """
    match path.split("/", 2):
        case ["profiles", _, rest]:
            return find_place(rest)
        case ["users", _, rest]:
            return _first_match(rest, [place for place in PLACES if not place.shared])
        case _:
            return _first_match(path, PLACES)


def _first_match(path: str, places: Sequence[Place]) -> Place | None:
    return next((place for place in places if _matcher(place.pattern).fullmatch(path)), None)


_USER = "user_id = :user"
_SESSION = "session_id IN (SELECT id FROM sessions WHERE user_id = :user)"
_PROMPT = "hash IN (SELECT prompt_hash FROM sessions WHERE user_id = :user)"
BLOBS_OF_USER = f"hash IN (SELECT hash FROM blob_uses WHERE message_id IN (SELECT id FROM messages WHERE {_SESSION}))"  # noqa: S608 - a constant
_SOURCE = f"id IN (SELECT source FROM messages WHERE {_SESSION})"  # noqa: S608 - a constant
_RECEIPT = "receipt_id IN (SELECT id FROM receipts WHERE user_id = :user)"
_IMPORT = "import_number IN (SELECT number FROM imports WHERE user_id = :user)"

STATE_COLUMNS: tuple[TextColumn, ...] = (
    TextColumn("messages", "content", Part.BY_STORE, _SESSION),
    TextColumn("messages", "tool_calls", Part.BY_STORE, _SESSION),
    TextColumn("messages", "reasoning", Part.BY_STORE, _SESSION),
    TextColumn("messages", "parts", Part.BY_STORE, _SESSION),
    TextColumn("messages", "api_content", Part.BY_STORE, _SESSION),
    TextColumn("blobs", "data", Part.BY_STORE, BLOBS_OF_USER),
    TextColumn("prompts", "text", Part.BY_STORE, _PROMPT),
    TextColumn("nodes", "text", Part.BY_STORE, _SESSION),
    # a message whose source has lost its name counts as from an unknown tool
    TextColumn("sources", "name", Part.ROW, _SOURCE),
    TextColumn("notes", "value", Part.ROW, _SESSION),
    TextColumn("sessions", "title", Part.NULL, _USER),
    TextColumn("sessions", "project", Part.NULL, _USER),
    TextColumn("sessions", "metadata", Part.NULL, _USER),
    TextColumn("sessions", "source", Part.WORDS, _USER),
    TextColumn("sessions", "profile", Part.NULL, _USER),
    TextColumn("sessions", "model", Part.NULL, _USER),
    TextColumn("sessions", "end_reason", Part.NULL, _USER),
    TextColumn("outbox", "payload", Part.ROW, _USER),
    TextColumn("outbox", "last_error", Part.NULL, _USER),
    TextColumn("provider_health", "last_error", Part.NULL, _USER),
    TextColumn("receipts", "query", Part.BLANK, _USER),
    TextColumn("receipts", "project", Part.NULL, _USER),
    TextColumn("receipts", "client", Part.WORDS, _USER),
    TextColumn("receipt_items", "page", Part.WORDS, _RECEIPT),
    TextColumn("receipt_items", "parts", Part.NULL, _RECEIPT),
    TextColumn("captured_sessions", "title", Part.NULL, _USER),
    TextColumn("transcripts", "state", Part.WORDS, _USER),
    # the next event of the client reads the file again, and stores no message twice
    TextColumn("transcripts", "path", Part.ROW, _USER),
    TextColumn("imports", "folder", Part.NULL, _USER),
    TextColumn("platform_people", "name", Part.WORDS, _USER),
    # people who asked to be let in; they ask again
    TextColumn("pairing_codes", "name", Part.ROW, OF_HOME),
    # paths of files, and names of what was imported
    TextColumn("imported_items", "name", Part.ID, _USER),
    TextColumn("imported_items", "place", Part.WORDS, _USER),
    TextColumn("tokens", "name", Part.WORDS, _USER),
    TextColumn("platform_messages", "message", Part.ROW, _USER),
    TextColumn("platform_messages", "answer", Part.ROW, _USER),
    TextColumn("injections", "text", Part.ROW, _USER),
    # ids that a client chose: telephone numbers and names of chats, for instance
    TextColumn("sessions", "id", Part.BY_STORE, _USER),
    TextColumn("sessions", "parent_session_id", Part.ID, _USER),
    TextColumn("messages", "session_id", Part.BY_STORE, _SESSION),
    TextColumn("messages", "tool_name", Part.BY_STORE, _SESSION),
    TextColumn("messages", "tool_call_id", Part.BY_STORE, _SESSION),
    TextColumn("messages", "external_id", Part.NULL, _SESSION),
    TextColumn("carried", "session_id", Part.BY_STORE, _SESSION),
    TextColumn("notes", "session_id", Part.BY_STORE, _SESSION),
    TextColumn("nodes", "session_id", Part.BY_STORE, _SESSION),
    TextColumn("outbox", "session_id", Part.ID, _USER),
    TextColumn("provider_calls", "session_id", Part.ID, _USER),
    TextColumn("usage", "session_id", Part.ID, _USER),
    TextColumn("usage", "model", Part.ID, _USER),
    TextColumn("receipts", "session_id", Part.ID, _USER),
    TextColumn("receipt_items", "session_id", Part.ID, _RECEIPT),
    TextColumn("captured_sessions", "session_id", Part.ID, _USER),
    TextColumn("captured_sessions", "external_id", Part.ID, _USER),
    TextColumn("captured_sessions", "waits_for", Part.ID, _USER),
    TextColumn("captured_turns", "external_id", Part.ID, _USER),
    TextColumn("captured_turns", "turn", Part.ID, _USER),
    TextColumn("conversation_keys", "session_id", Part.ID, _USER),
    TextColumn("conversation_keys", "key", Part.ROW, _USER),
    TextColumn("client_messages", "key", Part.ROW, _USER),
    TextColumn("imported_usage", "session_id", Part.ID, _IMPORT),
    TextColumn("imported_usage", "model", Part.ID, _IMPORT),
    TextColumn("platform_messages", "session_id", Part.ID, _USER),
    TextColumn("platform_messages", "delivery", Part.ID, _USER),
    TextColumn("injections", "session_id", Part.ID, _USER),
    TextColumn("injections", "key", Part.ROW, _USER),
    TextColumn("platform_people", "person", Part.ROW, _USER),
    TextColumn("pairing_codes", "person", Part.ROW, OF_HOME),
    TextColumn("moved_chats", "chat", Part.ROW, OF_HOME),
    TextColumn("moved_chats", "origin", Part.ROW, OF_HOME),
    TextColumn("leases", "name", Part.ROW, "substr(name, 9) IN (SELECT id FROM sessions WHERE user_id = :user)"),
)
"""The texts in `state.db`; forget removes them from the rows of one user."""

LEDGER_COLUMNS: tuple[TextColumn, ...] = (
    TextColumn("edits", "before", Part.BY_STORE),
    TextColumn("edits", "after", Part.BY_STORE),
    TextColumn("edits", "reason", Part.BY_STORE),
    TextColumn("edits", "source", Part.BY_STORE),
    TextColumn("edits", "session_id", Part.BY_STORE),
    # the page of a project is named after its folder
    TextColumn("edits", "target", Part.BY_STORE),
    TextColumn("clean_entries", "target", Part.BY_STORE),
)
"""The texts in a `ledger.db`, which belongs to one user."""

SERVER_COLUMNS: tuple[TextColumn, ...] = (
    TextColumn("pages", "raw", Part.BY_STORE),
    TextColumn("pages", "name", Part.BY_STORE),
    TextColumn("page_copies", "name", Part.BY_STORE),
    TextColumn("page_copies", "raw", Part.ROW),
    # pending writes, and lines about the use of skills
    TextColumn("documents", "data", Part.ROW),
)
"""Texts that are in a table on a PostgreSQL server, and in separate files otherwise."""

MESSAGES_OF_USER = f"message_id IN (SELECT id FROM messages WHERE {_SESSION})"  # noqa: S608 - a constant

ROWS_OF_USER: dict[str, str] = {
    "carried": _SESSION,
    "blob_uses": MESSAGES_OF_USER,
    "captured_messages": MESSAGES_OF_USER,
    "receipt_items": _RECEIPT,
    "imported_usage": _IMPORT,
    "notes": _SESSION,
    "nodes": _SESSION,
    **dict.fromkeys(
        (
            "captured_sessions", "captured_turns", "client_messages", "conversation_keys", "imported_items", "imports",
            "injections", "outbox", "outbox_lanes", "platform_messages", "platform_people", "provider_calls",
            "provider_health", "receipt_marks", "receipts", "transcripts", "usage",
        ),
        _USER,
    ),
    "blobs": "hash IN (SELECT hash FROM blob_uses)",
    "sources": _SOURCE,
    "messages": _SESSION,
    "prompts": _PROMPT,
    "sessions": _USER,
}  # fmt: skip
"""Which rows of `state.db` belong to a user, in an order in which the other rows can be deleted; the backup of one user
contains only these rows."""

FACTS_OF_USER: dict[str, str] = {
    "mirrored_writes": _USER,
    "fact_entities": "fact_id IN (SELECT id FROM facts WHERE user_id = :user)",
    "entities": "id IN (SELECT entity_id FROM fact_entities)",
    "facts": _USER,
}
"""The same for `holographic.db`."""

FACT_COLUMNS: tuple[TextColumn, ...] = (
    TextColumn("facts", "text", Part.BY_STORE, _USER),
    TextColumn("facts", "key", Part.BY_STORE, _USER),
    TextColumn("facts", "speaker", Part.BY_STORE, _USER),
    TextColumn("facts", "category", Part.BY_STORE, _USER),
    TextColumn("facts", "tags", Part.BY_STORE, _USER),
    TextColumn("facts", "session_id", Part.BY_STORE, _USER),
)
"""The texts in `holographic.db`."""

WITHOUT_TEXT = frozenset(
    {
        "provider_calls.provider", "provider_calls.call", "provider_calls.outcome", "provider_calls.user_id",
        "usage.user_id", "usage.day", "usage.task", "captured_turns.user_id", "captured_turns.client",
        "captured_turns.messages", "conversation_keys.user_id", "client_messages.user_id",
        "client_messages.hash", "imported_usage.day", "imported_usage.task",
        "blob_uses.hash", "leases.holder", "mirrored_writes.user_id",
        "outbox_lanes.provider", "outbox_lanes.lease_holder", "outbox_lanes.user_id",
        "receipt_marks.user_id", "receipt_marks.mark", "captured_messages.key", "state_meta.key", "state_meta.value",
        "moved_chats.platform", "pairing_codes.platform", "pairing_codes.code",
        "platform_people.platform", "platform_people.user_id",
        "tokens.id", "tokens.user_id", "tokens.scopes", "tokens.hash",
        "tombstones.hash", "clean_entries.digests",
        "blobs.hash", "edits.action", "edits.allowed", "edits.group_id", "edits.origin", "edits.page_after",
        "edits.page_before", "edits.user_id", "facts.source",
        "facts.user_id", "facts.vector", "messages.origin", "messages.role",
        "messages.state", "nodes.children",
        "notes.key", "outbox.hook", "outbox.idempotency_key",
        "outbox.provider", "outbox.user_id", "prompts.hash", "provider_health.provider",
        "provider_health.user_id",
        "receipts.kind", "receipts.user_id",
        "sessions.link", "sessions.prompt_hash",
        "sessions.user_id", "captured_sessions.client",
        "captured_sessions.user_id",
        "transcripts.check_bytes", "transcripts.client", "transcripts.user_id",
        "imports.counts", "imports.id", "imports.source", "imports.user_id",
        "imported_items.kind", "imported_items.mark",
        "imported_items.source", "imported_items.state", "imported_items.user_id",
        "platform_messages.platform",
        "platform_messages.state", "platform_messages.user_id",
        "injections.place", "injections.user_id",
        # removed with the last fact that names them
        "entities.key", "entities.name",
        # single words, which erasing removes with the last message that has them
        "message_spellings.words",
    }
)  # fmt: skip
"""Columns with ids, hashes, names of kinds and numbers only; no table as a whole, because one may get a column."""

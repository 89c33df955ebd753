"""The table of places: it names every file and every column that holds text, and nothing can leave it unnoticed."""

import pytest

from wellkept.app.places import (
    FACT_COLUMNS,
    LEDGER_COLUMNS,
    PLACES,
    SERVER_COLUMNS,
    STATE_COLUMNS,
    WITHOUT_TEXT,
    OnForget,
    find_place,
)
from wellkept.core.clock import SystemClock
from wellkept.core.ids import OWNER
from wellkept.memory.page import Add, Target
from wellkept.memory.store import MemoryStore
from wellkept.providers.holographic.store import FactStore
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.columns import text_columns
from wellkept.storage.connections import connect_read_only

FILES = {
    "state.db": OnForget.ROWS,
    "state.db-wal": OnForget.ROWS,
    "kept.db": OnForget.ROWS,
    "state.db.vectors": OnForget.REMOVE,
    "state.db.before-3": OnForget.REMOVE_COPY,
    "state.db.damaged-20260101-wal": OnForget.REMOVE_COPY,
    "state.db.salvaged-20260101": OnForget.REMOVE_COPY,
    "spool/0a.json": OnForget.REMOVE,
    "connect/prompts/opencode-00.json": OnForget.REMOVE,
    "connect/health-codex.json": OnForget.REMOVE,
    "connect/.health-codex.json.77": OnForget.REMOVE,
    "connect/record.json": OnForget.NAME,
    "chat_history": OnForget.REMOVE,
    "memories/MEMORY.md": OnForget.ENTRIES,
    "memories/projects/kept.md": OnForget.ENTRIES,
    "memories/USER.md.bak.17": OnForget.REMOVE,
    "memories/.USER.md.kept-tmp-12-ab": OnForget.REMOVE,
    "memories/ledger.db-wal": OnForget.ROWS,
    "memories/ledger.db.before-2": OnForget.REMOVE_COPY,
    "pending/memory/0a.json": OnForget.REMOVE,
    "pending/skills/expired/0a.json": OnForget.REMOVE,
    "skills/a/SKILL.md": OnForget.SKILL,
    "skills/a/assets/yarn.lock": OnForget.SKILL,
    "skills/.archive/a/SKILL.md": OnForget.SKILL,
    "skills/.versions/a/files/00": OnForget.SKILL,
    "skills/.cache.json": OnForget.REMOVE,
    "skills/.curator/backups/1.tar.gz": OnForget.MEMBERS,
    "skills/.curator/reports/1.json": OnForget.REMOVE,
    "skills/.hub/quarantine/x/SKILL.md": OnForget.REMOVE,
    "holographic.db": OnForget.ROWS,
    "mem0/history.db": OnForget.NAME,
    "logs/kept.log.2": OnForget.OVERWRITE,
    "SOUL.md": OnForget.LINES,
    "config.yaml": OnForget.NAME,
    "backups/home.tar.gz": OnForget.NAME,
}


@pytest.mark.parametrize("prefix", ["", "profiles/work/"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_has_the_treatment_of_its_place(name, prefix):
    """A row that is removed from the table, or hidden by one before it, is missed here."""
    place = find_place(prefix + name)

    assert place is not None
    assert place.on_forget is FILES[name]


def test_another_user_owns_no_file_of_the_home():
    """The same names mean something else below `users/`."""
    assert find_place("users/ann/memories/USER.md") is not None
    assert find_place("users/ann/state.db") is None


def test_what_holds_secrets_is_marked():
    """A backup that leaves secrets out reads it here."""
    assert [place.pattern for place in PLACES if place.secrets] == [
        "pending/**.json",
        ".env",
        "@(config|kept).yaml*",
        "*.json",
        "backups/**",
    ]


def test_every_column_with_text_is_classified(tmp_path):
    """A migration that adds one adds it to the table, with what forget does about it."""
    SqliteSessionStore(tmp_path).close()
    FactStore(tmp_path / "holographic.db", user=OWNER, clock=SystemClock(), dim=64).close()
    memory = MemoryStore(tmp_path / "memories")
    memory.apply(Target.USER, Add("likes tea"))
    memory.close()
    known = {(column.table, column.column) for column in (*STATE_COLUMNS, *LEDGER_COLUMNS, *FACT_COLUMNS)}

    unknown = []
    for path in (tmp_path / "state.db", tmp_path / "holographic.db", tmp_path / "memories" / "ledger.db"):
        connection = connect_read_only(path)
        unknown += [
            f"{table}.{column}"
            for table, column in text_columns(connection)
            if (table, column) not in known and f"{table}.{column}" not in WITHOUT_TEXT
        ]
        connection.close()
    assert unknown == []


ON_A_SERVER = {
    # search indexes: the words go with the last message that has them
    "fresh_substrings.text", "fresh_words.terms", "postings.lists", "segments.lengths", "segments.messages",
    "message_vectors.vectors", "vector_state.model",
    # names of files that Wellkept chooses
    "documents.folder", "documents.name",
    # users, whom `kept user forget` removes
    "accounts.created", "accounts.id", "users.id",
    # follows the sessions by a trigger
    "session_owners.id",
    "migrations.applied",
}  # fmt: skip
"""Columns that only a server has, and that hold no text which `kept forget` could leave there."""


def test_every_column_of_a_server_is_classified(postgres_url):
    """The same for the tables on a PostgreSQL server."""
    import psycopg

    known = {f"{column.table}.{column.column}" for column in (*STATE_COLUMNS, *LEDGER_COLUMNS, *SERVER_COLUMNS)}
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'kept'"
            " AND data_type NOT IN ('bigint', 'integer', 'smallint', 'double precision', 'boolean', 'real')"
        ).fetchall()

    names = {f"{table}.{column}" for table, column in rows if column not in {"tenant", "user_id"}}
    assert sorted(names - known - WITHOUT_TEXT - ON_A_SERVER) == []

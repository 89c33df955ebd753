"""Homes of OpenClaw as its versions wrote them."""

import json
import sqlite3
import uuid

import pytest

EVENTS = "session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT, created_at INTEGER NOT NULL"
SCHEMAS = {
    # the last version before sessions were in the database
    1: {"schema_meta": "meta_key TEXT PRIMARY KEY, schema_version INTEGER"},
    7: {
        "schema_meta": "meta_key TEXT PRIMARY KEY, schema_version INTEGER",
        "sessions": "session_id TEXT PRIMARY KEY, session_key TEXT, updated_at INTEGER",
        "session_entries": "session_key TEXT PRIMARY KEY, session_id TEXT, entry_json TEXT NOT NULL",
        "transcript_events": f"{EVENTS}, PRIMARY KEY (session_id, seq)",
    },
    23: {
        "schema_meta": "meta_key TEXT PRIMARY KEY, schema_version INTEGER",
        "session_nodes": "session_key TEXT NOT NULL PRIMARY KEY, current_session_id TEXT NOT NULL, entry_json TEXT NOT NULL,"
        " created_via TEXT, parent_session_key TEXT, spawned_by TEXT, label TEXT, display_name TEXT",
        "session_windows": "session_id TEXT NOT NULL PRIMARY KEY, session_key TEXT NOT NULL, previous_session_id TEXT,"
        " reason TEXT, chat_type TEXT, channel TEXT, model TEXT, spawned_by TEXT, display_name TEXT",
        "transcript_events": f"{EVENTS}, event_zstd BLOB, event_utf8_bytes INTEGER, PRIMARY KEY (session_id, seq)",
        "session_transcript_archives": "session_id TEXT NOT NULL, reason TEXT NOT NULL, encoding TEXT NOT NULL,"
        " archive_blob BLOB NOT NULL, archive_name TEXT NOT NULL UNIQUE, created_at INTEGER NOT NULL",
        "session_transcript_cold_archives": "session_id TEXT NOT NULL PRIMARY KEY, archive_name TEXT NOT NULL,"
        " archived_at INTEGER NOT NULL, storage TEXT NOT NULL, archive_blob BLOB",
    },
}


class Entries:
    """The entries of one session, each a minute after the one before."""

    def __init__(self, session=None, **header):
        self.session = session or str(uuid.uuid4())
        self.minute = 0
        self.last = None
        self.rows = []
        self.add("session", version=3, id=self.session, cwd="/home/sam/.openclaw/workspace", **header)
        self.last = None

    def add(self, kind, *, after=..., **fields):
        self.minute += 1
        stamp = f"2026-06-26T{self.minute // 60:02}:{self.minute % 60:02}:00.000Z"
        row = {"type": kind, "id": uuid.uuid4().hex[:8], "timestamp": stamp, **fields}
        if kind != "session":
            row["parentId"] = self.last if after is ... else after
        self.last = row["id"]
        self.rows.append(row)
        return row["id"]

    def user(self, content, *, after=..., **fields):
        return self.add("message", after=after, message={"role": "user", "content": content, **fields})

    def answer(self, *blocks, after=..., **fields):
        made = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        message = {
            "role": "assistant", "content": made, "provider": "anthropic", "model": "claude-opus-4-5",
            "usage": {"input": 100, "output": 10, "cacheRead": 3, "cacheWrite": 2, "cost": {"total": 0.1}},
            "stopReason": "stop", **fields,
        }  # fmt: skip
        return self.add("message", after=after, message=message)

    def result(self, text, call="c1", name="exec"):
        content = [{"type": "text", "text": text}]
        return self.add(
            "message", message={"role": "toolResult", "toolCallId": call, "toolName": name, "content": content}
        )

    @property
    def lines(self):
        return "".join(json.dumps(row) + "\n" for row in self.rows)


class OpenClawHome:
    """Writes a home of OpenClaw."""

    def __init__(self, path):
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def file(self, entries, suffix="", agent="main"):
        return self.write(f"agents/{agent}/sessions/{entries.session}.jsonl{suffix}", entries.lines)

    def index(self, listed, agent="main"):
        self.write(f"agents/{agent}/sessions/sessions.json", json.dumps(listed))

    def database(self, *sessions, version=23, agent="main", pack=None):
        path = self.path / "agents" / agent / "agent" / "openclaw-agent.sqlite"
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode=WAL")
        for table, columns in SCHEMAS[version].items():
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
        for entries in sessions:
            connection.execute("DELETE FROM transcript_events WHERE session_id = ?", (entries.session,))
            for seq, row in enumerate(entries.rows):
                text = json.dumps(row)
                insert(
                    connection,
                    "transcript_events",
                    session_id=entries.session,
                    seq=seq,
                    event_json=text,
                    created_at=1_782_000_000_000 + entries.minute * 60_000,
                )
                if pack is not None and seq % 2:
                    connection.execute(
                        "UPDATE transcript_events SET event_json = NULL, event_zstd = ? WHERE session_id = ? AND seq = ?",
                        (pack(text.encode()), entries.session, seq),
                    )
        connection.commit()
        return connection


def insert(connection, table, **values):
    names, places = ", ".join(values), ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", list(values.values()))
    connection.commit()


@pytest.fixture
def openclaw(tmp_path):
    """An empty home of OpenClaw."""
    return OpenClawHome(tmp_path / ".openclaw")


@pytest.fixture
def entries():
    """Makes the entries of a session."""
    return Entries


@pytest.fixture
def add():
    """Inserts a row into a table."""
    return insert


@pytest.fixture
def pack():
    """Compresses as newer versions do."""
    import sys

    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.compress


@pytest.fixture
def run(caller, openclaw):
    """Imports the home; returns the report."""
    from wellkept import imports

    def run(place=None):
        found = imports.sources.find_sources(caller, "openclaw", place or openclaw.path)
        return imports.run.run_import(caller, found.sources[0])

    return run


@pytest.fixture
def sessions(caller):
    """Returns the stored sessions, the oldest first, each with its messages."""

    def sessions():
        store = caller.space.sessions
        found = [*store.recent(limit=100, source="openclaw"), *store.recent(limit=100, source="subagent")]
        ordered = sorted(found, key=lambda session: (session.started, session.id))
        return [(session, store.messages(session.id)) for session in ordered]

    return sessions


@pytest.fixture
def spoken(sessions):
    """Returns who said what, over all sessions."""

    def spoken():
        return [
            (message.origin.value, message.message.text or f"calls {len(message.message.tool_calls)}")
            for _, messages in sessions()
            for message in messages
        ]

    return spoken

"""Homes of Hermes as its versions wrote them."""

import json
import sqlite3

import pytest

SESSIONS = {
    9: "id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, model_config TEXT, system_prompt TEXT,"
    " parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0,"
    " tool_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0, title TEXT",
    17: ", cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0, cwd TEXT, git_branch TEXT",
    22: ", display_name TEXT, rewind_count INTEGER NOT NULL DEFAULT 0, archived INTEGER NOT NULL DEFAULT 0,"
    " profile_name TEXT",
    99: ", mood TEXT, shards BLOB",
}
MESSAGES = {
    9: "id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL,"
    " content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, token_count INTEGER,"
    " finish_reason TEXT, reasoning TEXT",
    17: ", reasoning_content TEXT, observed INTEGER DEFAULT 0, active INTEGER NOT NULL DEFAULT 1,"
    " compacted INTEGER NOT NULL DEFAULT 0",
    22: ", api_content TEXT, platform_message_id TEXT",
    99: ", colour TEXT DEFAULT 'blue'",
}
USAGE = (
    "session_id TEXT NOT NULL, model TEXT NOT NULL, task TEXT NOT NULL DEFAULT '', input_tokens INTEGER DEFAULT 0,"
    " output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0"
)
VERSIONS = (9, 17, 22, 99)
"""Versions of the schema; 99 stands for one that is not known yet."""


class HermesHome:
    """Writes a home of Hermes, row by row; every row comes ten seconds after the one before."""

    def __init__(self, path, version=22):
        self.path, self.version = path, version
        path.mkdir(parents=True, exist_ok=True)
        self.database = path / "state.db"
        self.connection = sqlite3.connect(self.database)
        self.connection.execute("PRAGMA journal_mode=WAL")
        known = [each for each in VERSIONS if each <= version]
        self.connection.execute(f"CREATE TABLE sessions ({''.join(SESSIONS[each] for each in known)})")
        self.connection.execute(f"CREATE TABLE messages ({''.join(MESSAGES[each] for each in known)})")
        self.connection.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
        if version >= 22:
            self.connection.execute(f"CREATE TABLE session_model_usage ({USAGE})")
        self.insert("schema_version", version=version)
        self.now = 1_790_000_000.0

    def insert(self, table, **values):
        names, places = ", ".join(values), ", ".join("?" * len(values))
        done = self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", list(values.values()))
        self.connection.commit()
        return done.lastrowid

    def session(self, name="s1", **values):
        given = {"source": "cli", "model": "loop-model", "started_at": self.now, **values}
        if "model_config" in given:
            given["model_config"] = json.dumps(given["model_config"])
        self.insert("sessions", id=name, **given)
        return name

    def say(self, role, content, session="s1", *, after=10.0, **values):
        self.now += after
        if "tool_calls" in values:
            values["tool_calls"] = json.dumps(values["tool_calls"])
        values = {"timestamp": self.now, **values}
        return self.insert("messages", session_id=session, role=role, content=content, **values)

    def change(self, sql, *values):
        self.connection.execute(sql, values)
        self.connection.commit()


@pytest.fixture
def make_hermes(tmp_path):
    """Makes homes of Hermes."""
    made = []

    def make(name="hermes", version=22):
        made.append(HermesHome(tmp_path / name, version))
        return made[-1]

    yield make
    for home in made:
        home.connection.close()


@pytest.fixture
def hermes(make_hermes):
    """A home of Hermes."""
    return make_hermes()


@pytest.fixture
def run(caller):
    """Imports a home; returns the report."""
    from wellkept import imports

    def run(place, name="hermes"):
        found = imports.sources.find_sources(caller, name, place)
        return imports.run.run_import(caller, found.sources[0])

    return run


@pytest.fixture
def sessions(caller):
    """Returns the stored sessions, the oldest first, each with its messages."""

    def sessions():
        store = caller.space.sessions
        found = [*store.recent(limit=100, source="hermes"), *store.recent(limit=100, source="subagent")]
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

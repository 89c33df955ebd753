"""Every source: damaged files end nothing, a second reading adds nothing, and large histories fit into memory.

`MAKERS` has one line per source; a new source adds one.
"""

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept import imports
from wellkept.core.errors import Refused
from wellkept.formats.messages import as_blocks
from wellkept.formats.port import SOURCES, START, Left, Request, Said, Unusable, find_source
from wellkept.imports.sources import ImportChoices

WORDS = [
    "the",
    "marmot",
    "printer",
    "in",
    "the",
    "cellar",
    "needs",
    "a",
    "new",
    "roll",
    "of",
    "paper",
    "before",
    "the",
    "train",
    "leaves",
    "at",
    "noon",
]


def say(number, size=60):
    chosen = random.Random(number)
    text = f"{number}: {' '.join(chosen.choices(WORDS, k=max(1, size // 6)))}"
    return text[:size]


def stamp(number):
    return f"2026-10-{1 + number // 43_200:02}T{number // 3_600 % 12:02}:{number // 60 % 60:02}:{number % 60:02}.000Z"


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def make_claude_code(folder, count, size):
    def rows():
        for number in range(count):
            role = ("user", "assistant")[number % 2]
            content = say(number, size) if role == "user" else [{"type": "text", "text": say(number, size)}]
            message = {"role": role, "content": content}
            if role == "assistant":
                usage = {"input_tokens": 3, "output_tokens": 4}
                message |= {"id": f"m{number}", "model": "claude-opus-4-8", "usage": usage}
            yield {
                "type": role, "uuid": f"u{number}", "sessionId": "s-1", "timestamp": stamp(number), "cwd": "/home/sam/p",
                "isSidechain": False, "entrypoint": "cli", "message": message,
            }  # fmt: skip

    write_lines(folder / "projects" / "p" / "s-1.jsonl", rows())


def make_codex(folder, count, size):
    def rows():
        meta = {"id": "t-1", "cwd": "/home/sam/p", "source": "cli"}
        yield {"timestamp": stamp(0), "type": "session_meta", "payload": meta}
        for number in range(count):
            role, kind = (("user", "input_text"), ("assistant", "output_text"))[number % 2]
            content = [{"type": kind, "text": say(number, size)}]
            payload = {"type": "message", "role": role, "content": content}
            yield {"timestamp": stamp(number), "type": "response_item", "payload": payload}

    write_lines(folder / "sessions" / "2026" / "rollout-2026-10-01T00-00-00-t-1.jsonl", rows())


def make_opencode(folder, count, size):
    database = folder / "opencode.db"
    with sqlite3.connect(database) as connection:
        connection.executescript(
            "CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, directory TEXT, title TEXT,"
            " version TEXT, time_created INTEGER, time_updated INTEGER, time_archived INTEGER);"
            "CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);"
            "CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER,"
            " time_updated INTEGER, data TEXT);"
        )
        now = 1_780_000_000_000
        row = ("ses_1", "p", None, "/home/sam/p", "Marmots", "1.2", now, now + count, None)
        connection.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        for number in range(count):
            role, moment = ("user", "assistant")[number % 2], now + number
            data = {"role": role, "time": {"created": moment, "completed": moment}, "modelID": "m", "providerID": "p"}
            values = (f"msg_{number:09}", "ses_1", moment, moment, json.dumps(data))
            connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", values)
            part = json.dumps({"type": "text", "text": say(number, size)})
            values = (f"prt_{number:09}", f"msg_{number:09}", "ses_1", moment, moment, part)
            connection.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", values)
    connection.close()


def make_openclaw(folder, count, size):
    def rows():
        yield {"type": "session", "version": 3, "id": "s-1", "timestamp": stamp(0), "cwd": "/home/sam/p"}
        for number in range(count):
            role = ("user", "assistant")[number % 2]
            message = {"role": role, "content": [{"type": "text", "text": say(number, size)}]}
            parent = f"{number - 1:08x}" if number else None
            yield {
                "type": "message", "id": f"{number:08x}", "parentId": parent, "timestamp": stamp(number), "message": message,
            }  # fmt: skip

    write_lines(folder / "agents" / "main" / "sessions" / "s-1.jsonl", rows())


def make_hermes(folder, count, size):
    with sqlite3.connect(folder / "state.db") as connection:
        connection.executescript(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, model TEXT, started_at REAL, title TEXT);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT, content TEXT,"
            " tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL);"
            "INSERT INTO sessions VALUES ('s1', 'cli', 'm', 1780000000.0, 'Marmots');"
        )
        rows = (("s1", ("user", "assistant")[n % 2], say(n, size), 1_780_000_000.0 + n) for n in range(count))
        connection.executemany("INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", rows)
    connection.close()


def make_chatgpt(folder, count, size):
    mapping = {"root": {"id": "root", "message": None, "parent": None, "children": ["n0"]}}
    for number in range(count):
        role = ("user", "assistant")[number % 2]
        content = {"content_type": "text", "parts": [say(number, size)]}
        message = {
            "id": f"n{number}", "author": {"role": role}, "create_time": 1_780_000_000.0 + number, "content": content,
            "metadata": {}, "recipient": "all",
        }  # fmt: skip
        parent = f"n{number - 1}" if number else "root"
        children = [f"n{number + 1}"] if number + 1 < count else []
        mapping[f"n{number}"] = {"id": f"n{number}", "message": message, "parent": parent, "children": children}
    whole = {
        "title": "Marmots", "create_time": 1_780_000_000.0, "update_time": 1_780_000_000.0, "mapping": mapping,
        "current_node": f"n{count - 1}", "conversation_id": "c-1", "id": "c-1",
    }  # fmt: skip
    (folder / "conversations.json").write_text(json.dumps([whole]))


def make_claude(folder, count, size):
    messages = [
        {
            "uuid": f"m{n}", "sender": ("human", "assistant")[n % 2], "text": say(n, size), "created_at": stamp(n),
            "content": [{"type": "text", "text": say(n, size)}], "attachments": [], "files": [],
        }
        for n in range(count)
    ]  # fmt: skip
    whole = {
        "uuid": "c-1",
        "name": "Marmots",
        "created_at": stamp(0),
        "updated_at": stamp(0),
        "chat_messages": messages,
    }
    (folder / "conversations.json").write_text(json.dumps([whole]))


def make_gemini(folder, count, size):
    def rows():
        yield {"sessionId": "s-1", "projectHash": "0a", "startTime": stamp(0), "lastUpdated": stamp(0), "kind": "main"}
        for number in range(count):
            kind = ("user", "gemini")[number % 2]
            yield {"id": f"m{number}", "timestamp": stamp(number), "type": kind, "content": say(number, size)}

    write_lines(folder / "tmp" / "p" / "chats" / "session-2026-10-01T00-00-s1.jsonl", rows())


def make_cursor(folder, count, size):
    def rows():
        for number in range(count):
            role, text = ("user", "assistant")[number % 2], say(number, size)
            text = f"<user_query>\n{text}\n</user_query>" if role == "user" else text
            yield {"role": role, "message": {"content": [{"type": "text", "text": text}]}}

    write_lines(folder / "projects" / "p" / "agent-transcripts" / "a-1" / "a-1.jsonl", rows())


def make_cline(folder, count, size):
    messages = [
        {
            "id": f"m{number}", "ts": 1_780_000_000_000 + number, "role": ("user", "assistant")[number % 2],
            "content": [{"type": "text", "text": say(number, size)}],
        }
        for number in range(count)
    ]  # fmt: skip
    path = folder / "sessions" / "s-1" / "s-1.messages.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"sessionId": "s-1", "messages": messages}))


def make_copilot(folder, count, size):
    def rows():
        start = {"sessionId": "s-1", "context": {"cwd": "/home/sam/p"}}
        yield {"type": "session.start", "id": "e", "timestamp": stamp(0), "data": start}
        for number in range(count):
            kind = ("user.message", "assistant.message")[number % 2]
            yield {"type": kind, "id": f"e{number}", "timestamp": stamp(number), "data": {"content": say(number, size)}}

    write_lines(folder / "session-state" / "s-1" / "events.jsonl", rows())


def make_pi(folder, count, size):
    make_openclaw(folder, count, size)
    path = folder / "agents" / "main" / "sessions" / "s-1.jsonl"
    path.rename(folder / "s-1.jsonl")


def make_droid(folder, count, size):
    def rows():
        yield {"type": "session_start", "id": "s-1", "title": "Marmots", "cwd": "/home/sam/p", "version": 2}
        for number in range(count):
            content = [{"type": "text", "text": say(number, size)}]
            message = {"role": ("user", "assistant")[number % 2], "content": content}
            yield {"type": "message", "id": f"m{number}", "timestamp": stamp(number), "message": message}

    write_lines(folder / "-home-sam-p" / "s-1.jsonl", rows())


def make_mcp_memory(folder, count, size):
    write_lines(
        folder / "memory.jsonl",
        (
            {"type": "entity", "name": f"e{n}", "entityType": "fact", "observations": [say(n, size)]}
            for n in range(count)
        ),
    )


def make_jsonl(folder, count, size):
    def rows():
        for number in range(count):
            role = ("user", "assistant")[number % 2]
            yield {
                "session_id": "20261001_000000_abcdef", "role": role, "content": say(number, size),
                "timestamp": 1_780_000_000.0 + number,
            }  # fmt: skip

    write_lines(folder / "export.jsonl", rows())


MAKERS = {
    "claude-code": make_claude_code,
    "codex": make_codex,
    "opencode": make_opencode,
    "openclaw": make_openclaw,
    "hermes": make_hermes,
    "chatgpt": make_chatgpt,
    "claude": make_claude,
    "gemini": make_gemini,
    "cursor": make_cursor,
    "cline": make_cline,
    "copilot": make_copilot,
    "pi": make_pi,
    "droid": make_droid,
    "mcp-memory": make_mcp_memory,
    "jsonl": make_jsonl,
}
"""Writes a history with one conversation of `count` messages of `size` characters into a folder."""
SPOKEN = sorted(set(MAKERS) - {"mcp-memory"})
"""Sources with conversations."""
BY_LINE = ("claude-code", "codex", "openclaw", "gemini", "cursor", "copilot", "pi", "droid", "jsonl")
"""Sources that append to a file for each conversation."""
STREAMED = sorted(set(SPOKEN) - {"chatgpt", "claude", "cline"})
"""Sources whose history grows line by line; an export, or a session of Cline, is one object."""


def read_all(name, root):
    """Return the messages of all transcripts; what cannot be read is left out."""
    source = find_source(name)
    said = []
    list(source.list_assets(root, Request({}, root)))
    for path in source.list_transcripts(root):
        try:
            reading = source.open(path, START)
        except Unusable:
            continue
        try:
            said += [item for item in reading if isinstance(item, Said)]
            reading.position()
        except Unusable:
            continue
        finally:
            reading.close()
    return said


def test_every_source_has_a_maker():
    """So that the tests below run for it."""
    assert set(SOURCES) - set(MAKERS) == set()


@pytest.mark.parametrize("name", SPOKEN)
def test_a_history_is_read_once(name, caller, tmp_path):
    """All messages, in order; the second run adds nothing; undo takes all back."""
    root = tmp_path / "history"
    root.mkdir()
    MAKERS[name](root, 20, 60)

    def run():
        found = imports.sources.find_sources(caller, name, root)
        assert not isinstance(found, Refused), found
        report = imports.run.run_import(caller, found.sources[0], ImportChoices(with_backup=False))
        assert not isinstance(report, Refused), report
        return report

    first, second = run(), run()
    store = caller.space.sessions
    (session,) = store.recent(limit=5)
    stored = [message.message.text for message in store.messages(session.id)]
    undone = imports.undo.undo_import(caller, first.import_id)

    assert stored == [say(number) for number in range(20)]
    assert (first.sessions["new"], second.sessions["new"], second.sessions["updated"]) == (1, 0, 0)
    assert first.problems == ()
    assert (undone.sessions, undone.messages, store.recent(limit=5)) == (1, 20, [])


def copy_beside(name, path, number):
    """Return where a backup of a transcript could lie among the transcripts of a source."""
    if name == "cursor":  # the folder and the file are named after the conversation
        return path.parents[1] / f"copy-{number}" / path.name
    if name == "openclaw":  # what it calls a transcript that a reset ended
        return path.with_name(f"{path.name}.reset.{number}")
    if name == "copilot":
        return path.parents[1] / f"s-1.{number}.jsonl"
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


@pytest.mark.parametrize("name", BY_LINE)
@pytest.mark.parametrize("is_newest_first", [False, True], ids=["growing", "shrinking"])
def test_older_copies_of_a_transcript_change_nothing(name, caller, tmp_path, monkeypatch, is_newest_first):
    """Stages of one transcript lie together, and most messages have the same text: each is stored once."""
    root, alone = tmp_path / "history", tmp_path / "alone"
    monkeypatch.setattr(
        sys.modules[__name__], "say", lambda number, size: "the same long answer to every question asked"
    )
    for folder in (root, alone):
        folder.mkdir()
        MAKERS[name](folder, 40, 60)
    (path,) = (one for one in root.rglob("*.jsonl") if one.is_file())
    lines = path.read_text().splitlines(keepends=True)
    for number, most in enumerate((9, 18, 27)):
        copy = copy_beside(name, path, number)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text("".join(lines[:most]))
    for number, one in enumerate(sorted(root.rglob("*.jsonl*"), key=lambda one: one.stat().st_size)):
        moment = 1_790_000_000 + (10 - number if is_newest_first else number)
        os.utime(one, (moment, moment))

    def run():
        found = imports.sources.find_sources(caller, name, root)
        return imports.run.run_import(caller, found.sources[0], ImportChoices(with_backup=False))

    first, second = run(), run()
    store = caller.space.sessions
    (session,) = store.recent(limit=5)
    stored = [message.message.role.value for message in store.messages(session.id)]

    assert stored == [said.message.role.value for said in read_all(name, alone)]
    assert (first.sessions["new"], first.conflicts, first.is_complete) == (1, (), True)
    assert (second.import_id, second.sessions["unchanged"]) == (None, 4)


def damage(data, draw):
    """Return bytes that were cut, reordered, doubled, or changed."""
    lines = data.split(b"\n")
    match draw(st.sampled_from(["cut", "reorder", "double", "corrupt", "drop"])):
        case "cut":
            return data[: draw(st.integers(0, len(data)))]
        case "reorder":
            return b"\n".join(draw(st.permutations(lines)))
        case "double":
            place = draw(st.integers(0, len(lines) - 1))
            return b"\n".join([*lines[: place + 1], *lines[place:]])
        case "corrupt":
            place = draw(st.integers(0, max(0, len(data) - 1)))
            return data[:place] + draw(st.binary(min_size=1, max_size=9)) + data[place + 3 :]
        case _:
            place = draw(st.integers(0, len(lines) - 1))
            return b"\n".join(lines[:place] + lines[place + 1 :])


@pytest.mark.parametrize("name", MAKERS)
@given(data=st.data())
def test_no_damage_ends_a_reading(tmp_path_factory, name, data):
    """Whatever happened to a file, reading it raises nothing but Unusable, and texts stay what they were."""
    whole = tmp_path_factory.getbasetemp() / f"whole-{name}"
    if not whole.exists():
        whole.mkdir()
        MAKERS[name](whole, 8, 40)
    with tempfile.TemporaryDirectory() as where:
        root = Path(shutil.copytree(whole, where, dirs_exist_ok=True))
        path = data.draw(st.sampled_from(sorted(one for one in root.rglob("*") if one.is_file())))
        content = path.read_bytes()
        for _ in range(data.draw(st.integers(1, 3))):
            content = damage(content, data.draw)
        path.write_bytes(content)
        read_all(name, root)


@pytest.mark.parametrize("name", MAKERS)
def test_rows_of_other_shapes_are_skipped(name, tmp_path):
    """Fields of other types, unknown rows and versions: nothing raises."""
    MAKERS[name](tmp_path, 6, 40)
    for path in (one for one in tmp_path.rglob("*") if one.suffix in {".jsonl", ".json"}):
        whole = path.read_text()
        for old, new in (('"type"', '"kind"'), ('"role"', '"rôle"'), ("[", "[null, 3, "), ('": "', '": 7, "x": "')):
            path.write_text(whole.replace(old, new))
            read_all(name, tmp_path)
        path.write_text(whole)

    assert len(read_all(name, tmp_path)) == (6 if name in SPOKEN else 0)


def put_new_kind(value):
    """Give the first message with a text a content of a kind that no reader knows; return whether there was one."""
    if isinstance(value, list):
        return any(put_new_kind(one) for one in value)
    if not isinstance(value, dict):
        return False
    for key, content in value.items():
        if key in {"content", "data"} and isinstance(content, str | list) and (value.get("role") or value.get("type")):
            value[key] = [{"type": "hologram", "hologram": [1]}]
            return True
        if key == "content" and isinstance(content, dict):  # ChatGPT
            value[key] = {"content_type": "hologram"}
            return True
    return any(put_new_kind(one) for one in value.values())


@pytest.mark.parametrize("name", ["claude-code", "openclaw", "chatgpt", "gemini", "cline", "pi", "droid", "claude"])
def test_a_content_of_a_new_kind_is_named(name, tmp_path):
    """It is left out, but not without a word."""
    MAKERS[name](tmp_path, 6, 40)
    (path,) = (one for one in tmp_path.rglob("*.json*") if one.is_file())
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    rows = [json.loads(line) for line in lines]
    for row in rows[-1:]:
        if name == "claude":
            row[0]["chat_messages"][1]["content"] = [{"type": "hologram"}]
        elif name == "gemini":
            row["content"] = [{"hologram": [1]}]
        else:
            assert put_new_kind(row)
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    source = find_source(name)
    (transcript,) = source.list_transcripts(tmp_path)
    reading = source.open(transcript, START)
    kinds = [item.kind for item in reading if isinstance(item, Left) and item.kind]
    reading.close()

    assert len(kinds) == 1
    assert "hologram" in kinds[0]


MEASURE = """
import json, resource, sys, time
from pathlib import Path
from wellkept.app import open_app
from wellkept.imports.sources import ImportChoices, find_sources
from wellkept.imports.run import run_import

name, root, home = sys.argv[1:]
app = open_app(home, None)
caller = app.caller()
start = time.monotonic()
found = find_sources(caller, name, Path(root))
report = run_import(caller, found.sources[0], ImportChoices(with_backup=False))
print(json.dumps({
    "seconds": time.monotonic() - start,
    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    "messages": sum(report.messages.values()),
}))
app.close()
"""


def measure(name, root, home):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, name, str(root), str(home)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.heavy
@pytest.mark.parametrize("name", SPOKEN)
def test_a_hundred_thousand_messages_within_a_minute(name, tmp_path):
    """Stored and indexed."""
    root = tmp_path / "history"
    root.mkdir()
    MAKERS[name](root, 100_000, 120)
    measured = measure(name, root, tmp_path / "home")

    assert measured["messages"] == 100_000
    assert measured["seconds"] <= 60


@pytest.mark.heavy
@pytest.mark.parametrize("name", STREAMED)
def test_two_hundred_megabytes_fit_into_memory(name, tmp_path):
    """The import needs less than 300 MB, whatever the size of the file."""
    root = tmp_path / "history"
    root.mkdir()
    MAKERS[name](root, 10_000, 20_000)
    measured = measure(name, root, tmp_path / "home")

    assert measured["messages"] == 10_000
    assert measured["megabytes"] < 300


def write_cline_task(folder, odd):
    path = folder / "1790000000001" / "api_conversation_history.json"
    path.parent.mkdir()
    path.write_text(
        json.dumps([{"role": "user", "content": "<task>Count</task>"}, odd, {"role": "assistant", "content": "Three."}])
    )


def write_cline_session(folder, odd):
    messages = [
        {"id": "1", "role": "user", "content": "Count"},
        odd,
        {"id": "3", "role": "assistant", "content": "Three."},
    ]
    (folder / "c.messages.json").write_text(json.dumps({"sessionId": "c", "messages": messages}))


def write_copilot(folder, odd):
    messages = [{"role": "user", "content": "Count"}, odd, {"role": "assistant", "content": "Three."}]
    (folder / "history-session-state").mkdir()
    (folder / "history-session-state" / "s.json").write_text(json.dumps({"sessionId": "s", "chatMessages": messages}))


def write_opencode_export(folder, odd):
    def make(number, role, text):
        times = {"created": number, "completed": number}
        return {"info": {"id": f"m{number}", "role": role, "time": times}, "parts": [{"type": "text", "text": text}]}

    info = {"id": "ses", "directory": "/", "time": {"updated": 3}}
    messages = [make(1, "user", "Count"), odd, make(3, "assistant", "Three.")]
    (folder / "ses.json").write_text(json.dumps({"info": info, "messages": messages}))


def write_claude(folder, odd):
    messages = [
        {"uuid": "1", "sender": "human", "text": "Count"},
        odd,
        {"uuid": "3", "sender": "assistant", "text": "Three."},
    ]
    (folder / "conversations.json").write_text(json.dumps([{"uuid": "c", "name": "", "chat_messages": messages}]))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("cline", write_cline_task),
        ("cline", write_cline_session),
        ("copilot", write_copilot),
        ("opencode", write_opencode_export),
        ("claude", write_claude),
    ],
)
@pytest.mark.parametrize(
    "odd",
    [
        "words",
        7,
        {"uuid": "2", "id": "2", "role": "user", "sender": "human", "content": [{"type": ["of", "tomorrow"]}]},
        {"info": {"role": "user"}, "parts": [{"type": "text", "text": "no id"}], "role": ["user"], "content": ""},
    ],
)
def test_a_message_of_an_odd_form_does_not_end_its_conversation(name, write, odd, tmp_path):
    """It is counted, and the messages after it are read."""
    write(tmp_path, odd)
    source = find_source(name)
    (path,) = source.list_transcripts(tmp_path)
    items = list(source.open(path, START))

    assert [item.message.text for item in items if isinstance(item, Said)] == ["Count", "Three."]
    assert any(isinstance(item, Left) and item.why == "unknown row" for item in items)


def test_content_in_a_form_of_its_own_is_read_or_counted(tmp_path):
    """A bare text in a list is text; a number is nothing that a reader knows; a call of the server is a call."""
    write_cline_session(tmp_path, {"id": "2", "role": "user", "content": ["Bare", 7]})
    (path,) = tmp_path.iterdir()
    read = list(find_source("cline").open(path, START))
    call = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "marmots"}}
    write_cline_session(tmp_path, {"id": "2", "role": "assistant", "content": [call]})
    called = [item for item in find_source("cline").open(path, START) if isinstance(item, Said)]

    assert [item.message.text for item in read if isinstance(item, Said)] == ["Count", "Bare", "Three."]
    assert [item.kind for item in read if isinstance(item, Left)] == ["block 'int'"]
    assert called[1].message.tool_calls[0].name == "web_search"
    assert all(isinstance(one, dict) for one in as_blocks([None, "a", 1, [2], {"type": "text"}]))


@pytest.mark.parametrize("name", ["pi", "claude-code"])
def test_a_text_in_a_block_of_another_kind_is_a_text(name, tmp_path):
    """What a model said is stored, whatever the program calls the block that holds it."""
    MAKERS[name](tmp_path, 2, 40)
    (path,) = tmp_path.rglob("*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[-1]["message"]["content"] = [{"type": "output_text", "text": "Three marmots."}]
    write_lines(path, rows)

    assert read_all(name, tmp_path)[-1].message.text == "Three marmots."


def test_a_message_of_opencode_without_a_known_role_is_not_the_models(tmp_path):
    """What has another role is counted; a result that is an object is stored as its text."""
    odd = {
        "info": {"id": "2", "role": "narrator", "time": {"completed": 2}},
        "parts": [{"type": "text", "text": "Aside"}],
    }
    write_opencode_export(tmp_path, odd)
    (path,) = tmp_path.iterdir()
    read = list(find_source("opencode").open(path, START))
    state = {"status": "completed", "input": {}, "output": {"rows": 3}}
    tool = {"id": "p", "type": "tool", "callID": "c", "tool": "count", "state": state}
    write_opencode_export(
        tmp_path, {"info": {"id": "2", "role": "assistant", "time": {"completed": 2}, "tokens": 7}, "parts": [tool]}
    )
    called = [item.message.text for item in find_source("opencode").open(path, START) if isinstance(item, Said)]

    assert [item.message.text for item in read if isinstance(item, Said)] == ["Count", "Three."]
    assert [item.kind for item in read if isinstance(item, Left)] == ["message 'narrator'"]
    assert called == ["Count", "", '{"rows": 3}', "Three."]

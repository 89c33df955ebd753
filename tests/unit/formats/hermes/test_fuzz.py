"""Databases and files that no version wrote never end an import."""

import json
import os
import random
import subprocess
import sys
import time

import pytest

from wellkept.formats.hermes import Hermes
from wellkept.formats.port import START, Said, Unusable

ROUNDS = 30
ODD = (None, 7, -1.5, "", "x" * 90, b"\xff\x00", "[]", '{"a": 1}', '[{"function": 3}]', "\x00json:[", "\x00json:7")


def read(path):
    try:
        reading = Hermes().open(path, START)
    except Unusable:
        return []
    try:
        return list(reading)
    finally:
        reading.position()
        reading.close()


@pytest.fixture
def filled(hermes):
    """A home with two sessions, one of them a branch."""
    hermes.session("a", model_config={"x": 1})
    hermes.session("b", model_config={"_branched_from": "a"}, parent_session_id="a")
    for number in range(40):
        calls = [{"id": f"c{number}", "function": {"name": "t", "arguments": "{}"}}]
        hermes.say("user", f"question {number}", "ab"[number % 2])
        hermes.say("assistant", "answer", "ab"[number % 2], tool_calls=calls)
        hermes.say("tool", "result", "ab"[number % 2], tool_call_id=f"c{number}")
    hermes.change("PRAGMA wal_checkpoint(TRUNCATE)")
    return hermes


def test_a_spoilt_database_is_read_as_far_as_it_can_be(filled, tmp_path):
    """Bytes anywhere in the file, the header included, and files that are cut off."""
    whole = filled.database.read_bytes()
    path = tmp_path / "state.db"
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        data = bytearray(whole)
        for _ in range(chance.choice([1, 5, 200])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.choice([len(data), len(data) // 2])])

        said = [item.external_id for item in read(path) if isinstance(item, Said)]
        assert len(said) <= 130, seed


def test_values_of_any_type_are_read_or_counted(filled):
    """SQLite stores anything in any column."""
    columns = (
        "role",
        "content",
        "tool_calls",
        "tool_call_id",
        "tool_name",
        "timestamp",
        "reasoning",
        "observed",
        "active",
    )
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        for _ in range(4):
            column, value = chance.choice(columns), chance.choice(ODD)
            if value is not None or column not in {"role", "timestamp", "active"}:
                filled.change(f"UPDATE messages SET {column} = ? WHERE id % 9 = {chance.randrange(9)}", value)
        filled.change("UPDATE sessions SET model_config = ?, title = ?", chance.choice(ODD), chance.choice(ODD))
        filled.change("UPDATE sessions SET parent_session_id = id WHERE id = 'b'")
        read(filled.database)


def test_spoilt_json_sessions_are_read_or_refused(tmp_path):
    """Cut off, and with values of other types."""
    whole = json.dumps(
        {"session_id": "s", "messages": [{"role": "user", "content": f"question {n}"} for n in range(9)]}
    )
    path = tmp_path / "sessions" / "session_s.json"
    path.parent.mkdir()
    for seed in range(ROUNDS * 3):
        chance = random.Random(seed)
        place = chance.randrange(len(whole))
        path.write_text(
            whole[:place] + chance.choice(["", "7", "null", '"', "[]", "\ud7ff"]) + whole[place + chance.randrange(9) :]
        )
        read(path)


def measure_import(source, place, home):
    """Run an import in a process of its own; return its report, the most memory that it used, and the seconds."""
    command = [
        sys.executable,
        "-m",
        "wellkept",
        "import",
        source,
        "--source",
        str(place),
        "--yes",
        "--json",
        "--no-backup",
    ]
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "KEPT_HOME": str(home)}) as process:
        report = json.loads(process.stdout.read())
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return report, used.ru_maxrss * 1_024, time.monotonic() - started


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_a_large_database_needs_little_memory(hermes, tmp_path):
    """200 MB, 100,000 messages: less than 300 MB of memory, a minute on a quiet machine."""
    hermes.session()
    rows = (
        (number + 1, "s1", "user", f"message {number} " + "words " * 330, hermes.now + number)
        for number in range(100_000)
    )
    hermes.connection.executemany(
        "INSERT INTO messages (id, session_id, role, content, timestamp) VALUES (?, ?, ?, ?, ?)", rows
    )
    hermes.connection.commit()
    report, memory, seconds = measure_import("hermes", hermes.path, tmp_path / "home")

    assert report["messages"]["user"] == 100_000
    assert memory < 300_000_000, f"{memory:,} bytes"
    assert seconds < 600, f"{seconds:,.0f} s"


def test_many_prompts_in_a_row_cost_no_more_than_others(hermes):
    """They are joined for comparison with copies, but not without end."""
    hermes.session()
    rows = ((number + 1, "s1", "user", f"message {number} " * 200, hermes.now + number) for number in range(2_000))
    sql = "INSERT INTO messages (id, session_id, role, content, timestamp) VALUES (?, ?, ?, ?, ?)"
    hermes.connection.executemany(sql, rows)
    hermes.connection.commit()
    started = time.process_time()

    assert sum(isinstance(item, Said) for item in read(hermes.database)) == 2_000
    assert time.process_time() - started < 20  # half a second; without the bound minutes

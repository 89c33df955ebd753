"""Files that no version wrote: cut, shuffled, doubled and overwritten ones never end an import."""

import json
import os
import random
import subprocess
import sys
import time

import pytest

from wellkept.formats.openclaw import OpenClaw
from wellkept.formats.port import START, Said, Unusable

ROUNDS = 150


def read(path):
    try:
        reading = OpenClaw().open(path, START)
    except Unusable:
        return []
    try:
        return list(reading)
    finally:
        reading.position()
        reading.close()


def spoil(rows, chance):
    """Return the lines of a file after something happened to it."""
    lines = [json.dumps(row) for row in rows]
    match chance.randrange(6):
        case 0:
            chance.shuffle(lines)
        case 1:
            lines = [line for line in lines for _ in range(chance.randrange(3))]
        case 2:
            lines = [line[: chance.randrange(len(line) + 1)] if chance.random() < 0.3 else line for line in lines]
        case 3:
            return bytes(
                chance.randrange(256) if chance.random() < 0.01 else byte for byte in "\n".join(lines).encode()
            )
        case 4:
            lines = [json.dumps(_replace(row, chance)) for row in rows]
        case _:
            lines = lines[: chance.randrange(len(lines) + 1)]
    return ("\n".join(lines) + chance.choice(["", "\n"])).encode()


def _replace(value, chance):
    """Return a value with some parts of another type."""
    if chance.random() < 0.08:
        return chance.choice([None, 7, -1.5, "", "x" * 50, [], {}, True, [[]], {"type": "text"}])
    if isinstance(value, dict):
        return {key: _replace(each, chance) for key, each in value.items()}
    return [_replace(each, chance) for each in value] if isinstance(value, list) else value


@pytest.fixture
def made(entries):
    """A session with everything in it."""
    made = entries()
    start = made.user("[Fri 2026-06-26 19:40 UTC] Hello")
    made.answer(
        {"type": "thinking", "thinking": "x"}, "Hi", {"type": "toolCall", "id": "c", "name": "e", "arguments": {}}
    )
    made.result("done", "c")
    made.user([{"type": "image", "data": "AAAA", "mimeType": "image/png"}, {"type": "text", "text": "See"}])
    made.add("reset", reason="new")
    made.add("compaction", summary="s")
    made.user("Again", after=start)
    return made


def test_a_spoilt_file_is_read_as_far_as_it_can_be(openclaw, made):
    """Each round spoils it in another way."""
    for seed in range(ROUNDS):
        data = spoil(made.rows, random.Random(seed))
        path = openclaw.write(f"agents/main/sessions/{made.session}.jsonl", data)
        items = read(path)

        assert len([item for item in items if isinstance(item, Said)]) <= 3 * len(made.rows), seed


def test_a_spoilt_database_is_read_as_far_as_it_can_be(openclaw, made, pack):
    """Bytes anywhere in the file, the header included."""
    connection = openclaw.database(made, pack=pack)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    path = openclaw.path / "agents/main/agent/openclaw-agent.sqlite"
    whole = path.read_bytes()
    for seed in range(ROUNDS // 5):
        chance = random.Random(seed)
        data = bytearray(whole)
        for _ in range(chance.choice([1, 5, 100])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.choice([len(data), len(data) // 2])])
        read(path)


def test_a_spoilt_list_of_sessions_is_no_reason_to_stop(openclaw, made, run, spoken):
    """The transcripts are there all the same."""
    openclaw.file(made)
    listed = {
        "agent:main:main": {"sessionId": made.session, "label": 5, "spawnedBy": [1]},
        "x": 7,
        "": {"sessionId": 3},
    }
    for content in (json.dumps(listed), "{", "[]", '{"a": {"sessionId": null}}'):
        openclaw.write("agents/main/sessions/sessions.json", content)
        run()

    assert ("person", "Hello") in spoken()


def test_bombs_are_refused(openclaw, pack, made):
    """A compressed transcript that would fill the disk, and one that is cut."""
    whole = pack(made.lines.encode())
    path = openclaw.write(f"agents/main/sessions/{made.session}.jsonl.reset.1.zst", whole[: len(whole) // 2])

    assert read(path) == []


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
def test_a_large_file_needs_little_memory(openclaw, entries, tmp_path):
    """200 MB, 100,000 messages: less than 300 MB of memory, a minute on a quiet machine."""
    made = entries()
    made.user("x")
    row = json.dumps(made.rows[-1])
    path = openclaw.write(f"agents/main/sessions/{made.session}.jsonl", "")
    with path.open("w") as file:
        for number in range(100_000):
            text = f"message {number} " + "words " * 320
            file.write(row.replace('"content": "x"', f'"content": "{text}"').replace(made.last, f"{number:08x}") + "\n")
    assert path.stat().st_size > 200_000_000
    report, memory, seconds = measure_import("openclaw", openclaw.path, tmp_path / "home")

    assert report["messages"]["user"] == 100_000
    assert memory < 300_000_000, f"{memory:,} bytes"
    assert seconds < 600, f"{seconds:,.0f} s"

"""A capture that is killed at any moment loses nothing and stores nothing twice."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests import forks

from wellkept.app import open_app
from wellkept.connect.capture import capture_transcript

ROUNDS = 3
MANY_ROUNDS = 25
CAPTURE = """
import sys
from pathlib import Path
from wellkept.app import open_app
from wellkept.connect.capture import capture_transcript, drain_spool
app = open_app(sys.argv[1], None)
print("ready", flush=True)
sys.stdin.readline()
capture_transcript(app.caller(), "claude-code", Path(sys.argv[2]))
drain_spool(app.caller())
"""


def write_turns(path, numbers):
    with path.open("a") as file:
        for number in numbers:
            common = {"sessionId": "s", "cwd": "/p", "timestamp": 1_790_000_000 + number}
            prompt = {"type": "user", "uuid": f"u{number}", "message": {"content": f"Prompt {number}"}}
            block = [{"type": "text", "text": f"Answer {number}"}]
            message = {"id": f"m{number}", "model": "m", "content": block, "stop_reason": "end_turn"}
            answer = {"type": "assistant", "uuid": f"a{number}", "message": message}
            file.write(json.dumps(common | prompt) + "\n" + json.dumps(common | answer) + "\n")


def kill_in_rounds(home, path, rounds):
    chance = random.Random(7)
    for number in range(rounds):
        write_turns(path, range(number * 300, number * 300 + 300))
        running = [
            forks.Popen(
                [sys.executable, "-c", CAPTURE, str(home), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for _ in range(2)  # two hooks at the same moment
        ]
        for one in running:
            one.stdout.readline()
        for one in running:
            one.stdin.write(b"\n")
            one.stdin.flush()
        for one in running:
            time.sleep(chance.uniform(0, 0.4))
            one.kill()
        for one in running:
            one.communicate()


def check(home, path, rounds):
    app = open_app(str(home), None)
    capture_transcript(app.caller(), "claude-code", Path(path))
    store = app.caller().space.sessions
    (session,) = store.recent(limit=10, source="claude-code")
    texts = [message.message.text for message in store.messages(session.id)]
    expected = [f"{word} {number}" for number in range(rounds * 300) for word in ("Prompt", "Answer")]

    assert texts == expected
    assert session.message_count == len(expected)
    assert store.upkeep.check() == []
    app.close()


def test_killed_captures_store_each_turn_once(tmp_path):
    """Two at a time, killed in the middle; the next one completes them."""
    path = tmp_path / "s.jsonl"
    kill_in_rounds(tmp_path / "home", path, ROUNDS)

    check(tmp_path / "home", path, ROUNDS)


@pytest.mark.heavy
def test_many_killed_captures(tmp_path):
    """The same, often enough to meet rare moments."""
    path = tmp_path / "s.jsonl"
    kill_in_rounds(tmp_path / "home", path, MANY_ROUNDS)

    check(tmp_path / "home", path, MANY_ROUNDS)

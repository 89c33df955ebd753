"""A server under requests while programs that are not kept read and write its database, and it is killed."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import httpx2
import pytest
from tests import forks

from wellkept.app import open_app
from wellkept.gateway.state import tokens

OUTSIDE = """
import random, sqlite3, sys, time
path, seed = sys.argv[1:]
chance = random.Random(seed)
while True:
    try:
        own = sqlite3.connect(path, timeout=20)
        if chance.random() < 0.3:
            text = f"outside-{seed}-{chance.randrange(10**9)}"
            with own:
                session = own.execute("SELECT id FROM sessions LIMIT 1").fetchone()
                if session is not None:
                    row = (session[0], "user", text, time.time())
                    own.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", row)
            if session is not None:
                print(text, flush=True)
        else:
            own.execute("SELECT count(*), max(content) FROM messages").fetchall()
        own.close()
        print("turn", flush=True)
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
    time.sleep(chance.random() * 0.05)
"""


VISITED = ("/", "/sign-in", "/api/sessions", "/api/search?q=remarked", "/metrics", "/readyz")


def environment(home):
    return {**os.environ, "KEPT_HOME": str(home), "HOME": str(home.parent)}


def create_token(home):
    app = open_app(str(home), environ={"HOME": str(home.parent)})
    secret = tokens.create_token(app.caller(), "owner").secret
    app.close()
    return secret


class Outside:
    """A program that reads and writes the file with its own SQLite; `rows` are those that it has committed."""

    def __init__(self, path, seed):
        command = [sys.executable, "-I", "-c", OUTSIDE, str(path), str(seed)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self.turns, self.rows = 0, []
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            if line == "turn\n":
                self.turns += 1
            else:
                self.rows.append(line.strip())

    def stop(self):
        """End it, and return what it complained about."""
        self._process.kill()
        self._reader.join()
        return self._process.communicate()[1]


def wait_until(is_reached):
    deadline = time.monotonic() + 60
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Chats(threading.Thread):
    """Sends one message after the other, and notes those that were answered."""

    def __init__(self, url, token, name):
        super().__init__(daemon=True)
        self.url, self.headers, self.label = url, {"Authorization": f"Bearer {token}"}, name
        self.answered = []
        self.failures = []

    def run(self):
        with httpx2.Client(base_url=self.url, headers=self.headers, timeout=60) as client:
            for number in range(1_000):
                text = f"{self.label} remarked number{number}"
                try:
                    reply = client.post("/api/chat", json={"message": text, "stream": False})
                    for path in VISITED:
                        client.get(path)
                    httpx2.get(f"{self.url}/api/sessions", timeout=60)
                except httpx2.HTTPError:
                    return  # the server was killed
                if reply.status_code == 200:
                    self.answered.append(text)
                elif reply.status_code != httpx2.codes.SERVICE_UNAVAILABLE:  # the server is stopping
                    self.failures.append((reply.status_code, reply.text))


def run_round(home, token, number, chance):
    """Serve, chat, read and write from outside, import from another process, kill; return what was acknowledged."""
    serve = [sys.executable, "-m", "wellkept", "serve", "--port", "0", "--json"]
    server = forks.Popen(serve, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    outside = None
    acknowledged = []
    try:
        url = json.loads(server.stdout.readline())["url"]
        chats = [Chats(url, token, f"round{number}chat{place}") for place in range(2)]
        for chat in chats:
            chat.start()
        outside = Outside(home / "state.db", number)
        for _ in range(2):  # chats, an outside program that opens and closes the file, and chats after it
            turns, answers = outside.turns, [len(chat.answered) for chat in chats]
            wait_until(lambda: outside.turns >= turns + 3)  # noqa: B023 - called at once
            wait_until(lambda: all(len(chat.answered) >= count + 2 for chat, count in zip(chats, answers, strict=True)))  # noqa: B023
        time.sleep(chance.uniform(0, 0.1))
        if number % 3 == 0:
            lines = home.parent / "lines.jsonl"
            row = {"session_id": f"imported-{number}", "role": "user", "content": f"imported{number}", "timestamp": 1e9}
            lines.write_text(json.dumps(row))
            command = [sys.executable, "-m", "wellkept", "sessions", "import", str(lines)]
            imported = forks.run(command, env=environment(home), capture_output=True, text=True, timeout=60)
            assert imported.returncode == 0, imported.stderr
            acknowledged.append(f"imported{number}")
        server.send_signal(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        server.wait(60)
        for chat in chats:
            chat.join(60)
            assert not chat.failures
            acknowledged += chat.answered
    finally:
        server.kill()
        server.communicate()
        if outside is not None:
            complaint = outside.stop()
            acknowledged += outside.rows
    assert not complaint, complaint
    return acknowledged


def read_outside(path):
    """Return every text as another program sees it, and what the check of SQLite says."""
    reader = sqlite3.connect(path)
    texts = {text for (text,) in reader.execute("SELECT content FROM messages")}
    verdict = reader.execute("PRAGMA integrity_check").fetchall()
    reader.close()
    return texts, verdict


def check_rounds(home, rounds, seed):
    chance = random.Random(seed)
    home.mkdir(parents=True)
    token = create_token(home)
    acknowledged = []
    for number in range(rounds):
        acknowledged += run_round(home, token, number, chance)
        texts, verdict = read_outside(home / "state.db")
        assert [text for text in acknowledged if text not in texts] == []
        assert verdict == [("ok",)]
    assert len(acknowledged) > rounds
    doctor = forks.run(
        [sys.executable, "-m", "wellkept", "doctor", "--offline"], env=environment(home), capture_output=True, text=True
    )
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


def test_outside_readers_and_writers_lose_nothing(home):
    """Every chat that was answered, every imported and every outside row is there after kills; the file is whole."""
    check_rounds(home, 4, seed=5)


@pytest.mark.heavy
@pytest.mark.timeout(7_200)
def test_outside_readers_and_writers_lose_nothing_over_many_rounds(home):
    """Two hundred rounds."""
    check_rounds(home, 200, seed=int(os.environ.get("KEPT_SEED", "7")))

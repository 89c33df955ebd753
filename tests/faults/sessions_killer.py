"""Kills processes that append, round after round, and checks that no acknowledged message is missing.

Run as `python sessions_killer.py DATABASE ROUNDS`; prints one JSON object.
"""

import json
import os
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path

from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.sessions.sqlite import index_check
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

WRITERS = 4


def append_until_killed(path: Path, name: str, acknowledged: int) -> None:
    store = SqliteSessionStore(open_state(path))
    session = SessionId(name)
    store.create(Session(session, "cli", time.time()))
    for number in count():
        texts = [
            f"{name} message {number}.{part} about {random.choice('abcdefgh')}pples"
            for part in range(random.choice((1, 1, 5)))
        ]
        new = [NewMessage(Message(Role.USER, text), time.time(), Origin.PERSON) for text in texts]
        ids = store.append(session, new)
        lines = "".join(f"{message_id}\t{text}\n" for message_id, text in zip(ids, texts, strict=True))
        os.write(acknowledged, lines.encode())


def one_round(path: Path, number: int) -> list[tuple[int, str, str]]:
    reader, writer = os.pipe()
    children = []
    for place in range(WRITERS):
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                append_until_killed(path, f"round{number}writer{place}", writer)
            finally:
                os._exit(1)
        children.append(pid)
    os.close(writer)
    told = os.read(reader, 65_536)  # on a loaded machine the first append may take longer than the writers have to live
    time.sleep(random.uniform(0.02, 0.25))
    for pid in random.sample(children, len(children)):
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        told += pipe.read()
    for pid in children:
        os.waitpid(pid, 0)
    lines = told.decode().splitlines(keepends=True)
    whole = [line.rstrip("\n").split("\t") for line in lines if line.endswith("\n")]
    return [(int(message_id), text, text.split(" ")[0]) for message_id, text in whole]


def missing(store: SqliteSessionStore, told: list[tuple[int, str, str]]) -> list[int]:
    kept = {}
    for name in {name for _, _, name in told}:
        kept.update({message.id: message.message.text for message in store.messages(SessionId(name))})
    return [message_id for message_id, text, _ in told if kept.get(message_id) != text]


def main(path: Path, rounds: int) -> dict[str, object]:
    result = {"rounds": rounds, "acknowledged": 0, "missing": 0, "not_found": 0, "problems": []}
    SqliteSessionStore(open_state(path)).database.close()
    for number in range(rounds):
        told = one_round(path, number)
        database = open_state(path)
        store = SqliteSessionStore(database)
        result["acknowledged"] += len(told)
        result["missing"] += len(missing(store, told))
        for message_id, text, name in random.sample(told, min(2, len(told))):
            found = store.search(
                SearchRequest(f'"{" ".join(text.split(" ")[:3])}"', limit=200, session_id=SessionId(name))
            )
            result["not_found"] += message_id not in {hit.message_id for hit in found.messages}
        if number % 10 == 0 or number == rounds - 1:
            result["problems"] += index_check.find_faults(database.connection)
            result["problems"] += [
                row[0] for row in database.connection.execute("PRAGMA quick_check") if row[0] != "ok"
            ]
            result["problems"] += [
                f"queued {row[0]}" for row in database.connection.execute("SELECT message_id FROM index_queue")
            ]
        database.close()
    return result


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))

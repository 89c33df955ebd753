"""Leaving in good order: a reader that went away, a terminal that is closed, a machine that shuts down."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from tests import forks

from wellkept.llm.scripted import Says
from wellkept.testing.loopback_servers import LoopbackOpenAI

STORY = Says("once upon a time " * 100, delay_seconds=0.02)


@pytest.fixture
def started(home, work):
    """Starts `kept` in a process of its own, with pipes."""
    running = []

    def start(*arguments, server=None, popen=forks.Popen, **pipes):
        variables = {**os.environ, **(server.environment if server is not None else {})}
        command = [sys.executable, "-m", "wellkept", *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes}
        running.append(popen(command, env=variables, cwd=work, **pipes))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait(5)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def rows_of(home):
    found = sqlite3.connect(home / "state.db").execute("SELECT role, content, interrupted FROM messages ORDER BY id")
    return found.fetchall()


@pytest.mark.parametrize("arguments", [("--help",), ("version",), ("config", "show"), ("run", "hello"), ("nonsense",)])
def test_a_reader_that_went_away_is_not_an_error(started, arguments):
    """`kept … | head` ends silently, with the exit code of a broken pipe, whoever wrote the words."""
    reading, writing = os.pipe()
    os.close(reading)

    complaints = writing if arguments == ("nonsense",) else subprocess.PIPE
    # an interpreter of its own, because its last words are those that find the pipe broken
    process = started(*arguments, stdout=writing, stderr=complaints, popen=subprocess.Popen)
    os.close(writing)
    said = process.communicate(timeout=60)[1]

    assert (process.returncode, said or b"") == (141, b"")


def test_a_turn_that_nobody_reads_is_kept_whole(started, home):
    """The reader of a chat goes away in the middle of an answer: the answer is stored, then the chat ends."""
    with LoopbackOpenAI([Says("a long answer " * 20, delay_seconds=0.01), "never asked for"]) as server:
        process = started("chat", "--model", "openai/loopback", server=server)
        process.stdin.write(b"tell me\nand then?\n")
        process.stdin.flush()
        assert process.stdout.read(20)
        process.stdout.close()
        process.stdin.close()
        assert process.wait(60) == 141
        assert b"Traceback" not in process.stderr.read()

    assert rows_of(home) == [("user", "tell me", 0), ("assistant", "a long answer " * 20, 0)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["chat", "run"])
def test_a_turn_in_a_process_that_is_ended_is_kept_and_marked(started, home, number, command):
    """Asked to end, kept stores what was said so far, marked as interrupted, and leaves with the signal's code."""
    with LoopbackOpenAI([STORY]) as server:
        said = ["--stdin"] if command == "run" else []
        process = started(command, *said, "--model", "openai/loopback", server=server)
        process.stdin.write(b"tell me\n")
        process.stdin.close() if command == "run" else process.stdin.flush()
        while not server.requests:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(20) == 128 + number
        assert b"Traceback" not in process.stderr.read()

    assert [(role, mark) for role, _, mark in rows_of(home)] == [("user", 0), ("assistant", 1)]


ENGINE = """
from pathlib import Path
from wellkept.context.summarising import Compressor
class Mine(Compressor):
    name = "mine"
    def on_session_end(self, session_id, rows):
        Path(__file__).with_name("heard.txt").write_text(f"{len(rows)} messages")
"""


def test_the_context_engine_is_told_of_the_end_without_any_provider(kept, home):
    """The engine's end hook runs whether or not there is an external memory."""
    folder = home / "plugins" / "context_engine" / "mine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(ENGINE)
    (home / "config.yaml").write_text("context: {engine: mine}\nreview: {enabled: false}\n")
    with LoopbackOpenAI(["hello"]) as server:
        ran = kept("run", "--model", "openai/loopback", "hi", env=server.environment)

    assert ran.code == 0, ran.err
    assert (folder / "heard.txt").read_text() == "2 messages"

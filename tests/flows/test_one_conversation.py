"""Several processes in one conversation: one turn at a time, and each knows the turns of the others."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests import forks

from wellkept.llm.scripted import Says
from wellkept.testing.loopback import Hangs
from wellkept.testing.loopback_servers import LoopbackOpenAI

MODEL = ("--model", "openai/loopback-model")


@pytest.fixture
def released():
    """Lets the endpoint answer what is called slow."""
    return threading.Event()


@pytest.fixture
def server(released):
    """An endpoint that takes its time for what is called slow, and never answers what hangs."""

    def answer(body):
        said = body["messages"][-1]["content"]
        if said.endswith("hang on"):
            return Hangs(60)
        if said.startswith("slow"):
            assert released.wait(90)
        return Says(f"answer to {said}")

    with LoopbackOpenAI(answer) as one:
        yield one


@pytest.fixture
def start(home, work, server):
    """Starts `kept` in a process of its own."""
    running = []

    def begin(*arguments, **more):
        environment = {**os.environ, **server.environment}
        command = [sys.executable, "-m", "wellkept", *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running.append(forks.Popen(command, env=environment, **pipes, **more))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.wait(10)
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def asked(server, text):
    """Wait until the model was asked something; return the request's messages."""
    for _ in range(600):
        found = [
            each.body["messages"] for each in list(server.requests) if text in json.dumps(each.body["messages"][-1])
        ]
        if found:
            return [message["content"] for message in found[0][1:]]
        time.sleep(0.05)
    raise AssertionError(f"never asked: {text}")


def test_the_second_of_two_turns_waits_and_knows_the_first(kept_process, start, server, released):
    """The turns of two processes follow each other; the person of the second is told why it waits."""
    session = kept_process("run", "one", *MODEL, "--json", env=server.environment).json["session_id"]
    first = start("run", "slow two", "--resume", session, *MODEL)
    asked(server, "slow two")
    second = start("run", "three", "--continue", *MODEL)

    told = second.stderr.readline().decode()
    released.set()
    out, err = second.communicate(timeout=60)

    assert first.wait(30) == second.returncode == 0, err
    assert "another process is answering in this conversation" in told
    assert out.decode().strip() == "answer to three"
    assert asked(server, "three") == ["one", "answer to one", "slow two", "answer to slow two", "three"]


def test_an_open_chat_sees_what_another_process_added(kept_process, start, server):
    """A chat that is idle holds nothing up, and its next turn has the others' turns in its context."""
    session = kept_process("run", "one", *MODEL, "--json", env=server.environment).json["session_id"]
    chat = start("chat", "--resume", session, *MODEL)
    chat.stdin.write(b"two\n")
    chat.stdin.flush()
    asked(server, "two")

    added = kept_process("run", "three", "--resume", session, *MODEL, env=server.environment)
    chat.stdin.write(b"four\n")
    chat.stdin.close()

    assert added.out.strip() == "answer to three"
    turns = [text for word in ("one", "two", "three") for text in (word, f"answer to {word}")]
    assert asked(server, "four") == [*turns, "four"]
    assert chat.wait(30) == 0


def test_undo_removes_nothing_that_another_process_added(kept_process, start, server, released):
    """Neither an exchange that this chat has not seen, nor the message of a turn that is running elsewhere."""
    session = kept_process("run", "one", *MODEL, "--json", env=server.environment).json["session_id"]
    chat = start("chat", "--resume", session, *MODEL)
    chat.stdin.write(b"two\n")
    chat.stdin.flush()
    asked(server, "two")
    kept_process("run", "three", "--resume", session, *MODEL, env=server.environment)
    running = start("run", "slow four", "--resume", session, *MODEL)
    asked(server, "slow four")
    chat.stdin.write(b"/undo\n")
    chat.stdin.flush()
    released.set()
    assert running.wait(30) == 0
    told = chat.communicate(b"/undo\nfive\n", timeout=60)[1].decode()

    assert "nothing was undone" in told
    turns = [text for word in ("one", "two", "three") for text in (word, f"answer to {word}")]
    assert asked(server, "five") == [*turns, "five"]


def test_a_killed_process_frees_its_conversation(kept_process, start, server, home):
    """The next process does not wait for it."""
    session = kept_process("run", "one", *MODEL, "--json", env=server.environment).json["session_id"]
    killed = start("run", "hang on", "--resume", session, *MODEL)
    asked(server, "hang on")
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait(10)

    began = time.monotonic()
    ran = kept_process("run", "two", "--resume", session, *MODEL, env=server.environment)

    assert ran.out.strip().endswith("two"), ran.err
    assert time.monotonic() - began < 30
    assert list((home / "locks").iterdir()) == []

"""The real `kept serve` with a bot, killed at every moment between a message and its answer."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from tests import forks

from wellkept.app import open_app
from wellkept.gateway.state import conversation_keys, pairing
from wellkept.operations import sessions, users
from wellkept.testing.loopback_servers import LoopbackOpenAI

from .bot_api import TOKEN, BotApi, Fault


@contextmanager
def machine(home, more=""):
    """Yield a Bot API, a model that can be made to wait, and what starts the server."""
    home.mkdir(parents=True, exist_ok=True)
    gate = threading.Event()
    gate.set()

    def answer(_body):
        gate.wait(60)
        return "\n\n".join(PARTS)

    with BotApi() as api, LoopbackOpenAI(answer) as upstream:
        base = f"serve:\n  platforms:\n    tg:\n      kind: telegram\n      api_url: {api.url}\n"
        (home / "config.yaml").write_text(base + more)
        (home / ".env").write_text(f"TELEGRAM_BOT_TOKEN={TOKEN}\n")
        known = {name: value for name, value in os.environ.items() if not name.startswith(("KEPT_", "XDG_"))}
        environ = {**known, **upstream.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model"}
        environ |= {"KEPT_HOME": str(home), "HOME": str(home.parent)}
        yield api, upstream, gate, environ


@contextmanager
def running(environ, *options, popen=forks.Popen):
    command = [sys.executable, "-m", "wellkept", *options, "serve", "--port", "0", "--json"]
    process = popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert json.loads(process.stdout.readline())["pid"] == process.pid
        yield process
    finally:
        process.kill()
        process.communicate()


def pair(environ, api):
    """Let the person in with the commands that the documentation names."""
    told = api.wait_texts(1)[-1]
    code = told.split("kept serve pair ")[1].split()[0]
    done = forks.run(
        [sys.executable, "-m", "wellkept", "serve", "pair", code, "--json"],
        env=environ, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["user_id"] == "tg:7"


PARTS = tuple(f"answer part {name} " + name * 3_000 for name in "abc")


@pytest.mark.parametrize(
    "moment", ["before the model", pytest.param("before the reply", marks=pytest.mark.heavy), "between two parts"]
)
def test_a_killed_server_answers_once_after_its_restart(home, moment):
    """kill -9 after the message was stored: the next start answers it, each part once, and it was said once."""
    with machine(home) as (api, upstream, gate, environ):
        with running(environ) as process:
            pair_at_once(home)
            held = hold_call(api, {"before the model": 99, "before the reply": 1, "between two parts": 2}[moment])
            if moment == "before the model":
                gate.clear()
            api.say("the question")
            api.wait_for(lambda: upstream.requests if moment == "before the model" else held.is_set())
            api.wait_for(lambda: not api.updates)  # confirmed, so Telegram does not deliver it again
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        gate.set()
        del api.do_sendMessage
        with running(environ):
            api.wait_for(lambda: any("part c" in text for text in api.texts()))
            api.say("/status")
            api.wait_for(lambda: "session" in api.texts()[-1])
    shown = [text[: len("answer part a")] for text in api.texts()][:-1]
    assert shown == ["answer part a", "answer part b", "answer part c"]
    app = open_app(str(home), environ={"HOME": str(home.parent)})
    caller = app.caller(users.check_user_id("tg:7"))
    found = conversation_keys.find_session(caller, "agent:main:tg:dm:7")
    said = [row.message.role.value for row in sessions.show_session(caller, found.session_id).messages]
    app.close()
    assert said == ["user", "assistant"]


def pair_at_once(home):
    app = open_app(str(home), environ={"HOME": str(home.parent)})
    pairing.accept_code(app.caller(), pairing.issue_code(app.caller(), "tg", "7"))
    app.close()


def hold_call(api, number):
    """Let one of the messages that the bot sends never arrive; return what is set when it is sent."""
    done, reached = api.do_sendMessage, threading.Event()

    def send(given):
        if len(api.named("sendMessage")) >= number:
            reached.set()
            time.sleep(5)
            raise Fault(500, "Internal Server Error")
        return done(given)

    api.do_sendMessage = send
    return reached


def test_a_stopped_server_leaves_no_token_behind(home):
    """With --debug, which logs everything: not in a file but .env, not on a terminal, not in the list of processes."""
    own = subprocess.Popen  # only a process that is started has its own arguments in the list
    with machine(home) as (api, _, _, environ), running(environ, "--debug", popen=own) as process:
        api.say("let me in")
        pair(environ, api)
        api.faults["sendMessage"].append((400, f"Bad Request: {TOKEN}"))
        api.say("/status")
        api.say("/status")
        api.wait_texts(2)
        shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(process.pid)], capture_output=True, check=False)
        process.send_signal(signal.SIGTERM)
        out, noted = process.communicate(timeout=60)
        assert process.returncode == 0, noted
    secret = TOKEN.partition(":")[2]
    assert "connected to Telegram as @kept_test_bot" in noted
    assert secret not in out + noted
    assert secret.encode() not in shown.stdout
    for path in home.rglob("*"):
        assert path.name == ".env" or not path.is_file() or secret.encode() not in path.read_bytes(), path

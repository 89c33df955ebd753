"""Who runs a process: signs in its environment and in the processes above it."""

import json
import os
import subprocess
import sys
import time

import pytest

from wellkept.core.agency import MARK, find_agent, list_variables, mark_environment, mark_process
from wellkept.core.text import resource_text

LOOK = "import os; from wellkept.core.agency import find_agent; print(find_agent(os.environ))"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the processes above")


def look(*words: str, **variables: str) -> str:
    """Return what a process finds that a shell starts with these words before it, under these variables."""
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh", *words, sys.executable, "-c", LOOK]
    done = subprocess.run(shell, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_process_of_a_person_shows_no_sign():
    """Neither a plain process nor one whose variables are empty."""
    assert look() == ""
    assert look(CLAUDECODE="", **{MARK: ""}) == ""


@pytest.mark.parametrize("name", list_variables())
def test_each_known_variable_is_a_sign(name):
    """Ours, and those of other agents."""
    assert find_agent({name: "1"}) == f"{name} is set"


def test_every_variable_names_its_agent_and_source():
    """So that a reader can check that it means an agent, not an editor."""
    table = json.loads(resource_text("wellkept.core", "agency.json"))

    assert all(row["agent"] and row["source"].startswith("https://") for row in table.values())
    assert not {"CURSOR_TRACE_ID", "TERM_PROGRAM", "VSCODE_PID", "AGENT"} & set(table)


@LINUX
@pytest.mark.parametrize("name", [MARK, "CLAUDECODE"])
@pytest.mark.parametrize(
    "words", [("env", "-u", "NAME"), ("env", "-i"), ("nohup", "env", "-i"), ("setsid", "-w", "env", "-i")]
)
def test_a_removed_variable_is_found_above(name, words):
    """A command can clean its own environment, but not that of the processes that started it."""
    words = tuple(name if word == "NAME" else word for word in words)

    assert name in look(*words, **{name: "1"})


@LINUX
def test_a_marked_limit_outlives_variables_and_parents(tmp_path):
    """What runs below a marked process is the agent's, also when nothing above it is left."""
    found = tmp_path / "found"
    orphan = f"(setsid env -i {sys.executable} -c '{LOOK}' > {found}.new; mv {found}.new {found}) &"
    shell = subprocess.Popen(["/bin/sh", "-c", f"read -r _; {orphan}"], stdin=subprocess.PIPE)
    mark_process(shell.pid)
    shell.communicate(b"\n")
    for _ in range(100):
        if found.exists():
            break
        time.sleep(0.1)

    assert "the limits of a command" in found.read_text()


@LINUX
def test_a_lower_limit_in_namespaces_of_its_own_is_the_mark():
    """There the process can be the first one itself, so that there is nothing higher to compare with."""
    container = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*container, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system gives no process namespaces to programs")
    lower = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_MSGQUEUE, (1000, 1000)); "
    lower += "os.execvp(sys.argv[1], sys.argv[1:])"

    assert "the limits of a command" in look(sys.executable, "-c", lower, *container)
    assert look(*container) == ""


@LINUX
def test_a_process_below_an_agent_of_kept_is_the_agents(tmp_path):
    """Whatever its environment says: a program named kept that runs a model is above it."""
    program = tmp_path / "kept"
    program.write_text(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {LOOK!r}], check=True)\n")

    def run(command: str) -> str:
        done = subprocess.run([sys.executable, program, command], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert "below `kept`" in run("run")
    assert run("memory") == ""


@LINUX
def test_an_orphan_in_the_container_of_a_server_is_anybodys(tmp_path):
    """The first process of a container adopts what has lost its parent, such as a window of a person's tmux."""
    program, answer = tmp_path / "kept", tmp_path / "answer"
    orphan = f"import os, time\nwhile os.getppid() != 1: time.sleep(0.01)\n{LOOK}"
    lines = ["import subprocess, sys, time", f"code = {orphan!r}"]
    lines += [f"subprocess.run(['sh', '-c', '\"$@\" > {answer} &', 'sh', sys.executable, '-c', code], check=True)"]
    program.write_text("\n".join([*lines, "time.sleep(3)"]))
    container = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*container, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system gives no process namespaces to programs")
    subprocess.run([*container, sys.executable, program, "serve"], check=True, timeout=60)

    assert answer.read_text().strip() == ""


def test_the_mark_is_added_to_an_environment():
    """Everything else stays."""
    assert mark_environment({"A": "b"}) == {"A": "b", MARK: "1"}

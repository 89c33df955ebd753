"""The file tools: they answer for every path and expression, and never wait for ever."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from wellkept.agent import workspace
from wellkept.agent.workspace import Workspace
from wellkept.core.tools import ToolContext

ODD_PATHS = {"zero byte": "a\0b", "lone surrogate": "a\ud800b", "long name": "n" * 300, "long path": "d/" * 3_000 + "f"}
CALLS = {
    "read_file": {}, "write_file": {"content": "x"}, "edit_file": {"old_text": "a", "new_text": "b"},
    "list_files": {}, "search_files": {"pattern": "x"},
}  # fmt: skip


@pytest.fixture
def call(tmp_path):
    tools = {tool.schema.name: tool for tool in Workspace(tmp_path).tools()}

    def run(name, **arguments):
        answer = tools[name].call(arguments, ToolContext())
        json.dumps(answer, ensure_ascii=False).encode()  # what is stored must be text
        return answer

    return run


@pytest.mark.parametrize("path", ODD_PATHS.values(), ids=ODD_PATHS.keys())
@pytest.mark.parametrize("name", CALLS)
def test_a_path_that_cannot_exist_is_answered(call, name, path):
    """The model gets an answer, whatever it calls a path."""
    answer = call(name, path=path, **CALLS[name])

    assert answer["success"] is (name in {"list_files", "search_files"} and not answer.get("error"))


@pytest.mark.parametrize("path", ODD_PATHS.values(), ids=ODD_PATHS.keys())
def test_whether_to_ask_is_decided_for_every_path(tmp_path, path):
    """A path that cannot be resolved is not inside the folder."""
    assert isinstance(Workspace(tmp_path).needs_asking("read_file", {"path": path}), bool)


def test_text_that_is_no_unicode_is_not_written(call, tmp_path):
    """The file is left as it was."""
    (tmp_path / "a.txt").write_text("before")

    assert call("write_file", path="a.txt", content="a\ud800")["success"] is False
    assert (tmp_path / "a.txt").read_text() == "before"


def test_pipes_sockets_and_devices_are_refused_at_once(call, tmp_path, monkeypatch):
    """Reading one could wait for ever; the search skips them."""
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for path in ("pipe", "socket", "/dev/zero"):
            assert call("read_file", path=path)["success"] is False
            assert call("edit_file", path=path, old_text="a", new_text="b")["success"] is False
        assert call("search_files", pattern="x")["hits"] == []
        assert call("list_files")["files"] == []


def test_names_that_are_not_utf8_are_shown(call, tmp_path):
    """Bytes of a name that are not text are replaced, so that the answer can be stored."""
    try:
        (tmp_path / os.fsdecode(b"bad\xff.txt")).write_text("needle")
    except OSError:
        pytest.skip("this file system has no such names")

    assert call("list_files")["files"] == ["bad\ufffd.txt"]
    assert "needle" in call("search_files", pattern="needle")["hits"][0]


def test_a_search_finds_lines(call, tmp_path):
    """Each hit names its file and line; skipped folders are not searched."""
    (tmp_path / "a.txt").write_text("one\ntwo needle\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "b.txt").write_text("needle\n")

    found = call("search_files", pattern=r"need\w+")

    assert found["hits"] == [f"{tmp_path / 'a.txt'}:2: two needle"]
    assert found["count"] == 1


def test_an_expression_that_never_ends_is_stopped(call, tmp_path, monkeypatch):
    """The search ends at its limit, and what was found before is still answered."""
    monkeypatch.setattr(workspace, "SEARCH_SECONDS", 1.5)
    (tmp_path / "a.txt").write_text("aaa\n")
    (tmp_path / "b.txt").write_text("a" * 40 + "!\n")
    start = time.monotonic()

    answer = call("search_files", pattern="(a+)+$")

    assert answer["success"] is False
    assert "stopped" in answer["error"]
    assert answer["hits"] == [f"{tmp_path / 'a.txt'}:1: aaa"]
    assert time.monotonic() - start < 20


def test_ctrl_c_ends_a_search(tmp_path):
    """`kept tool search_files` ends at once with 130, and leaves no process behind."""
    (tmp_path / "b.txt").write_text("a" * 40 + "!\n")
    command = [sys.executable, "-m", "wellkept", "tool", "search_files", '{"pattern": "(a+)+$"}']
    process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE)
    timer = threading.Timer(3.0, lambda: os.killpg(process.pid, signal.SIGINT))
    timer.start()

    assert process.wait(25) == 130


@pytest.mark.parametrize("pattern", ["(", "(?P<", "a" * 5_000, "(" * 1_500 + ")" * 1_500])
def test_what_is_no_expression_is_refused(call, pattern):
    """The answer says what is wrong with it."""
    assert call("search_files", pattern=pattern)["success"] is False

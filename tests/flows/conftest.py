"""Flows run the real command line: in this process where many runs are needed, in one of its own where that matters."""

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest
from tests import forks

from wellkept.cli import terminal
from wellkept.cli.entry import main


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The folder that the person works in."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def kept(home, work, monkeypatch):
    """Runs the command line in this process; extra variables and standard input on request."""

    def run(*arguments, env=None, stdin=""):
        out, err, code = io.StringIO(), io.StringIO(), 0
        with monkeypatch.context() as patch:
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["kept", *arguments])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
            patch.setattr(terminal, "invocation", terminal.Invocation())
            with redirect_stdout(out), redirect_stderr(err):
                try:
                    main()
                except SystemExit as left:
                    code = left.code if isinstance(left.code, int) else int(left.code is not None)
        assert "Traceback" not in err.getvalue(), err.getvalue()
        return Ran(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def kept_process(home, work):
    """Runs `kept` in a process of its own."""

    def run(*arguments, env=None, stdin="", timeout=90):
        done = forks.run(
            [sys.executable, "-m", "wellkept", *arguments],
            input=stdin if isinstance(stdin, bytes) else stdin.encode(),
            capture_output=True,
            timeout=timeout,
            env={**os.environ, **(env or {})},
            check=False,
        )
        ran = Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in ran.err, ran.err
        return ran

    return run

"""Running the command line in this process, exactly as its entry point does."""

import io
import sys
from dataclasses import dataclass

import pytest

from wellkept.cli import main, terminal


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `kept ARGUMENTS` on the test's home; standard input is empty and no terminal, unless given."""

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["kept", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        monkeypatch.setattr(terminal, "invocation", terminal.Invocation())
        monkeypatch.setattr(main.terminal, "invocation", terminal.invocation)
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err, err
        return Ran(int(left.value.code or 0), out, err)

    return run

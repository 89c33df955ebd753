"""The log of a home: what is written, when its file is made, and that it never stops a command."""

import logging

import pytest

from kept.observe.log import configure
from kept.observe.rotating import BACKUPS, MAX_BYTES, RotatingLog


@pytest.fixture(autouse=True)
def usual_logging():
    """Give the program's logger back as it was."""
    root = logging.getLogger("kept")
    handlers, level, propagate = list(root.handlers), root.level, root.propagate
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:], root.level, root.propagate = handlers, level, propagate


def test_the_file_is_made_with_the_first_line(tmp_path):
    """A command that logs nothing leaves no folder behind; one that warns names when, how bad, where and what."""
    configure(tmp_path / "logs", debug=False)
    assert not (tmp_path / "logs").exists()

    logging.getLogger("kept.memory").warning("the page %s is full", "memory")

    written = (tmp_path / "logs" / "kept.log").read_text()
    assert written.endswith("WARNING kept.memory the page memory is full\n")
    assert (tmp_path / "logs").stat().st_mode & 0o077 == 0


def test_details_are_logged_on_demand(tmp_path, capsys):
    """Without debug a detail is not written; with it, to the file and to stderr."""
    configure(tmp_path / "quiet", debug=False)
    logging.getLogger("kept").debug("a detail")
    configure(tmp_path / "loud", debug=True)
    logging.getLogger("kept").debug("another detail")

    assert not (tmp_path / "quiet").exists()
    assert "another detail" in (tmp_path / "loud" / "kept.log").read_text()
    assert "another detail" in capsys.readouterr().err


def test_the_terminal_stays_quiet(tmp_path, capsys):
    """A warning goes to the file alone, whatever other programs do with the root logger."""
    configure(tmp_path, debug=False)
    logging.getLogger("kept").warning("for the file")

    assert capsys.readouterr() == ("", "")
    assert logging.getLogger("kept").propagate is False


def test_a_place_that_cannot_be_written_is_passed_over(tmp_path):
    """A command goes on where its log cannot."""
    (tmp_path / "logs").write_text("a file in the way")
    configure(tmp_path / "logs", debug=False)

    logging.getLogger("kept").warning("unheard")

    assert (tmp_path / "logs").read_text() == "a file in the way"


def test_old_lines_make_room(tmp_path):
    """The file is rotated, and no more than the newest few are kept."""
    log = RotatingLog(tmp_path / "kept.log")
    line = "x" * (MAX_BYTES // 2)
    for _ in range(2 * (BACKUPS + 3)):
        log.emit(logging.LogRecord("kept", logging.WARNING, "", 0, line, None, None))
    log.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "kept.log",
        *(f"kept.log.{number}" for number in range(1, BACKUPS + 1)),
    ]

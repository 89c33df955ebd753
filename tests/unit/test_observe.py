"""The log of each app: what is written, where, and that it never stops a command."""

import logging
import threading

import pytest

from wellkept import observe
from wellkept.app import open_app
from wellkept.core.threads import start_job
from wellkept.observe import BACKUPS, MAX_BYTES, RotatingFile, open_log


@pytest.fixture(autouse=True)
def usual_logging():
    """Restore the program's logger and the list of open logs."""
    root = logging.getLogger("wellkept")
    handlers, level, propagate, opened = list(root.handlers), root.level, root.propagate, list(observe._open)
    root.handlers.clear()
    observe._open.clear()
    token = observe._used.set(None)
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:], root.level, root.propagate = handlers, level, propagate
    observe._open[:] = opened
    observe._lingering.clear()
    observe._used.reset(token)


def test_the_file_is_made_with_the_first_line(tmp_path):
    """A command that logs nothing leaves no folder behind; one that warns names when, how bad, where and what."""
    open_log(tmp_path / "logs", debug=False)
    assert not (tmp_path / "logs").exists()

    logging.getLogger("wellkept.memory").warning("the page %s is full", "memory")

    written = (tmp_path / "logs" / "kept.log").read_text()
    assert written.endswith("WARNING wellkept.memory the page memory is full\n")
    assert (tmp_path / "logs").stat().st_mode & 0o077 == 0


def test_details_are_logged_on_demand(tmp_path, capsys):
    """Without debug a detail is not written; with it, to the file and to stderr."""
    quiet = open_log(tmp_path / "quiet", debug=False)
    logging.getLogger("wellkept").debug("a detail")
    quiet.close()
    open_log(tmp_path / "loud", debug=True)
    logging.getLogger("wellkept").debug("another detail")

    assert not (tmp_path / "quiet").exists()
    assert "another detail" in (tmp_path / "loud" / "kept.log").read_text()
    assert "another detail" in capsys.readouterr().err


def test_the_terminal_stays_quiet(tmp_path, capsys):
    """A warning goes to the file alone, whatever other programs do with the root logger."""
    open_log(tmp_path, debug=False)
    logging.getLogger("wellkept").warning("for the file")

    assert capsys.readouterr() == ("", "")
    assert logging.getLogger("wellkept").propagate is False


def test_a_place_that_cannot_be_written_is_passed_over(tmp_path):
    """A command continues where its log cannot."""
    (tmp_path / "logs").write_text("a file in the way")
    open_log(tmp_path / "logs", debug=False)

    logging.getLogger("wellkept").warning("unheard")

    assert (tmp_path / "logs").read_text() == "a file in the way"


def test_old_lines_make_room(tmp_path):
    """The file is rotated, and no more than the newest few are kept."""
    log = RotatingFile(tmp_path / "kept.log")
    line = "x" * (MAX_BYTES // 2)
    for _ in range(2 * (BACKUPS + 3)):
        log.emit(logging.LogRecord("wellkept", logging.WARNING, "", 0, line, None, None))
    log.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "kept.log",
        *(f"kept.log.{number}" for number in range(1, BACKUPS + 1)),
    ]


def written(home):
    """Return the log of a home, empty if there is none."""
    path = home / "logs" / "kept.log"
    return path.read_text() if path.exists() else ""


def test_two_apps_in_one_process_have_their_own_logs(tmp_path):
    """Opening a second app takes nothing away from the first, and each writes to its own home."""
    first = open_app(str(tmp_path / "a"), environ={})
    second = open_app(str(tmp_path / "b"), environ={})
    log = logging.getLogger("wellkept.test")

    assert first.owner.memory is not None
    log.warning("of the first")
    assert second.owner.memory is not None
    log.warning("of the second")

    assert "of the first" in written(tmp_path / "a")
    assert "of the first" not in written(tmp_path / "b")
    assert "of the second" in written(tmp_path / "b")
    assert "of the second" not in written(tmp_path / "a")


def test_closing_one_app_leaves_the_log_of_the_other(tmp_path):
    """Only its own close removes the handlers of an app."""
    first = open_app(str(tmp_path / "a"), environ={})
    second = open_app(str(tmp_path / "b"), environ={})
    second.close()

    logging.getLogger("wellkept.test").warning("still here")

    assert "still here" in written(tmp_path / "a")
    assert "still here" not in written(tmp_path / "b")
    first.close()


def test_a_job_logs_to_the_app_that_started_it(tmp_path):
    """Jobs inherit the app of the thread that starts them, whichever app is used afterwards."""
    log, may_go = logging.getLogger("wellkept.test"), threading.Event()
    first = open_app(str(tmp_path / "a"), environ={})

    def work():
        may_go.wait(5)
        log.warning("from the job")

    job = start_job(work, name="kept-test")
    open_app(str(tmp_path / "b"), environ={})
    may_go.set()

    assert job.wait(5)
    assert "from the job" in written(tmp_path / "a")
    assert "from the job" not in written(tmp_path / "b")
    first.close()


def test_a_thread_that_used_no_app_logs_to_all(tmp_path):
    """A record whose app is unknown is not lost."""
    open_app(str(tmp_path / "a"), environ={})
    open_app(str(tmp_path / "b"), environ={})

    thread = threading.Thread(target=logging.getLogger("wellkept.test").warning, args=("unknown",))
    thread.start()
    thread.join()

    assert "unknown" in written(tmp_path / "a")
    assert "unknown" in written(tmp_path / "b")


def test_an_error_after_the_last_app_is_closed_is_still_logged(tmp_path):
    """The process entry reports an unforeseen error after the app is closed; the next app takes over."""
    open_app(str(tmp_path / "a"), environ={}).close()
    logging.getLogger("wellkept.test").warning("too late")
    open_app(str(tmp_path / "b"), environ={})
    logging.getLogger("wellkept.test").warning("next")

    assert "too late" in written(tmp_path / "a")
    assert "next" not in written(tmp_path / "a")
    assert "next" in written(tmp_path / "b")


def test_details_of_one_app_do_not_reach_another(tmp_path):
    """The level is that of each app: debug in one does not make the other verbose."""
    quiet = open_log(tmp_path / "quiet" / "logs", debug=False)
    open_log(tmp_path / "loud" / "logs", debug=True)
    quiet.use()
    logging.getLogger("wellkept.test").debug("a detail")

    assert written(tmp_path / "quiet") == written(tmp_path / "loud") == ""

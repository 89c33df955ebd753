"""What a person sees of a chat."""

import pytest

from wellkept.cli.chat.screen import Screen
from wellkept.core.events import TextStreamed, ToolFinished, Warned


def test_what_quotes_a_person_is_no_markup(capsys):
    """Without a model the answer stands on a terminal as it is: lines, stars and all, but no control characters."""
    screen = Screen(is_terminal=True, is_verbatim=True)

    screen(TextStreamed("use *args and\n  — USER.md \x1b[2J"))
    screen.end()

    assert capsys.readouterr().out == "use *args and\n  — USER.md \N{REPLACEMENT CHARACTER}[2J\n"


def test_the_same_warning_twice_is_said_once(capsys):
    """A trouble that lasts is told when it begins; another one in between is told too."""
    screen = Screen(is_terminal=False)

    for message in ("the disk is full", "the disk is full", "there is room again", "the disk is full"):
        screen(Warned(message))

    assert capsys.readouterr().err.splitlines() == [
        "kept: the disk is full",
        "kept: there is room again",
        "kept: the disk is full",
    ]


def test_a_warning_begins_a_line_of_its_own(capsys):
    """In the middle of an answer the line is ended first."""
    screen = Screen(is_terminal=False)

    screen(TextStreamed("half an answer"))
    screen(Warned("something"))

    told = capsys.readouterr()
    assert (told.out, told.err) == ("half an answer\n", "kept: something\n")


def test_a_failed_tool_is_told_in_its_own_words(capsys):
    """The line says what went wrong, not how it is written in JSON; foreign answers are shown as they are."""
    screen = Screen(is_terminal=False)

    screen(ToolFinished("1", "terminal", ok=False, seconds=0.1, answer='{"success": false, "error": "not allowed"}'))
    screen(ToolFinished("2", "foreign", ok=False, seconds=0.1, answer="no \x1b[2J JSON"))

    told = capsys.readouterr().err
    assert told == "  terminal failed: not allowed\n  foreign failed: no \N{REPLACEMENT CHARACTER}[2J JSON\n"


def test_a_terminal_that_is_gone_does_not_end_the_turn(monkeypatch):
    """Events continue being counted; whoever shows the turn hears of it at its end."""
    screen = Screen(is_terminal=False)

    class Gone:
        encoding = "utf-8"

        def write(self, text):
            raise OSError(5, "Input/output error")

        def flush(self):
            return

    monkeypatch.setattr("sys.stdout", Gone())
    screen(TextStreamed("words"))
    screen(TextStreamed("more"))

    with pytest.raises(OSError, match="Input/output"):
        screen.end()

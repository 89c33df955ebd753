"""What a person sees of a chat."""

from kept.cli.screen import Screen
from kept.core.events import TextStreamed, Warned


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

"""Markdown on a terminal while it is written."""

import re

import pytest

from wellkept.cli.chat.screen import StreamingMarkdown

ROWS = 10
_PIECE = re.compile(r"\x1b\[([\d;]*)([A-Za-z])|\x1b\[\?\d+[a-z]|(\r)|(\n)|([^\x1b\r\n]+)")


class Terminal:
    """What a terminal of ten rows holds after it was written to: lines that left its top can no longer be reached."""

    def __init__(self) -> None:
        self.lines = [""]
        self.row = 0

    def write(self, text: str) -> "Terminal":
        for number, letter, back, down, words in _PIECE.findall(text):
            if letter == "A":
                self.row = max(len(self.lines) - ROWS, 0, self.row - int(number or 1))
            elif letter == "K":
                self.lines[self.row] = ""
            elif down:
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif words and not back:
                self.lines[self.row] += words
        return self

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip()


@pytest.fixture(autouse=True)
def small_terminal(monkeypatch):
    """A terminal of ten rows."""
    for name, value in {"COLUMNS": "40", "LINES": str(ROWS), "TTY_COMPATIBLE": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)


def shown(capsys, *pieces: str) -> str:
    """Return what stands on the terminal after the answer, redrawn after every piece."""
    growing = StreamingMarkdown()
    for piece in pieces:
        growing.feed(piece)
        if growing._live is not None:
            growing._live.refresh()
    growing.finish()
    return Terminal().write(capsys.readouterr().out).text


def test_a_block_higher_than_the_screen_is_there_once(capsys):
    """Code that does not fit the screen ends up whole, each line once, however often it was redrawn."""
    code = [f"line_{number} = {number}" for number in range(40)]

    text = shown(capsys, "Here:\n\n```python\n", *(f"{line}\n" for line in code), "```\n\nAfter.")

    assert [line.strip() for line in text.splitlines() if line.strip()] == ["Here:", *code, "After."]


def test_one_blank_line_stands_between_blocks(capsys):
    """Headings, lists, code and tables stand one blank line apart, whatever they put around themselves."""
    blocks = ["# Title", "words", "- one\n- two", "```\ncode\n\nmore\n```", "| a |\n|---|\n| 1 |", "> said", "end"]

    text = shown(capsys, *(f"{block}\n\n" for block in blocks))

    assert "\n\n\n" not in text
    assert len(text.split("\n\n")) == len(blocks) + 1  # the code holds a blank line of its own


def test_a_fence_ends_where_its_own_kind_does(capsys):
    """Shorter fences and those of the other kind are part of the code."""
    text = shown(capsys, "````md\n```\n\n~~~\nx\n````\n\nafter *it*")

    assert [line.strip() for line in text.splitlines() if line.strip()] == ["```", "~~~", "x", "after it"]


def test_an_answer_cannot_steer_the_terminal(capsys):
    """Control characters of a model are shown as what they are, wherever they are split."""
    shown(capsys)
    growing = StreamingMarkdown()

    growing.feed("a \x1b")
    growing.feed("[2J b\r")
    growing.feed("\nc \x9b31m")
    growing.finish()

    out = capsys.readouterr().out
    assert "\x1b[2J" not in out
    assert "\x9b" not in out
    assert "a \N{REPLACEMENT CHARACTER}[2J b" in out


def test_what_markdown_decodes_cannot_steer_the_terminal_either(capsys):
    """Entities and escapes in addresses are decoded after the text was cleaned; the result is cleaned again."""
    text = shown(capsys, "a&#x202e;b &#27;[2J <http://a.example/%1b]0;x%07> &#x9b;31m\n\n")

    assert not {"\u202e", "\x1b", "\x07", "\x9b"} & set(text)


def test_a_link_shows_where_it_leads(capsys):
    """The words of a link can claim anything, so its address is printed."""
    assert "evil.example" in shown(capsys, "see [https://bank.example](https://evil.example/x)\n\n")

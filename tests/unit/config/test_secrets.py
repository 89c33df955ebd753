"""The secrets file: private, weaker than the environment, every other line kept."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.config.settings import is_exposed, read_secrets, set_secret, with_secrets
from wellkept.core.errors import UsageError

lines = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=40)


@given(lines, lines)
def test_what_is_set_is_read(tmp_path, first, second):
    """Any one line of text survives, quotes, # and \\ included; the last value wins."""
    path = tmp_path / ".env"
    set_secret(path, "A_KEY", first)
    set_secret(path, "OTHER", "stays")
    set_secret(path, "A_KEY", second)

    assert read_secrets(path) == {"OTHER": "stays", "A_KEY": second}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_exposed_file_becomes_private(tmp_path):
    """0644 from an editor is 0600 after the next write."""
    path = tmp_path / ".env"
    path.write_text("A=1\n")
    path.chmod(0o644)
    assert is_exposed(path)

    set_secret(path, "B", "2")

    assert not is_exposed(path)
    assert read_secrets(path) == {"A": "1", "B": "2"}


def test_other_lines_are_kept_byte_for_byte(tmp_path):
    """Comments, blank lines and bytes that are not text are not ours to change."""
    path = tmp_path / ".env"
    path.write_bytes(b"# keys\n\nLATIN=caf\xe9\nA=old\n junk line\n")
    set_secret(path, "A", "new")

    assert path.read_bytes() == b'# keys\n\nLATIN=caf\xe9\n junk line\nA="new"\n'


def test_the_usual_forms_are_understood(tmp_path):
    """export, quotes, comments after values, CRLF and a byte-order mark."""
    path = tmp_path / ".env"
    path.write_bytes(
        b'\xef\xbb\xbfexport A=1\r\nB="two # not" # comment\nC=\'th"ree\'\n#D=4\nE = five # five\nF=\nG=a#b\nnot a line\n'
    )

    assert read_secrets(path) == {"A": "1", "B": "two # not", "C": 'th"ree', "E": "five", "F": "", "G": "a#b"}


@pytest.mark.parametrize(
    ("name", "value"), [("", "x"), ("1A", "x"), ("A-B", "x"), ("A\n", "x"), ("A", "x\ny"), ("A", "\0")]
)
def test_what_cannot_be_a_line_is_refused(tmp_path, name, value):
    """The error never shows the value."""
    with pytest.raises(UsageError) as caught:
        set_secret(tmp_path / ".env", name, value)
    assert "x\ny" not in str(caught.value)
    assert not (tmp_path / ".env").exists()


def test_the_environment_wins(tmp_path):
    """A variable that is set outside is not overridden by the file."""
    set_secret(tmp_path / ".env", "A", "file")
    set_secret(tmp_path / ".env", "B", "file")

    assert with_secrets({"A": "outside"}, tmp_path / ".env") == {"A": "outside", "B": "file"}

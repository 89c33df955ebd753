"""What the prompt of a chat remembers of what was typed."""

from pathlib import Path

from wellkept.cli.chat.input_line import _history


def test_credentials_are_not_kept_in_the_input_history(tmp_path):
    """A key that was typed stands in no file."""
    path = tmp_path / "chat_history"

    _history(path, incognito=False).store_string("my key is sk-ant-api03-" + "a1B2" * 20)

    assert "a1B2a1B2" not in path.read_text()
    assert "my key is" in path.read_text()


def test_a_full_disk_costs_the_input_history_and_not_the_chat():
    """What cannot be kept for the arrow keys is let go."""
    _history(Path("/dev/full"), incognito=False).store_string("words")

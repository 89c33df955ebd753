"""The line under the prompt of a chat."""

import pytest

from wellkept.cli.chat.screen import wrap_parts

PARTS = ["anthropic/claude-sonnet-5-5", "8,033 tokens, 89 % from cache", "$0.0029", "memory 0 %, user 0 %"]


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 120])
def test_the_status_is_whole_at_any_width(columns):
    """Nothing is cut off: a narrow terminal gets more lines, of whole parts."""
    lines = wrap_parts(PARTS, columns).split("\n")

    assert [part.strip() for line in lines for part in line.split(" · ")] == PARTS
    assert all(len(line) <= columns or " · " not in line for line in lines)
    assert len(lines) == 1 or columns < 100

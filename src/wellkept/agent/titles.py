"""The title of a conversation: its first words, or what a model calls it."""

from collections.abc import Sequence

from wellkept.core.messages import StoredMessage
from wellkept.core.ports import Completes
from wellkept.core.text import resource_text

FIRST_CHARS = 60
"""The length of a title made of the first words."""
NAME_CHARS = 80
"""The longest title that a model may give."""
_MESSAGES = 4
_MESSAGE_CHARS = 1_000
"""A model titles a session by its first messages, each up to this length."""


def first_words(text: str) -> str:
    """Return the first words of a message, cut at a word boundary; empty when it has none."""
    words = " ".join(text.split())
    short = words[:FIRST_CHARS]
    title = words if len(words) <= FIRST_CHARS else f"{short.rpartition(' ')[0] or short}…"
    return title if title.strip("… ") else ""


def ask_for_title(model: Completes, rows: Sequence[StoredMessage]) -> str:
    """Ask `model` for a title of a conversation that begins with `rows`; may raise a ModelError."""
    order = resource_text("wellkept.agent", "title.md").strip()
    beginning = "\n".join(f"{row.message.role.value}: {row.message.text[:_MESSAGE_CHARS]}" for row in rows[:_MESSAGES])
    lines = model.complete(order, beginning, max_output_tokens=60).strip().strip('"').splitlines()
    return lines[0][:NAME_CHARS] if lines else ""

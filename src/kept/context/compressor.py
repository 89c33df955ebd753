"""The compressor: prune, find the boundaries, summarise the middle, repair."""

from collections.abc import Sequence

from kept.context.summarising import SummarisingEngine
from kept.context.summary import Brief, Writing, written
from kept.core.messages import StoredMessage


class Compressor(SummarisingEngine):
    """The default engine: one summary message between the protected head and tail."""

    name = "compressor"
    description = "prunes old tool output, then keeps one summary of the middle that cites the originals"

    def write(self, rows: Sequence[StoredMessage], budget: int, brief: Brief) -> Writing:
        """Return the sections of the summary, which update those of an earlier one."""
        return written(rows, budget, brief)

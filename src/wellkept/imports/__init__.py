"""Imports: what `formats` reads is found, brought into the tiers, reported and taken back."""

from typing import TYPE_CHECKING

from wellkept.core.text import load_on_use

if TYPE_CHECKING:
    from wellkept.imports import assets, capture, conversations, memory, openclaw, record, run, sources, spool, undo

__all__ = ["assets", "capture", "conversations", "memory", "openclaw", "record", "run", "sources", "spool", "undo"]
__getattr__ = load_on_use(__name__, __all__)

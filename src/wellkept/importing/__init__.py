"""Importing: what other programs know is found, brought into the tiers, reported and taken back."""

from typing import TYPE_CHECKING

from wellkept.core.lazy import load_on_use

if TYPE_CHECKING:
    from wellkept.importing import assets, memory, openclaw, report, run, skills, sources, undo

__all__ = ["assets", "memory", "openclaw", "report", "run", "skills", "sources", "undo"]
__getattr__ = load_on_use(__name__, __all__)

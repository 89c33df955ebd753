"""Importing: carries out what `importers` reads: finds sources, brings them into the tiers, reports, takes back."""

from typing import TYPE_CHECKING

from wellkept.core.text import load_on_use

if TYPE_CHECKING:
    from wellkept.importing import assets, memory, openclaw, report, run, skills, sources, undo

__all__ = ["assets", "memory", "openclaw", "report", "run", "skills", "sources", "undo"]
__getattr__ = load_on_use(__name__, __all__)

"""Forgetting: what it would remove, the removal in every place, its verification, and the requests of agents."""

from typing import TYPE_CHECKING

from wellkept.core.text import load_on_use

if TYPE_CHECKING:
    from wellkept.forgetting import files, forget, removal, requests

__all__ = ["files", "forget", "removal", "requests"]
__getattr__ = load_on_use(__name__, __all__)

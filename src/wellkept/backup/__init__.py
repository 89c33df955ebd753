"""Backups: what goes into an archive, its check, and how a home comes back from one."""

from typing import TYPE_CHECKING

from wellkept.core.text import load_on_use

if TYPE_CHECKING:
    from wellkept.backup import backup, files, restore
    from wellkept.backup import restore_parts as parts

__all__ = ["backup", "files", "parts", "restore"]
__getattr__ = load_on_use(__name__, __all__)

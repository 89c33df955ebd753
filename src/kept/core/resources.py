"""Files that ship inside the package: texts, tables and statements."""

import sys
from importlib import import_module
from pathlib import Path


def shipped(package: str, *names: str) -> Path:
    """Return the path of a file or folder that ships in `package`.

    `importlib.resources` does the same for packages inside archives, which we never are, and costs every start 12 ms.
    """
    module = sys.modules.get(package) or import_module(package)
    return Path(module.__path__[0], *names)


def shipped_text(package: str, *names: str) -> str:
    """Return the text of a file that ships in `package`."""
    return shipped(package, *names).read_text(encoding="utf-8")

"""The map of the folder."""

import re
from pathlib import Path

from kept.sessions import sqlite


def test_every_module_is_on_the_map():
    """The text at the top of the folder names each of its modules, and none that is not there."""
    folder = Path(sqlite.__file__).parent
    named = {word for line in sqlite.__doc__.splitlines()[2:] for word in re.findall(r"\b\w+\b", line)}
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    leading = {line.split()[0] for line in sqlite.__doc__.splitlines()[2:] if line[:1].isalpha()}

    assert modules <= named
    assert leading <= modules

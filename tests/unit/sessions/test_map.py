"""The maps of the folders."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from wellkept.sessions import rows, sqlite


@pytest.mark.parametrize("folder", [rows, sqlite], ids=["rows", "sqlite"])
def test_every_module_is_on_the_map(folder: ModuleType):
    """The text at the top of the folder names each of its modules, and none that is not there."""
    lines = (folder.__doc__ or "").splitlines()[2:]
    named = {word for line in lines for word in re.findall(r"\b\w+\b", line)}
    modules = {path.stem for path in Path(folder.__file__ or "").parent.glob("*.py")} - {"__init__"}
    leading = {line.split()[0] for line in lines if line[:1].islower()}

    assert modules <= named
    assert leading <= modules

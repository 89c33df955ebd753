"""Shared by the chaos tests: the shim, built from its source, and a laboratory with a home of its own."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # the harness and its table are modules beside the tests

from chaos_laboratory import Laboratory, Server  # noqa: E402


@pytest.fixture(scope="session")
def shim(tmp_path_factory) -> Path:
    """The shim, built from its source; skips where there is no compiler, or no preloading."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler, or not Linux: the shim cannot be built")
    built = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(HERE / "shim.c"), "-ldl"], check=True)
    return built


@pytest.fixture(scope="session")
def server(shim) -> Iterator[Server]:
    """One server for all tests: its start takes longer than most of them."""
    made = Server(shim)
    yield made
    made.close()


@pytest.fixture
def laboratory(tmp_path, server) -> Laboratory:
    """A laboratory with a home of its own."""
    return Laboratory(tmp_path / "laboratory", server)

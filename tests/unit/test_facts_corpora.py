"""The texts for facts that hold: their form, their counts, and no text on both sides of a split."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FACTS = Path(__file__).parents[1] / "corpora" / "facts"
LANGUAGES = ("en", "de", "fr", "es", "zh")
PER_CLASS = {"replaced": 16, "both hold": 10, "different": 8, "not a statement": 6}
EXPECTATIONS = {"expect", "expect_any", "reject", "after", "page_has", "page_lacks"}


def records(name: str) -> list[dict[str, Any]]:
    """Read one corpus, a JSON object per line."""
    lines = (FACTS / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def normalised(text: str) -> str:
    """Return the letters of `text` without case, accents, numbers and punctuation."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return re.sub(r"[\W\d_]+", "", folded)


@pytest.mark.parametrize("part", ["dev", "blind"])
def test_pairs_have_the_form_and_the_counts(part: str) -> None:
    """Each half has the same number of pairs of each class in each language."""
    pairs = records(f"pairs.{part}.jsonl")

    assert Counter((pair["language"], pair["class"]) for pair in pairs) == {
        (language, name): count for language in LANGUAGES for name, count in PER_CLASS.items()
    }
    assert len({pair["id"] for pair in pairs}) == len(pairs)
    for pair in pairs:
        assert pair["gap"] in {"minutes", "days", "months"}, pair["id"]
        assert all(text.strip() for text in (pair["earlier"], pair["later"], *pair["between"]))
        assert pair["kind"], pair["id"]
        assert ("signal" in pair) == (pair["class"] == "replaced"), pair["id"]


@pytest.mark.parametrize("part", ["dev", "blind"])
def test_half_of_the_replacements_carry_no_signal(part: str) -> None:
    """A rule that only knows "now" and "no longer" reaches at most half of the replaced pairs."""
    replaced = [pair for pair in records(f"pairs.{part}.jsonl") if pair["class"] == "replaced"]

    assert sum(pair["signal"] for pair in replaced) == len(replaced) // 2


def test_no_text_of_a_pair_is_on_both_sides() -> None:
    """No message of the blind half is one of the other half with other numbers or punctuation."""
    sides = [
        {normalised(pair[key]) for pair in records(name) for key in ("earlier", "later")}
        for name in ("pairs.dev.jsonl", "pairs.blind.jsonl")
    ]

    assert not sides[0] & sides[1]


def test_dialogues_have_the_form_and_the_counts() -> None:
    """Sixty dialogues a language of three to seven turns, each of which expects something."""
    dialogues = records("dialogues.jsonl")

    assert Counter(entry["language"] for entry in dialogues) == dict.fromkeys(LANGUAGES, 60)
    assert_dialogues(dialogues)


def test_wrong_answers_of_the_audit_have_the_same_form() -> None:
    """What an audit found wrong is told in the same form as the other dialogues."""
    assert_dialogues(records("audit_b.jsonl"))


def assert_dialogues(dialogues: list[dict[str, Any]]) -> None:
    """Check ids, turns and expectations."""
    assert len({entry["id"] for entry in dialogues}) == len(dialogues)
    for entry in dialogues:
        turns = entry["turns"]
        assert entry.keys() <= {"id", "language", "today", "turns"}, entry["id"]
        assert entry["language"] in LANGUAGES, entry["id"]
        assert 3 <= len(turns) <= 7, entry["id"]
        assert any(turn.keys() & EXPECTATIONS for turn in turns), entry["id"]
        for turn in turns:
            assert turn["say"].strip(), entry["id"]
            assert turn.keys() <= {"say"} | EXPECTATIONS, entry["id"]
            assert not set(turn.get("expect", [])) & set(turn.get("reject", [])), entry["id"]
            assert "after" not in turn or turn.keys() & {"expect", "expect_any"}, entry["id"]
            assert not set(turn.get("page_has", [])) & set(turn.get("page_lacks", [])), entry["id"]


def test_mentioned_facts_have_the_form_and_the_counts() -> None:
    """Forty utterances a language; what is to be saved names words that the text has."""
    utterances = records("mentioned.jsonl")

    assert Counter((entry["language"], entry["save"]) for entry in utterances) == {
        (language, save): count for language in LANGUAGES for save, count in ((True, 16), (False, 24))
    }
    assert len({normalised(entry["text"]) for entry in utterances}) == len(utterances)
    for entry in utterances:
        assert ("fact" in entry) == entry["save"], entry["text"]
        for word in entry.get("fact", "").split():
            assert word.casefold() in entry["text"].casefold(), entry["text"]

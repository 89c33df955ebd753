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

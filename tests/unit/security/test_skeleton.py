"""Structures over word classes."""

import pytest

from wellkept.security.rules import Lexicon, Structure

WORDS = {"verb": ["ignore", "forget"], "noun": ["rules", "instruct*"], "stop": ["follow"], "=": ["all", "now"]}


@pytest.fixture(scope="module")
def lexicon() -> Lexicon:
    return Lexicon(WORDS)


@pytest.mark.parametrize(
    ("source", "text", "found"),
    [
        ("verb noun", "ignore rules", True),
        ("verb noun", "ignore the rules", False),
        ("verb ..2 noun", "ignore the old rules", True),
        ("verb ..2 noun", "ignore the very old rules", False),
        ("verb ..3 noun", "ignore it. the rules", False),
        ("verb ..3!stop noun", "ignore it and follow rules", False),
        ("^ verb", "please ignore", False),
        ("^ verb", "yes. ignore", True),
        ("^^ verb", "yes. ignore", False),
        ("^^ verb", "ignore", True),
        ("verb =all|now", "forget all", True),
        ("verb noun|=all", "forget all", True),
        ("verb ?=all noun", "forget instructions", True),
        ("verb !noun", "forget rules", False),
        ("verb noun", "ignore instructional", True),
        ("verb noun", "1gn0re rul3s", True),
        ("verb =all noun", "ignoreallrules now", True),
        ("verb =all noun", "i g n o r e a l l r u l e s", True),
        ("=now :", "now: go", True),
    ],
)
def test_a_structure_reads_like_its_source(lexicon: Lexicon, source: str, text: str, found: bool) -> None:
    """Gaps, starts, options, barriers, stems and disguises do what the class says."""
    structure = Structure(source, lexicon)
    skeleton = lexicon.skeleton(text)

    assert structure.matches(skeleton) is found
    if found:
        assert structure.may_match(frozenset(skeleton))

"""The rule table, row by row."""

import pytest

from wellkept.core.errors import Unreadable
from wellkept.core.text import resource_text
from wellkept.security import unicode
from wellkept.security.rules import BUILT, Places, Rule, Severity, build, parse, table
from wellkept.security.scan import scan

ROWS = table().rules
NAMED = {
    "prompt_injection",
    "role_hijack",
    "deception_hide",
    "sys_prompt_override",
    "exfil_curl",
    "exfil_wget",
    "read_secrets",
    "ssh_backdoor",
}


def matches(rule: Rule, text: str) -> bool:
    rules = table()
    folded = unicode.fold(text)
    skeleton, _, words = rules.lexicon.read(folded)
    places = Places(folded, rules.anchors.among(folded, words, folded))
    return any(structure.matches(skeleton) for structure in rule.structures) or any(
        pattern.matches(places) for pattern in rule.texts
    )


@pytest.mark.parametrize("rule", ROWS, ids=lambda rule: rule.id)
def test_a_rule_matches_its_positive_example(rule: Rule) -> None:
    """Every row finds the text that it shows."""
    assert matches(rule, rule.positive)


@pytest.mark.parametrize("rule", ROWS, ids=lambda rule: rule.id)
def test_a_rule_passes_its_negative_example(rule: Rule) -> None:
    """Every row leaves the near miss that it shows alone."""
    assert not matches(rule, rule.negative)


@pytest.mark.parametrize("rule", ROWS, ids=lambda rule: rule.id)
def test_a_negative_example_is_clean_for_the_whole_scanner(rule: Rule) -> None:
    """A near miss of one rule is not a hit of another."""
    assert scan(rule.negative).rules == ()


@pytest.mark.parametrize("rule", [row for row in ROWS if row.severity is Severity.BLOCK], ids=lambda rule: rule.id)
def test_what_a_block_rule_finds_is_blocked(rule: Rule) -> None:
    """The verdict on an attack is block, and names the rule."""
    verdict = scan(rule.positive, scope=next(iter(rule.scopes)))

    assert verdict.blocked
    assert rule.id in verdict.rules


@pytest.mark.parametrize("rule", ROWS, ids=lambda rule: rule.id)
def test_every_expression_of_a_rule_compiles(rule: Rule) -> None:
    """No row hides a pattern that breaks when a text first needs it."""
    for structure in rule.structures:
        structure.matches("")
    for pattern in rule.texts:
        assert pattern.matches(Places(" ".join(pattern.anchors), frozenset(pattern.anchors))) is not None


def test_ids_are_unique_and_the_promised_ones_exist() -> None:
    """Ids are how a person allows a rule, so each names one row."""
    ids = [rule.id for rule in ROWS]

    assert len(ids) == len(set(ids))
    assert set(ids) >= NAMED


def test_a_row_blocks_holds_or_weighs() -> None:
    """A row that could not change any verdict would be dead."""
    assert [rule.id for rule in ROWS if rule.severity is None and not rule.weight] == []


def test_every_anchor_is_found_where_it_stands() -> None:
    """The short cut by rare characters loses no anchor."""
    rules = table()
    anchors = {anchor for rule in ROWS for pattern in rule.texts for anchor in pattern.anchors}

    assert anchors
    for anchor in anchors:
        for text in (f"x{anchor}x", "word " * 2_500 + f"x{anchor}x"):
            assert anchor in rules.anchors.among(text, rules.lexicon.read(text)[2], text)


def test_a_damaged_rule_file_names_the_line() -> None:
    """A syntax error says where it is; no rule is skipped silently."""
    with pytest.raises(Unreadable, match="line 3"):
        parse("a = 'x'\nb = 'y'\nc = oops\n")


def test_the_built_table_is_that_of_the_rules() -> None:
    """The program reads what `make reference` built of rules.toml; a rule that was changed since would not count."""
    built = resource_text("wellkept.security", BUILT)

    assert built == build() + "\n", "run `make reference` and commit src/wellkept/security/rules.json"


def test_signs_are_read_as_signs() -> None:
    """No literal word shadows the colon or the ending of a possessive, which structures rely on."""
    lexicon = table().lexicon

    assert lexicon.skeleton("x: y").count(":") == 1
    assert lexicon.symbol("s") is None
    assert lexicon.skeleton("operator's") == lexicon.skeleton("operator")

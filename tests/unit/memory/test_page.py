"""Pages: reading, cleaning, matching, and the budget of characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.errors import Reason, Refused
from wellkept.memory.page import (
    ENTRY_DELIMITER,
    Add,
    EditedPage,
    Page,
    Remove,
    Replace,
    clean,
    find_drift,
    has_delimiter_line,
    parse,
    preview,
)

texts = st.text(alphabet=st.sampled_from("ab§ \n\r\t\ufeff\u3000é漢\u2028"), max_size=30) | st.text(max_size=30)
clean_entries = texts.map(clean).filter(lambda entry: isinstance(entry, str))
pages = st.lists(clean_entries, max_size=6, unique=True).map(tuple)


@given(pages)
def test_what_is_written_is_read_back(entries):
    """Any entries that can be stored survive the file, in order."""
    assert parse(Page(entries, 0).text) == entries


@given(st.text(alphabet=st.sampled_from("ab§ \n\r\t\ufeff"), max_size=40) | st.text(max_size=40))
def test_reading_settles_at_once(text):
    """A page without drift reads the same after it is written back, however often."""
    entries = parse(text)
    if find_drift(entries, 1_000, ()) is None:
        assert parse(Page(entries, 0).text) == entries


@given(st.text(max_size=60))
def test_reading_loses_no_letter(text):
    """Reading drops white space, delimiters, duplicates and byte-order marks, nothing else."""
    entries = parse(text)

    assert len(set(entries)) == len(entries)
    for piece in text.split("\n§\n"):
        kept = "".join(piece.replace("\ufeff", "").split())
        assert any(kept in "".join(entry.replace("\ufeff", "").split()) for entry in entries) or not kept


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", ()),
        (" \n\n", ()),
        ("a\n§\nb", ("a", "b")),
        ("a § b\n§\nc§", ("a § b", "c§")),
        ("\ufeffa\r\n§\r\nb\r\n", ("a", "b")),
        ("a\n§\n\n§\na\n§\nb\n", ("a", "b")),
        ("a\nb\n§\nc", ("a\nb", "c")),
        ("a\n§ \nb", ("a\n§ \nb",)),
    ],
)
def test_reading(text, entries):
    """Pieces are split on the whole delimiter, stripped, and kept once."""
    assert parse(text) == entries


def test_a_mark_at_the_start_of_an_entry_cannot_come_back_as_the_file_s_own():
    """U+FEFF before an entry is dropped when it is stored: as the first of a file it would vanish."""
    assert clean("\ufeff \ufeffhello") == "hello"
    assert parse("a\n§\n\ufeffb") == ("a", "b")


@pytest.mark.parametrize("line", ["§", " § ", "§§", "§\t§", "\u00a0§\r"])
def test_a_line_of_delimiters_is_refused(line):
    """A line that is only §s would become two entries on the next load."""
    refused = clean(f"before\n{line}\nafter")

    assert isinstance(refused, Refused)
    assert refused.reason is Reason.DELIMITER
    assert refused.remedy
    assert has_delimiter_line(f"before\n{line}\nafter")


@pytest.mark.parametrize("text", ["§ 12 of the law", "law § 12", "a\n§ 1\nb", "§a"])
def test_a_lone_delimiter_in_a_line_is_text(text):
    """§ anywhere else round-trips."""
    assert clean(text) == text
    assert parse(Page((text, "x"), 0).text) == (text, "x")


@pytest.mark.parametrize("text", ["\x00", "a\x07b", "a\x1bb", "a\x7fb", "a\x85b", "\ud800", "x\udfffy"])
def test_control_characters_and_surrogates_are_refused(text):
    """What a terminal would obey or UTF-8 cannot hold is not an entry."""
    refused = clean(f"fact {text} fact")

    assert isinstance(refused, Refused)
    assert refused.reason is Reason.INVALID


@given(st.text(max_size=50))
def test_cleaning_settles(text):
    """What is clean stays as it is, and always can be encoded."""
    entry = clean(text)
    if isinstance(entry, str):
        assert clean(entry) == entry
        assert entry.encode()
        assert entry == entry.strip() != ""


def test_nine_characters_fit_nine_and_not_eight():
    """The limit counts the joined text, delimiters included."""
    entries = ("aaa", "bbb")

    assert len(ENTRY_DELIMITER.join(entries)) == 9
    assert Page(("aaa",), 9).fits(entries)
    assert not Page(("aaa",), 8).fits(entries)


def test_a_page_over_its_limit_only_shrinks():
    """After a lowered limit fewer characters are accepted, as many or more are not."""
    page = Page(("a" * 10, "b" * 10), 5)

    assert page.fits(("a" * 10,))
    assert not page.fits(("a" * 10, "c" * 10))
    assert not page.fits(("a" * 10, "b" * 11))


@pytest.mark.parametrize(
    ("used", "limit", "words"),
    [
        (1474, 2200, "67% — 1,474/2,200 chars"),
        (165, 1375, "12% — 165/1,375 chars"),
        (0, 2200, "0% — 0/2,200 chars"),
        (5000, 2200, "100% — 5,000/2,200 chars"),
        (7, 0, "0% — 7/0 chars"),
        (29, 100, "28% — 29/100 chars"),
    ],
)
def test_usage_in_words(used, limit, words):
    """The percentage is int(current / limit * 100) in that order, at most 100, 0 without a limit."""
    assert Page(("x" * used,), limit).usage == words


def test_matching_is_case_sensitive_and_by_substring():
    """A needle names the one entry that holds it."""
    page = Page(("Uses Pytest", "uses ruff"), 100)

    assert page.apply(Remove("Uses")).page.entries == ("uses ruff",)
    assert page.apply(Remove("USES")).reason is Reason.NO_MATCH
    assert page.apply(Remove("  ")).reason is Reason.EMPTY


def test_several_hits_are_previewed():
    """An ambiguous needle is refused with 80 characters of each hit."""
    page = Page(("same " + "x" * 200, "same\nother"), 1000)

    refused = page.apply(Replace("same", "new"))

    assert refused.reason is Reason.AMBIGUOUS
    assert [len(match) for match in refused.detail["matches"]] == [80, 10]
    assert refused.detail["matches"][1] == "same other"


def test_several_identical_hits_are_one():
    """Equal entries are one entry to the reader: the first goes."""
    assert Page(("twin", "x", "twin"), 100).apply(Remove("twin")).page.entries == ("x", "twin")


def test_a_replace_that_equals_another_entry_removes_the_old_one():
    """The page holds the result once, and the answer says so."""
    edited = Page(("one", "two"), 100).apply(Replace("one", "two"))

    assert edited.page.entries == ("two",)
    assert "removed" in edited.message


def test_a_duplicate_is_a_success_that_changes_nothing():
    """Adding what is there writes nothing."""
    edited = Page(("one",), 100).apply(Add("  one\r\n"))

    assert edited == EditedPage(Page(("one",), 100), (), "Entry already exists (no duplicate added).")


@given(pages, st.text(min_size=1, max_size=8))
def test_a_match_is_the_only_entry_that_holds_the_needle(entries, needle):
    """An accepted removal takes exactly one entry away, and that entry holds the needle."""
    edited = Page(entries, 0).apply(Remove(needle))
    if isinstance(edited, EditedPage):
        (gone,) = set(entries) - set(edited.page.entries)
        assert needle.replace("\r\n", "\n").strip() in gone
        assert len(edited.page.entries) == len(entries) - 1


@given(st.text(max_size=300))
def test_previews_are_short_and_on_one_line(text):
    """A preview has at most 80 characters and no line end."""
    assert len(preview(text)) <= 80
    assert "\n" not in preview(text)


def test_the_two_forms_of_a_letter_are_one_entry():
    """Composed and decomposed accents look the same: the same fact, found by either form."""
    composed, decomposed = "Caf\u00e9 in Lyon", "Cafe\u0301 in Lyon"
    page = Page((composed,), limit=100)

    again = page.apply(Add(decomposed))
    removed = Page((decomposed,), limit=100).apply(Remove(composed))

    assert clean(decomposed) == composed
    assert isinstance(again, EditedPage)
    assert not again.steps
    assert isinstance(removed, EditedPage)
    assert removed.page.entries == ()

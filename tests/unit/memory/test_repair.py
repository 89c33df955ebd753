"""Repair: a clean page from a drifted or unreadable one, with nothing thrown away."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.errors import Reason, Refused
from wellkept.memory.history import History
from wellkept.memory.page import Add, Target
from wellkept.memory.rewrite import propose_repair, repair_page
from wellkept.memory.store import MemoryStore


def repaired(store):
    return repair_page(store, Target.MEMORY, propose_repair(store, Target.MEMORY))


def write(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "MEMORY.md").write_bytes(text if isinstance(text, bytes) else text.encode())


def test_delimiter_like_lines_are_split(store, folder):
    """`§ ` and `§§` become delimiters, and the page can be edited again."""
    write(folder, "one\n§ \ntwo\n§§\nthree")

    assert not isinstance(repaired(store), Refused)
    assert (folder / "MEMORY.md").read_text() == "one\n§\ntwo\n§\nthree"
    assert not isinstance(store.apply("memory", Add("four")), Refused)


def test_bullets_and_paragraphs_become_entries_and_headings_go_to_the_archive(make_store, folder):
    """A page written as Markdown is turned into entries; what does not fit is archived, not lost."""
    store = make_store(memory_char_limit=60)
    write(folder, "# Notes\n\n- uses pytest\n- deploys on\n  Fridays\n\nA paragraph\nof two lines\n\n" + "x" * 70)

    repaired(store)

    assert store.entries("memory") == ["uses pytest", "deploys on\nFridays", "A paragraph\nof two lines"]
    assert {row.step.before for row in History(store).archive()} == {"x" * 70, "Notes"}


def test_an_entry_that_kept_wrote_is_never_split(store, folder):
    """Paragraphs and bullets inside an entry of ours are meant: a healthy page needs no repair."""
    store.apply("memory", Add("Steps:\n- one\n- two\n\nThen rest"))

    assert not propose_repair(store, Target.MEMORY).is_needed


def test_an_undecodable_page_is_read_as_well_as_it_can_be(store, folder):
    """Latin-1 text becomes UTF-8; the raw bytes are saved beside it."""
    write(folder, b"caf\xe9 au lait")

    assert not isinstance(repaired(store), Refused)
    assert (folder / "MEMORY.md").read_text() == "café au lait"
    (copy,) = folder.glob("MEMORY.md.bak.*")
    assert copy.read_bytes() == b"caf\xe9 au lait"
    assert [row.origin for row in History(store).rows()] == ["repair"]


def test_a_repair_does_not_undo_an_edit_made_meanwhile(store, folder):
    """The page that was proposed from must still be the page."""
    write(folder, "one\n§§\ntwo")
    proposal = propose_repair(store, Target.MEMORY)
    write(folder, "one\n§§\ntwo\n§\nthree")

    assert repair_page(store, Target.MEMORY, proposal).reason is Reason.MOVED_ON
    assert (folder / "MEMORY.md").read_text().endswith("three")


@given(st.binary(max_size=80) | st.text(alphabet="ab§\n\r -#\x00", max_size=60).map(str.encode))
def test_any_bytes_can_be_repaired(tmp_path_factory, raw):
    """Whatever the file holds, the proposal is a page that reads as itself and fits."""
    folder = tmp_path_factory.mktemp("repair")
    (folder / "MEMORY.md").write_bytes(raw)
    store = MemoryStore(folder)

    proposal = propose_repair(store, Target.MEMORY)

    from wellkept.memory.page import Page, find_drift, parse

    page = Page(proposal.entries, 2200)
    assert parse(page.text) == proposal.entries
    assert find_drift(proposal.entries, 2200, ()) is None
    assert len(page.text) <= 2200

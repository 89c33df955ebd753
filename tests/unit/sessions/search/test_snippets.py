"""The stretch of a text that shows why it was found."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.sessions.search.occurrences import Marker, pattern


def test_the_densest_place_is_shown():
    """Of many places the one with most of the words is shown, also in another form of the word."""
    text = "apple " * 300 + "the deployed server failed at noon " + "pear " * 300

    shown = Marker(["deploying", "server", "failed"]).around(text, width=120)

    assert "deployed server failed" in shown
    assert len(shown) <= 122
    assert shown.startswith("…")


def test_a_number_is_not_marked_in_a_longer_one():
    """Port 80 is not in 8080 or 8000; a unit may follow it, and `80*` asks for all that begins so."""
    text = "8080 80 8000 80km"

    assert pattern(["80"]).findall(text) == ["80", "80km"]
    assert pattern(["80*"]).findall(text) == ["8080", "80", "8000", "80km"]
    assert "port 80 is open" in Marker(["80"]).around("8000 " * 300 + "port 80 is open" + " 8000" * 300, width=60)


def test_the_beginning_is_shown_when_nothing_is_sought():
    """Without words the text begins at its beginning."""
    assert Marker().around("a b c " * 100, width=20).startswith("a b c")


@given(st.text(max_size=500), st.lists(st.text(max_size=8), max_size=4), st.integers(1, 200))
def test_a_snippet_is_short(text, terms, width):
    """Whatever is sought, the snippet keeps its width, and a short text comes back whole."""
    shown = Marker(terms).around(text, width=width)

    assert len(shown) <= max(width + 2, len(text) if len(text) <= width else 0)
    assert shown == text or len(text) > width


@given(st.text("abc ", min_size=40, max_size=200), st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_a_text_can_be_cut_again(text, widths):
    """A text that is cut several times is cut each time as if it were the first."""
    marker = Marker(["cab", "abba"])

    assert [marker.around(text, width=width) for width in widths] == [
        Marker(["cab", "abba"]).around(text, width=width) for width in widths
    ]

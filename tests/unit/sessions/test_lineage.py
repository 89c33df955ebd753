"""Sessions that are one conversation."""

from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.ids import SessionId
from wellkept.core.messages import Lineage, Link

NAMES = [SessionId(name) for name in "abcdefg"]


def lineage(parents):
    """Return the lineage of a mapping from child to (parent, link)."""
    children = {}
    for child, (parent, link) in parents.items():
        children.setdefault(parent, []).append((child, link))
    return Lineage(parents.get, lambda name: children.get(name, []))


def test_a_chain_has_one_root_and_one_tip():
    """Compressions lead from the first session to the last; a branch and a delegate do not move the tip."""
    links = lineage(
        {
            "b": ("a", Link.COMPRESSION),
            "c": ("b", Link.COMPRESSION),
            "d": ("b", Link.BRANCH),
            "e": ("a", Link.DELEGATE),
        }
    )

    assert links.root("c") == links.root("d") == "a"
    assert (links.tip("a"), links.tip("d")) == ("c", "d")
    assert links.family("c") == ["a", "b", "c", "d"]
    assert links.chain("c") == ["a", "b", "c"]
    assert links.root("e") == "e"


parents = st.dictionaries(
    st.sampled_from(NAMES), st.tuples(st.sampled_from(NAMES), st.sampled_from([*Link, None])), max_size=7
)


@given(parents, st.sampled_from(NAMES))
def test_no_cycle_loops(links, name):
    """Whatever links a damaged file holds, every walk ends, and a session is in its own family."""
    walked = lineage(links)

    assert name in walked.family(name)
    assert len(set(walked.family(name))) == len(walked.family(name))
    assert walked.root(name) in NAMES
    assert walked.tip(name) in NAMES
    assert name in walked.chain(name)

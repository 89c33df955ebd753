"""The head of a SKILL.md: read as YAML reads it, written so that the strictest reader takes it."""

import strictyaml
from hypothesis import given
from hypothesis import strategies as st

from wellkept.skills import document
from wellkept.skills.document import BadFrontmatter, Frontmatter, read_frontmatter, render_frontmatter

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
values = st.one_of(texts, st.lists(texts, max_size=3), st.dictionaries(texts.filter(bool), texts, max_size=3))
lines = st.sampled_from(
    [
        "a: x",
        "b: 'q'",
        "b:",
        "  c: d",
        "  - e",
        "- f",
        "c: [a, b]",
        "d: >-",
        "d: |",
        "  text here",
        "    deep",
        "# c",
        "",
        'e: "z"',
        "f: a: b",
        "g: x # y",
        "h: http://x",
        "  # cc",
        "i: -x",
        "j: - y",
        "  k:",
        "    l: m",
        "n: [a]",
        "o: *a",
        "p: &a b",
        "\tq: r",
        "r: 1.0",
        "s: ~",
        "t:  padded  ",
        "u: 'a' b",
        "v: [a, 'b']",
        "w: a,b",
        "x: {a: b}",
    ]
)


@given(
    st.dictionaries(
        st.one_of(st.sampled_from(["name", "description"]), texts.filter(bool)), values, min_size=1, max_size=4
    )
)
def test_what_is_written_is_read_back_by_us_and_by_the_official_reader(fields):
    """Any fields survive writing, for our reader and for the strict one of the public format."""
    text = render_frontmatter(fields)

    expected = {key: value if value or isinstance(value, str) else "" for key, value in fields.items()}
    assert strictyaml.load(text.split("---", 2)[1]).data == expected
    found = read_frontmatter(text + "body")
    assert isinstance(found, Frontmatter)
    assert found.fields == expected


@given(st.lists(lines, min_size=1, max_size=7))
def test_the_quick_reader_never_differs_from_yaml(given_lines):
    """Where the quick reader answers, it says what YAML says, and `strict` is true only where the strict reader agrees."""
    text = "\n".join(given_lines) + "\n"

    quick = document._SimpleParser(text.splitlines()).read()

    if quick is not None:
        fields, strict = quick
        assert fields == document._load_yaml(text)
        if strict:
            assert strictyaml.load(text).data == fields


@given(st.text(max_size=300))
def test_no_text_makes_the_reader_fail(text):
    """Whatever stands in a file, the answer is a head or a problem with its fix."""
    found = read_frontmatter("---\n" + text)

    assert isinstance(found, Frontmatter) or (isinstance(found, BadFrontmatter) and found.problem and found.fix)


def test_an_unquoted_colon_is_read_with_a_warning():
    """The commonest mistake of other agents is forgiven."""
    found = read_frontmatter("---\nname: x\ndescription: Use when: the person asks\n---\nbody")

    assert isinstance(found, Frontmatter)
    assert found.fields["description"] == "Use when: the person asks"
    assert found.warnings


def test_a_bom_and_windows_lines_are_accepted():
    """Files from other systems load."""
    found = read_frontmatter("\ufeff---\r\nname: x\r\ndescription: y\r\n---\r\nbody")

    assert isinstance(found, Frontmatter)
    assert found.fields == {"name": "x", "description": "y"}


def test_aliases_cannot_unfold_without_end():
    """A bomb of aliases is a problem, not a full memory."""
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n" for old, new in zip("abcdef", "bcdefg", strict=True)
    )

    found = read_frontmatter(f"---\n{bomb}---\nbody")

    assert isinstance(found, BadFrontmatter)


def test_scalars_stay_text():
    """Nobody's version 1.10 becomes 1.1, nobody's `on` becomes true."""
    found = read_frontmatter("---\nversion: 1.10\nflag: on\nmetadata: {a: 1}\n---\n")

    assert isinstance(found, Frontmatter)
    assert found.fields == {"version": "1.10", "flag": "on", "metadata": {"a": "1"}}

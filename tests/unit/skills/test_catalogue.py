"""The catalogue: a fixed budget, the same bytes for the same input."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from wellkept.skills.index import Facts, Skill
from wellkept.skills.library import SkillLibrary, catalogue, estimate_tokens
from wellkept.skills.roots import Kind, Root
from wellkept.skills.settings import SkillSettings
from wellkept.skills.usage import Use

HOME = Root(Path("/h"), Kind.HOME)
PROJECT = Root(Path("/p"), Kind.PROJECT)


def skill(name, description="Does it. Use when asked.", *, category="", root=HOME):
    return Skill(name, category, f"/h/{name}", root, Facts(name, description))


def test_every_skill_is_named_when_all_fit():
    """One line each, grouped by category, in order."""
    text = catalogue([skill("b", category="ops"), skill("a"), skill("c", category="ops")], {}, budget=500)

    assert text.splitlines()[2:] == [
        "general:",
        "- a: Does it. Use when asked.",
        "ops:",
        "- b: Does it. Use when asked.",
        "- c: Does it. Use when asked.",
    ]


def test_no_skills_give_no_block():
    """An empty library costs nothing."""
    assert catalogue([], {}, budget=1_200) == ""


@given(
    st.lists(
        st.tuples(st.text(st.sampled_from("abcxyz-"), min_size=1, max_size=30), st.text(max_size=300)), max_size=80
    ),
    st.integers(100, 2_000),
)
def test_the_budget_is_never_exceeded(rows, budget):
    """Whatever the names and descriptions are, the block fits."""
    skills = [skill(f"{name}{place}", text, category=name[:3]) for place, (name, text) in enumerate(rows)]

    text = catalogue(skills, {}, budget=budget)

    assert estimate_tokens(text) <= budget
    assert text == catalogue(list(reversed(skills)), {}, budget=budget)


def test_pinned_project_and_recent_skills_are_named_first():
    """The rest is counted by category."""
    many = [skill(f"filler-{number:03d}", category=f"c{number % 3}") for number in range(300)]
    special = [skill("zz-pinned"), skill("zz-project", root=PROJECT), skill("zz-recent"), skill("zz-older")]
    usage = {
        "zz-pinned": Use(pinned=True),
        "zz-recent": Use(last_used_at="2026-05-02T00:00:00.000Z"),
        "zz-older": Use(last_used_at="2025-05-02T00:00:00.000Z"),
    }

    text = catalogue([*many, *special], usage, budget=200)

    for name in ("zz-pinned", "zz-project", "zz-recent", "zz-older"):
        assert f"- {name}:" in text
    assert "Not listed, found with skills_list(query=…): c0 (" in text
    tight = catalogue([*many, *special], usage, budget=110)
    assert "zz-project" in tight
    assert "zz-older" not in tight


def test_a_thousand_skills_keep_the_budget(folder, write_skill):
    """The catalogue of a large library is as long as the setting says, from cold files."""
    for number in range(1_000):
        write_skill(
            folder,
            f"skill-{number}",
            f"Handle case {number} of the series. Use when case {number} comes.",
            place=f"c{number % 20}",
        )
    library = SkillLibrary(folder, settings=SkillSettings(bundled=False))

    text = catalogue(library.usable(), library.usage.read(), budget=1_200)

    assert 1_000 < estimate_tokens(text) <= 1_200

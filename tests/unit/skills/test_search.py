"""Ranking: the right skill is among the first three for the tasks of the corpus."""

import tomllib
from pathlib import Path

import pytest

from wellkept.skills.index import Facts, Skill, near_duplicates, rank, stem, terms
from wellkept.skills.roots import Kind, Root

CORPUS = Path(__file__).parents[2] / "corpora" / "skills" / "tasks.toml"
HOME = Root(Path("/h"), Kind.HOME)


@pytest.fixture(scope="module")
def rows():
    return tomllib.loads(CORPUS.read_text(encoding="utf-8"))["skill"]


@pytest.fixture(scope="module")
def skills(rows):
    return [
        Skill(row["name"], row["category"], f"/h/{row['name']}", HOME,
              Facts(row["name"], row["description"], tuple(row["tags"]), tuple(row["headings"])))
        for row in rows
    ]  # fmt: skip


def test_the_corpus_is_large_and_fair(rows):
    """At least 200 tasks, each sharing a stem with its skill."""
    tasks = [(row, task) for row in rows for task in row["tasks"]]

    assert len(tasks) >= 200
    for row, task in tasks:
        own = set(terms(" ".join([row["name"], row["description"], *row["tags"], *row["headings"]])))
        assert own & set(terms(task)), task


def test_the_right_skill_is_in_the_first_three(rows, skills):
    """At least nine tasks of ten."""
    hits, total = 0, 0
    for row in rows:
        for task in row["tasks"]:
            total += 1
            hits += row["name"] in [found.skill.name for found in rank(task, skills)[:3]]

    assert hits / total >= 0.9


def test_tasks_in_other_words_find_their_skill_too(rows, skills):
    """At least nine of ten of those that were written without a look at the ranker; most share one or two stems."""
    fresh = tomllib.loads(CORPUS.with_name("tasks_fresh.toml").read_text(encoding="utf-8"))["tasks"]
    own = {
        row["name"]: set(terms(" ".join([row["name"], row["description"], *row["tags"], *row["headings"]])))
        for row in rows
    }
    tasks = [(name, task) for name, texts in fresh.items() for task in texts]
    shared = [len(own[name] & set(terms(task))) for name, task in tasks]
    missed = [task for name, task in tasks if name not in [found.skill.name for found in rank(task, skills)[:3]]]

    assert len(tasks) >= 60
    assert min(shared) >= 1, [task for (_, task), count in zip(tasks, shared, strict=True) if not count]
    assert sum(count <= 2 for count in shared) >= 0.8 * len(tasks)
    assert len(missed) <= 0.1 * len(tasks), missed


def test_the_name_itself_comes_first(skills):
    """Whoever knows the name gets the skill."""
    for skill in skills:
        assert rank(skill.name, skills)[0].skill is skill


def test_inflections_share_a_stem():
    """Deploying, deployed and deployments meet."""
    assert (
        len({stem(word) for word in ("deploy", "deploys", "deployed", "deploying", "deployment", "deployments")}) == 1
    )
    assert (
        len({stem(word) for word in ("migrate", "migrates", "migrated", "migrating", "migration", "migrations")}) == 1
    )
    assert stem("query") == stem("queries")


def test_near_duplicates_are_found_and_others_are_not(skills):
    """The same task in other words is near, another task of the same field is not."""
    near = near_duplicates(
        "postgres-slow-queries", "Find slow PostgreSQL queries and speed them up with indexes.", skills, threshold=0.55
    )
    far = near_duplicates(
        "postgres-backup", "Dump a PostgreSQL database every night and test the dump.", skills, threshold=0.55
    )

    assert [found.skill.name for found in near] == ["postgres-slow-query"]
    assert far == []


def test_no_skill_of_the_corpus_is_a_duplicate_of_another(skills):
    """The threshold leaves ordinary neighbours apart."""
    for skill in skills:
        others = [other for other in skills if other is not skill]
        assert near_duplicates(skill.name, skill.facts.description, others, threshold=0.55) == [], skill.name

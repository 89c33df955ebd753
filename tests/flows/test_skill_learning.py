"""The learning loop: a skill is used, fails, is patched by the review, is used again, and can be undone."""

import json

import pytest
from skills_ref.validator import validate

from wellkept.llm.scripted import Says, call
from wellkept.testing.loopback_servers import LoopbackOpenAI

SKILL = "---\nname: read-report\ndescription: Read the weekly report. Use when asked for the report.\n---\n\n# Steps\n\n1. Read old-report.txt\n"


class Author:
    """A model that follows the skill, and patches it when it is asked to review."""

    def __init__(self):
        self.bodies = []

    def __call__(self, body):
        last = body["messages"][-1]
        asked = [message for message in body["messages"] if message["role"] == "user"][-1]
        if "Background review" in json.dumps(asked):
            return self._review(after=last["role"] == "tool")
        if last["role"] != "tool":
            return Says(tool_calls=(call("skill_view", name="read-report"),))
        if "# Steps" in last["content"]:
            self.bodies.append(json.loads(last["content"])["content"])
            path = "new-report.txt" if "new-report" in last["content"] else "old-report.txt"
            return Says(tool_calls=(call("read_file", path=path),))
        return Says("Here is what I found.")

    def _review(self, *, after):
        if after:
            return Says("Done.")
        patch = {
            "action": "patch",
            "name": "read-report",
            "old_string": "old-report.txt",
            "new_string": "new-report.txt",
        }
        return Says(tool_calls=(call("skill_manage", **patch),))


@pytest.fixture
def author():
    return Author()


@pytest.fixture
def server(author):
    with LoopbackOpenAI(author) as running:
        yield running


def test_a_skill_that_failed_is_patched_used_and_undone(kept, server, author, home, work):
    """The error makes the review due; the patched version is what the next turn reads; undo restores the old one."""
    env = {**server.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model"}
    (work / "draft.md").write_text(SKILL)
    assert kept("skills", "create", "read-report", "-f", "draft.md").code == 0
    (work / "new-report.txt").write_text("All is well.")

    first = kept("run", "show me the report", env=env)
    patched = kept("skills", "show", "read-report")
    faults = validate(home / "skills" / "read-report")
    second = kept("run", "show me the report", env=env)

    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "new-report.txt" in patched.out, first.err
    assert faults == []
    assert ["new-report" in body for body in author.bodies] == [False, True]
    [stats] = kept("skills", "stats", "--json").json
    assert [version["failures"] for version in stats["versions"]] == [1, 0]
    [change, *_] = kept("skills", "log", "read-report", "--json").json
    assert change["origin"] == "background_review"
    assert kept("skills", "undo", "read-report").code == 0
    assert (home / "skills" / "read-report" / "SKILL.md").read_text() == SKILL


def test_a_skill_loaded_by_hand_is_counted_and_reviewed_like_any_other(kept, server, author, work):
    """`/skill-name` in a chat is a use; when its turn fails, the review patches it, and the person is told."""
    env = {**server.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model"}
    (work / "draft.md").write_text(SKILL)
    kept("skills", "create", "read-report", "-f", "draft.md")

    def follow(body):
        asked = [message for message in body["messages"] if message["role"] == "user"][-1]
        if "Background review" in json.dumps(asked):
            return author._review(after=body["messages"][-1]["role"] == "tool")
        ended = body["messages"][-1]["role"] == "tool"
        return Says("It is not there.") if ended else Says(tool_calls=(call("read_file", path="old-report.txt"),))

    with LoopbackOpenAI(follow) as endpoint:
        ran = kept("chat", stdin="/read-report of last week\n", env={**env, **endpoint.environment})

    assert "learned: SKILL.md of 'read-report' patched. (kept skills undo read-report)" in ran.err
    [stats] = kept("skills", "stats", "--json").json
    assert [version["failures"] for version in stats["versions"]] == [1]
    assert "new-report.txt" in kept("skills", "show", "read-report").out

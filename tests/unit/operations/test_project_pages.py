"""Pages of projects through the app: which project is known, the block of a session, the mirror, forget and export."""

import pytest

from wellkept.agent.dependencies import PageLedger
from wellkept.app import open_app
from wellkept.core.errors import Reason, Refused, StorageError
from wellkept.forgetting.forget import forget, plan_forget_words
from wellkept.mcp_server.tools import call, describe
from wellkept.memory.page import Add, Target
from wellkept.operations.memory import edit_entry, list_pages, render_snapshot
from wellkept.operations.recall import build_start_block
from wellkept.operations.users import export_user


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository that the process works in, in a folder below its root."""
    root = tmp_path / "work" / "demo"
    (root / ".git").mkdir(parents=True)
    (root / "src").mkdir()
    monkeypatch.chdir(root / "src")
    return root


@pytest.fixture
def caller(home, project):
    app = open_app()
    yield app.caller()
    app.close()


def test_a_repository_is_one_project(caller, project):
    """Its page belongs to the root, and a session in it gets the block."""
    edit_entry(caller, Add("tests run with make test"), Target.PROJECT)

    assert list_pages(caller) == [Target.MEMORY, Target.USER, Target.PROJECT]
    assert caller.space.memory_in(str(project)).entries("project") == ["tests run with make test"]
    assert "make test" in render_snapshot(caller).blocks[Target.PROJECT]
    assert "make test" in render_snapshot(caller, project=str(project / "src")).blocks[Target.PROJECT]
    assert Target.PROJECT not in render_snapshot(caller, project=str(project.parent)).blocks


@pytest.mark.parametrize("place", ["person", "root"])
def test_the_home_of_a_person_is_no_project(home, tmp_path, monkeypatch, place):
    """Nor is the root: everything would be one project."""
    (tmp_path / "person").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "person" if place == "person" else "/")
    app = open_app()
    refused = edit_entry(app.caller(), Add("x"), Target.PROJECT)
    names = app.caller().space.core_tools()[0].schema.parameters["properties"]["target"]["enum"]
    app.close()

    assert isinstance(refused, Refused)
    assert refused.reason is Reason.DISABLED
    assert names == ["memory", "user"]


def test_a_connected_agent_gets_the_page_of_its_project_only(caller, project):
    """The block of a session start holds it there, and nowhere else."""
    edit_entry(caller, Add("tests run with make test"), Target.PROJECT)
    edit_entry(caller, Add("everywhere"))

    assert "make test" in build_start_block(caller, str(project)).text
    elsewhere = build_start_block(caller, str(project.parent / "other"))
    assert "everywhere" in elsewhere.text
    assert "make test" not in elsewhere.text


def test_the_mirror_reads_every_project(caller, project):
    """Providers get the writes of all projects, each with its project."""
    edit_entry(caller, Add("one"), Target.PROJECT)
    store = caller.space.memory_in(str(project.parent / "other"))
    store.apply("project", Add("two"))
    rows = PageLedger(caller.space.memory).since(0)

    assert [(row.target, row.after) for row in rows] == [("project", "one"), ("project", "two")]
    assert rows[0].project == caller.space.memory.project
    assert rows[1].project == store.project


def test_another_agent_is_offered_the_page_over_mcp(caller):
    """By `memory` and `memory_read`; without a home that can be opened, as without a project."""

    def no_home():
        raise StorageError("gone", "wait")

    def targets(listed):
        found = {one["name"]: one["inputSchema"]["properties"].get("target") for one in listed}
        return found["memory"]["enum"], found["memory_read"]["enum"]

    assert targets(describe(lambda: caller)) == (["memory", "user", "project"], ["memory", "user", "project", "all"])
    assert targets(describe(no_home)) == (["memory", "user"], ["memory", "user", "all"])
    call(lambda: caller, "memory", {"action": "add", "target": "project", "content": "Tests run with tox"}, client="x")
    answer = call(lambda: caller, "memory_read", {"target": "project"}, client="x")
    assert "Tests run with tox" in str(answer["content"])


def test_forget_reaches_the_pages_of_all_projects(caller, project, home):
    """The entry leaves the page of a project that the process does not work in, and its bytes the home."""
    other = caller.space.memory_in(str(project.parent / "other"))
    other.apply("project", Add("the zanzibarmarker is here"))
    other.apply("project", Add("something else"))

    outcome = forget(caller, plan_forget_words(caller, "zanzibarmarker"))

    assert outcome.is_complete
    assert other.entries("project") == ["something else"]
    held = [path for path in home.rglob("*") if path.is_file() and b"zanzibarmarker" in path.read_bytes()]
    assert held == []


def test_an_export_of_a_user_holds_the_pages_of_all_projects(caller, project):
    """With the folder of each project."""
    edit_entry(caller, Add("one"), Target.PROJECT)
    lines = list(export_user(caller).lines)

    assert {"type": "page", "target": "project", "project": caller.space.memory.project, "entries": ["one"]} in lines
    assert [line["project"] for line in lines if line["type"] == "edit"] == [caller.space.memory.project]

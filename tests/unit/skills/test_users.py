"""Skills of several users: each has an own folder above the owner's, and sees nothing of the others'."""

import hashlib

import pytest

from wellkept.app import open_app
from wellkept.core.errors import Reason, Refused
from wellkept.core.ids import UserId
from wellkept.core.tools import ToolContext
from wellkept.skills.changes import Author, Changed, Create, Delete, Patch, WriteFile
from wellkept.skills.curator.curator import Curator
from wellkept.skills.document import compose
from wellkept.skills.editor import undo
from wellkept.skills.library import SkillLibrary
from wellkept.skills.roots import Kind, Root, standard_roots
from wellkept.skills.settings import SkillSettings
from wellkept.skills.tool import SkillTools

PERSON = Author("person")


@pytest.fixture
def home(tmp_path):
    place = tmp_path / "home"
    (place / "skills").mkdir(parents=True)
    return place


@pytest.fixture
def open_for(home, clock):
    """Open the skills of one user, as the app does."""

    def opened(user="owner", **settings):
        owners = home / "skills"
        own = owners if user == "owner" else home / "users" / user / "skills"
        roots = standard_roots(own, owner=None if user == "owner" else owners, person=None, project=None, bundled=False)
        return SkillTools(SkillLibrary(own, roots=roots, settings=SkillSettings(**settings), clock=clock))

    return opened


@pytest.fixture
def owner(open_for):
    tools = open_for()
    create(tools, "rotate-keys", category="ops")
    change = WriteFile("rotate-keys", "scripts/check.sh", "#!/bin/sh\ntrue\n")
    assert isinstance(tools.editor.apply(change, PERSON), Changed)
    return tools


def create(tools, name, description="Rotate the keys of a service", *, category=""):
    text = compose(name, description, "# Steps\n\n1. Make a new key\n")
    result = tools.editor.apply(Create(name, text, category), PERSON)
    assert isinstance(result, Changed), result


def patch(tools, name="rotate-keys", new="Make a key of 4,096 bits"):
    result = tools.editor.apply(Patch(name, "Make a new key", new), PERSON)
    assert isinstance(result, Changed), result
    return result


def call(tools, tool_name, /, **arguments):
    tool = next(tool for tool in tools.tools() if tool.schema.name == tool_name)
    return tool.call(arguments, ToolContext(session_id="s1"))


def files(folder):
    """Every file below a folder with its hash and its time, so that a rewrite with the same bytes shows too."""
    return {
        path.relative_to(folder).as_posix(): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def everything_by(tools, name):
    """Do everything that a user can do with skills of their own and with the owner's."""
    create(tools, name, f"Describe the secret plans of {name}")
    call(tools, "skill_view", name=name)
    call(tools, "skill_view", name="rotate-keys")
    patch(tools)
    tools.pending.stage(Delete(name), PERSON)
    tools.note_used("s1", name, "v1")
    tools.settle("s1", turn=1, tool_errors=1, finished=True)
    tools.library.usage.pin(name, pinned=True)
    create(tools, f"{name}-old", f"Count the birds of {name}")
    tools.editor.archive(f"{name}-old", PERSON)
    Curator(tools.editor).run()
    tools.library.contents()


def test_a_user_reads_the_owners_skills(owner, open_for):
    """The owner's skills are in the list, the search and the catalogue of everybody, files included."""
    anna = open_for("anna")

    assert call(anna, "skills_list")["skills"][0]["name"] == "rotate-keys"
    assert "Make a new key" in call(anna, "skill_view", name="rotate-keys")["content"]
    assert "true" in call(anna, "skill_view", name="rotate-keys", file_path="scripts/check.sh")["content"]
    assert "rotate-keys" in anna.catalogue()
    assert anna.library.skill("rotate-keys").root.kind is Kind.OWNER


def test_a_change_copies_the_owners_skill_to_the_user_alone(owner, open_for, home):
    """The copy has every file and the category; the owner and other users keep the original, bytes and all."""
    before = files(home / "skills")
    anna, ben = open_for("anna"), open_for("ben")
    patch(anna)

    own = home / "users" / "anna" / "skills" / "ops" / "rotate-keys"
    assert "4,096" in (own / "SKILL.md").read_text()
    assert (own / "scripts" / "check.sh").stat().st_mode & 0o100
    assert "4,096" in call(anna, "skill_view", name="rotate-keys")["content"]
    for other in (owner, ben):
        assert "4,096" not in call(other, "skill_view", name="rotate-keys")["content"]
    unchanged = files(home / "skills")
    assert {path: unchanged[path] for path in before if not path.startswith((".usage", ".cache"))} == {
        path: before[path] for path in before if not path.startswith((".usage", ".cache"))
    }
    assert anna.library.doctor() == []


def test_undo_brings_the_owners_text_back(owner, open_for):
    """Undoing the first change removes the copy; deleting a copy does, too; no user can delete the owner's skill."""
    anna = open_for("anna")
    patch(anna)
    undo(anna.editor, "rotate-keys", PERSON)

    assert anna.library.skill("rotate-keys").root.kind is Kind.OWNER
    refused = anna.editor.apply(Delete("rotate-keys"), PERSON)
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.NOT_ALLOWED
    patch(anna)
    assert isinstance(anna.editor.apply(Delete("rotate-keys"), PERSON), Changed)
    assert anna.library.skill("rotate-keys").root.kind is Kind.OWNER


def test_only_the_users_folder_is_written(owner, open_for, home):
    """Whatever a user does, no file outside users/<id> is made, changed, touched or removed."""
    ben = open_for("ben")
    everything_by(ben, "plans-of-ben")
    before = {path: state for path, state in files(home).items() if not path.startswith("users/anna/")}

    everything_by(open_for("anna"), "plans-of-anna")

    after = {path: state for path, state in files(home).items() if not path.startswith("users/anna/")}
    assert after == before
    written = {path.split("/")[3] for path in files(home) if path.startswith("users/anna/skills/")}
    assert {".usage.json", ".outcomes.jsonl", ".versions", ".archive", ".cache.json", ".curator"} <= written
    assert any(path.startswith("users/anna/pending/skills/") for path in files(home))


def test_the_owner_writes_nothing_of_a_user(owner, open_for, home):
    """The owner's work and the owner's curator leave the users' folders as they are."""
    everything_by(open_for("anna"), "plans-of-anna")
    before = files(home / "users")

    everything_by(owner, "plans-of-the-owner")

    assert files(home / "users") == before


@pytest.mark.parametrize("reader", ["owner", "ben"])
def test_nothing_of_a_user_is_visible_to_others(owner, open_for, home, reader):
    """Names, versions, usage, outcomes, pins, pending changes, the archive and backups are the user's own."""
    other = open_for(reader)
    everything_by(open_for("anna"), "plans-of-anna")

    seen = other.library.contents()
    assert list(seen.skills) == ["rotate-keys"]
    assert seen.collisions == ()
    assert other.library.search("secret plans of anna") == []
    assert call(other, "skill_view", name="plans-of-anna")["success"] is False
    assert "plans" not in other.catalogue()
    assert other.library.usage.read().get("plans-of-anna") is None
    assert other.library.usage.of("rotate-keys").view_count == 0
    assert other.library.outcomes.stats() == {}
    assert other.library.versions.of("plans-of-anna") == []
    assert other.pending.waiting() == []
    assert other.editor.archive_folders() == []
    assert Curator(other.editor).backups.names() == []
    assert Curator(other.editor).report() is None
    assert Curator(other.editor).state().last_run_at is None
    own = other.library.path
    assert not any(b"plans-of-anna" in path.read_bytes() for path in own.rglob("*") if path.is_file())


def test_what_the_owner_counts_and_hides_stays_the_owners(owner, open_for, home):
    """A user reads the owner's skills, not the owner's versions, usage, archive, pins or pending changes."""
    everything_by(owner, "plans-of-the-owner")
    anna = open_for("anna")

    assert sorted(anna.library.contents().skills) == ["plans-of-the-owner", "rotate-keys"]
    assert anna.library.skill("plans-of-the-owner-old") is None
    assert anna.library.usage.read() == {}
    assert anna.library.outcomes.stats() == {}
    assert anna.library.versions.of("rotate-keys") == []
    assert anna.pending.waiting() == []
    assert anna.editor.archive_folders() == []


def test_a_users_curator_leaves_the_owners_skills_alone(owner, open_for, home, clock):
    """However long nobody uses them, only the user's own skills grow stale and go to the archive."""
    anna = open_for("anna")
    create(anna, "my-notes", "Write notes down")
    clock.forward(days=400)
    before = files(home / "skills")

    report = Curator(anna.editor).run()

    assert [move.name for move in report.moves] == ["my-notes"]
    assert files(home / "skills") == before


def test_trust_in_a_project_is_each_users_own(owner, home, tmp_path):
    """That one user trusts a project says nothing about another."""
    from wellkept.skills.roots import set_trust

    project = tmp_path / "project"
    for user in ("anna", "ben"):
        (home / "users" / user / "skills").mkdir(parents=True)
    set_trust(home / "users" / "anna" / "skills", project, trusted=True)

    def kinds(user):
        own = home / "users" / user / "skills"
        return [root.kind for root in standard_roots(own, owner=home / "skills", person=None, project=project)]

    assert Kind.PROJECT in kinds("anna")
    assert Kind.PROJECT not in kinds("ben")


def test_a_library_has_one_folder_to_write(home):
    """A root that claims to be the user's own but is not is a mistake of the caller."""
    roots = (Root(home / "users" / "anna" / "skills", Kind.HOME), Root(home / "skills", Kind.HOME))

    with pytest.raises(AssertionError):
        SkillLibrary(home / "users" / "anna" / "skills", roots=roots)


def test_the_app_opens_each_users_skills_above_the_owners(home, monkeypatch, tmp_path):
    """Two users in one process: what one changes is theirs, the owner's is read by both."""
    monkeypatch.chdir(tmp_path)
    app = open_app(str(home), environ={})
    try:
        create(app.owner.skill_tools, "rotate-keys")
        anna, ben = app.space(UserId("anna")), app.space(UserId("ben"))
        patch(anna.skill_tools)

        assert "4,096" in call(anna.skill_tools, "skill_view", name="rotate-keys")["content"]
        assert "4,096" not in call(ben.skill_tools, "skill_view", name="rotate-keys")["content"]
        assert ben.skill_tools.library.skill("rotate-keys").root.kind is Kind.OWNER
        assert app.owner.skill_tools.library.skill("rotate-keys").root.kind is Kind.HOME
    finally:
        app.close()

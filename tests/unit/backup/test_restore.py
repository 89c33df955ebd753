"""A backup restored: into an empty home as it was, into a living one without a loss."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wellkept.app import open_app
from wellkept.backup.backup import create_backup
from wellkept.backup.restore import RestoreOptions, apply_restore, open_restore
from wellkept.connect.capture import capture_transcript
from wellkept.core.errors import Refused, UsageError
from wellkept.core.ids import OWNER, SessionId, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.forgetting import forget
from wellkept.memory.page import Add, Remove, Replace
from wellkept.skills.changes import Author, Create, Edit
from wellkept.storage.connections import connect_read_only

TRANSCRIPTS = Path(__file__).parents[2] / "corpora" / "transcripts" / "claude-code" / "projects"
TRANSCRIPT = TRANSCRIPTS / "-home-sam-project" / "f7492b84-19bd-4e55-aca8-559d76daf924.jsonl"
HEAVY = os.environ.get("KEPT_HEAVY") == "1"
SKILL = "---\nname: {name}\ndescription: How {name} is made well\n---\n\n# Steps\n\n1. {step}\n"


def write_skill(space, name, step):
    editor = space.skill_tools.editor
    text = SKILL.format(name=name, step=step)
    kind = Create if editor.library.home_folder(name) is None else Edit
    assert not isinstance(editor.apply(kind(name, text), Author()), Refused)


def say(space, session, *words):
    if space.sessions.session(SessionId(session)) is None:
        space.sessions.create(Session(id=SessionId(session), source="cli", started=1.0), system_prompt="be kind")
    start = len(space.sessions.messages(SessionId(session)))
    news = [NewMessage(Message(Role.USER, word), start + number, Origin.PERSON) for number, word in enumerate(words)]
    space.sessions.append(SessionId(session), news)


ANN = UserId("ann")


def fill(app, users=(OWNER, ANN)):
    for user in users:
        space = app.space(user)
        say(space, f"s-{user}", f"words of {user}", "more words")
        space.memory.apply("memory", Add(f"a fact of {user}"))
        space.memory.apply("user", Add(f"{user} likes tea"))
        write_skill(space, f"tea-{user}", "Boil the water.")


@pytest.fixture
def app(home):
    app = open_app(str(home), environ={})
    fill(app)
    (home / "config.yaml").write_text("memory:\n  memory_char_limit: 3000\n")
    yield app
    app.close()


@pytest.fixture
def other(tmp_path):
    """An app on an empty home."""
    app = open_app(str(tmp_path / "other"), environ={})
    yield app
    app.close()


def restore(app, file, user=OWNER, options=None):
    with open_restore(app.caller(user), file, options) as opened:
        assert not isinstance(opened, Refused), opened
        done = apply_restore(app.caller(user), opened)
    assert not isinstance(done, Refused)
    return done


def export(app, user=OWNER):
    return list(app.space(user).sessions.transfer.export(raw=True))


def read_ledger(home):
    path = home / "memories" / "ledger.db"
    if not path.exists():
        return []
    connection = connect_read_only(path)
    rows = list(connection.execute("SELECT * FROM edits ORDER BY id"))
    connection.close()
    return rows


def read_files(home, *folders):
    found = {}
    for folder in folders:
        for path in sorted((home / folder).rglob("*")):
            if path.is_file() and not path.name.endswith((".lock", "-wal", "-shm", ".cache.json", ".db", ".watched")):
                found[path.relative_to(home).as_posix()] = path.read_bytes()
    return found


def test_an_empty_home_becomes_what_the_other_was(app, other, tmp_path):
    """Pages, ledger rows, conversations, skills with versions, settings, of all users."""
    file = create_backup(app.caller(), tmp_path / "a").file

    done = restore(other, file)

    assert (done.is_fresh, done.backup) == (True, None)
    home, new = app.home.path, other.home.path
    for user in ("", "users/ann"):
        assert read_files(new / user, "memories", "skills") == read_files(home / user, "memories", "skills")
        assert read_ledger(new / user) == read_ledger(home / user)
    assert [export(other, user) for user in (OWNER, "ann")] == [export(app, user) for user in (OWNER, "ann")]
    assert (new / "config.yaml").read_bytes() == (home / "config.yaml").read_bytes()
    assert not (new / "restoring").exists()


def test_a_second_restore_changes_nothing(app, other, tmp_path):
    """And takes no backup before."""
    file = create_backup(app.caller(), tmp_path / "a").file
    restore(other, file)
    before = (read_ledger(other.home.path), export(other))

    done = restore(other, file)

    assert done.changes_nothing
    assert (read_ledger(other.home.path), export(other)) == before
    assert not (other.home.path / "backups").exists()


def test_a_preview_changes_nothing(app, other, tmp_path):
    """Neither in an empty home nor in a living one."""
    file = create_backup(app.caller(), tmp_path / "a").file
    with open_restore(other.caller(), file) as opened:
        shown = opened.preview.as_json()

    assert shown["users"]["owner"]["sessions"] == {"new": 2}
    assert [path.name for path in other.home.path.iterdir()] in ([], ["logs"])


def test_a_living_home_gets_what_it_lacks(app, other, tmp_path):
    """New pages' entries, conversations and skills come, its own stay, and it is backed up before."""
    fill(other, users=(UserId("bob"),))
    say(other.owner, "mine", "my own words")
    other.owner.memory.apply("memory", Add("my own fact"))
    write_skill(other.owner, "coffee", "Grind.")
    file = create_backup(app.caller(), tmp_path / "a").file

    done = restore(other, file)

    assert done.backup is not None
    assert other.owner.memory.entries("memory") == ["my own fact", "a fact of owner"]
    assert {line["session_id"] for line in export(other)} == {"mine", "s-owner"}
    assert {path.name for path in (other.home.path / "skills").iterdir()} >= {"coffee", "tea-owner"}
    assert [version.action for version in other.owner.skill_tools.library.versions.of("tea-owner")] == ["create"]
    assert not (other.home.path / "config.yaml").exists()
    assert any("config.yaml" in line for line in done.collect("held_back"))
    assert restore(other, file).changes_nothing


def test_settings_come_on_request(app, other, tmp_path):
    """Into a living home."""
    say(other.owner, "mine", "my own words")
    file = create_backup(app.caller(), tmp_path / "a").file

    restore(other, file, options=RestoreOptions(settings=True))

    assert "3000" in (other.home.path / "config.yaml").read_text()


def test_a_conversation_that_grew_on_both_sides_keeps_both(app, other, tmp_path):
    """The session here stays as it is; what the backup has more is a branch of it, with the shared beginning."""
    restore(other, create_backup(app.caller(), tmp_path / "a").file)
    say(app.owner, "s-owner", "only in the backup")
    say(other.owner, "s-owner", "only here")
    file = create_backup(app.caller(), tmp_path / "b").file

    done = restore(other, file)

    sessions = other.owner.sessions
    (branch,) = {line["session_id"] for line in export(other)} - {"s-owner"}
    assert done.parts[OWNER]["sessions"].counts["conflicts"] == 1
    assert [message.message.content for message in sessions.messages(SessionId("s-owner"))][-1] == "only here"
    assert [message.message.content for message in sessions.messages(branch)] == ["only in the backup"]
    context = [message.message.content for message in sessions.context(branch)]
    assert context == ["words of owner", "more words", "only in the backup"]
    assert restore(other, file).changes_nothing


def test_a_conversation_that_grew_in_the_backup_is_extended(app, other, tmp_path):
    """No branch is needed where nothing was said here since."""
    restore(other, create_backup(app.caller(), tmp_path / "a").file)
    say(app.owner, "s-owner", "only in the backup")

    done = restore(other, create_backup(app.caller(), tmp_path / "b").file)

    assert done.parts[OWNER]["sessions"].as_json()["updated"] == 1
    assert export(other) == export(app)


def test_a_skill_that_changed_on_both_sides_keeps_both(app, other, tmp_path):
    """The one here stays; that of the backup can be restored from its versions."""
    restore(other, create_backup(app.caller(), tmp_path / "a").file)
    write_skill(app.owner, "tea-owner", "In the backup.")
    write_skill(other.owner, "tea-owner", "Only here.")
    file = create_backup(app.caller(), tmp_path / "b").file

    done = restore(other, file)

    library = other.owner.skill_tools.library
    contents = [
        library.versions.content("tea-owner", one.after["SKILL.md"]) for one in library.versions.of("tea-owner")
    ]
    assert b"Only here." in (other.home.path / "skills" / "tea-owner" / "SKILL.md").read_bytes()
    assert any(b"In the backup." in content for content in contents)
    assert done.parts[OWNER]["skills"].counts["conflicts"] == 1
    assert restore(other, file).changes_nothing


def test_a_skill_that_is_behind_is_updated(app, other, tmp_path):
    """By its versions, so that it can be undone."""
    restore(other, create_backup(app.caller(), tmp_path / "a").file)
    write_skill(app.owner, "tea-owner", "Better.")

    done = restore(other, create_backup(app.caller(), tmp_path / "b").file)

    assert done.parts[OWNER]["skills"].counts["updated"] == 1
    assert b"Better." in (other.home.path / "skills" / "tea-owner" / "SKILL.md").read_bytes()


def test_what_was_forgotten_stays_forgotten(app, tmp_path):
    """A backup from before brings back no message, no entry and no skill, and the preview says so."""
    space = app.owner
    say(space, "secret", "the lighthouse at nine")
    space.memory.apply("memory", Add("meets at the lighthouse"))
    write_skill(space, "boats", "Row past the lighthouse.")
    file = create_backup(app.caller(), tmp_path / "a").file
    for plan in (
        forget.plan_forget_words(app.caller(), "lighthouse"),
        forget.plan_forget_session(app.caller(), "secret"),
    ):
        forget.forget(app.caller(), plan)
    space.skill_tools.editor.purge("boats")

    done = restore(app, file)

    assert len(done.forgotten_since) == 2
    assert "skill boats" in done.collect("held_back")
    assert "lighthouse" not in json.dumps(export(app))
    assert space.memory.entries("memory") == ["a fact of owner"]
    assert not [row for row in read_ledger(app.home.path) if "lighthouse" in str(row)]
    assert not (app.home.path / "skills" / "boats").exists()

    restore(app, file, options=RestoreOptions(include_forgotten=True))
    assert (app.home.path / "skills" / "boats" / "SKILL.md").exists()
    assert "lighthouse" not in json.dumps(export(app))


def test_another_user_restores_their_own_part_only(app, other, tmp_path):
    """Of a backup of the owner; a backup of somebody else is refused."""
    file = create_backup(app.caller(), tmp_path / "a").file
    own = create_backup(app.caller(UserId("ann")), tmp_path / "ann").file

    restore(other, file, user=UserId("ann"))

    assert export(other) == []
    assert [line.get("content") for line in export(other, "ann")][1:] == ["words of ann", "more words"]
    assert not (other.home.path / "memories").exists()
    assert restore(other, own, user=UserId("ann")).changes_nothing
    with open_restore(other.caller(UserId("bob")), own) as refused:
        assert isinstance(refused, Refused)


def test_the_owner_restores_a_user(app, other, tmp_path):
    """From that user's own backup, into a home that does not know them."""
    file = create_backup(app.caller(UserId("ann")), tmp_path / "ann").file

    restore(other, file)

    assert [line.get("content") for line in export(other, "ann")][1:] == ["words of ann", "more words"]
    assert other.space(UserId("ann")).memory.entries("memory") == ["a fact of ann"]
    assert export(other) == []


def test_files_that_differ_are_both_kept(app, other, tmp_path):
    """The one of the backup lies in `restored/`."""
    for home, text in ((app.home.path, "theirs"), (other.home.path, "mine")):
        (home / "memories" / "files").mkdir(parents=True, exist_ok=True)
        (home / "memories" / "files" / "notes.txt").write_text(text)
    other.owner.memory.apply("memory", Add("my own fact"))
    file = create_backup(app.caller(), tmp_path / "a").file

    done = restore(other, file)

    kept = list((other.home.path / "restored").rglob("notes.txt"))
    assert (other.home.path / "memories" / "files" / "notes.txt").read_text() == "mine"
    assert [path.read_text() for path in kept] == ["theirs"]
    assert any("notes.txt" in line for line in done.collect("conflicts"))
    assert restore(other, file).changes_nothing


def test_what_was_imported_is_not_imported_again_after_a_restore(app, other, tmp_path):
    """The record of the importers comes along, so that the transcripts on this machine add nothing."""
    assert capture_transcript(app.caller(), "claude-code", TRANSCRIPT).added > 0
    say(other.owner, "mine", "my own words")
    restore(other, create_backup(app.caller(), tmp_path / "a").file)
    before = export(other)

    assert capture_transcript(other.caller(), "claude-code", TRANSCRIPT).added == 0
    assert export(other) == before


def test_a_conversation_that_was_imported_here_too_is_not_doubled(app, other, tmp_path):
    """It has another id here, but the same id in its source."""
    for one in (app, other):
        assert capture_transcript(one.caller(), "claude-code", TRANSCRIPT).added > 0
    before = {line["session_id"] for line in export(other)}

    done = restore(other, create_backup(app.caller(), tmp_path / "a").file)

    assert {line["session_id"] for line in export(other)} == {*before, "s-owner"}
    assert done.parts[OWNER]["sessions"].as_json()["unchanged"] == len(before)


def test_a_newer_schema_is_refused(app, other, tmp_path):
    """Before anything is changed."""
    space = app.owner
    space.close()
    with app.database.writing() as connection:
        connection.execute("PRAGMA user_version = 99")

    file = create_backup(app.caller(), tmp_path / "a").file
    with open_restore(other.caller(), file) as refused:
        assert isinstance(refused, Refused)
        assert "schema 99" in refused.error
    with pytest.raises(UsageError), open_restore(other.caller(), tmp_path / "none"):
        pass


WORD = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="§"), min_size=1, max_size=12
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from(["one", "two", "three"]), WORD),
        st.tuples(st.just("add"), st.sampled_from(["memory", "user"]), WORD),
        st.tuples(st.just("replace"), st.sampled_from(["memory", "user"]), WORD),
        st.tuples(st.just("remove"), st.sampled_from(["memory", "user"]), WORD),
        st.tuples(st.just("skill"), st.sampled_from(["tea", "coffee"]), WORD),
    ),
    max_size=12,
)


def act(space, step):
    match step:
        case ("say", session, text):
            say(space, session, text)
        case ("skill", name, text):
            space.skill_tools.editor.apply(
                (Create if space.skill_tools.library.home_folder(name) is None else Edit)(
                    name, SKILL.format(name=name, step=text)
                ),
                Author(),
            )
        case (action, target, text):
            old = (space.memory.entries(target) or [text])[0]
            edit = {"add": Add(text), "replace": Replace(old, text), "remove": Remove(old)}[action]
            space.memory.apply(target, edit)


@settings(max_examples=100 if HEAVY else 6)
@given(STEPS)
def test_a_backup_is_lossless(tmp_path_factory, steps):
    """A random home, backed up and restored into an empty one: the same bytes; a second time changes nothing."""
    folder = tmp_path_factory.mktemp("homes")
    app, other = (open_app(str(folder / name), environ={}) for name in ("one", "other"))
    try:
        for step in steps:
            act(app.owner, step)
        file = create_backup(app.caller(), folder / "a").file
        restore(other, file)

        assert read_files(folder / "other", "memories", "skills") == read_files(folder / "one", "memories", "skills")
        assert read_ledger(folder / "other") == read_ledger(folder / "one")
        assert export(other) == export(app)
        assert restore(other, file).changes_nothing
    finally:
        app.close()
        other.close()

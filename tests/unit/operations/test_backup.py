"""What is in a backup, and what is said to be left out."""

import json
import tarfile

import pytest

from kept.app import open_app
from kept.app.places import FACTS_OF_USER, ROWS_OF_USER
from kept.core.clock import SystemClock
from kept.core.errors import NotAllowed, Reason, Refused, StorageError
from kept.core.ids import OWNER, UserId
from kept.core.messages import Message, NewMessage, Origin, Role, Session
from kept.memory.edits import Add
from kept.operations.backup import back_up_before, create_backup, verify_backup
from kept.providers.holographic.store import FactStore
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.skills.changes import Author, Create
from kept.storage.columns import keep_rows
from kept.storage.connections import connect_read_only

SKILL = "---\nname: tea\ndescription: How tea is made well\n---\n\n# Tea\n\n1. Boil the water.\n"


@pytest.fixture
def app(home):
    """A home with a conversation, an entry and a skill of the owner and of Ann."""
    app = open_app(str(home), environ={})
    for user in (OWNER, UserId("ann")):
        space = app.space(user)
        space.sessions.create(Session(id=f"s-{user}", source="cli", started=1.0))
        space.sessions.append(f"s-{user}", [NewMessage(Message(Role.USER, f"words of {user}"), 2.0, Origin.PERSON)])
        space.memory.apply("memory", Add(f"a fact of {user}"))
        space.skill_tools.editor.apply(Create(f"tea-{user}", SKILL.replace("tea\n", f"tea-{user}\n")), Author())
    yield app
    app.close()


def contents(path):
    with tarfile.open(path, "r:gz") as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}


def test_the_owner_backs_up_everything(app, tmp_path):
    """Pages, ledgers, database and skills with their versions, of all users."""
    made = create_backup(app.caller(), tmp_path / "a.tar.gz")
    found = contents(made.file)

    assert made.parts == {
        "users": 1, "pages": 2, "skills": 2, "settings": 0, "sessions": 2, "messages": 2, "receipts": 0,
    }  # fmt: skip
    assert found["home/memories/MEMORY.md"] == b"a fact of owner"
    assert found["home/users/ann/memories/MEMORY.md"] == b"a fact of ann"
    assert {"home/state.db", "home/memories/ledger.db", "home/skills/tea-owner/SKILL.md"} <= set(found)
    assert any(name.startswith("home/skills/.versions/tea-owner/") for name in found)
    assert not [name for name in found if name.endswith((".lock", "-wal", "-shm"))]
    assert verify_backup(app.caller(), made.file).parts == made.parts


def test_another_user_backs_up_their_own_only(app, tmp_path):
    """No byte of anybody else, in no table and no page of the database that all share."""
    made = create_backup(app.caller(UserId("ann")), tmp_path / "a.tar.gz")
    found = contents(made.file)

    assert made.parts["sessions"] == 1
    assert set(found) >= {"home/state.db", "home/users/ann/memories/MEMORY.md"}
    assert not [name for name in found if name.startswith(("home/memories", "home/skills", "home/config"))]
    assert b"words of ann" in found["home/state.db"]
    assert not [name for name, data in found.items() if b"of owner" in data]


def test_every_table_belongs_to_somebody_or_to_nobody(tmp_path):
    """A migration that adds a table decides whether the backup of one user contains its rows."""
    SqliteSessionStore(tmp_path).close()
    FactStore(tmp_path / "holographic.db", user=OWNER, clock=SystemClock(), dim=64).close()
    of_nobody = {"index_queue", "leases", "message_vectors", "state_meta", "tombstones", "vector_state"}

    unknown = []
    for name, rows in (("state.db", ROWS_OF_USER), ("holographic.db", FACTS_OF_USER)):
        connection = connect_read_only(tmp_path / name)
        tables = (
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT GLOB 'sqlite_*'"
        )
        unknown += [name for (name,) in connection.execute(tables) if name not in rows and name not in of_nobody]
        connection.close()
        keep_rows(tmp_path / name, rows, user="nobody")

    assert unknown == []


def test_keys_stay_at_home(app, home, tmp_path):
    """`.env` is left out, settings are without credentials, and both are said."""
    (home / ".env").write_text("OPENAI_API_KEY=sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG\n")
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    (home / "config.yaml").write_text(f"# mine\nmcp_servers:\n  git:\n    command: x\n    env: {{TOKEN: {token}}}\n")
    (home / "honcho.json").write_text(json.dumps({"password": "hunter2hunter2", "workspace": "w"}))

    made = create_backup(app.caller(), tmp_path / "a.tar.gz")
    found = contents(made.file)

    assert "home/.env" not in found
    assert "keys of endpoints" in [one.what for one in made.left_out]
    assert made.redacted == ("config.yaml", "honcho.json")
    assert found["home/config.yaml"].startswith(b"# mine\nmcp_servers:")
    assert not [name for name, data in found.items() if token.encode() in data or b"hunter2" in data]


def test_files_of_others_and_profiles_are_left_out_and_said(app, home, tmp_path):
    """A home that is shared with another agent is not copied whole."""
    (home / "notes.txt").write_text("mine")
    (home / "profiles" / "work").mkdir(parents=True)
    (home / "logs").mkdir(exist_ok=True)
    (home / "logs" / "kept.log").write_text("line\n")
    (home / "skills" / "elsewhere").symlink_to(tmp_path)

    made = create_backup(app.caller(), tmp_path / "a.tar.gz")

    assert {"files of other programs", "other profiles", "logs", "skills/elsewhere"} <= {
        one.what for one in made.left_out
    }


def test_an_existing_file_is_not_replaced(app, tmp_path):
    """Unless that is asked for; a folder gets a new file; a missing folder is refused."""
    (tmp_path / "a").write_text("mine")

    refused = create_backup(app.caller(), tmp_path / "a")
    missing = create_backup(app.caller(), tmp_path / "none" / "a")
    named = create_backup(app.caller(), tmp_path)

    assert isinstance(refused, Refused)
    assert (refused.reason, (tmp_path / "a").read_text()) == (Reason.PRESENT, "mine")
    assert isinstance(missing, Refused)
    assert (named.file.parent, named.file.name[:13]) == (tmp_path, "kept-default-")
    assert not isinstance(create_backup(app.caller(), tmp_path / "a", overwrite=True), Refused)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["home", "a", named.file.name])


def test_the_owner_without_admin_gets_no_backup_of_all_users(app, tmp_path):
    """Its archive would contain the data of others."""
    with pytest.raises(NotAllowed):
        create_backup(app.caller(scopes=frozenset()), tmp_path / "a")


def test_a_folder_that_cannot_be_written_is_an_error(app, tmp_path):
    """And nothing is left in it."""
    target = tmp_path / "target"
    target.mkdir()
    (target / ".unfinished").write_text("a file in the place of the folder for copies")

    with pytest.raises(StorageError):
        create_backup(app.caller(), target / "a.tar.gz")

    assert [path.name for path in target.iterdir()] == [".unfinished"]


def test_a_damaged_database_is_copied_as_it_is_and_said(app, home, tmp_path):
    """A backup before a repair must not fail because of what is to be repaired."""
    app.close()
    data = bytearray((home / "state.db").read_bytes())
    data[:100] = bytes(100)
    (home / "state.db").write_bytes(data)
    again = open_app(str(home), environ={})

    made = create_backup(again.caller(), tmp_path / "a.tar.gz")
    again.close()

    assert any(problem.startswith("state.db: ") for problem in made.problems)
    assert contents(made.file)["home/state.db"] == bytes(data)


def test_backups_before_changes_are_limited(app, home):
    """The newest `backup.keep` stay, and none contains another."""
    made = [back_up_before(app.caller(), "import-codex") for _ in range(6)]

    assert sorted(path.name for path in (home / "backups").iterdir()) == sorted(each.file.name for each in made[2:])
    assert not [name for name in contents(made[-1].file) if "backups" in name]

"""What is in a backup, and what is said to be left out."""

import json
import os
import tarfile
from contextlib import closing

import apsw
import pytest

from wellkept.app import open_app
from wellkept.app.places import FACTS_OF_USER, ROWS_OF_USER
from wellkept.backup.backup import (
    back_up_before,
    create_backup,
    is_due,
    read_history,
    take_backup,
    take_scheduled_backup,
    verify_backup,
)
from wellkept.core.clock import SystemClock, from_epoch
from wellkept.core.errors import NotAllowed, Reason, Refused, StorageError
from wellkept.core.ids import OWNER, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.forgetting import forget
from wellkept.memory.page import Add
from wellkept.operations.doctor import Health, check_everything
from wellkept.providers.holographic.store import FactStore
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.skills.changes import Author, Create
from wellkept.storage.archive import ArchiveWriter, Description, create_archive
from wellkept.storage.columns import keep_rows
from wellkept.storage.connections import connect_read_only

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
    of_nobody = {
        "index_queue", "leases", "message_spellings", "message_vectors", "moved_chats", "pairing_codes", "state_meta",
        "tokens", "tombstones", "vector_state",
    }  # fmt: skip

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
    os.mkfifo(tmp_path / "pipe")
    pipe = create_backup(app.caller(), tmp_path / "pipe", overwrite=True)
    (tmp_path / "pipe").unlink()
    named = create_backup(app.caller(), tmp_path)

    assert isinstance(refused, Refused)
    assert (refused.reason, (tmp_path / "a").read_text()) == (Reason.PRESENT, "mine")
    assert isinstance(missing, Refused)
    assert isinstance(pipe, Refused)
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

    assert sorted(path.name for path in (home / "backups").glob("*.gz")) == sorted(each.file.name for each in made[2:])
    assert not [name for name in contents(made[-1].file) if "backups" in name]


class Days:
    """A clock that tests set."""

    def __init__(self):
        self.day = 1.0

    def now(self):
        return from_epoch(1_800_000_000 + self.day * 86_400)


def open_scheduled(home, text="backup:\n  every: 7d\n  keep: 2\n"):
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(text)
    clock = Days()
    app = open_app(str(home), environ={}, clock=clock)
    app.owner.memory.apply("memory", Add("likes tea"))
    return app, clock


def test_a_backup_before_a_change_displaces_only_those_before_the_same_change(home):
    """Many imports of one agent take away neither those before another change nor those before a person's import."""
    app, clock = open_scheduled(home, "backup:\n  keep: 4\n")
    kept = [back_up_before(app.caller(), what) for what in ("restore", "import-claude", "import-claude-code")]
    for _ in range(5):
        clock.day += 1.0
        back_up_before(app.caller(), "import-claude-code")
        back_up_before(app.caller().without_decisions(), "import-claude")

    assert [made.file.name for made in kept if made.file.exists()] == [made.file.name for made in kept[:2]]
    assert len(list((home / "backups").glob("*-import-claude-by-agent*.gz"))) == 4
    app.close()


def test_a_scheduled_backup_is_taken_when_it_is_due(home):
    """At once the first time, then every seven days; two stay."""
    app, clock = open_scheduled(home)
    days = []
    for day in range(1, 31):
        clock.day = day
        if take_scheduled_backup(app.caller()) is not None:
            days.append(day)

    assert days == [1, 8, 15, 22, 29]
    assert len(list((home / "backups").glob("*scheduled*"))) == 2
    app.close()


def test_no_backup_is_taken_by_itself_unless_that_is_set(home):
    """The space is the person's."""
    app, _clock = open_scheduled(home, "memory: {}\n")

    assert not is_due(app)
    assert take_scheduled_backup(app.caller()) is None
    app.close()


def test_a_failed_backup_is_remembered_and_tried_again_after_an_hour(home):
    """The doctor names the reason; the next success ends it."""
    app, clock = open_scheduled(home)
    (home / "backups").mkdir()
    (home / "backups" / ".unfinished").write_text("in the way")

    assert take_scheduled_backup(app.caller()) is None
    assert "in the way" not in str(read_history(app.caller()))
    (failed,) = [check for check in check_everything(app.caller(), offline=True) if check.name == "backup"]
    assert (failed.health, "failed" in failed.said) == (Health.WARNING, True)
    assert not is_due(app)
    clock.day += 0.1
    (home / "backups" / ".unfinished").unlink()
    assert take_scheduled_backup(app.caller()) is not None

    (fine,) = [check for check in check_everything(app.caller(), offline=True) if check.name == "backup"]
    assert (fine.health, "scheduled" in fine.said) == (Health.OK, True)
    app.close()


def test_scheduled_backups_are_encrypted_as_the_settings_say(home):
    """Without the variable none is written in the clear."""
    app, _clock = open_scheduled(home, "backup:\n  every: 1d\n  passphrase_env: WORDS\n")
    refused = take_backup(app.caller())
    app.environ = {"WORDS": "open sesame"}
    made = take_backup(app.caller())

    assert isinstance(refused, Refused)
    assert "WORDS" in refused.error
    assert made.file.read_bytes().startswith(b"age-encryption.org/v1")
    assert not list((home / "backups").glob("*.gz"))
    app.close()


def test_forget_names_the_backups_that_it_does_not_change(home, tmp_path):
    """Those of the home, and those that were written elsewhere."""
    (tmp_path / "disk").mkdir()
    app, _clock = open_scheduled(home, f"backup:\n  every: 1d\n  folder: {tmp_path / 'disk'}\n")
    taken = take_backup(app.caller()).file
    named = create_backup(app.caller(), tmp_path / "mine.tar.gz").file

    plan = forget.plan_forget_words(app.caller(), "likes tea")

    assert {str(taken), str(named)} <= set(plan.copies_not_touched)
    app.close()


def overwrite_leaf(database):
    """Overwrite one page of the messages."""
    with closing(apsw.Connection(str(database))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        query = "SELECT pageno, pgsize FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf'"
        ((number, size), *_) = connection.execute(query).fetchall()
    with database.open("r+b") as file:
        file.seek((number - 1) * size)
        file.write(b"\xee" * size)


def change_word(database, word, other):
    """Change letters of a stored text, as a disk may; only a checksum shows it."""
    data = database.read_bytes()
    assert len(word) == len(other)
    assert word in data
    database.write_bytes(data.replace(word, other))


@pytest.mark.parametrize("damage", ["a page", "a row", "the ledger"])
def test_a_backup_of_damaged_data_says_so_and_takes_no_place_of_a_whole_one(home, damage):
    """It is kept under a name of its own, and the rotation removes no whole backup for it."""
    app, clock = open_scheduled(home)
    app.owner.sessions.create(Session(id="s", source="cli", started=1.0))
    app.owner.sessions.append("s", [NewMessage(Message(Role.USER, "the heron stands"), 2.0, Origin.PERSON)])
    whole = []
    for _ in range(2):
        whole.append(take_scheduled_backup(app.caller()))
        clock.day += 7
    app.close()
    match damage:
        case "a page":
            overwrite_leaf(home / "state.db")
        case "a row":
            change_word(home / "state.db", b"heron stands", b"heron sleeps")
        case _:
            change_word(home / "memories" / "ledger.db", b"likes tea", b"likes tee")
    again, _ = open_scheduled(home)
    again.clock.day = clock.day

    damaged = []
    for _ in range(3):
        damaged.append(take_scheduled_backup(again.caller()))
        again.clock.day += 7
    doctor = [check for check in check_everything(again.caller()) if check.name == "backup"]
    again.close()

    assert [made.problems for made in whole] == [(), ()]
    assert all(made.problems and "-damaged" in made.file.name for made in damaged)
    assert [made.file.exists() for made in (*whole, *damaged)] == [True, True, False, True, True]
    assert (doctor[0].health, "is not whole" in doctor[0].said) == (Health.WARNING, True)


def test_a_backup_that_is_not_whole_does_not_overwrite_a_whole_one(app, home, tmp_path):
    """It is written beside the file that was named."""
    whole = create_backup(app.caller(), tmp_path / "a.tar.gz")
    app.close()
    overwrite_leaf(home / "state.db")
    again = open_app(str(home), environ={})

    made = create_backup(again.caller(), tmp_path / "a.tar.gz", overwrite=True)
    verified = verify_backup(again.caller(), whole.file)
    again.close()

    assert made.file == tmp_path / "a-damaged.tar.gz"
    assert verified.problems == ()


@pytest.mark.parametrize("passphrase", [None, "a long passphrase"])
def test_an_older_archive_with_a_damaged_database_is_not_verified(app, home, tmp_path, passphrase):
    """Its checksums agree, because the bytes were damaged when it was made."""
    app.close()
    overwrite_leaf(home / "state.db")
    size = (home / "state.db").stat().st_size
    file = tmp_path / "old.tar.gz"
    with create_archive(file, passphrase=passphrase) as archive:
        writer = ArchiveWriter(archive, Description("2026-01-01T00:00:00Z", "0.1", "owner", "default", 1, size))
        writer.add("home/state.db", home / "state.db", mode=0o600)
        writer.finish({})
    again = open_app(str(home), environ={})

    verified = verify_backup(again.caller(), file, passphrase=passphrase)
    again.close()

    assert any(problem.startswith("state.db: ") for problem in verified.problems)
    assert [path.name for path in home.iterdir() if path.name == ".unfinished"] == []

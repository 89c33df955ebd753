"""Recovery of a log: what is whole is kept, what is not is set aside, and names are given back."""

import shutil

import pytest

from wellkept.core.errors import Busy, DamagedLog
from wellkept.storage.connections import EXCHANGED, Migration
from wellkept.storage.log_recovery import count_lost_frames, is_misplaced, recover_log, settle_names
from wellkept.storage.sqlite import PAGE_BYTES, Database

MARK = 0x4B455054
STEP = 24 + PAGE_BYTES
ONE = Migration(1, "CREATE TABLE facts (text); CREATE TABLE others (text)")


def open_at(path):
    return Database(path, application_id=MARK, migrations=(ONE,))


def count(path):
    database = open_at(path)
    ((found,),) = database.connection.execute("SELECT count(*) FROM facts").fetchall()
    database.close()
    return found


@pytest.fixture
def path(tmp_path):
    """A file as a killed process leaves it, with six rows in its log."""
    database = open_at(tmp_path / "from.db")
    for number in range(6):
        with database.writing() as connection:
            connection.execute("INSERT INTO facts VALUES (?)", (str(number) * 1_500,))
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(f"{tmp_path}/from.db{suffix}", f"{tmp_path}/state.db{suffix}")
    database.close()
    return tmp_path / "state.db"


def zero(path, start, size):
    with path.with_name("state.db-wal").open("r+b") as file:
        file.seek(start)
        file.write(bytes(size))


def test_a_healthy_log_is_left_alone(path):
    """Nothing is written or set aside."""
    before = path.with_name("state.db-wal").read_bytes()

    assert (recover_log(path, may_cut=True), settle_names(path, may_cut=True)) == ("", "")
    assert path.with_name("state.db-wal").read_bytes() == before


def test_a_lost_header_costs_nothing(path):
    """Opening the file is enough; the log as it was found stays beside it."""
    zero(path, 0, 32)

    assert count(path) == 6
    assert len(list(path.parent.glob("state.db.damaged-*-wal"))) == 1


def test_where_rows_cannot_be_salvaged_a_log_is_cut_at_the_damage(path, caplog):
    """As SQLite does, but with a copy of the whole log, and a warning."""
    zero(path, 32 + 3 * STEP, STEP)
    log = path.with_name("state.db-wal").read_bytes()

    with pytest.raises(DamagedLog):
        recover_log(path, may_cut=False)
    found = count(path)

    assert 0 < found < 6
    (aside,) = path.parent.glob("state.db.damaged-*-wal")
    assert aside.read_bytes() == log
    assert "cut off and is kept in" in caplog.text


def test_a_log_that_is_in_use_is_not_recovered(path):
    """The lock of the other connection says so."""
    other = open_at(path)
    other.connection.execute("SELECT count(*) FROM facts").fetchall()
    zero(path, 0, 32)

    with pytest.raises(Busy, match="open"):
        recover_log(path, may_cut=True)
    other.close()


def test_a_missing_file_is_made_from_a_log_with_every_page(path):
    """The log is set aside then, so that it is not applied to another file."""
    database = open_at(path)
    database.connection.pragma("wal_autocheckpoint", 0)
    database.connection.execute("VACUUM")
    log = path.with_name("state.db-wal").read_bytes()
    database.close()
    path.unlink()
    path.with_name("state.db-wal").write_bytes(log)

    assert is_misplaced(path)
    assert count(path) == 6
    assert not is_misplaced(path)


def test_a_missing_file_whose_log_has_not_every_page_is_begun_anew(path):
    """Where rows may be salvaged, the log is left to that."""
    path.unlink()
    path.with_name("state.db-shm").unlink()

    with pytest.raises(DamagedLog, match=r"holds \d+ of its \d+ pages"):
        settle_names(path, may_cut=False)
    assert count(path) == 0
    assert len(list(path.parent.glob("state.db.damaged-*-wal"))) == 1


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_exchanged_names_are_given_back_also_after_a_kill(path, renames):
    """After each of the renames the next open goes on."""
    wal, spare = path.with_name("state.db-wal"), path.with_name(f"state.db{EXCHANGED}")
    path.with_name("state.db-shm").unlink()
    moved = path.with_name("moved")
    path.rename(moved)
    wal.rename(path)
    moved.rename(wal)
    if renames:
        path.rename(spare)
    if renames > 1:
        wal.rename(path)

    assert is_misplaced(path)
    assert count(path) == 6
    assert not spare.exists()


def test_a_second_database_in_the_place_of_the_log_is_set_aside(path):
    """SQLite would remove it."""
    other = path.with_name("from.db").read_bytes()
    path.with_name("state.db-wal").write_bytes(other)
    path.with_name("state.db-shm").unlink()

    settle_names(path, may_cut=True)

    assert [file.read_bytes() for file in path.parent.glob("state.db.damaged-*")] == [other]


def test_frames_of_a_removed_log_are_counted(path):
    """By the file of shared memory; none if the log is there, or if that file says nothing."""
    assert count_lost_frames(path) == 0
    path.with_name("state.db-wal").unlink()
    assert count_lost_frames(path) > 6
    path.with_name("state.db-shm").write_bytes(bytes(32_768))
    assert count_lost_frames(path) == 0

"""The write-ahead log, read without SQLite: committed pages, damage, and what only looks like damage."""

import struct
from contextlib import closing

import apsw
import pytest

from wellkept.core.errors import DamagedLog
from wellkept.salvage.pages import PageFile
from wellkept.salvage.write_ahead import check_log, read_log, use_newer, write_log

PAGE = 1_024
STEP = PAGE + 24


@pytest.fixture
def log(tmp_path):
    """The bytes of a log with eight commits, each of two pages."""
    with closing(apsw.Connection(str(tmp_path / "a.db"))) as connection:
        connection.pragma("page_size", PAGE)
        connection.pragma("journal_mode", "wal")
        connection.pragma("wal_autocheckpoint", 0)
        connection.execute("CREATE TABLE t (v TEXT)")
        for number in range(7):
            connection.execute("INSERT INTO t VALUES (?)", (f"{number}" * 700,))
        yield (tmp_path / "a.db-wal").read_bytes()


def frame(number):
    return 32 + number * STEP


def frames_of(data):
    return [(int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big"))
            for at in range(32, len(data) - STEP + 1, STEP)]  # fmt: skip


def change(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_the_newest_copy_of_each_page_is_found(log):
    """With the number of pages after the last commit."""
    found = read_log(log)
    listed = frames_of(log)

    assert (found.page_bytes, found.is_damaged, found.is_cut) == (PAGE, False, False)
    assert found.page_count == listed[-1][1]
    newest = {page: frame(number) + 24 for number, (page, _) in enumerate(listed)}
    assert found.frames == newest


def test_what_is_not_committed_is_not_there(log):
    """The frames after the last commit are those of a writer that was killed."""
    listed = frames_of(log)
    commits = [number for number, (_, size) in enumerate(listed) if size]
    end = commits[-2] + 1
    assert commits[-1] > end  # the last transaction has several frames

    found = read_log(log[: frame(end + 1)])

    assert found.page_count == listed[commits[-2]][1]
    assert max(found.frames.values()) < frame(end)
    assert (found.is_damaged, found.is_cut) == (False, False)


def overwrite(data, start, end):
    return data[:start] + bytes(byte ^ 0x5A for byte in data[start:end]) + data[end:]


def pages_of(data):
    """Return the newest whole page of each number, as a reader of the log sees it."""
    found = read_log(data)
    return {page: found.restored.get(at, data[at : at + PAGE]) for page, at in found.frames.items()}


@pytest.mark.parametrize("place", [9, 12, 18, 21, 24 + 100, STEP - 4])
def test_one_damaged_word_costs_nothing(log, place):
    """In any frame: its salt, its checksum or its page. The checksum tells what was there."""
    listed = frames_of(log)

    for victim in range(len(listed)):
        damaged = change(log, frame(victim) + place)
        found = read_log(damaged)

        assert (found.is_damaged, found.page_count) == (True, listed[-1][1])
        if victim == len(listed) - 1 and place in {18, 21, STEP - 4}:
            continue  # whether the end of the page or its checksum is wrong, only a next frame would tell
        assert (pages_of(damaged), found.spoiled, found.loose) == (pages_of(log), {}, [])


def test_a_flipped_bit_that_several_words_explain_ends_no_transaction_early(log):
    """Its page is given as it is: a word that was not damaged must not be changed."""
    last = len(frames_of(log)) - 1
    place = frame(last) + 24 + 400

    found = read_log(log[: place + 3] + bytes([log[place + 3] ^ 0x80]) + log[place + 4 :])

    page, size = frames_of(log)[-1]
    assert (found.is_damaged, found.page_count) == (True, size)
    assert (found.spoiled, found.restored) == ({page: frame(last) + 24}, {})


def test_a_damaged_frame_hides_no_later_commit(log):
    """Its page is given as it is, beside the whole one that is older."""
    listed = frames_of(log)
    newest = {page: number for number, (page, _) in enumerate(listed)}
    victim = next(number for number in newest.values() if 3 < number < len(listed) - 1 and not listed[number][1])

    found = read_log(overwrite(log, frame(victim) + 50, frame(victim) + 90))

    page = listed[victim][0]
    assert (found.is_damaged, found.page_count) == (True, listed[-1][1])
    assert found.spoiled == {page: frame(victim) + 24}
    assert found.frames.get(page, 0) < frame(victim)


def test_a_page_without_its_number_is_given(log):
    """The whole header of a frame is overwritten, and so is what the next frame continues."""
    listed = frames_of(log)

    found = read_log(overwrite(log, frame(4), frame(4) + 24))

    assert (found.is_damaged, found.page_count) == (True, listed[-1][1])
    assert found.loose == [frame(4) + 24]


def test_a_page_with_a_number_that_cannot_be_is_given(log):
    """Beyond the end of the file nothing was; so it is nobody knows which."""
    listed = frames_of(log)
    damaged = overwrite(log[: frame(4)] + b"\x00\x00\xff\xff" + log[frame(4) + 4 :], frame(4) + 50, frame(4) + 90)

    found = read_log(damaged)

    assert (found.is_damaged, found.page_count) == (True, listed[-1][1])
    assert (found.loose, 0xFFFF in found.spoiled) == ([frame(4) + 24], False)


def test_several_damaged_frames_in_a_row_hide_no_later_commit(log):
    """The salts of later frames show that the log continues."""
    found = read_log(log[: frame(3)] + bytes(4 * STEP) + log[frame(7) :])

    assert (found.is_damaged, found.page_count) == (True, frames_of(log)[-1][1])


def test_damage_at_the_very_end_is_a_torn_write(log):
    """Nothing that was committed follows it."""
    last = len(frames_of(log)) - 1

    found = read_log(log[: frame(last) + 24 + 500] + bytes(PAGE - 500))

    assert not found.is_damaged
    assert found.page_count == frames_of(log)[-2][1] or found.page_count == [s for _, s in frames_of(log) if s][-2]


@pytest.mark.parametrize(("rest", "is_cut"), [(0, False), (16, True), (500, True), (STEP - 1, True)])
def test_a_log_that_ends_inside_a_frame_is_cut(log, rest, is_cut):
    """If the frame is one of this log: its salt is there."""
    found = read_log(log[: frame(4) + rest])

    assert found.is_cut is is_cut


@pytest.mark.parametrize("place", [0, 4, 12, 16, 24])
def test_a_damaged_header_hides_no_frame(log, place):
    """The frames repeat its salts, and each continues the checksum of the one before."""
    found = read_log(change(log, place + 3))

    assert found.page_count == frames_of(log)[-1][1]
    assert found.is_damaged


@pytest.mark.parametrize("size", [4, 24, 32])
def test_a_lost_header_hides_no_frame(log, size):
    """Zeros are no header, although their checksum is right; what the first frame continues is computed from it."""
    found = read_log(bytes(size) + log[size:])

    assert (found.is_damaged, found.is_complete, found.skipped) == (True, True, 0)
    assert found.frames == read_log(log).frames


def test_a_lost_header_before_a_single_frame_hides_nothing(log):
    """Only a header that counts few checkpoints fits it."""
    listed = frames_of(log)
    alone = next(number for number, (_, size) in enumerate(listed) if size)
    found = read_log(bytes(32) + log[32 : frame(alone + 1)], PAGE)

    assert (found.is_damaged, found.is_complete) == (True, True)
    assert found.page_count == listed[alone][1]


def test_a_first_frame_that_no_header_fits_is_damaged(log):
    """Its page is not trusted, and the others are."""
    found = read_log(bytes(32) + overwrite(log, frame(0) + 400, frame(0) + 600)[32:])

    assert not found.is_complete or listed_again(log, 0)
    assert found.page_count == frames_of(log)[-1][1]


def listed_again(log, number):
    """Whether a later frame has the same page."""
    pages = [page for page, _ in frames_of(log)]
    return pages[number] in pages[number + 1 :]


def test_frames_of_an_older_log_behind_a_lost_beginning_are_not_used(tmp_path):
    """They are in the file already, which has changed since; a log that is not in the file is used."""
    path, wal = tmp_path / "d.db", tmp_path / "d.db-wal"
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("page_size", PAGE)
        connection.pragma("journal_mode", "wal")
        connection.pragma("wal_autocheckpoint", 0)
        connection.execute("CREATE TABLE t (v TEXT)")
        for number in range(20):
            connection.execute("INSERT INTO t VALUES (?)", (f"{number}" * 300,))
        before, fresh = path.read_bytes(), wal.read_bytes()
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        connection.execute("INSERT INTO t VALUES ('late')")
        frames = [wal.read_bytes()[at + 8 : at + 16] for at in range(32, 32 + 9 * STEP, STEP)]
        late = frames.count(frames[0])
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        older = bytes(frame(late)) + wal.read_bytes()[frame(late) :]
        newest = bytes(frame(2)) + fresh[frame(2) :]

        after = path.read_bytes()

    assert read_log(older, PAGE).skipped == late
    assert use_newer(read_log(older, PAGE), older, after).frames == {}
    assert use_newer(read_log(newest, PAGE), newest, before).page_count > 0


def test_a_written_log_is_read_by_sqlite(tmp_path, log):
    """It has the newest copy of each page, in one transaction."""
    path, wal = tmp_path / "e.db", tmp_path / "e.db-wal"
    path.write_bytes((tmp_path / "a.db").read_bytes())
    damaged = bytes(32) + log[32:]
    with wal.open("wb") as file:
        write_log(file, read_log(damaged), damaged)

    assert not read_log(wal.read_bytes()).is_damaged
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(7,)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_damaged_page_size_is_taken_from_the_file_or_the_frames(log):
    """With no other size does a frame continue the one before it."""
    damaged = change(log, 10)

    assert read_log(damaged).frames == read_log(log).frames
    assert read_log(damaged, PAGE).page_count == frames_of(log)[-1][1]


@pytest.mark.parametrize("data", [b"", bytes(31), bytes(56), bytes(5_000)])
def test_what_is_no_log_has_nothing(data):
    """Too short, or zeros."""
    assert (read_log(data).frames, read_log(data).page_count, read_log(data).is_damaged) == ({}, 0, False)


def test_frames_of_the_round_before_are_left_out(tmp_path):
    """A log is restarted over its old frames; their salt differs."""
    path = tmp_path / "a.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("page_size", PAGE)
        connection.pragma("journal_mode", "wal")
        connection.pragma("wal_autocheckpoint", 0)
        connection.execute("CREATE TABLE t (v TEXT)")
        for number in range(20):
            connection.execute("INSERT INTO t VALUES (?)", (f"{number}" * 300,))
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        connection.execute("INSERT INTO t VALUES ('late')")

        found = read_log((tmp_path / "a.db-wal").read_bytes())

    assert (found.is_damaged, found.is_cut) == (False, False)
    assert 0 < len(found.frames) <= 3


def test_a_log_of_which_sqlite_would_lose_a_part_is_refused_and_left(tmp_path, log):
    """A whole log is not, and neither is one that is torn at its end."""
    path, copy = tmp_path / "b.db", tmp_path / "b.db-wal"

    def open_with(data):
        path.write_bytes((tmp_path / "a.db").read_bytes())
        copy.write_bytes(data)
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            check_log(connection, path)

    open_with(log)
    open_with(log[: frame(4) + 100])
    open_with(log[: frame(4) + 100] + bytes(STEP - 100))
    damaged = change(log, frame(3) + 24 + 5)
    with pytest.raises(DamagedLog, match=f"{len(frames_of(log)) - 3} pages after the damage"):
        open_with(damaged)
    assert copy.read_bytes() == damaged


@pytest.mark.parametrize("place", [0, 3, 5, 10, 14, 17, 22, 25, 31])
def test_a_log_with_a_damaged_header_is_refused_and_left(tmp_path, log, place):
    """SQLite would read nothing of it, and remove it."""
    path, copy = tmp_path / "b.db", tmp_path / "b.db-wal"
    path.write_bytes((tmp_path / "a.db").read_bytes())
    copy.write_bytes(change(log, place))

    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        with pytest.raises(DamagedLog, match=f"{len(frames_of(log))} pages after the damage"):
            check_log(connection, path)

    assert copy.read_bytes() == change(log, place)


def test_a_log_that_another_process_has_removed_is_not_refused(tmp_path):
    """The last one that closes a file empties its log and removes it."""
    with closing(apsw.Connection(str(tmp_path / "c.db"))) as connection:
        connection.pragma("journal_mode", "wal")
        connection.execute("CREATE TABLE t (v)")
        (tmp_path / "c.db-wal").unlink()

        check_log(connection, tmp_path / "c.db")


def write_checksums(data, order):
    """Return the log with its checksums in the other byte order, as a machine of that order writes them."""
    whole = bytearray(data)
    whole[3] = whole[3] & 0xFE | (order == ">")
    before = sum_words(whole[:24], (0, 0), order)
    whole[24:32] = struct.pack(">2I", *before)
    for at in range(32, len(whole) - STEP + 1, STEP):
        before = sum_words(whole[at + 24 : at + STEP], sum_words(whole[at : at + 8], before, order), order)
        whole[at + 16 : at + 24] = struct.pack(">2I", *before)
    return bytes(whole)


def sum_words(data, start, order):
    """Return the checksum that the file format of SQLite describes."""
    one, two = start
    for first, second in struct.iter_unpack(f"{order}2I", data):
        one = (one + first + two) % 2**32
        two = (two + second + one) % 2**32
    return one, two


@pytest.mark.parametrize("order", ["<", ">"])
def test_checksums_of_both_byte_orders_are_right(log, order):
    """The header says which one; a damaged header is corrected by the first frame."""
    found = read_log(write_checksums(log, order))

    assert (found.is_damaged, found.frames) == (False, read_log(log).frames)
    assert read_log(change(write_checksums(log, order), 3)).frames == found.frames


@pytest.fixture
def open_pages(tmp_path, log):
    """Open the pages of the file with another log."""

    def open_with(data):
        (tmp_path / "c.db").write_bytes((tmp_path / "a.db").read_bytes())
        (tmp_path / "c.db-wal").write_bytes(data)
        return PageFile(tmp_path / "c.db")

    return open_with


def test_pages_are_read_in_their_newest_form(log, open_pages):
    """From the log where it has them; as many as the last commit counts."""
    file, listed = open_pages(log), frames_of(log)

    assert (file.page_bytes, file.count, file.numbers) == (PAGE, listed[-1][1], range(1, listed[-1][1] + 1))
    assert {page: file.page(page) for page in pages_of(log)} == pages_of(log)
    assert not any(file.is_copy(number) for number in file.numbers)


def test_a_restored_page_is_read_as_it_was_written(log, open_pages):
    """The word that the checksum restores is right again."""
    damaged = change(log, frame(5) + 24 + 100)
    file = open_pages(damaged)

    assert {page: file.page(page) for page in pages_of(log)} == pages_of(log)
    assert len(file.numbers) == file.count


def test_a_damaged_page_and_the_copy_before_it_are_both_read(log, open_pages):
    """The older one comes after all pages, and says that it is a copy."""
    listed = frames_of(log)
    newest = {page: number for number, (page, _) in enumerate(listed)}
    pages = [
        page for page, number in newest.items() if not listed[number][1] and page in [one for one, _ in listed[:number]]
    ]
    page, victim = pages[0], newest[pages[0]]
    older = max(number for number, (one, _) in enumerate(listed[:victim]) if one == page)
    damaged = overwrite(log, frame(victim) + 50, frame(victim) + 90)

    file = open_pages(damaged)

    assert file.page(page) == damaged[frame(victim) + 24 : frame(victim + 1)]
    assert file.numbers[-1] == file.count + 1
    assert file.page(file.count + 1) == log[frame(older) + 24 : frame(older + 1)]
    assert [file.is_copy(number) for number in file.numbers] == [False] * file.count + [True]


def test_a_page_that_lost_its_number_is_read_after_the_others(log, open_pages):
    """It is not a copy: nobody knows what it is."""
    file = open_pages(overwrite(log, frame(4), frame(4) + 24))

    assert file.page(file.count + 1) == log[frame(4) + 24 : frame(5)]
    assert not file.is_copy(file.count + 1)
    assert file.count + 1 not in file


def test_a_log_of_another_page_size_is_not_read(tmp_path, log, open_pages):
    """It belongs to another file; the pages of this one count."""
    with closing(apsw.Connection(str(tmp_path / "d.db"))) as connection:
        connection.pragma("page_size", 4 * PAGE)
        connection.execute("CREATE TABLE t (v TEXT)")
        with connection:
            connection.executemany("INSERT INTO t VALUES (?)", [("x" * 900,) for _ in range(40)])
    (tmp_path / "d.db-wal").write_bytes(log)

    file = PageFile(tmp_path / "d.db")

    assert (file.page_bytes, file.count) == (4 * PAGE, (tmp_path / "d.db").stat().st_size // (4 * PAGE))
    assert file.page(2) == (tmp_path / "d.db").read_bytes()[4 * PAGE : 8 * PAGE]

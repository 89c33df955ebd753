"""The page reader at the bounds of SQLite's file format, and what it says of bytes that cannot be right."""

import struct
from contextlib import closing

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.salvage.pages import (
    HEADER_BYTES,
    INDEX_LEAF,
    TABLE_INTERIOR,
    TABLE_LEAF,
    Cell,
    Malformed,
    PageFile,
    decode,
    decode_record,
    parse_cell,
    parse_page,
    serial_types,
    value_bytes,
    varint,
)
from wellkept.salvage.rows import Salvage, describe_shapes


def encode_varint(value):
    """Return a number as the format writes it: seven bits a byte, the ninth byte eight."""
    value &= 2**64 - 1
    if value >= 1 << 56:
        high, low = value >> 8, value & 0xFF
        return bytes([(high >> 7 * place & 0x7F) | 0x80 for place in range(7, -1, -1)] + [low])
    pieces = [value & 0x7F]
    while value := value >> 7:
        pieces.insert(0, value & 0x7F | 0x80)
    return bytes(pieces)


@given(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**power + d for power in range(63) for d in (-1, 0, 1)]))
def test_a_number_of_any_length_is_read(value):
    """One to nine bytes, negative ones in nine, whatever stands around them."""
    data = b"\xff\x80" + encode_varint(value) + b"\xff"

    assert varint(data, 2) == (value, len(data) - 1)


NUMBERS = [0, 1, -1, 2, *(sign * (2**bits + near) for bits in (7, 15, 23, 31, 47, 62) for near in (-1, 0, 1) for sign in (1, -1))]  # fmt: skip


def file_of(tmp_path, *statements, page_bytes=512, rows=()):
    path = tmp_path / "a.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("page_size", page_bytes)
        for sql in statements:
            connection.execute(sql)
        if rows:
            with connection:  # one transaction: each commit waits for the disk
                connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", rows)
        shapes = describe_shapes(connection)
    return path, Salvage(PageFile(path), shapes)


def test_numbers_of_every_width_are_read(tmp_path):
    """Integers of one to eight bytes, with their sign; the constants 0 and 1; infinity."""
    values = [*NUMBERS, None, 0.5, float("inf")]
    _, salvage = file_of(tmp_path, "CREATE TABLE t (id INTEGER PRIMARY KEY, v)", rows=list(enumerate(values, 1)))

    assert [row.values["v"] for row in salvage.rows("t")] == values


def test_rows_around_every_bound_of_the_page_are_read(tmp_path):
    """A row stays in its page up to a length that differs between tables and indexes; beyond, it has overflow pages."""
    rows = [(f"{size:04}" + "x" * size,) for size in (*range(60, 120), *range(440, 530), *range(960, 1_030))]
    _, salvage = file_of(tmp_path, "CREATE TABLE t (v TEXT)", "CREATE INDEX t_v ON t (v)", rows=rows)

    for name in ("t", "t_v"):
        found = list(salvage.rows(name))
        assert sorted((row.values["v"],) for row in found) == rows
        assert all(row.damage == "" and row.is_reached for row in found)


@pytest.mark.parametrize(
    ("payload", "types"),
    [
        (b"\x01", []),
        (b"\x03\x01\x0f\x2ax", [1, 15]),
        (b"\x04\x08\x09\x00", [8, 9, 0]),
    ],
)
def test_the_header_of_a_record_names_its_types(payload, types):
    """Its first number is its own length."""
    assert serial_types(payload) == (types, payload[0])


@pytest.mark.parametrize(
    "payload", [b"", b"\x05\x01", b"\x02\x0a", b"\x02\x0b", b"\x02\x81\x00", b"\x02" + b"\xff" * 9]
)
def test_what_cannot_be_the_header_of_a_record_is_refused(payload):
    """Cut off, with a type that does not exist, with a number that is longer than the header, or a negative one."""
    with pytest.raises(Malformed):
        serial_types(payload)


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (1, b"\xff", -1),
        (5, b"\x00\x00\x00\x00\x01\x00", 256),
        (6, b"\x80" + bytes(7), -(2**63)),
        (7, struct.pack(">d", 1.5), 1.5),
        (7, struct.pack(">d", float("nan")), None),
        (8, b"", 0),
        (9, b"", 1),
        (0, b"", None),
        (12, b"", b""),
        (16, b"ab", b"ab"),
        (13, b"", ""),
        (17, "é".encode(), "é"),
    ],
)
def test_a_value_is_decoded_by_its_type(kind, data, value):
    """And is complete when all of its bytes are there."""
    assert value_bytes(kind) == len(data)
    assert decode(kind, data) == (value, True)


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (6, bytes(7), None),
        (7, bytes(7), None),
        (16, b"a", b"a"),
        (17, b"a", "a"),
        (17, b"\xc3(", "\ufffd("),
        (1, b"", None),
    ],
)
def test_a_value_that_is_cut_or_no_text_is_incomplete(kind, data, value):
    """What can be read of text and bytes is given; of half a number nothing."""
    assert decode(kind, data) == (value, False)


def test_a_cut_record_gives_the_values_before_the_cut():
    """Each value says for itself whether it is complete."""
    assert list(decode_record(b"\x04\x01\x13\x01\x05abc\x07")) == [(5, True), ("abc", True), (7, True)]
    assert list(decode_record(b"\x04\x01\x13\x01\x05ab")) == [(5, True), ("ab", False), (None, False)]


USABLE = 512


def leaf(*cells, kind=TABLE_LEAF, first_free=0, fragments=0, number=2):
    """Return a page with these cells at its end, as SQLite lays it out."""
    page, content, pointers = bytearray(USABLE), USABLE, []
    for cell in cells:
        content -= len(cell)
        page[content : content + len(cell)] = cell
        pointers.append(content)
    start = HEADER_BYTES if number == 1 else 0
    page[start : start + 8] = struct.pack(">B3HB", kind, first_free, len(cells), content, fragments)
    page[start + 8 : start + 8 + 2 * len(cells)] = struct.pack(f">{len(cells)}H", *pointers)
    return page


def cell(number, text=b"hello"):
    """Return the cell of a row with one text."""
    record = bytes([2, 13 + 2 * len(text)]) + text
    return encode_varint(len(record)) + encode_varint(number) + record


@pytest.mark.parametrize("number", [1, 2])
def test_a_page_is_whole_when_its_cells_fill_it(number):
    """On the first page the tree begins behind the header of the file."""
    tree = parse_page(bytes(leaf(cell(7), cell(300), number=number)), number, USABLE)

    assert tree.is_whole
    assert (tree.is_leaf, tree.is_table, tree.children) == (True, True, ())
    assert [one.rowid for one in tree.cells] == [7, 300]
    assert [(one.end - one.start, one.payload_bytes, one.overflow) for one in tree.cells] == [(9, 7, 0), (10, 7, 0)]


@pytest.mark.parametrize(
    "change",
    [
        lambda page: page.__setitem__(slice(8, 10), struct.pack(">H", 4)),  # a pointer into the header
        lambda page: page.__setitem__(slice(8, 10), page[10:12]),  # two pointers to one cell
        lambda page: page.__setitem__(slice(5, 7), struct.pack(">H", USABLE - 30)),  # a content area that is too long
        lambda page: page.__setitem__(slice(5, 7), struct.pack(">H", 9)),  # one that begins inside the pointers
        lambda page: page.__setitem__(7, 1),  # a fragment that does not exist
        lambda page: page.__setitem__(slice(1, 3), struct.pack(">H", 40)),  # a free block before the content
        lambda page: page.__setitem__(slice(1, 3), struct.pack(">H", USABLE - 2)),  # one beyond the page
        lambda page: page.__setitem__(slice(1, 3), struct.pack(">H", USABLE - 9)),  # one where a cell is
    ],
)
def test_a_page_that_contradicts_itself_is_not_whole(change):
    """Its cells are read as far as the pointers lead to them."""
    page = leaf(cell(7), cell(8))
    change(page)

    tree = parse_page(bytes(page), 2, USABLE)

    assert not tree.is_whole
    assert [one.rowid for one in tree.cells][-1] == 8


def test_free_blocks_and_fragments_belong_to_a_whole_page():
    """A deleted row leaves a free block, one that is too short for that a fragment."""
    page = leaf(cell(7), b"\0" * 20, cell(8), first_free=USABLE - 29, fragments=0)
    page[USABLE - 29 : USABLE - 25] = struct.pack(">2H", 0, 20)
    page[3:5] = struct.pack(">H", 2)
    page[8:14] = struct.pack(">3H", USABLE - 9, USABLE - 38, 0)
    assert parse_page(bytes(page), 2, USABLE).is_whole

    page[USABLE - 27 : USABLE - 25] = struct.pack(">H", 18)
    assert not parse_page(bytes(page), 2, USABLE).is_whole
    page[7] = 2
    assert parse_page(bytes(page), 2, USABLE).is_whole
    page[USABLE - 29 : USABLE - 27] = struct.pack(">H", USABLE - 29)  # a chain that leads to itself
    assert not parse_page(bytes(page), 2, USABLE).is_whole
    page[USABLE - 29 : USABLE - 25] = struct.pack(">2H", 0, 3)
    assert not parse_page(bytes(page), 2, USABLE).is_whole


@pytest.mark.parametrize(
    "page",
    [
        bytes(USABLE),
        bytes(leaf(cell(7), kind=12)),
        bytes(leaf(cell(7)))[: USABLE - 1],
        bytes(leaf(cell(7))[:3] + struct.pack(">H", 253) + leaf(cell(7))[5:]),
        bytes(leaf(cell(7))[:5] + struct.pack(">H", USABLE + 1) + leaf(cell(7))[7:]),
    ],
)
def test_what_cannot_be_a_tree_is_none(page):
    """Zeros, an unknown kind, half a page, more pointers than fit, a content area beyond the page."""
    assert parse_page(page, 2, USABLE) is None


def test_a_page_with_as_many_pointers_as_fit_is_a_tree():
    """The bound itself is allowed."""
    page = bytes(leaf(cell(7))[:3] + struct.pack(">H", 252) + leaf(cell(7))[5:])

    assert parse_page(page, 2, USABLE) is not None


def test_a_cell_that_leaves_its_page_is_refused():
    """One that begins before the cells, one that begins at the end, and one whose text would go beyond."""
    page = bytes(leaf(cell(7)))
    assert parse_cell(page, USABLE - 9, TABLE_LEAF, USABLE)[0].rowid == 7

    for at, least in ((USABLE - 9, USABLE - 8), (USABLE - 1, 0), (USABLE, 0)):
        with pytest.raises(Malformed):
            parse_cell(page, at, TABLE_LEAF, USABLE, least=least)
    with pytest.raises(Malformed):
        parse_cell(page, USABLE - 9, TABLE_LEAF, USABLE - 1)
    with pytest.raises(Malformed):  # a negative length
        parse_cell(b"\xff" * 9 + bytes(20), 0, INDEX_LEAF, USABLE)


def test_a_page_above_others_names_them():
    """Its cells have a page and the last number in it; one page more is in its header."""
    page = bytearray(USABLE)
    cells = [struct.pack(">I", 5) + encode_varint(70), struct.pack(">I", 6) + encode_varint(80)]
    content = USABLE - 10
    page[:12] = struct.pack(">B3HBI", TABLE_INTERIOR, 0, 2, content, 0, 9)
    page[content:] = b"".join(cells)
    page[12:16] = struct.pack(">2H", content, content + 5)

    tree = parse_page(bytes(page), 2, USABLE)

    assert (tree.is_leaf, tree.is_table, tree.is_whole, tree.children) == (False, True, True, (5, 6, 9))
    assert [one.rowid for one in tree.cells] == [70, 80]


def long_rows(tmp_path):
    return file_of(
        tmp_path, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)", rows=[(n, f"{n}" * 3_000) for n in range(1, 10)]
    )


def test_deleted_pages_are_in_the_list_of_free_pages(tmp_path):
    """As many as SQLite counts; a list that leads out of the file is followed as far as it can be right."""
    path, _ = long_rows(tmp_path)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("DELETE FROM t WHERE id > 2")
        count = connection.pragma("freelist_count")
    file = PageFile(path)
    free = file.free_pages()
    assert len(free) == count > 20
    trunk = int.from_bytes(file.header[32:36], "big")
    healthy = path.read_bytes()

    for place, value in ((4, 0xFFFF), (8, 0xFFFFFF), (0, 0xFFFFFF)):
        data = bytearray(healthy)
        at = (trunk - 1) * 512 + place
        data[at : at + 4] = value.to_bytes(4, "big")
        path.write_bytes(data)
        assert PageFile(path).free_pages() == set(), place
    data = bytearray(healthy)
    data[(trunk - 1) * 512 : (trunk - 1) * 512 + 4] = trunk.to_bytes(4, "big")  # a list that leads to itself
    path.write_bytes(data)
    assert trunk in PageFile(path).free_pages()


def test_a_cut_file_lacks_the_pages_that_its_header_counts(tmp_path):
    """A header that contradicts itself counts nothing."""
    path, _ = long_rows(tmp_path)
    whole = PageFile(path)
    assert (whole.missing, whole.count in whole, whole.count + 1 in whole, 0 in whole) == (0, True, False, False)
    data = path.read_bytes()

    path.write_bytes(data[: -512 * 3 - 100])
    assert PageFile(path).missing == 3
    assert PageFile(path).page(whole.count - 3)[-100:] == bytes(100)
    for place in (0, 24, 92):
        changed = bytearray(data[: -512 * 3])
        changed[place + 3] ^= 1
        path.write_bytes(changed)
        assert PageFile(path).missing == 0, place


def test_a_chain_must_be_as_long_as_its_row(tmp_path):
    """Too short, too long, in a circle: what can be read is given, and that it is not whole."""
    path, _ = long_rows(tmp_path)
    file = PageFile(path)
    cell_of = next(
        cell for n in range(1, file.count + 1) if (tree := file.tree(n)) for cell in tree.cells if cell.overflow
    )
    data, pages, is_whole = file.payload(cell_of)
    assert (len(data), is_whole, len(pages)) == (cell_of.payload_bytes, True, -(-(3_000 - len(cell_of.local)) // 508))
    healthy = path.read_bytes()

    for page, after in ((pages[-1], pages[0]), (pages[1], pages[0]), (pages[1], 0), (pages[1], 9_999)):
        changed = bytearray(healthy)
        changed[(page - 1) * 512 : (page - 1) * 512 + 4] = after.to_bytes(4, "big")
        path.write_bytes(changed)
        read, _, is_whole = PageFile(path).payload(cell_of)
        assert not is_whole
        assert data.startswith(read[:1_000])
    assert file.payload(Cell(0, 0, 1, 5, b"hello", 0)) == (b"hello", [], True)


@pytest.mark.parametrize("page_bytes", [512, 1_024, 4_096, 65_536])
def test_a_wrong_page_size_in_the_header_is_noticed(tmp_path, page_bytes):
    """The size with which the pages make sense wins; without any page that makes sense the header is believed."""
    rows = [(n, "text " * 60) for n in range(60 if page_bytes < 65_536 else 230)]
    path, _ = file_of(tmp_path, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)", page_bytes=page_bytes, rows=rows)
    assert (PageFile(path).page_bytes, PageFile(path).usable) == (page_bytes, page_bytes)
    data = bytearray(path.read_bytes())

    for wrong in (b"\x08\x00", b"\x00\x00", b"\x00\x01", b"\x12\x34"):
        data[16:18] = wrong
        path.write_bytes(data)
        assert PageFile(path).page_bytes == page_bytes
    path.write_bytes(data[:16] + b"\x20\x00" + data[18:100] + bytes(20_000))
    assert PageFile(path).page_bytes == 8_192


def test_reserved_bytes_are_no_part_of_a_page(tmp_path):
    """Encrypting builds of SQLite keep some bytes of each page for themselves."""
    path = tmp_path / "a.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.reserve_bytes(reserve=32)
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        with connection:
            connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x" * 5_000) for n in range(50)])
        page_bytes = connection.pragma("page_size")
        shapes = describe_shapes(connection)

    file = PageFile(path)

    assert file.usable == page_bytes - 32
    assert [row.values["v"] for row in Salvage(file, shapes).rows("t")] == ["x" * 5_000] * 50


def test_a_list_of_free_pages_is_as_long_as_its_page_allows(tmp_path):
    """Two numbers are its own, the others are pages."""
    most = 512 // 4 - 2
    for count, expected in ((0, {2}), (most, set(range(2, most + 3))), (most + 1, set())):
        data = bytearray(512 * 140)
        data[:18] = b"SQLite format 3\0" + struct.pack(">H", 512)
        data[32:36] = struct.pack(">I", 2)
        data[512 : 512 * 2] = struct.pack(f">2I{most}I", 0, count, *range(3, most + 3))
        (tmp_path / "a.db").write_bytes(data)

        assert PageFile(tmp_path / "a.db").free_pages() == expected


def test_cells_of_the_least_length_are_read(tmp_path):
    """A key of one small number takes three bytes, and SQLite gives it four."""
    rows = [(n,) for n in (0, 1)]
    _, salvage = file_of(tmp_path, "CREATE TABLE t (v INTEGER PRIMARY KEY) WITHOUT ROWID", rows=rows)

    assert [row.values["v"] for row in salvage.rows("t")] == [0, 1]
    assert salvage.extents["t"].is_complete


def test_a_free_block_of_four_bytes_is_the_least():
    """One of three cannot hold its own header."""
    for size, is_whole in ((4, True), (3, False)):
        page = leaf(cell(7), bytes(size))
        at = USABLE - 9 - size
        page[1:5] = struct.pack(">2H", at, 1)
        page[at : at + 4] = struct.pack(">2H", 0, size)
        page[USABLE - 9 : USABLE] = cell(7)
        assert parse_page(bytes(page), 2, USABLE).is_whole is is_whole


def test_a_record_of_too_many_columns_is_refused_at_once():
    """Bytes that are none may look like one of thousands."""
    payload = b"\x05\x01\x01\x01\x01"

    assert serial_types(payload, 4) == ([1, 1, 1, 1], 5)
    assert len(serial_types(payload + bytes(9))[0]) == 4
    with pytest.raises(Malformed):
        serial_types(payload, 2)

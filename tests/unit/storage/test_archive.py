"""The archive of a backup: every changed byte is found, and nothing hostile leaves it."""

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile

import pyrage
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from wellkept.core.errors import KeptError, Unreadable, UsageError
from wellkept.storage.age import Decryption, Encryption
from wellkept.storage.archive import (
    ArchiveWriter,
    Description,
    create_archive,
    is_encrypted,
    open_archive,
    read_archive,
)

FILES = {"home/memories/MEMORY.md": b"likes tea", "home/state.db": bytes(range(256)) * 40, "home/ünï/a": b""}
ABOUT = Description("2026-01-02T03:04:05.000Z", "1.0", "owner", "default", len(FILES), sum(map(len, FILES.values())))


def write(path, files=FILES, about=ABOUT, passphrase=None):
    sources = path.parent / "sources"
    sources.mkdir(exist_ok=True)
    with create_archive(path, passphrase=passphrase) as file:
        writer = ArchiveWriter(file, about)
        for number, (name, data) in enumerate(files.items()):
            (sources / str(number)).write_bytes(data)
            writer.add(name, sources / str(number), mode=0o600)
        writer.finish({"parts": {"pages": 1}})
    return path


def read(path, **options):
    passphrase = options.pop("passphrase", None)
    with open_archive(path, passphrase=passphrase) as file:
        return read_archive(file, **options)


def test_what_was_written_is_read(tmp_path):
    """Names, bytes, modes, the description and the rest of the manifest."""
    path = write(tmp_path / "a.tar.gz")

    found = read(path, into=tmp_path / "out")

    assert found.description == ABOUT
    assert found.details == {"parts": {"pages": 1}}
    assert {member.path for member in found.members} == set(FILES)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in FILES} == FILES


def test_the_same_files_give_the_same_bytes(tmp_path):
    """No time and no name of a machine is in an archive."""
    assert write(tmp_path / "a").read_bytes() == write(tmp_path / "b").read_bytes()


def test_tar_opens_it(tmp_path):
    """Without kept, with a tool that everyone has."""
    with tarfile.open(write(tmp_path / "a"), "r:gz") as tar:
        assert tar.getnames() == ["kept-backup.json", *FILES, "manifest.json"]


def test_every_flipped_byte_is_found(tmp_path):
    """Of every byte one bit: also in the headers and paddings that gzip and tar do not check."""
    whole = write(tmp_path / "a").read_bytes()

    unnoticed = []
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        try:
            read_archive(io.BytesIO(bytes(damaged)))
        except KeptError:
            continue
        unnoticed.append(place)

    assert unnoticed == []


def test_a_flipped_bit_in_a_large_file_names_it(tmp_path):
    """Wherever it is in the bytes of that file: also where the archive cannot be followed any further."""
    noise = b"".join(hashlib.sha256(bytes([number])).digest() for number in range(250)) * 4
    files = {"home/a": b"first", "home/state.db": noise, "home/z": b"last"}
    about = replace(ABOUT, bytes=sum(map(len, files.values())))
    whole = write(tmp_path / "a", files, about).read_bytes()

    for place in range(1_000, len(whole) - 1_500, 97):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        with pytest.raises(Unreadable, match=r"home/state\.db"):
            read_archive(io.BytesIO(bytes(damaged)))


def test_a_damaged_file_is_named(tmp_path):
    """An archive that was packed again with another content of one file."""
    names = io.BytesIO()
    with tarfile.open(write(tmp_path / "a"), "r:gz") as old, tarfile.open(fileobj=names, mode="w") as new:
        for entry in old:
            data = old.extractfile(entry).read().replace(b"likes tea", b"likes rum")
            new.addfile(entry, io.BytesIO(data))
    packed = gzip.compress(names.getvalue()) + bytes(100)

    with pytest.raises(Unreadable, match=r"MEMORY\.md"):
        read_archive(io.BytesIO(packed[:-8]))


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.999])
def test_a_cut_archive_is_refused(tmp_path, share):
    """Wherever it ends."""
    whole = write(tmp_path / "a").read_bytes()

    with pytest.raises(KeptError, match=r"ends too early|damaged|only the beginning"):
        read_archive(io.BytesIO(whole[: int(len(whole) * share)]))


@settings(max_examples=50)
@given(st.binary(min_size=1, max_size=200))
def test_appended_bytes_are_found(tmp_path_factory, rest):
    """Nothing may hide behind the end."""
    whole = write(tmp_path_factory.mktemp("archive") / "a").read_bytes()

    with pytest.raises(Unreadable):
        read_archive(io.BytesIO(whole + rest))


def hostile(entries, about=ABOUT):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, data, kind in [("kept-backup.json", json.dumps(about).encode(), tarfile.REGTYPE), *entries]:
            entry = tarfile.TarInfo(name)
            entry.size, entry.type, entry.linkname = len(data), kind, "/etc/passwd"
            tar.addfile(entry, io.BytesIO(data))
    return io.BytesIO(stream.getvalue() + bytes(92))


DESCRIPTION = {
    "format": "kept-backup", "version": 1, "created": "", "program": "1", "user": "owner", "profile": "default",
    "files": 5, "bytes": 100,
}  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (("home/../../evil", b"x", tarfile.REGTYPE), "unsafe name"),
        (("/etc/evil", b"x", tarfile.REGTYPE), "unsafe name"),
        (("home//evil", b"x", tarfile.REGTYPE), "unsafe name"),
        (("evil", b"x", tarfile.REGTYPE), "unsafe name"),
        (("home/link", b"", tarfile.SYMTYPE), "does not belong in a backup"),
        (("home/device", b"", tarfile.CHRTYPE), "does not belong in a backup"),
        (("home/bomb", b"x" * 101, tarfile.REGTYPE), "more than it says"),
    ],
)
def test_hostile_members_are_refused(tmp_path, entry, reason):
    """A path that leads elsewhere, a link, a device, more than was announced."""
    with pytest.raises(UsageError, match=reason):
        read_archive(hostile([entry], DESCRIPTION), into=tmp_path / "out")

    assert not (tmp_path / "evil").exists()


def test_a_newer_format_is_refused_with_its_version():
    """Before anything of it is read."""
    with pytest.raises(UsageError, match=r"format 2, made by kept 9\.9"):
        read_archive(hostile([], {**DESCRIPTION, "version": 2, "program": "9.9"}))


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"\x1f\x8b", gzip.compress(b"hello" * 1000), b"PK\x03\x04" + bytes(99)],
    ids=["empty", "text", "cut", "compressed", "zip"],  # a name must not hold the time, which gzip writes
)
def test_another_file_is_not_a_backup(tmp_path, data):
    """Refused with the reason."""
    (tmp_path / "a").write_bytes(data)

    with pytest.raises(KeptError, match=r"not a backup|ends too early|damaged"):
        read(tmp_path / "a")


def test_a_file_without_a_description_is_the_callers_mistake_and_a_torn_one_is_damage(tmp_path):
    """The one is another file, the other was a backup: it says where it is damaged."""
    with pytest.raises(UsageError, match="not a backup of kept"):
        read_archive(io.BytesIO(gzip.compress(b"hello" * 1000)))
    unpacked = gzip.decompress(write(tmp_path / "a").read_bytes())
    at = unpacked.index(b"home/state.db")  # the header of the second file
    torn = unpacked[: at + 200] + b"\xff" * 40 + unpacked[at + 240 : at + 400]
    with pytest.raises(Unreadable, match=r"damaged in '.*'|ends too early"):
        read_archive(io.BytesIO(gzip.compress(torn)))


def test_an_error_leaves_no_file(tmp_path):
    """Neither the archive nor its temporary file."""
    with pytest.raises(ZeroDivisionError), create_archive(tmp_path / "a") as file:
        file.write(b"half" * (1 // 0))

    assert list(tmp_path.iterdir()) == []


def encrypt(data, passphrase="pass", work=4):
    stream = io.BytesIO()
    encryption = Encryption(stream, passphrase, work_factor=work)
    for start in range(0, len(data), 50_000):
        encryption.write(data[start : start + 50_000])
    encryption.finish()
    return stream.getvalue()


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 131_072, 200_001])
def test_age_opens_what_was_encrypted(size):
    """The reference implementation in Rust reads our files, at every border of a chunk; and so do we."""
    data = bytes(index % 251 for index in range(size))
    encrypted = encrypt(data)

    assert pyrage.passphrase.decrypt(encrypted, "pass") == data
    assert Decryption(io.BytesIO(encrypted), "pass").read() == data


def test_every_flipped_byte_of_an_encrypted_file_is_found():
    """In the header it looks like a wrong passphrase, behind it like damage."""
    whole = encrypt(b"words " * 40)

    unnoticed = []
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        try:
            Decryption(io.BytesIO(bytes(damaged)), "pass").read()
        except KeptError:
            continue
        unnoticed.append(place)

    assert unnoticed == []


def test_a_cut_encrypted_file_is_found():
    """Also where it ends with a whole chunk."""
    whole = encrypt(bytes(200_000))
    header = whole.index(b"\n--- ") + 49 + 16

    for end in (header + 65_552, header + 65_552 * 2, len(whole) - 1):
        with pytest.raises(Unreadable):
            Decryption(io.BytesIO(whole[:end]), "pass").read()


def test_a_wrong_passphrase_is_one_line():
    """And says no more than that."""
    with pytest.raises(UsageError, match="the passphrase is wrong"):
        Decryption(io.BytesIO(encrypt(b"words")), "other")


def test_an_encrypted_archive_needs_its_passphrase(tmp_path, monkeypatch):
    """It is recognised by its first line."""
    derive = hashlib.scrypt  # the work for a real passphrase takes seconds
    monkeypatch.setattr(hashlib, "scrypt", lambda *given, **options: derive(*given, **{**options, "n": 16}))
    path = write(tmp_path / "a.age", passphrase="pass")

    with pytest.raises(UsageError, match="is encrypted"):
        read(path)
    assert read(path, passphrase="pass").description == ABOUT


def test_an_archive_and_its_files_are_private_and_durable(tmp_path, monkeypatch):
    """Whatever the umask says; the bytes are on the disk before the name is, and the name before the end."""
    calls, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append(os.fstat(descriptor)) or real(descriptor))
    before = os.umask(0)
    try:
        path = write(tmp_path / "a")
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [(stat.S_ISDIR(one.st_mode), one.st_ino) for one in calls] == [
        (False, path.stat().st_ino), (True, tmp_path.stat().st_ino),
    ]  # fmt: skip
    assert calls[0].st_size == path.stat().st_size
    with tarfile.open(path) as tar:
        assert {entry.mode for entry in tar} == {0o600}
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "sources"]


def test_a_restored_file_is_private_and_a_program_stays_one(tmp_path):
    """Whatever its mode was."""
    (tmp_path / "file").write_bytes(b"x")
    modes = {"home/page": 0o644, "home/run": 0o755, "outside/other": 0o611}
    with create_archive(tmp_path / "a") as file:
        writer = ArchiveWriter(file, replace(ABOUT, files=3, bytes=3))
        for name, mode in modes.items():
            writer.add(name, tmp_path / "file", mode=mode)
        writer.finish({})

    found = read(tmp_path / "a", into=tmp_path / "out")

    assert {one.path: one.mode for one in found.members} == modes
    written = {name: stat.S_IMODE((tmp_path / "out" / name).stat().st_mode) for name in modes}
    assert written == {"home/page": 0o600, "home/run": 0o700, "outside/other": 0o600}


def test_progress_counts_up_to_the_whole_once(tmp_path):
    """While it is written and while it is read."""
    (tmp_path / "file").write_bytes(bytes(600_000))
    written, seen = [], []
    with create_archive(tmp_path / "a") as file:
        writer = ArchiveWriter(file, replace(ABOUT, files=2, bytes=1_200_000), sink=written.append)
        writer.add("home/a", tmp_path / "file", mode=0o600)
        writer.add("home/b", tmp_path / "file", mode=0o600)
        writer.finish({})
    read(tmp_path / "a", sink=seen.append)

    for events in (written, seen):
        done = [event.done for event in events]
        assert done == sorted(set(done))
        assert (len(done) > 3, done[0] < 600_000, done[-1]) == (True, True, 1_200_000)
        assert {event.total for event in events} == {1_200_000}


class Drops:
    """A file that gives a byte at a time, as a pipe may."""

    def __init__(self, data):
        self._data = io.BytesIO(data)

    def read(self, size=-1):
        return self._data.read(min(size, 1))


def test_a_file_that_comes_in_drops_is_read(tmp_path):
    """The end mark is what comes last, however the bytes arrive."""
    whole = write(tmp_path / "a").read_bytes()

    assert read_archive(Drops(whole)).description == ABOUT
    with pytest.raises(Unreadable):
        read_archive(Drops(whole + b"\0"))


@pytest.mark.parametrize(
    "name",
    ["home/./x", "home/../x", "home/", "home/a\\b", "home/a\nb", "elsewhere/x", "home/" + "x" * 1_020, "home/" + "ü" * 510],
)  # fmt: skip
def test_names_that_could_lead_elsewhere_are_refused(name):
    """Also those that are longer than any that we write, in bytes."""
    with pytest.raises(UsageError, match="unsafe name"):
        read_archive(hostile([(name, b"x", tarfile.REGTYPE)], DESCRIPTION))


@pytest.mark.parametrize("name", ["home/" + "x" * 1_019, "outside/a b/c.d..e", "home/..."])
def test_other_names_are_not(name):
    """This archive fails later: it has no manifest."""
    with pytest.raises(Unreadable, match="ends too early"):
        read_archive(hostile([(name, b"x", tarfile.REGTYPE)], DESCRIPTION))


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([(f"home/{n}", b"", tarfile.REGTYPE) for n in range(6)], "more than it says"),
        ([("home/a", b"x" * 60, tarfile.REGTYPE), ("home/b", b"x" * 41, tarfile.REGTYPE)], "more than it says"),
        ([("manifest.json", b"{", tarfile.REGTYPE)], "damaged in 'manifest.json'"),
        ([("manifest.json", b"[]", tarfile.REGTYPE)], "damaged in 'manifest.json'"),
        ([("manifest.json", b"{}", tarfile.REGTYPE)], "lists no files"),
        ([("manifest.json", b'{"members": [{"size": 1}]}', tarfile.REGTYPE)], "lists no files"),
        (
            [("manifest.json", b"{}", tarfile.REGTYPE), ("home/a", b"", tarfile.REGTYPE)],
            "which does not belong in a backup",
        ),
        ([("home/a", b"x" * 60, tarfile.REGTYPE), ("home/b", b"x" * 40, tarfile.REGTYPE)], "ends too early"),
        ([(f"home/{n}", b"", tarfile.REGTYPE) for n in range(5)], "ends too early"),
    ],
)
def test_a_manifest_and_a_description_bind(entries, reason):
    """As many files and bytes as were announced may come; a manifest is the last member and lists them."""
    with pytest.raises(KeptError, match=reason):
        read_archive(hostile(entries, DESCRIPTION))


def test_files_that_are_missing_or_too_many_are_named():
    """The first ten of them."""
    listed = [{"path": f"home/{n:02}", "size": 0, "mode": 384, "sha256": "0"} for n in range(12)]
    manifest = json.dumps({"members": listed}).encode()

    with pytest.raises(Unreadable, match=r"damaged: home/00, .*home/09 differ"):
        read_archive(hostile([("manifest.json", manifest, tarfile.REGTYPE)], DESCRIPTION))


@pytest.mark.parametrize("about", [{}, [], "x", {**DESCRIPTION, "format": "other"}, {**DESCRIPTION, "version": 0}])
def test_an_archive_without_our_description_is_not_a_backup(about):
    """Whatever else its first file says."""
    with pytest.raises(UsageError, match="not a backup of kept"):
        read_archive(hostile([], about))


def test_a_description_with_other_fields_is_damaged():
    """The version says that it has ours."""
    with pytest.raises(Unreadable, match="in its description"):
        read_archive(hostile([], {**DESCRIPTION, "odd": 1}))


@pytest.mark.parametrize(("size", "reason"), [(65_536, "ends too early"), (65_537, "not a backup of kept")])
def test_a_description_of_any_length_is_not_read(size, reason):
    """A small file says what is in a backup."""
    padding = size - len(json.dumps(DESCRIPTION))
    about = {**DESCRIPTION, "user": "owner" + "x" * padding}

    with pytest.raises(KeptError, match=reason):
        read_archive(hostile([], about))


@pytest.mark.parametrize(("size", "reason"), [(268_435_456, "end of data"), (268_435_457, "manifest is too large")])
def test_a_manifest_of_any_length_is_not_read(size, reason):
    """By the size that its header gives, before any of it is there."""
    unpacked = gzip.decompress(hostile([], DESCRIPTION).getvalue()[:-92])[:1024]
    entry = tarfile.TarInfo("manifest.json")
    entry.size = size

    with pytest.raises(Unreadable, match=reason):
        read_archive(io.BytesIO(gzip.compress(unpacked + entry.tobuf()) + bytes(92)))


def test_what_cannot_be_opened_says_why(tmp_path):
    """A missing file is the caller's mistake, a folder cannot be read."""
    with pytest.raises(UsageError, match="there is no file"):
        read(tmp_path / "absent")
    with pytest.raises(Unreadable, match="Is a directory"):
        read(tmp_path)
    assert [is_encrypted(tmp_path / name) for name in ("absent", "")] == [False, False]
    (tmp_path / "plain").write_bytes(b"age-encryption.org/v1")
    (tmp_path / "age").write_bytes(b"age-encryption.org/v1\n")
    assert [is_encrypted(tmp_path / name) for name in ("plain", "age")] == [False, True]


def test_an_encrypted_file_is_read_in_any_pieces():
    """And gives nothing at its end."""
    data = bytes(index % 251 for index in range(150_000))
    encrypted = encrypt(data)

    for size in (1_000, 65_536, 70_001, 150_000, 150_001):
        opened, pieces = Decryption(io.BytesIO(encrypted), "pass"), []
        while piece := opened.read(size):
            pieces.append(piece)
        assert {len(piece) for piece in pieces[:-1]} <= {size}
        assert b"".join(pieces) == data
        assert opened.read() == b""
    opened = Decryption(io.BytesIO(encrypted), "pass")
    assert opened.read(5) + opened.read() == data


def test_damage_is_reported_with_its_offset():
    """As bytes after the header, by chunks."""
    whole = bytearray(encrypt(bytes(200_000)))
    whole[-1] ^= 1

    with pytest.raises(Unreadable, match=r"about 196,656 bytes after its header"):
        Decryption(io.BytesIO(bytes(whole)), "pass").read()


def test_work_without_end_is_not_done(monkeypatch):
    """A gigabyte of memory for a passphrase is the most; ours is what age itself uses."""
    asked = []

    def derive(*_arguments, n, **_options):
        asked.append(n)
        return bytes([len(asked)] * 32)  # never the same key, so that a header that was derived cannot be opened

    monkeypatch.setattr(hashlib, "scrypt", derive)
    stream = io.BytesIO()
    Encryption(stream, "pass").finish()
    assert stream.getvalue().splitlines()[1].endswith(b" 18")
    for work, error in ((20, "passphrase is wrong"), (21, "not with a passphrase and parameters")):
        header = encrypt(b"words").replace(b" 4\n", b" %d\n" % work, 1)
        with pytest.raises(UsageError, match=error):
            Decryption(io.BytesIO(header), "pass")

    assert asked == [2**18, 2**4, 2**20, 2**4]


def test_a_passphrase_must_be_there():
    """An empty one would protect nothing."""
    with pytest.raises(UsageError, match="passphrase is empty"):
        Encryption(io.BytesIO(), "")


def test_a_header_that_says_one_thing_in_two_ways_is_damaged():
    """Bits of base64 that mean nothing must be zero, and the check over the header must match."""
    whole = encrypt(b"words")
    lines = whole.split(b"\n", 3)
    for number, place in ((2, -1), (3, 46)):
        changed = [bytearray(line) for line in lines]
        letter = changed[number][place]
        changed[number][place] = letter + 1 if chr(letter).isalpha() and letter not in b"zZ" else ord("B")
        with pytest.raises(KeptError, match="damaged"):
            Decryption(io.BytesIO(b"\n".join(changed)), "pass")

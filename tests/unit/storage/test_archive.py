"""The archive of a backup: every changed byte is found, and nothing hostile leaves it."""

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import replace

import pyrage
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.core.errors import KeptError, Unreadable, UsageError
from kept.storage.age import Decryption, Encryption
from kept.storage.archive import ArchiveWriter, Description, create_archive, open_archive, read_archive

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
        (("home/link", b"", tarfile.SYMTYPE), "no backup holds"),
        (("home/device", b"", tarfile.CHRTYPE), "no backup holds"),
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
def test_another_file_is_no_backup(tmp_path, data):
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


def test_an_encrypted_archive_needs_its_passphrase(tmp_path):
    """It is recognised by its first line."""
    path = write(tmp_path / "a.age", passphrase="pass")

    with pytest.raises(UsageError, match="is encrypted"):
        read(path)
    assert read(path, passphrase="pass").description == ABOUT

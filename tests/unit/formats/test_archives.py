"""Archives and long JSON files: what cannot be trusted or read is refused with the reason, and nothing is stored."""

import io
import json
import os
import stat
import struct
import subprocess
import sys
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept import imports
from wellkept.connect.capture import capture_transcript
from wellkept.core.errors import Refused
from wellkept.formats import exports, json_files
from wellkept.formats.exports import open_export
from wellkept.formats.port import Unusable

GOOD = json.dumps([{"uuid": "1", "chat_messages": [{"uuid": "m", "sender": "human", "text": "Hello"}]}])


def write_zip(path, *entries, **options):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, data in entries or [("conversations.json", GOOD)]:
            archive.writestr(name, data)
    return path


def link(name, target):
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info, target


def bomb(path):
    return write_zip(path, ("conversations.json", b"[" + b" " * 80_000_000 + b"]"))


def encrypt(path):
    """Set the flag of encryption of every member, as a program that encrypts does."""
    data = bytearray(write_zip(path).read_bytes())
    place = data.find(b"PK\x01\x02")
    data[place + 8] |= 1
    data[6] |= 1
    path.write_bytes(data)
    return path


def cut(path, share=0.5):
    whole = write_zip(path, ("conversations.json", os.urandom(4_000))).read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    return path


def flip(path):
    write_zip(path)
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    path.write_bytes(data)
    return path


def long_list(path):
    """An archive whose end announces more files than the memory could hold."""
    data = bytearray(write_zip(path).read_bytes())
    struct.pack_into("<L", data, len(data) - 22 + 12, 900_000_000)
    path.write_bytes(data)
    return path


def overlap(path):
    """Many names for one packed file."""
    write_zip(path, ("conversations.json", b"[" + b" " * 900_000 + b"]"))
    with zipfile.ZipFile(path, "a") as archive:
        first = archive.infolist()[0]
        for number in range(400):
            info = zipfile.ZipInfo(f"c{number}.json")
            for name in ("compress_type", "CRC", "compress_size", "file_size", "header_offset", "create_system"):
                setattr(info, name, getattr(first, name))
            archive.filelist.append(info)
            archive.NameToInfo[info.filename] = info
        archive._didModify = True
    return path


def put(path, data):
    path.write_bytes(data)
    return path


REFUSED = {
    "bomb": (bomb, "would grow"),
    "overlap": (overlap, "would grow"),
    "parent": (lambda path: write_zip(path, ("../conversations.json", GOOD)), "leads out of it"),
    "inner parent": (lambda path: write_zip(path, ("a/../../c.json", GOOD)), "leads out of it"),
    "backslash": (lambda path: write_zip(path, ("..\\conversations.json", GOOD)), "leads out of it"),
    "absolute": (lambda path: write_zip(path, ("/etc/conversations.json", GOOD)), "leads out of it"),
    "drive": (lambda path: write_zip(path, ("C:/conversations.json", GOOD)), "leads out of it"),
    "link": (lambda path: write_zip(path, ("conversations.json", GOOD), link("x.json", "/etc/passwd")), "link"),
    "encrypted": (encrypt, "is encrypted"),
    "truncated": (cut, "cut off"),
    "barely truncated": (lambda path: cut(path, 0.99), "cut off"),
    "damaged": (flip, "damaged"),
    "long list": (long_list, "more files than"),
    "text": (lambda path: put(path, b"hello"), "is not an archive"),
    "empty": (lambda path: put(path, b""), "is not an archive"),
    "other zip": (lambda path: write_zip(path, ("photo.png", b"1"), ("notes.txt", b"2")), "holds no conversations"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("client", ["chatgpt", "claude"])
def test_an_archive_that_cannot_be_trusted_is_refused(caller, tmp_path, case, client):
    """The reason is given, nothing is stored, and nothing is unpacked."""
    make, reason = REFUSED[case]
    path = make(tmp_path / "export.zip")
    before = sorted(tmp_path.rglob("*"))
    done = capture_transcript(caller, client, path)

    assert isinstance(done, Refused)
    assert reason in done.error
    assert done.remedy
    assert caller.space.sessions.recent(limit=5) == []
    assert sorted(path for path in tmp_path.rglob("*") if "home" not in path.parts) == [
        path for path in before if "home" not in path.parts
    ]


@pytest.mark.parametrize(("start", "kind"), [(b"\x1f\x8b\x08", "gzip"), (b"7z\xbc\xaf\x27\x1c", "7z"), (b"", "empty")])
def test_other_archives_are_named(tmp_path, start, kind):
    """A person is told what the file is."""
    path = tmp_path / "export.bin"
    path.write_bytes(start)
    with pytest.raises(Unusable, match=kind):
        open_export(path)


def test_a_missing_export_is_refused(caller, tmp_path):
    """One line instead of a traceback."""
    done = capture_transcript(caller, "chatgpt", tmp_path / "nothing.zip")

    assert isinstance(done, Refused)
    assert "nothing.zip" in done.error


def test_links_in_a_folder_are_not_followed(tmp_path):
    """A folder may have been unpacked from an archive of somebody else."""
    (tmp_path / "secret.json").write_text("[]")
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "conversations.json").symlink_to(tmp_path / "secret.json")

    assert open_export(folder).names() == []


def test_what_is_damaged_after_it_was_opened_is_a_problem(caller, tmp_path):
    """A folder whose file is cut gives what is before the cut, and says where it ends."""
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "conversations.json").write_text(GOOD[:-1] + ', {"uuid": "2", "chat_mess')
    done = capture_transcript(caller, "claude", folder)

    assert not isinstance(done, Refused)
    assert (done.added, done.left) == (1, {"broken record": 1})


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
objects = st.lists(st.dictionaries(st.text(max_size=4), values, max_size=3), max_size=6)


def read(text, **options):
    return list(json_files.JsonStream(io.BytesIO(text.encode()), **options))


@given(objects, st.sampled_from([None, 1]), st.integers(1, 40))
def test_every_object_of_an_array_is_yielded(listed, indent, chunk):
    """However small the pieces are in which the file is read."""
    before, json_files._CHUNK_BYTES = json_files._CHUNK_BYTES, chunk
    try:
        found = read(json.dumps(listed, indent=indent, ensure_ascii=False))
    finally:
        json_files._CHUNK_BYTES = before

    assert [piece.value for piece in found] == listed


@given(objects, st.data())
def test_a_damaged_array_ends_and_gives_what_is_whole(listed, data):
    """A cut or a changed character costs at most what comes after it; every stream ends."""
    text = json.dumps(listed)
    place = data.draw(st.integers(0, len(text) - 1))
    cut_off = read(text[:place])
    changed = read(text[:place] + data.draw(st.sampled_from('{}[]",x')) + text[place + 1 :])

    whole = [piece.value for piece in cut_off if piece.value is not None]
    assert whole == listed[: len(whole)]
    assert len(changed) <= len(text) + 1


def test_an_object_that_is_too_large_is_skipped(monkeypatch):
    """The objects around it are read."""
    monkeypatch.setattr(json_files, "MOST_OBJECT_CHARS", 2_000_000)
    inner = ", ".join(['{"w": "x"}'] * 400_000)
    found = read(f'[{{"a": 1}}, {{"b": [{inner}]}}, {{"c": 3}}]')

    assert [piece.value for piece in found] == [{"a": 1}, None, {"c": 3}]
    assert "larger than" in found[1].problem


def test_the_limit_of_files_is_checked(tmp_path, monkeypatch):
    """A folder that is not an export, such as a home, is not listed to its end."""
    monkeypatch.setattr(exports, "MOST_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("x")
    with pytest.raises(Unusable, match="more files"):
        open_export(tmp_path)


@pytest.mark.heavy
def test_a_long_export_needs_little_memory(tmp_path):
    """An array of 200 MB in one line is read in a process that stays below 300 MB."""
    path = tmp_path / "conversations.json"
    text = "the marmot digs a burrow " * 4_000
    with path.open("w") as file:
        for number in range(2_000):
            message = {"uuid": f"m{number}", "sender": "human", "text": text}
            file.write(("," if number else "[") + json.dumps({"uuid": f"c{number}", "chat_messages": [message]}))
        file.write("]")
    script = (
        "import resource, sys, pathlib\n"
        "from wellkept.formats.claude_export import ClaudeExport\n"
        "from wellkept.formats.port import START\n"
        "print(sum(1 for _ in ClaudeExport().open(pathlib.Path(sys.argv[1]), START)))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    items, kilobytes = map(int, done.stdout.split())

    assert path.stat().st_size > 200_000_000
    assert items == 4_000
    assert kilobytes < 300_000


def test_an_import_of_which_nothing_could_be_read_is_refused(caller, tmp_path):
    """The report says so, and the command ends with 1."""
    found = imports.sources.find_sources(caller, "chatgpt", put(tmp_path / "export.zip", b"hello"))
    report = imports.run.run_import(caller, found.sources[0])

    assert report.is_refused
    assert "is not an archive" in report.problems[0][1]

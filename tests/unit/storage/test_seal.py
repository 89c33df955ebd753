"""A sealed note can be read with its key only, and leaves nothing readable behind."""

import os

from wellkept.storage.seal import SealedNote
from wellkept.storage.sqlite import open_state


def test_a_note_is_read_back_and_says_nothing_by_itself(tmp_path):
    """Neither the file nor the database contains the text."""
    database = open_state(tmp_path / "state.db")
    note = SealedNote(tmp_path / "notes" / "owner", database)
    value = {"words": ["quixotopia", "lone \ud800 surrogate"], "entries": []}

    note.write(value)

    assert SealedNote(note.path, database).read() == value
    assert b"quixotopia" not in note.path.read_bytes()
    assert all(b"quixotopia" not in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    first = note.path.read_bytes()
    note.write(value)
    assert note.path.read_bytes() != first  # a new key each time
    database.close()


def test_a_note_without_key_file_or_integrity_reads_as_none(tmp_path):
    """Each part alone is useless."""
    database = open_state(tmp_path / "state.db")
    note = SealedNote(tmp_path / "owner", database)
    assert note.read() is None
    note.write("text")
    sealed = note.path.read_bytes()
    note.path.write_bytes(sealed[:-1] + bytes([sealed[-1] ^ 1]))
    assert note.read() is None

    note.remove()
    note.path.write_bytes(sealed)

    assert note.read() is None
    database.close()


def test_a_removed_note_stays_removed(tmp_path, monkeypatch):
    """What was removed, then the folder, are on the disk before the key is gone; a note that was never there can be removed too."""
    database = open_state(tmp_path / "state.db")
    note = SealedNote(tmp_path / "notes" / "owner", database)
    note.remove()
    note.write([1])
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))

    note.remove()

    assert synced[-1] == note.path.parent.stat().st_ino
    assert not note.path.exists()
    found = database.connection.execute("SELECT count(*) FROM state_meta WHERE key GLOB 'seal:*'").fetchall()
    assert found == [(0,)]
    database.close()

"""A sealed note: a file that cannot be read without a key, which is stored in the database and destroyed with it.

It lets an interrupted forget continue without a plain copy of the forgotten words on the disk: the file alone says
nothing, and once the key is overwritten in the database, neither do blocks of the file that the disk still holds.
"""

import json
import secrets
from hashlib import sha256, shake_256
from pathlib import Path

from wellkept.core.ports import Database
from wellkept.core.regular_files import explain_errors
from wellkept.core.text import JSON, dumps
from wellkept.storage.connections import statements
from wellkept.storage.files import make_folder, read_bytes, sync_folder, write_atomically

SQL = statements("wellkept.storage", "seal.sql")
_DIGEST = 32


class SealedNote:
    """One note; the key is in the table `state_meta`."""

    def __init__(self, path: Path, database: Database) -> None:
        self.path = path
        self._database = database
        self._row = f"seal:{path.name}"

    def write(self, value: JSON) -> None:
        """Write the note; the key comes first, so that a note always has one."""
        key = secrets.token_bytes(_DIGEST)
        with self._database.writing() as connection:
            connection.execute(SQL.put_key, (self._row, key.hex()))
        self._database.sync()  # without its key, a note orders nothing
        text = dumps(value).encode("utf-8", "surrogatepass")
        make_folder(self.path.parent)
        write_atomically(self.path, _crypt(sha256(key + text).digest() + text, key))

    def read(self) -> JSON:
        """Return the note, or None if there is none or its key is gone."""
        sealed = read_bytes(self.path)
        with self._database.reading() as connection:
            row = next(iter(connection.execute(SQL.key, (self._row,))), None)
        if sealed is None or row is None:
            return None
        key = bytes.fromhex(str(row[0]))
        plain = _crypt(sealed, key)
        if plain[:_DIGEST] != sha256(key + plain[_DIGEST:]).digest():
            return None
        value: JSON = json.loads(plain[_DIGEST:].decode("utf-8", "surrogatepass"))
        return value

    def remove(self) -> None:
        """Remove the note, then its key, when everything that it orders is done and durable."""
        self._database.sync()
        with explain_errors("remove", self.path):
            self.path.unlink(missing_ok=True)
            if self.path.parent.is_dir():
                sync_folder(self.path.parent)
        with self._database.writing() as connection:
            connection.execute(SQL.drop_key, (self._row,))


def _crypt(data: bytes, key: bytes) -> bytes:
    """Seal or open `data` with a stream that is used once: every note has a new key."""
    stream = shake_256(key).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))

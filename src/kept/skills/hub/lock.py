"""The lock file: what was installed from where, and the hash of every byte of it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kept.core.errors import Unreadable
from kept.storage.files import make_folder, read_bytes, write_atomically
from kept.storage.locks import locked

HUB_FOLDER = ".hub"


@dataclass(frozen=True, slots=True)
class Installed:
    """One skill that came through the hub."""

    source: str
    revision: str
    files: Mapping[str, str]
    """Path → sha256."""
    verdict: str
    installed_at: str
    place: str
    network: bool
    skill: str
    """Its name at the source."""
    rules: tuple[str, ...] = ()


class LockFile:
    """`skills/.hub/lock.json`; one that cannot be read is an error, because it is what audits rest on."""

    def __init__(self, home: Path) -> None:
        self._file = home / HUB_FOLDER / "lock.json"

    def read(self) -> dict[str, Installed]:
        """Return what is installed, by name."""
        raw = read_bytes(self._file)
        if raw is None:
            return {}
        try:
            rows = json.loads(raw)["skills"]
            return {name: Installed(**{**row, "rules": tuple(row["rules"])}) for name, row in rows.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            remedy = "restore it from a backup, or move it away and install the skills again"
            raise Unreadable(f"{str(self._file)!r} is damaged", remedy) from error

    def put(self, name: str, installed: Installed) -> None:
        """Record an installation."""
        self._change({name: installed})

    def drop(self, name: str) -> None:
        """Forget an installation."""
        self._change({name: None})

    def _change(self, edits: Mapping[str, Installed | None]) -> None:
        make_folder(self._file.parent)
        with locked(self._file.with_name("lock.json.lock")):
            rows = {name: row for name, row in {**self.read(), **edits}.items() if row is not None}
            held = {"version": 1, "skills": {name: asdict(row) for name, row in sorted(rows.items())}}
            write_atomically(self._file, (json.dumps(held, indent=1, ensure_ascii=False) + "\n").encode())

"""The short forms of all vectors in a file beside the database: derived, and mapped into memory rather than read."""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kept.core.errors import StorageError
from kept.core.ids import random_hex
from kept.sessions.sqlite import vectors
from kept.storage.files import explained
from kept.storage.sqlite import Connection

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

SUFFIX = "-vectors"
FEWEST = 20_000
"""Short forms from which on a file is worth it; fewer are read from the table in a moment."""
GROWTH = 0.04
"""The share by which there must be more of them before the file is written anew."""
_FORMAT = 1
_HEADER_BYTES = 4_096
_SAMPLES = 8


@dataclass(frozen=True, slots=True)
class ShortForms:
    """What a matrix knows of the vectors up to one place in the table."""

    basis: "NDArray[Any]"
    scale: float
    newest: int
    owners: "NDArray[Any]"
    rows: "NDArray[Any]"


class Shelf:
    """The file of one database and one model; a file of another state of the table is not used."""

    def __init__(self, database: Path, model: str, *, may_write: bool) -> None:
        self._path = database.with_name(f"{database.name}{SUFFIX}")
        self._model = model
        self._may_write = may_write

    def load(self, connection: Connection, width: int) -> ShortForms | None:
        """Return what the file holds, or None where there is none that fits the table."""
        import numpy as np

        try:
            with self._path.open("rb") as file:
                header = json.loads(file.read(_HEADER_BYTES))
            if (header["format"], header["model"], header["width"]) != (_FORMAT, self._model, width):
                return None
            if not _is_of(connection, header["samples"]):
                return None
            short, count = int(header["short"]), int(header["count"])
            at = [_HEADER_BYTES, _HEADER_BYTES + 4 * width * short]
            at.append(at[1] + 8 * count)
            basis = np.memmap(self._path, np.float32, "r", at[0], (width, short))
            owners = np.memmap(self._path, np.int64, "r", at[1], (count,))
            rows = np.memmap(self._path, np.int8, "r", at[2], (count, short))
            return ShortForms(basis, float(header["scale"]), int(header["newest"]), owners, rows)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.info("the file of short vectors is not used: %s", error)
            return None

    def wants(self, count: int, known: int) -> bool:
        """Whether so many short forms, of which the file holds `known`, are worth writing."""
        return self._may_write and count >= FEWEST and count - known > GROWTH * count

    def save(self, connection: Connection, forms: ShortForms) -> bool:
        """Write the file anew; False where the place refuses, which only costs time the next time."""
        header = json.dumps(
            {
                "format": _FORMAT,
                "model": self._model,
                "width": forms.basis.shape[0],
                "short": forms.basis.shape[1],
                "scale": forms.scale,
                "newest": forms.newest,
                "count": len(forms.owners),
                "samples": _samples(connection, forms.owners[:: max(1, len(forms.owners) // _SAMPLES)].tolist()),
            }
        ).encode()
        temporary = self._path.with_name(f"{self._path.name}.{random_hex(8)}.tmp")
        try:
            with explained("write", temporary), temporary.open("xb") as file:
                temporary.chmod(0o600)
                file.write(header.ljust(_HEADER_BYTES))
                for part in (forms.basis, forms.owners, forms.rows):
                    part.tofile(file)
                file.flush()
                os.fsync(file.fileno())
                temporary.replace(self._path)
        except StorageError as error:
            temporary.unlink(missing_ok=True)
            log.info("the file of short vectors is not written: %s", error)
            return False
        return True


def remove(database: Path) -> None:
    """Take the file away: what is forgotten must not be left in it."""
    place = database.with_name(f"{database.name}{SUFFIX}")
    with explained("remove", place):
        place.unlink(missing_ok=True)


def _samples(connection: Connection, owners: Sequence[int]) -> list[list[int]]:
    rows = connection.execute(vectors.SQL.places, (json.dumps(list(owners)),))
    return [[int(seq), int(number)] for seq, number in rows]


def _is_of(connection: Connection, samples: Sequence[Sequence[int]]) -> bool:
    """Whether the table still has, at its places, what it had when the file was written; some of it may have gone."""
    there = _samples(connection, [number for _, number in samples])
    return bool(there) and all(pair in samples for pair in there)

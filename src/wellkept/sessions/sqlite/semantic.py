"""Semantic search in a session file, with a memory-mapped cache of quantised vectors beside it."""

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from wellkept.core.errors import StorageError
from wellkept.core.ids import random_hex
from wellkept.core.regular_files import explain_errors, open_regular
from wellkept.sessions.rows import vectors
from wellkept.sessions.rows.database import Connection
from wellkept.sessions.rows.semantic import QuantisedVectors, SemanticSearch

log = logging.getLogger(__name__)

SUFFIX = "-vectors"
FEWEST = 20_000
"""Vectors from which on a file is worth it; fewer are read from the table quickly enough."""
GROWTH = 0.04
"""Share of new vectors from which on the file is written again."""
_FORMAT = 1
_HEADER_BYTES = 4_096
_SAMPLES = 8


class VectorFile:
    """The cache file of one database and one model; a file that does not match the table is ignored."""

    def __init__(self, database: Path, model: str, *, may_write: bool) -> None:
        self._path = database.with_name(f"{database.name}{SUFFIX}")
        self._model = model
        self._may_write = may_write

    def load(self, connection: Connection, width: int) -> QuantisedVectors | None:
        """Return the vectors in the file, or None where there is none that matches the table."""
        import numpy as np

        try:
            with open_regular(self._path) as file:
                header = json.loads(file.read(_HEADER_BYTES))
            if (header["format"], header["model"], header["width"]) != (_FORMAT, self._model, width):
                return None
            if not _matches_table(connection, header["samples"]):
                return None
            short, count = int(header["short"]), int(header["count"])
            at = [_HEADER_BYTES, _HEADER_BYTES + 4 * width * short]
            at.append(at[1] + 8 * count)
            basis = np.memmap(self._path, np.float32, "r", at[0], (width, short))
            owners = np.memmap(self._path, np.int64, "r", at[1], (count,))
            rows = np.memmap(self._path, np.int8, "r", at[2], (count, short))
            return QuantisedVectors(basis, float(header["scale"]), int(header["newest"]), owners, rows)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.info("the vector cache is not used: %s", error)
            return None

    def is_worth_writing(self, count: int, known: int) -> bool:
        """Whether `count` vectors, of which the file contains `known`, are worth writing."""
        return self._may_write and count >= FEWEST and count - known > GROWTH * count

    def save(self, connection: Connection, forms: QuantisedVectors) -> bool:
        """Write the file again; False where that fails, which only costs time at the next start."""
        header = json.dumps(
            {
                "format": _FORMAT,
                "model": self._model,
                "width": forms.basis.shape[0],
                "short": forms.basis.shape[1],
                "scale": forms.scale,
                "newest": forms.newest,
                "count": len(forms.owners),
                "samples": _sample_rows(connection, forms.owners[:: max(1, len(forms.owners) // _SAMPLES)].tolist()),
            }
        ).encode()
        temporary = self._path.with_name(f"{self._path.name}.{random_hex(8)}.tmp")
        try:
            with explain_errors("write", temporary), temporary.open("xb") as file:
                temporary.chmod(0o600)
                file.write(header.ljust(_HEADER_BYTES))
                for part in (forms.basis, forms.owners, forms.rows):
                    part.tofile(file)
                file.flush()
                os.fsync(file.fileno())
                temporary.replace(self._path)
        except StorageError as error:
            temporary.unlink(missing_ok=True)
            log.info("the vector cache is not written: %s", error)
            return False
        return True


def remove_file(database: Path) -> None:
    """Remove the file, so that it keeps nothing of what was forgotten."""
    place = database.with_name(f"{database.name}{SUFFIX}")
    with explain_errors("remove", place):
        place.unlink(missing_ok=True)


def _sample_rows(connection: Connection, owners: Sequence[int]) -> list[list[int]]:
    rows = connection.execute(vectors.SQL.places, (json.dumps(list(owners)),))
    return [[int(seq), int(number)] for seq, number in rows]


def _matches_table(connection: Connection, samples: Sequence[Sequence[int]]) -> bool:
    """Whether the sampled rows are still in the table; some of them may have been deleted."""
    there = _sample_rows(connection, [number for _, number in samples])
    return bool(there) and all(pair in samples for pair in there)


class FileVectors(SemanticSearch):
    """The vectors of one session file."""

    def _open_file(self, owner: str) -> VectorFile:
        return VectorFile(Path(str(self._database.path)), owner, may_write=not self._database.is_read_only)

"""The vectors at hand: short forms of all of them, by which the few that are compared exactly are chosen."""

import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from kept.core.errors import StorageError
from kept.core.ids import random_hex
from kept.sessions.sqlite import vectors
from kept.storage.files import explain_errors
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
            log.info("the file of short vectors is not written: %s", error)
            return False
        return True


def remove(database: Path) -> None:
    """Take the file away: what is forgotten must not be left in it."""
    place = database.with_name(f"{database.name}{SUFFIX}")
    with explain_errors("remove", place):
        place.unlink(missing_ok=True)


def _samples(connection: Connection, owners: Sequence[int]) -> list[list[int]]:
    rows = connection.execute(vectors.SQL.places, (json.dumps(list(owners)),))
    return [[int(seq), int(number)] for seq, number in rows]


def _is_of(connection: Connection, samples: Sequence[Sequence[int]]) -> bool:
    """Whether the table still has, at its places, what it had when the file was written; some of it may have gone."""
    there = _samples(connection, [number for _, number in samples])
    return bool(there) and all(pair in samples for pair in there)


SHORT = 64
"""Numbers of a short form, each of 8 bits; the best 400 by them hold 98 % of the best 50 by all numbers."""
COMPARED = 400
NEAREST = 120
_SAMPLE = 4_000
_FEW = 2_048
"""Vectors up to which they are kept whole."""
_PAGE = 4_000
_BLOCK = 2_048
"""Rows that are compared at once: their wide form must stay in the processor's cache."""
_STEPS = 120.0
_LENGTH_LEEWAY = 0.1


class Matrix:
    """Follows the table: reads what is new at each question; what was removed is noticed when it is compared."""

    def __init__(self, width: int, shelf: Shelf | None = None) -> None:
        self._width = width
        self._shelf = shelf
        self._base: ShortForms | None = None
        """What came from the file; what was added since is in arrays of its own."""
        self._newest = 0
        self._count = 0
        self._learnt_at: int | None = None
        """The newest row when the short form was chosen from few; None once it was chosen from enough."""
        self._owners: NDArray[Any] | None = None
        self._rows: NDArray[Any] | None = None
        self._basis: NDArray[Any] | None = None
        self._scale = 1.0
        self._guard = Lock()

    def follow(self, connection: Connection) -> None:
        """Read the vectors that were added since the last time; one thread at a time."""
        with self._guard:
            self._follow(connection)

    def _follow(self, connection: Connection) -> None:
        ((newest,),) = connection.execute(vectors.SQL.newest).fetchall()
        assert isinstance(newest, int)
        if self._newest == 0 and self._shelf is not None:
            self._take(self._shelf.load(connection, self._width))
        if newest == self._newest:
            return
        if self._learnt_at is not None and newest > 4 * self._learnt_at:
            # the short form was chosen from too few: begin anew
            self._newest = self._count = 0
            self._owners = self._rows = self._basis = self._learnt_at = None
        for owners, rows in self._pages(connection, self._newest):
            if self._basis is None:
                self._learn(rows)
            self._add(owners, self._shortened(rows))
        if self._learnt_at == 0:
            self._learnt_at = self._newest
        self._put_on_shelf(connection)

    def _take(self, forms: ShortForms | None) -> None:
        if forms is not None:
            self._base, self._basis = forms, forms.basis
            self._scale, self._newest = forms.scale, forms.newest

    def _put_on_shelf(self, connection: Connection) -> None:
        """Write all short forms to the file once there are enough more of them, and use them from there."""
        known = 0 if self._base is None else len(self._base.owners)
        if self._shelf is None or self._learnt_at is not None or not self._shelf.wants(known + self._count, known):
            return
        import numpy as np

        assert self._basis is not None
        parts = self._parts()
        owners = np.concatenate([owners for owners, _ in parts])
        rows = np.concatenate([rows for _, rows in parts])
        if self._shelf.save(connection, ShortForms(self._basis, self._scale, self._newest, owners, rows)):
            saved = self._shelf.load(connection, self._width)
            if saved is not None and saved.newest == self._newest:
                self._take(saved)
                self._count, self._owners, self._rows = 0, None, None

    def _parts(self) -> "list[tuple[NDArray[Any], NDArray[Any]]]":
        """Return owners and rows: those of the file, then those that were added."""
        parts = [] if self._base is None else [(self._base.owners, self._base.rows)]
        if self._owners is not None and self._rows is not None:
            parts.append((self._owners[: self._count], self._rows[: self._count]))
        return parts

    def _pages(self, connection: Connection, after: int) -> "Iterator[tuple[NDArray[Any], NDArray[Any]]]":
        import numpy as np

        size = self._width + 4
        while page := vectors.page(connection, after, _PAGE):
            after = page[-1][0]
            fit = [(number, data) for _, number, data in page if data and len(data) % size == 0]
            if fit:
                counts = [len(data) // size for _, data in fit]
                owners = np.repeat(np.array([number for number, _ in fit], np.int64), counts)
                yield owners, vectors.unpacked(b"".join(data for _, data in fit), self._width)
            self._newest = after

    def _learn(self, rows: "NDArray[Any]") -> None:
        """Choose the directions that tell most of these vectors apart."""
        import numpy as np

        sample = rows[:: max(1, len(rows) // _SAMPLE)]
        if len(rows) <= _FEW or self._width <= SHORT:
            self._basis = np.eye(self._width, dtype=np.float32)
        else:
            _, directions = np.linalg.eigh(sample.T @ sample)
            self._basis = np.ascontiguousarray(directions[:, -SHORT:], np.float32)
        self._scale = _STEPS / max(float(np.abs(sample @ self._basis).max()), 1e-6)
        self._learnt_at = 0 if len(rows) < _SAMPLE else None

    def _shortened(self, rows: "NDArray[Any]") -> "NDArray[Any]":
        import numpy as np

        short = np.rint(rows @ self._basis * self._scale)
        whole: NDArray[Any] = np.clip(short, -127, 127).astype(np.int8)
        return whole

    def _add(self, owners: "NDArray[Any]", rows: "NDArray[Any]") -> None:
        import numpy as np

        end = self._count + len(rows)
        if self._owners is None or self._rows is None or end > len(self._owners):
            size = max(1_024, end + end // 4)
            grown, wider = np.zeros(size, np.int64), np.zeros((size, rows.shape[1]), np.int8)
            if self._owners is not None and self._rows is not None:
                grown[: self._count], wider[: self._count] = self._owners[: self._count], self._rows[: self._count]
            self._owners, self._rows = grown, wider
        self._owners[self._count : end] = owners
        self._rows[self._count : end] = rows
        self._count = end

    def promising(self, asked: "NDArray[Any]", allowed: Collection[int] | None) -> list[int]:
        """Return the messages most like the question by their short forms, among `allowed` where that is given."""
        import numpy as np

        with self._guard:
            if self._basis is None:
                return []
            parts, short = self._parts(), self._basis.T @ asked
        found: list[tuple[NDArray[Any], NDArray[Any]]] = []
        within = None if allowed is None else np.fromiter(allowed, np.int64, len(allowed))
        for owners, rows in parts:
            chosen = slice(None) if within is None else np.isin(owners, within)
            if len(owners[chosen]):
                found.append(_best(owners[chosen], _likeness(rows[chosen], short)))
        if not found:
            return []
        owners, likeness = (np.concatenate(column) for column in zip(*found, strict=True))
        best: list[int] = np.unique(_best(owners, likeness)[0]).tolist()
        return best


def _likeness(rows: "NDArray[Any]", short: "NDArray[Any]") -> "NDArray[Any]":
    import numpy as np

    likeness = np.empty(len(rows), np.float32)
    wide = np.empty((_BLOCK, rows.shape[1]), np.float32)
    for start in range(0, len(rows), _BLOCK):
        part = rows[start : start + _BLOCK]
        np.copyto(wide[: len(part)], part)
        np.dot(wide[: len(part)], short, out=likeness[start : start + _BLOCK])
    return likeness


def _best(owners: "NDArray[Any]", likeness: "NDArray[Any]") -> "tuple[NDArray[Any], NDArray[Any]]":
    """Return the owners of the most alike rows, with their likeness."""
    import numpy as np

    count = min(COMPARED, len(likeness))
    best = np.argpartition(likeness, len(likeness) - count)[len(likeness) - count :]
    return owners[best], likeness[best]


def compared(connection: Connection, asked: "NDArray[Any]", ids: Iterable[int]) -> dict[int, float]:
    """Return how much each of these messages is like the question, by its most alike passage, exactly."""
    import numpy as np

    size = len(asked) + 4
    fit = [(number, data) for number, data in vectors.of_messages(connection, ids) if data and len(data) % size == 0]
    if not fit:
        return {}
    rows = vectors.unpacked(b"".join(data for _, data in fit), len(asked))
    # bytes that a disk has changed make vectors of any length, or of none
    likeness = np.where(np.abs(np.linalg.norm(rows, axis=1) - 1.0) < _LENGTH_LEEWAY, rows @ asked, 0.0)
    starts = np.cumsum([0, *(len(data) // size for _, data in fit[:-1])])
    best = np.maximum.reduceat(likeness, starts)
    return dict(zip((number for number, _ in fit), best.tolist(), strict=True))

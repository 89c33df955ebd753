"""Holographic vectors: phases in a byte each, made from hashed words, bundled, bound and compared without any library.

A vector is `bytes`; the byte b stands for the angle 2πb/256. Binding adds angles and unbinding
subtracts them, lane by lane, done on one large integer. Similarity is the mean cosine of the
differences: about 0 for unrelated vectors, 1 for equal ones.
"""

import cmath
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import shake_256
from operator import add

_PHASORS = [cmath.rect(1.0, 2 * math.pi * step / 256) for step in range(256)]
_SCALE = 127
_SHIFTED_COS = bytes(round(_SCALE * phasor.real) + 128 for phasor in _PHASORS)
"""The cosine of each byte's angle as a byte, so that `bytes.translate` looks a whole vector up at once."""


def atom(name: str, dim: int) -> bytes:
    """Return the vector that `name` always has: its hash, stretched."""
    return shake_256(name.encode("utf-8", "surrogatepass")).digest(dim)


def bound(left: bytes, right: bytes) -> bytes:
    """Return both bound into one vector, which resembles neither."""
    low, high = _masks(len(left))
    a, b = int.from_bytes(left, "little"), int.from_bytes(right, "little")
    return (((a & low) + (b & low)) ^ ((a ^ b) & high)).to_bytes(len(left), "little")


def unbound(whole: bytes, part: bytes) -> bytes:
    """Return what remains of `whole` when `part` is taken out of the binding."""
    low, high = _masks(len(whole))
    a, b = int.from_bytes(whole, "little"), int.from_bytes(part, "little")
    return (((a | high) - (b & low)) ^ ((a ^ ~b) & high)).to_bytes(len(whole), "little")


def similarity(left: bytes, right: bytes) -> float:
    """Return how alike two vectors are."""
    if len(left) != len(right) or not left:
        return 0.0
    total = sum(unbound(left, right).translate(_SHIFTED_COS))
    return (total - 128 * len(left)) / (_SCALE * len(left))


def bundled(vectors: Iterable[bytes], dim: int) -> bytes:
    """Return one vector that resembles each of `vectors`."""
    lanes: list[complex] = [0j] * dim
    for vector in vectors:
        lanes = list(map(add, lanes, map(_PHASORS.__getitem__, vector)))
    turn = 256 / (2 * math.pi)
    return bytes([int(angle * turn + 256.5) & 255 for angle in map(cmath.phase, lanes)])


@lru_cache(maxsize=8192)
def word_vector(word: str, dim: int) -> bytes:
    """Return the vector of a word: itself and its runs of three letters, so that related spellings are alike."""
    framed = f"^{word}$"
    runs = sorted({framed[place : place + 3] for place in range(len(framed) - 2)})
    return bundled((atom(f"word {word}", dim), *(atom(f"run {run}", dim) for run in runs)), dim)


def entity_vector(entity: str, dim: int) -> bytes:
    """Return the vector of an entity in its role, as facts about it hold it."""
    return bound(atom("role entity", dim), word_vector(entity.casefold(), dim))


def fact_vector(words: Sequence[str], entities: Sequence[str], dim: int) -> bytes:
    """Return the vector of a fact: its words, and its entities bound to their role."""
    parts = [*(word_vector(word, dim) for word in words), *(entity_vector(entity, dim) for entity in entities)]
    return bundled(parts or [atom("nothing", dim)], dim)


def query_vector(words: Sequence[str], dim: int) -> bytes:
    """Return the vector of a question."""
    return bundled((word_vector(word, dim) for word in words), dim)


@lru_cache(maxsize=8)
def _masks(dim: int) -> tuple[int, int]:
    """Return the lower seven bits of every lane, and the top bit of every lane; no carry crosses a lane."""
    return int.from_bytes(b"\x7f" * dim, "little"), int.from_bytes(b"\x80" * dim, "little")

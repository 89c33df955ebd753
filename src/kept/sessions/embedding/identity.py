"""The name under which a local model's vectors are kept: other weights, other name."""

import hashlib
from pathlib import Path

_SAMPLE = 65_536


def identity(place: Path, weights: Path) -> str:
    """Return `name:digest`; the digest is of the size and the ends of the weights, which no two models share."""
    digest = hashlib.sha256()
    with weights.open("rb") as file:
        size = file.seek(0, 2)
        digest.update(str(size).encode())
        for start in (0, size // 2, max(0, size - _SAMPLE)):
            file.seek(start)
            digest.update(file.read(_SAMPLE))
    return f"{_spoken(place)}:{digest.hexdigest()[:10]}"


def _spoken(place: Path) -> str:
    """Return the first name on the way up that says more than `model` or a revision."""
    for part in (place, *place.parents):
        name = part.name.removesuffix(".onnx").rpartition("--")[2]
        is_revision = len(name) == 40 and all(character in "0123456789abcdef" for character in name)
        if name and name not in {"model", "model_quantized", "onnx", "snapshots", "weights"} and not is_revision:
            return name
    return "model"

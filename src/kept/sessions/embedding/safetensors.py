"""Tensors of a `.safetensors` file, mapped rather than read, as numpy arrays."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kept.core.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "<i1", "U8": "<u1"}
_LARGEST_HEADER = 100_000_000


def tensors(path: Path) -> "dict[str, NDArray[Any]]":
    """Return the tensors by name, as float32 where they are numbers with a point."""
    import numpy as np

    try:
        data = np.memmap(path, np.uint8, mode="r")
        size = int.from_bytes(data[:8].tobytes(), "little")
        header = json.loads(data[8 : 8 + min(size, _LARGEST_HEADER)].tobytes())
        return {name: _tensor(data, 8 + size, entry=entry) for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{str(path)!r} is no readable safetensors file ({type(error).__name__})", "get the model's files again"
        ) from error


def _tensor(data: "NDArray[Any]", base: int, *, entry: dict[str, Any]) -> "NDArray[Any]":
    import numpy as np

    start, end = (base + int(offset) for offset in entry["data_offsets"])
    if entry["dtype"] == "BF16":
        # the upper half of a float32: numpy knows no bfloat16
        wide = data[start:end].view("<u2").astype(np.uint32) << 16
        array: NDArray[Any] = wide.view(np.float32).reshape(entry["shape"])
        return array
    array = data[start:end].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return array.astype(np.float32) if entry["dtype"] in {"F64", "F16"} else array

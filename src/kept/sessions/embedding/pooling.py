"""How the last states of a text's tokens become one vector of length one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kept.sessions.embedding.wordpiece import read_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TINY = 1e-9


def pools_first(folder: Path) -> bool:
    """Whether the model in `folder` takes the state of the first token in place of the mean of all."""
    return read_json(folder / "1_Pooling" / "config.json").get("pooling_mode_cls_token") is True


def pooled(states: "NDArray[Any]", mask: "NDArray[Any]", *, takes_first: bool) -> "NDArray[Any]":
    """Return one vector per text from (texts, tokens, width) states; `mask` is 1 where there is a token."""
    if takes_first:
        return unit(states[:, 0])
    return unit((states * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True))


def unit(vectors: "NDArray[Any]") -> "NDArray[Any]":
    """Return the vectors at length one; an empty one stays as it is."""
    import numpy as np

    scaled: NDArray[Any] = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), _TINY)
    return scaled

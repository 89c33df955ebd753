"""A static model: one vector per word piece, a text is their mean; as model2vec stores it."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kept.core.errors import UsageError
from kept.sessions.embedding.identity import identity
from kept.sessions.embedding.pooling import unit
from kept.sessions.embedding.safetensors import tensors
from kept.sessions.embedding.wordpiece import has_word_pieces, read_json, word_pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TOKENS = 512
_CHARACTERS = MAX_TOKENS * 12
_UNKNOWN = ("[UNK]", "<unk>")


class StaticModel:
    """Turns texts into unit vectors by a look-up; implements `core.ports.Embeds`."""

    def __init__(self, folder: Path, weights: Path) -> None:
        self.name = identity(folder, weights)
        self._folder = folder
        self._file = weights

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order."""
        import numpy as np

        matrix, scale, places = self._tables
        rows = np.zeros((len(texts), matrix.shape[1]), np.float32)
        for row, text in enumerate(texts):
            numbers = np.array(self._cut(text), np.int64)
            if len(numbers):
                found = matrix[numbers if places is None else places[numbers]].astype(np.float32)
                rows[row] = (found if scale is None else found * scale[numbers, None]).mean(0)
        vectors: list[list[float]] = unit(rows).tolist()
        return vectors

    @cached_property
    def _tables(self) -> "tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]":
        """The matrix, and where the file has them the weights of the pieces and their rows."""
        found = tensors(self._file)
        matrix = next((found[name] for name in ("embeddings", "embedding.weight") if name in found), None)
        if matrix is None or matrix.ndim != 2:
            raise UsageError(
                f"{str(self._file)!r} holds no table of word vectors", "name a static model such as potion-base-8M"
            )
        return matrix, found.get("weights"), found.get("mapping")

    @cached_property
    def _cut(self) -> "Callable[[str], Sequence[int]]":
        if has_word_pieces(self._folder):
            pieces = word_pieces(self._folder)
            unknown = {pieces.vocabulary.get(name) for name in _UNKNOWN}
            return lambda text: [one for one in pieces.cut(text, MAX_TOKENS) if one not in unknown]
        try:
            from tokenizers import Tokenizer
        except ImportError:
            kind = read_json(self._folder / "tokenizer.json").get("model", {}).get("type")
            raise UsageError(
                f"{str(self._folder)!r} cuts words by {kind!r}, for which the package `tokenizers` is needed",
                "run: pip install tokenizers",
            ) from None
        foreign = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        nothing = {foreign.token_to_id(name) for name in _UNKNOWN}
        return lambda text: [
            one
            for one in foreign.encode(text[:_CHARACTERS], add_special_tokens=False).ids[:MAX_TOKENS]
            if one not in nothing
        ]

"""A sentence model of the BERT family (MiniLM and its kin), read from its folder and run with numpy alone."""

import json
import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kept.core.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TOKENS = 256
BATCH = 16
_FILES = ("config.json", "vocab.txt", "model.safetensors")
_DTYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I64": "<i8"}
_PIECES = re.compile(r"[^\W_]+|[^\w\s]|_")
_LONGEST_WORD = 100
_BIAS = -1e9


class LocalModel:
    """Turns texts into unit vectors; implements `core.ports.Embeds`. The weights are read at the first use."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            raise UsageError(
                f"{str(folder)!r} holds no sentence model: {', '.join(missing)} missing",
                "name the folder of a BERT-family model in the safetensors format, for example all-MiniLM-L6-v2",
            )
        self.name = folder.name
        self._folder = folder

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order."""
        rows: list[list[float]] = [[] for _ in texts]
        tokens = [self._tokens(text) for text in texts]
        order = sorted(range(len(texts)), key=lambda place: len(tokens[place]))  # equal lengths waste no padding
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            for place, vector in zip(places, self._vectors([tokens[place] for place in places]), strict=True):
                rows[place] = vector.tolist()
        return rows

    @cached_property
    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads((self._folder / "config.json").read_text(encoding="utf-8"))
        return config

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        lines = (self._folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        return {word: number for number, word in enumerate(lines)}

    @cached_property
    def _weights(self) -> "dict[str, NDArray[Any]]":
        import numpy as np

        data = (self._folder / "model.safetensors").read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        weights = {}
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = (8 + size + offset for offset in entry["data_offsets"])
                array = np.frombuffer(data[start:end], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
                weights[name.removeprefix("bert.")] = array.astype(np.float32)
        return weights

    def _tokens(self, text: str) -> list[int]:
        """Return the numbers of the word pieces, between those that open and close a text."""
        vocabulary = self._vocabulary
        folded = unicodedata.normalize("NFD", text[: MAX_TOKENS * 12].lower())
        plain = "".join(character for character in folded if unicodedata.category(character) != "Mn")
        spaced = re.sub(r"([\u3400-\u9fff\uf900-\ufaff])", r" \1 ", plain)
        numbers = [vocabulary["[CLS]"]]
        for word in _PIECES.findall(spaced):
            numbers += self._word_pieces(word)
            if len(numbers) >= MAX_TOKENS - 1:
                break
        return [*numbers[: MAX_TOKENS - 1], vocabulary["[SEP]"]]

    def _word_pieces(self, word: str) -> list[int]:
        vocabulary = self._vocabulary
        found: list[int] = []
        start = 0
        while start < len(word) <= _LONGEST_WORD:
            for end in range(len(word), start, -1):
                piece = vocabulary.get(("##" if start else "") + word[start:end])
                if piece is not None:
                    found.append(piece)
                    start = end
                    break
            else:
                return [vocabulary["[UNK]"]]
        return found or [vocabulary["[UNK]"]]

    def _vectors(self, batch: Sequence[Sequence[int]]) -> "NDArray[Any]":
        """Return the mean of each text's last states, at length one."""
        import numpy as np

        longest = max(len(numbers) for numbers in batch)
        ids = np.zeros((len(batch), longest), np.int64)
        mask = np.zeros((len(batch), longest), np.float32)
        for row, numbers in enumerate(batch):
            ids[row, : len(numbers)] = numbers
            mask[row, : len(numbers)] = 1.0
        weights = self._weights
        states = weights["embeddings.word_embeddings.weight"][ids]
        states = states + weights["embeddings.position_embeddings.weight"][:longest]
        states = states + weights["embeddings.token_type_embeddings.weight"][0]
        states = self._norm(states, "embeddings.LayerNorm")
        for layer in range(int(self._config["num_hidden_layers"])):
            states = self._layer(states, mask, f"encoder.layer.{layer}")
        pooled = (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        unit: NDArray[Any] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return unit

    def _layer(self, states: "NDArray[Any]", mask: "NDArray[Any]", name: str) -> "NDArray[Any]":
        attended = self._attention(states, mask, f"{name}.attention.self")
        states = self._norm(
            states + self._dense(attended, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm"
        )
        inner = _gelu(self._dense(states, f"{name}.intermediate.dense"))
        return self._norm(states + self._dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _attention(self, states: "NDArray[Any]", mask: "NDArray[Any]", name: str) -> "NDArray[Any]":
        import numpy as np

        texts, length, width = states.shape
        heads = int(self._config["num_attention_heads"])
        query, key, value = (
            self._dense(states, f"{name}.{part}").reshape(texts, length, heads, width // heads).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / (width // heads) ** 0.5 + (1.0 - mask[:, None, None, :]) * _BIAS
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = scores / scores.sum(-1, keepdims=True) @ value
        joined: NDArray[Any] = mixed.transpose(0, 2, 1, 3).reshape(texts, length, width)
        return joined

    def _dense(self, states: "NDArray[Any]", name: str) -> "NDArray[Any]":
        product: NDArray[Any] = states @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return product

    def _norm(self, states: "NDArray[Any]", name: str) -> "NDArray[Any]":
        centred = states - states.mean(-1, keepdims=True)
        scale = (centred**2).mean(-1, keepdims=True) + float(self._config.get("layer_norm_eps", 1e-12))
        normal: NDArray[Any] = centred / scale**0.5 * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return normal


def _gelu(values: "NDArray[Any]") -> "NDArray[Any]":
    import numpy as np

    # the tanh form differs from the exact one by less than the rounding of the stored vectors
    inner = 0.7978845608 * (values + 0.044715 * values**3)
    shaped: NDArray[Any] = 0.5 * values * (1.0 + np.tanh(inner))
    return shaped

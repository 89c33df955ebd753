"""A sentence model of the BERT family (MiniLM and its kin), read from its folder and run with numpy alone."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kept.core.errors import UsageError
from kept.sessions.embedding.identity import identity
from kept.sessions.embedding.pooling import pooled, pools_first
from kept.sessions.embedding.safetensors import tensors
from kept.sessions.embedding.wordpiece import WordPieces, read_json, word_pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TOKENS = 256
BATCH = 16
MANY = 4
WEIGHTS = "model.safetensors"
_BIAS = -1e9


@dataclass(frozen=True, slots=True)
class _Dense:
    """One linear step; the weights lie as the product wants them."""

    weight: "NDArray[Any]"
    bias: "NDArray[Any]"

    def __call__(self, states: "NDArray[Any]") -> "NDArray[Any]":
        # one large product in place of one per text: four times as fast
        product: NDArray[Any] = states.reshape(-1, states.shape[-1]) @ self.weight
        product += self.bias
        return product.reshape(*states.shape[:-1], -1)


@dataclass(frozen=True, slots=True)
class _Norm:
    """One normalisation over the width."""

    weight: "NDArray[Any]"
    bias: "NDArray[Any]"
    epsilon: float

    def __call__(self, states: "NDArray[Any]") -> "NDArray[Any]":
        states -= states.mean(-1, keepdims=True)
        scale = (states * states).mean(-1, keepdims=True)
        states /= (scale + self.epsilon) ** 0.5
        states *= self.weight
        states += self.bias
        return states


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer of the encoder."""

    attention: _Dense
    """Query, key and value in one product."""
    mixed: _Dense
    first_norm: _Norm
    inner: _Dense
    outer: _Dense
    second_norm: _Norm
    heads: int

    def __call__(self, states: "NDArray[Any]", bias: "NDArray[Any]") -> "NDArray[Any]":
        states = self.first_norm(states + self.mixed(self._attended(states, bias)))
        return self.second_norm(states + self.outer(_gelu(self.inner(states))))

    def _attended(self, states: "NDArray[Any]", bias: "NDArray[Any]") -> "NDArray[Any]":
        import numpy as np

        texts, length, width = states.shape
        wide = width // self.heads
        query, key, value = self.attention(states).reshape(texts, length, 3, self.heads, wide).transpose(2, 0, 3, 1, 4)
        scores = query @ key.transpose(0, 1, 3, 2)
        scores *= wide**-0.5
        scores += bias
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(-1, keepdims=True)
        joined: NDArray[Any] = (scores @ value).transpose(0, 2, 1, 3).reshape(texts, length, width)
        return joined


class BertModel:
    """Turns texts into unit vectors; implements `core.ports.Embeds`. The weights are mapped at the first use."""

    def __init__(self, folder: Path) -> None:
        self._config = read_json(folder / "config.json")
        kind = self._config.get("model_type", "bert")
        if kind != "bert":
            raise UsageError(
                f"{str(folder)!r} is a model of the kind {kind!r}, which is not run here",
                "name a BERT-family model (all-MiniLM-L6-v2), an ONNX file, or a static model",
            )
        self.name = identity(folder, folder / WEIGHTS)
        self._folder = folder
        limit = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
        self._most = min(MAX_TOKENS, limit) if isinstance(limit, int) and limit > 2 else MAX_TOKENS
        self._takes_first = pools_first(folder)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order."""
        rows: list[list[float]] = [[] for _ in texts]
        tokens = [self.tokens(text) for text in texts]
        order = sorted(range(len(texts)), key=lambda place: len(tokens[place]))  # equal lengths waste no padding
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        made = self._several([[tokens[place] for place in places] for places in batches])
        for places, vectors in zip(batches, made, strict=True):
            for place, vector in zip(places, vectors, strict=True):
                rows[place] = vector.tolist()
        return rows

    def _several(self, batches: "Sequence[Sequence[Sequence[int]]]") -> "list[NDArray[Any]]":
        """Return the vectors of each batch; much work is spread over the cores, little is done in place."""
        if len(batches) < MANY:
            return [self._vectors(batch) for batch in batches]
        self._vectors(batches[0][:1])  # what is read at the first use is read once
        with ThreadPoolExecutor(min(len(batches), os.cpu_count() or 1)) as pool:
            return list(pool.map(self._vectors, batches))

    def tokens(self, text: str) -> list[int]:
        """Return the numbers of the word pieces, between those that open and close a text."""
        known = self._pieces.vocabulary
        return [known["[CLS]"], *self._pieces.cut(text, self._most - 2), known["[SEP]"]]

    @cached_property
    def _pieces(self) -> WordPieces:
        return word_pieces(self._folder)

    @cached_property
    def _weights(self) -> "dict[str, NDArray[Any]]":
        return {name.removeprefix("bert."): array for name, array in tensors(self._folder / WEIGHTS).items()}

    @cached_property
    def _layers(self) -> list[_Layer]:
        return [self._layer(f"encoder.layer.{number}") for number in range(int(self._config["num_hidden_layers"]))]

    def _layer(self, name: str) -> _Layer:
        own = f"{name}.attention.self"
        return _Layer(
            self._dense(*(f"{own}.{part}" for part in ("query", "key", "value"))),
            self._dense(f"{name}.attention.output.dense"),
            self._norm(f"{name}.attention.output.LayerNorm"),
            self._dense(f"{name}.intermediate.dense"),
            self._dense(f"{name}.output.dense"),
            self._norm(f"{name}.output.LayerNorm"),
            int(self._config["num_attention_heads"]),
        )

    def _dense(self, *names: str) -> _Dense:
        import numpy as np

        weight = np.concatenate([self._weights[f"{name}.weight"] for name in names])
        bias = np.concatenate([self._weights[f"{name}.bias"] for name in names])
        return _Dense(np.ascontiguousarray(weight.T), bias)

    def _norm(self, name: str) -> _Norm:
        epsilon = float(self._config.get("layer_norm_eps", 1e-12))
        return _Norm(self._weights[f"{name}.weight"], self._weights[f"{name}.bias"], epsilon)

    @cached_property
    def _first(self) -> "tuple[NDArray[Any], NDArray[Any], _Norm]":
        """The vectors of words and of places, and the norm over their sum."""
        part = "embeddings.{}_embeddings.weight".format
        places = self._weights[part("position")] + self._weights[part("token_type")][0]
        return self._weights[part("word")], places, self._norm("embeddings.LayerNorm")

    def _vectors(self, batch: Sequence[Sequence[int]]) -> "NDArray[Any]":
        import numpy as np

        longest = max(len(numbers) for numbers in batch)
        ids = np.zeros((len(batch), longest), np.int64)
        mask = np.zeros((len(batch), longest), np.float32)
        for row, numbers in enumerate(batch):
            ids[row, : len(numbers)] = numbers
            mask[row, : len(numbers)] = 1.0
        words, places, norm = self._first
        states = norm(words[ids] + places[:longest])
        bias = (1.0 - mask[:, None, None, :]) * np.float32(_BIAS)
        for layer in self._layers:
            states = layer(states, bias)
        return pooled(states, mask, takes_first=self._takes_first)


def _gelu(values: "NDArray[Any]") -> "NDArray[Any]":
    import numpy as np

    # the tanh form differs from the exact one by less than the rounding of the stored vectors
    inner: NDArray[Any] = values * values
    inner *= 0.044715
    inner += 1.0
    inner *= values
    inner *= 0.7978845608
    np.tanh(inner, out=inner)
    inner += 1.0
    inner *= values
    inner *= 0.5
    return inner

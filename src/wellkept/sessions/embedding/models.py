"""Embedding models that run in this process: ONNX sentence models and static tables of token vectors."""

import json
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wellkept.core.errors import UsageError
from wellkept.core.installation import name_install
from wellkept.core.regular_files import load_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TOKENS = 256
"""Attention costs grow with the square of the length, and a passage is one sentence."""
STATIC_MAX_TOKENS = 512
BATCH = 16
_CHARACTERS_PER_TOKEN = 12
"""Longer texts are cut before tokenizing; no ordinary text has longer tokens on average."""
_UNKNOWN = ("[UNK]", "<unk>")
_TINY = 1e-9


class OnnxModel:
    """A sentence model in the ONNX format; implements `core.ports.Embeds`. It is loaded at the first use.

    `folder` holds the tokenizer and the pooling configuration. When `file` does not exist yet, `make` creates it.
    """

    def __init__(self, name: str, file: Path, folder: Path, *, make: Callable[[], None] | None = None) -> None:
        self.name = name
        self._file = file
        self._folder = folder
        self._make = make
        limit = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
        self._max_tokens = min(MAX_TOKENS, limit) if isinstance(limit, int) and limit > 2 else MAX_TOKENS
        self._pools_first = read_json(folder / "1_Pooling" / "config.json").get("pooling_mode_cls_token") is True

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one unit vector per text, in order."""
        rows: list[list[float]] = [[] for _ in texts]
        tokens = [self.tokens(text) for text in texts]
        order = sorted(range(len(texts)), key=lambda place: len(tokens[place]))  # similar lengths need little padding
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            for place, vector in zip(places, self._vectors([tokens[place] for place in places]), strict=True):
                rows[place] = vector.tolist()
        return rows

    def tokens(self, text: str) -> list[int]:
        """Return the token ids of `text`, with the special tokens that the model expects around it."""
        ids: list[int] = self._tokenizer.encode(text[: self._max_tokens * _CHARACTERS_PER_TOKEN]).ids
        return ids

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = load_tokenizer(self._folder)
        tokenizer.enable_truncation(self._max_tokens)
        return tokenizer

    @cached_property
    def _session(self) -> Any:
        try:
            import onnxruntime
            from onnxruntime.capi import onnxruntime_pybind11_state as failures
        except ImportError:
            raise UsageError(
                "a local sentence model needs the package `onnxruntime`", f"run: {name_install('vectors')}"
            ) from None
        if self._make is not None and not self._file.exists():
            self._make()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # threads spin while they wait for each other, which costs a busy machine many times the work itself
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.intra_op_num_threads = os.cpu_count() or 1
        errors = (failures.Fail, failures.InvalidArgument, failures.InvalidGraph, failures.InvalidProtobuf)
        try:
            return onnxruntime.InferenceSession(str(self._file), options, providers=["CPUExecutionProvider"])
        except (*errors, failures.NotImplemented, failures.RuntimeException) as error:
            raise UsageError(
                f"onnxruntime cannot load {str(self._file)!r} ({type(error).__name__})", "get the model's files again"
            ) from error

    def _vectors(self, batch: Sequence[Sequence[int]]) -> "NDArray[Any]":
        import numpy as np

        longest = max(map(len, batch))
        ids = np.zeros((len(batch), longest), np.int64)
        mask = np.zeros((len(batch), longest), np.int64)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        wanted = {each.name for each in self._session.get_inputs()}
        outputs = [each.name for each in self._session.get_outputs()]
        answers = self._session.run(None, {name: array for name, array in given.items() if name in wanted})
        # models with built-in pooling use this name; the first output of all others is the last hidden states
        pooled = outputs.index("sentence_embedding") if "sentence_embedding" in outputs else 0
        states = np.asarray(answers[pooled], np.float32)
        if states.ndim == 2:
            return unit(states)
        if self._pools_first:
            return unit(states[:, 0])
        weights = mask.astype(np.float32)
        return unit((states * weights[:, :, None]).sum(1) / weights.sum(1, keepdims=True))


class StaticModel:
    """A table with one vector per token, as model2vec stores it; the vector of a text is their mean.

    Implements `core.ports.Embeds`. The table is loaded at the first use.
    """

    def __init__(self, name: str, file: Path, folder: Path) -> None:
        self.name = name
        self._file = file
        self._folder = folder

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one unit vector per text, in order; a text without a known token gets zeros."""
        import numpy as np

        matrix, scale, places = self._tables
        rows = np.zeros((len(texts), matrix.shape[1]), np.float32)
        for row, text in enumerate(texts):
            tokens = np.array(self._tokens(text), np.int64)
            if len(tokens):
                found = matrix[tokens if places is None else places[tokens]].astype(np.float32)
                rows[row] = (found if scale is None else found * scale[tokens, None]).mean(0)
        vectors: list[list[float]] = unit(rows).tolist()
        return vectors

    def _tokens(self, text: str) -> list[int]:
        tokenizer, unknown = self._tokenizer
        found = tokenizer.encode(text[: STATIC_MAX_TOKENS * _CHARACTERS_PER_TOKEN], add_special_tokens=False).ids
        return [token for token in found[:STATIC_MAX_TOKENS] if token not in unknown]

    @cached_property
    def _tokenizer(self) -> tuple[Any, set[int | None]]:
        tokenizer = load_tokenizer(self._folder)
        return tokenizer, {tokenizer.token_to_id(name) for name in _UNKNOWN}

    @cached_property
    def _tables(self) -> "tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]":
        """The matrix, and where the file has them the weights of the tokens and their rows."""
        found = load_tensors(self._file)
        matrix = next((found[name] for name in ("embeddings", "embedding.weight") if name in found), None)
        if matrix is None or matrix.ndim != 2:
            raise UsageError(
                f"{str(self._file)!r} holds no table of token vectors", "name a static model such as potion-base-8M"
            )
        return matrix, found.get("weights"), found.get("mapping")


def unit(vectors: "NDArray[Any]") -> "NDArray[Any]":
    """Return the vectors scaled to length one; a zero vector stays zero."""
    import numpy as np

    scaled: NDArray[Any] = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), _TINY)
    return scaled


def load_tensors(path: Path) -> "dict[str, NDArray[Any]]":
    """Return the tensors of a safetensors file by name."""
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError:
        raise UsageError(
            "reading a model's weights needs the package `safetensors`", f"run: {name_install('vectors')}"
        ) from None
    try:
        tensors: dict[str, NDArray[Any]] = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{str(path)!r} is not a readable safetensors file ({type(error).__name__})", "get the model's files again"
        ) from error
    return tensors


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer in `folder`, from `tokenizer.json` or else `vocab.txt`, without padding or truncation."""
    try:
        from tokenizers import BertWordPieceTokenizer, Tokenizer
    except ImportError:
        raise UsageError(
            "a local embedding model needs the package `tokenizers`", f"run: {name_install('vectors')}"
        ) from None
    file = folder / "tokenizer.json"
    if not file.is_file():
        lowercase = read_json(folder / "tokenizer_config.json").get("do_lower_case", True)
        return BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=bool(lowercase))
    try:
        tokenizer = Tokenizer.from_str(load_text(file))
    except Exception as error:  # foreign parser: it raises bare exceptions for malformed files
        raise UsageError(f"{str(file)!r} is not a readable tokenizer", "get the model's files again") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a model's JSON file, {} when the file is missing or holds no object."""
    try:
        found: Any = json.loads(load_text(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)!r} cannot be read as JSON", "get the model's files again") from error
    return found if isinstance(found, dict) else {}

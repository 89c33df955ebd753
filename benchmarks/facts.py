"""How well the module of facts tells a statement that took another's place from one that holds beside it.

    python benchmarks/facts.py                 precision and recall on the pairs of tests/corpora/facts
    python benchmarks/facts.py --fit FOLDER    fit the weights of `facts/comparison.py` on FOLDER and on those pairs

FOLDER has `current_dev`, `locomo_dev.json` and `realtalk_dev.json`. Weights are those of a logistic regression,
cross-validated by template and by conversation. Positive pairs are those of `pairs.dev.jsonl`, of `current_dev` and of
`pairs.short.jsonl`; negative ones are also two statements of one person in ordinary talk. `pairs.blind.jsonl` is never
fitted on.
"""

import argparse
import json
import random
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.current import holds, read_cases
from benchmarks.recall import locomo
from msgspec import Struct
from msgspec.structs import replace

from wellkept.facts.comparison import LIKELY, NEVER, SURE, Context, compare, measure, read

Array: TypeAlias = npt.NDArray[np.float64]
CORPUS = Path(__file__).parent.parent / "tests" / "corpora" / "facts"
BOUNDS = (LIKELY, 0.25, 0.5, SURE, 1.0)
_ORDINARY = 100.0
"""How much all pairs of ordinary talk weigh together, where a pair of the corpus weighs 1."""
_SHORT = 0.5
"""The same for a pair of `pairs.short.jsonl`, which are much like each other."""
_TEMPLATE = 3.0
"""The same for the pairs of one template of `current_dev`."""


class Pair(Struct, frozen=True):
    """Two statements of one person, and whether the later one took the place of the earlier one."""

    kind: str
    group: str
    """What must not be divided between fitting and judging: a template, a conversation."""
    earlier: str
    later: str
    context: Context
    is_replaced: bool
    weight: float = 1.0


def read_pairs(name: str) -> Iterator[Pair]:
    """Yield the pairs of the corpus."""
    for line in (CORPUS / f"pairs.{name}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        is_near = row["gap"] == "minutes"
        context = Context(is_near, is_next=is_near and not row["between"])
        yield Pair(name, row["id"], row["earlier"], row["later"], context, row["class"] == "replaced")


def read_replaced(folder: Path) -> Iterator[Pair]:
    """Yield the pairs of `current_dev`: what no longer holds with what does, and two things that both hold."""
    by_question: dict[str, dict[tuple[str, str, bool], bool]] = {}
    for case in read_cases(folder):
        own = [row["content"] for row in case.messages if row["role"] == "user"]
        pairs = by_question.setdefault(case.question, {})
        for place, earlier in enumerate(own):
            is_old = holds(earlier, case.stale) and not holds(earlier, case.current)
            for later in own[place + 1 :]:
                is_new = holds(later, case.current)
                is_unclear = is_old and not is_new and holds(later, case.stale)
                if not holds(earlier, case.current) and (is_old or not is_new) and not is_unclear:
                    pairs[earlier, later, later == own[place + 1]] = is_old and is_new
    for question, pairs in by_question.items():
        for (earlier, later, is_next), is_replaced in pairs.items():
            context = Context(is_same_session=True, is_next=is_next)
            yield Pair("current", question, earlier, later, context, is_replaced, _TEMPLATE / len(pairs))


def read_ordinary(files: Sequence[Path], *, most: int = 400) -> Iterator[Pair]:
    """Yield pairs of statements of one person in ordinary talk, where next to nothing is replaced."""
    chance = random.Random(5)
    pairs = []
    for pool in (pool for file in files for pool in locomo(file)):
        by_speaker: dict[str, list[tuple[str, str]]] = {}
        for said in pool.said:
            speaker, _, text = said.text.partition(": ")
            by_speaker.setdefault(speaker, []).append((text, said.session_id))
        for said_by in by_speaker.values():
            for _ in range(most):
                first = chance.randrange(len(said_by) - 1)
                second = chance.choice((first + 1, chance.randrange(first + 1, len(said_by))))
                is_same = said_by[first][1] == said_by[second][1]
                context = Context(is_same, is_next=is_same and second == first + 1)
                pairs.append(Pair("ordinary", pool.name, said_by[first][0], said_by[second][0], context, False))
    comparable = [pair for pair in pairs if compare(read(pair.earlier), read(pair.later), pair.context) > NEVER]
    for pair in comparable:
        yield replace(pair, weight=_ORDINARY / len(comparable))


def fit(measures: Array, replaced: Array, weights: Array) -> Array:
    """Return the weights of a logistic regression by Newton's method; the last one is that of no measure."""
    columns = np.c_[measures, np.ones(len(measures))]
    penalty = np.eye(columns.shape[1])
    penalty[-1, -1] = 0.0
    fitted = np.zeros(columns.shape[1])
    for _ in range(50):
        chances = 1.0 / (1.0 + np.exp(-columns @ fitted))
        slope = columns.T @ (weights * (chances - replaced)) + penalty @ fitted
        curve = (columns.T * (weights * chances * (1.0 - chances))) @ columns + penalty + 1e-9 * np.eye(len(fitted))
        fitted -= np.linalg.solve(curve, slope)
    return fitted


def cross_validate(pairs: Sequence[Pair], measures: Array, *, folds: int = 10) -> Array:
    """Return the score of each pair by weights that were fitted without its group."""
    groups = sorted({pair.group for pair in pairs})
    random.Random(0).shuffle(groups)
    folds_of = {group: number % folds for number, group in enumerate(groups)}
    fold = np.array([folds_of[pair.group] for pair in pairs])
    replaced, weights = (np.array([float(value) for value in column]) for column in _list_columns(pairs))
    scores = np.zeros(len(pairs))
    for number in range(folds):
        own = fold == number
        fitted = fit(measures[~own], replaced[~own], weights[~own])
        scores[own] = np.c_[measures[own], np.ones(own.sum())] @ fitted
    return scores


def read_fitted(data: Path) -> tuple[list[Pair], Array]:
    """Return all pairs that the weights are fitted on, with their measures."""
    short = [replace(pair, weight=_SHORT) for pair in read_pairs("short")]
    talk = [data / "locomo_dev.json", data / "realtalk_dev.json"]
    pairs = [*read_pairs("dev"), *short, *read_replaced(data / "current_dev"), *read_ordinary(talk)]
    rows = [measure(read(pair.earlier), read(pair.later), pair.context) for pair in pairs]
    return pairs, np.array([[row[name] for name in sorted(row)] for row in rows])


def fit_without(pairs: Sequence[Pair], measures: Array, groups: Collection[str]) -> dict[str, float]:
    """Return the weights that the pairs outside some groups give."""
    chosen = np.array([pair.group not in groups for pair in pairs])
    replaced, weights = (np.array([float(value) for value in column]) for column in _list_columns(pairs))
    names = sorted(measure(read(pairs[0].earlier), read(pairs[0].later)))
    return dict(zip((*names, ""), fit(measures[chosen], replaced[chosen], weights[chosen]), strict=True))


def _list_columns(pairs: Sequence[Pair]) -> tuple[list[bool], list[float]]:
    return [pair.is_replaced for pair in pairs], [pair.weight for pair in pairs]


def report(pairs: Sequence[Pair], scores: Sequence[float]) -> Iterator[str]:
    """Yield precision, recall, and the share of other pairs that are left alone, for each kind and bound."""
    yield f"{'':10}{'bound':>7}{'precision':>11}{'recall':>8}{'unharmed':>10}"
    for kind in dict.fromkeys(pair.kind for pair in pairs):
        rows = [(score, pair) for score, pair in zip(scores, pairs, strict=True) if pair.kind == kind]
        of = {
            is_replaced: sum(pair.weight for _, pair in rows if pair.is_replaced is is_replaced)
            for is_replaced in (True, False)
        }
        for bound in BOUNDS:
            above = {
                is_replaced: sum(
                    pair.weight for score, pair in rows if score >= bound and pair.is_replaced is is_replaced
                )
                for is_replaced in (True, False)
            }
            cells = (_share(above[True], sum(above.values())), _share(above[True], of[True]))
            unharmed = 1.0 - _share(above[False], of[False])
            yield f"{kind:10}{bound:>7}{cells[0]:>11.2f}{cells[1]:>8.2f}{unharmed:>10.3f}"


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def main() -> None:
    """Print the figures, or fit the weights and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", type=Path, metavar="FOLDER", help="fit the weights and print them")
    options = parser.parse_args()
    if options.fit is None:
        pairs = [*read_pairs("dev"), *read_pairs("short"), *read_pairs("blind")]
        judged = [compare(read(pair.earlier), read(pair.later), pair.context) for pair in pairs]
        print("\n".join(report(pairs, judged)))
        return
    pairs, measures = read_fitted(options.fit)
    scores = cross_validate(pairs, measures)
    barred = [compare(read(pair.earlier), read(pair.later), pair.context) == NEVER for pair in pairs]
    print("\n".join(report(pairs, [NEVER if never else score for score, never in zip(scores, barred, strict=True)])))
    for name, weight in sorted(fit_without(pairs, measures, ()).items(), key=lambda row: -abs(row[1])):
        print(f'    "{name}": {weight:.2f},')


if __name__ == "__main__":
    main()

"""Learns the weights of src/kept/security/wording.tsv from examples; needs scikit-learn, which the project does not.

    python benchmarks/wording.py --attacks FILE.jsonl... --benign FILE.jsonl... --ordinary FILE.jsonl... [--write]

Each row is `{"text"}`. `--benign` are harmless texts that speak of the same things as attacks, `--ordinary` are
messages of every day. A text of a file that is named twice counts twice: notes as short as an entry of the memory
deserve it. The kinds of words in wording.tsv are written by hand and kept; the weights are replaced.
The bars are set by the ordinary texts that the rules do not block: `--hold` and `--block` say how many per 10,000
short and long ones may reach each bar when they were not learnt from (each third is scored by the other two).
"""

import argparse
import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from kept.security.scan import read, scan
from kept.security.wording import SHORT, WINDOW, Wording

FILE = Path(__file__).parent.parent / "src" / "kept" / "security" / "wording.tsv"
NOT_TELLING = frozenset(
    {".", "0", "\x7f", "test", "evil", "mallory", "com", "org", "net", "invalid", "local"}
    | {"example", "exemple", "ejemplo", "beispiel"}
)
"""Words that say how an example was made up, not what it wants."""
FEWEST = 3
"""Stretches that a feature must occur in."""
LONGEST = 2_000
STRENGTH, EXACTNESS = 0.2, 1e-3
STEP = 5
"""Weights are multiples of it, so that many features share one row of the file, which is then quick to read."""
COUNTS = {"attacks": 2, "benign": 5, "ordinary": 1}
PARTS = 3

Windows = list[list[str]]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--attacks", type=Path, nargs="+", required=True)
    options.add_argument("--benign", type=Path, nargs="+", required=True)
    options.add_argument("--ordinary", type=Path, nargs="+", required=True)
    options.add_argument("--hold", type=float, nargs=2, default=(10.0, 80.0))
    options.add_argument("--block", type=float, nargs=2, default=(2.0, 5.0))
    options.add_argument("--most", type=int, default=8_000)
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    wording = Wording(FILE.read_text(encoding="utf-8"))
    attacks, benign, ordinary = texts(given.attacks), texts(given.benign), texts(given.ordinary)
    examples = Examples(wording, {"attacks": attacks, "benign": benign, "ordinary": ordinary})
    print(f"{len(examples.texts)} texts, {len(examples.names)} features")
    unseen = [
        (sum(map(len, each[::2])), score)
        for each, score in zip(examples.texts, examples.crossed(given.most), strict=True)
    ]
    hard, plain = len(attacks), len(attacks) + len(benign)
    quiet = [found for found, text in zip(unseen[plain:], ordinary, strict=True) if not blocked(text)]
    short, long = range(2 * SHORT), range(2 * SHORT, 10**6)
    bars = [(bar(quiet, low, short), bar(quiet, high, long)) for low, high in (given.hold, given.block)]
    trial = Wording(text_of(bars, 0, 0, {}))
    print("bars for short and long texts:", bars, "; of the texts that were not learnt from, they find")
    for name, found in (("attacks", unseen[:hard]), ("benign", unseen[hard:plain]), ("ordinary", quiet)):
        held, stopped = (
            sum(score >= trial.bars(size)[which] for size, score in found) / len(found) for which in (0, 1)
        )
        print(f"  {name:10s} {len(found):6d}  held or blocked {held:7.2%}  blocked {stopped:7.2%}")
    if given.write:
        model = examples.learnt(list(range(len(examples.texts))), given.most)
        write(model, bars, examples)


def blocked(text: str) -> bool:
    return scan(text, allow=["wording"]).blocked


def texts(paths: list[Path]) -> Counter[str]:
    """Return each text, and how many of `paths` hold it."""
    found: Counter[str] = Counter()
    for path in paths:
        lines = path.read_text(encoding="utf-8").split("\n")
        found.update(dict.fromkeys((str(json.loads(line)["text"]) for line in lines if line.strip()), 1))
    return found


def windows(text: str) -> Windows:
    tokens = read(text).tokens[:LONGEST]
    starts = range(0, max(1, len(tokens) - WINDOW // 2), WINDOW // 2)
    return [tokens[start : start + WINDOW] for start in starts]


class Examples:
    """Texts as rows of features, one row for each stretch."""

    def __init__(self, wording: Wording, given: dict[str, Counter[str]]) -> None:
        from sklearn.feature_extraction.text import CountVectorizer  # type: ignore[import-not-found]

        self.texts = texts = [windows(text) for each in given.values() for text in each]
        self.answers = [name == "attacks" for name, each in given.items() for _ in each]
        self.counts = [COUNTS[name] * times for name, each in given.items() for times in each.values()]
        vectors = CountVectorizer(analyzer=lambda window: filter(telling, wording.features(window)), min_df=FEWEST)
        self.rows = vectors.fit_transform([window for each in texts for window in each])
        self.names = vectors.get_feature_names_out()
        self.ends = [0]
        for each in texts:
            self.ends.append(self.ends[-1] + len(each))

    def crossed(self, most: int) -> list[int]:
        """Return the score of each text by weights that were not learnt from it."""
        scores = [0] * len(self.texts)
        places = list(range(len(self.texts)))
        random.Random(1).shuffle(places)
        for part in range(PARTS):
            model = self.learnt([place for number, place in enumerate(places) if number % PARTS != part], most)
            weights = [model.get(str(name), 0) for name in self.names]
            total = self.rows @ weights + model[""]
            for place in places[part::PARTS]:
                scores[place] = max(total[self.ends[place] : self.ends[place + 1]])
        return scores

    def learnt(self, places: list[int], most: int) -> dict[str, int]:
        """Return the weights, in hundredths, that tell attacks apart; each text counts by its heaviest stretch."""
        answers = [self.answers[place] for place in places]
        counts = [self.counts[place] for place in places]
        heaviest = [self.ends[place] for place in places]
        scores = fit(self.rows[heaviest], answers, counts).decision_function(self.rows)
        stretches = (range(self.ends[place], self.ends[place + 1]) for place in places)
        rows = self.rows[[max(stretch, key=scores.__getitem__) for stretch in stretches]]
        kept = strongest(rows, fit(rows, answers, counts).coef_[0], most)
        model = fit(rows[:, kept], answers, counts)
        weights = {
            str(self.names[place]): STEP * round(100 * weight / STEP)
            for place, weight in zip(kept, model.coef_[0], strict=True)
        }
        return {"": round(100 * model.intercept_[0]), **{name: weight for name, weight in weights.items() if weight}}


def telling(name: str) -> bool:
    if "@" in name[1:]:
        return False  # somebody's address
    words = name.removeprefix(". ").split(" ")
    return NOT_TELLING.isdisjoint(words) and not (len(words) == 1 and len(name) == 1)


def fit(rows: Any, answers: list[bool], counts: list[int]) -> Any:
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-not-found]

    model = LogisticRegression(C=STRENGTH, solver="liblinear", tol=EXACTNESS)
    return model.fit(rows, answers, sample_weight=counts)


def strongest(rows: Any, weights: Any, most: int) -> list[int]:
    """Return the places of the features that move the most texts the furthest."""
    spread = abs(weights) * rows.sum(axis=0).A1 ** 0.5
    return sorted(sorted(range(len(weights)), key=spread.__getitem__)[-most:])


def bar(found: list[tuple[int, int]], share: float, sizes: range) -> int:
    scores = sorted((score for size, score in found if size in sizes), reverse=True)
    return int(scores[round(len(scores) * share / 10_000)]) + 1


def text_of(bars: list[tuple[int, int]], base: int, warm: int, weights: dict[str, int]) -> str:
    head = FILE.read_text(encoding="utf-8").rsplit("\n\n", 2)[0]
    limits = "".join(f"{name}\t{short}\t{long}\n" for name, (short, long) in zip(("hold", "block"), bars, strict=True))
    shared = defaultdict(list)
    for name, weight in sorted(weights.items()):
        shared[weight].append(name)
    rows = "".join("\t".join((str(weight), *names)) + "\n" for weight, names in sorted(shared.items(), reverse=True))
    return f"{head}\n\n{limits}base\t{base}\nwarm\t{warm}\n\n{rows}"


def write(model: dict[str, int], bars: list[tuple[int, int]], examples: Examples) -> None:
    base = model.pop("")
    trial = Wording(text_of(bars, base, 0, model))
    attacks = [each for each, attack in zip(examples.texts, examples.answers, strict=True) if attack]
    heaviest = [max(each, key=trial.weighed) for each in attacks]
    found = [window for window in heaviest if trial.weighed(window) >= trial.bars(len(window))[0]]
    warmth = sorted(map(trial.warmth, found))
    warm = warmth[len(warmth) // 40]
    FILE.write_text(text_of(bars, base, warm, model), encoding="utf-8")
    plain = [window for each in examples.texts[len(attacks) :] for window in each]
    share = sum(trial.warmth(window) >= warm for window in plain) / len(plain)
    print(f"{len(model)} weights; {share:.1%} of the benign stretches are warm ({warm})")


if __name__ == "__main__":
    main()

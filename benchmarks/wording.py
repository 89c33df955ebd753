"""Learns the weights of src/wellkept/security/wording.tsv from the texts in this repository; needs scikit-learn.

    pip install scikit-learn && python benchmarks/wording.py [--write] [--chat FILE.jsonl...]

The texts are tests/corpora/attacks.jsonl and benign.jsonl, the examples in rules.toml, and texts made from the
templates in benchmarks/texts; nothing else. The corpora are cross-validated: each fifth of them, chosen by a hash of
the text, is scanned with weights learnt without it. `--chat` measures false alarms on ordinary messages (`{"text"}` or
`{"content"}` rows) that were not learnt from. The kinds of words in wording.tsv are written by hand and kept. So are
the bars: BARS was chosen so that of the chats named in docs/benchmarks.md at most 0.1 % are blocked and 1 % held.
"""

import argparse
import hashlib
import json
import random
import re
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wellkept.security import scan as scanner
from wellkept.security.rules import table
from wellkept.security.scan import WINDOW, Severity, Wording, read, scan

ROOT = Path(__file__).parent.parent
FILE = ROOT / "src" / "wellkept" / "security" / "wording.tsv"
CORPORA = ROOT / "tests" / "corpora"
TEMPLATES = Path(__file__).parent / "texts"
NOT_TELLING = frozenset(
    {".", "0", "\x7f", "test", "evil", "mallory", "com", "org", "net", "invalid", "local"}
    | {"example", "exemple", "ejemplo", "beispiel", "outside", "collect", "telegram"}
)
"""Words that show how an example was made up, not what it wants."""
FEWEST = 3
"""Windows that a feature must occur in."""
LONGEST = 2_000
STRENGTH, EXACTNESS = 0.03, 1e-3
STEP = 5
"""Weights are multiples of it, so that many features share one row of the file, which is then fast to read."""
MOST = 8_000
COUNTS = {"attacks": 6, "benign": 6, "rule attacks": 4, "rule near misses": 5, "made attacks": 1, "made ordinary": 1}
"""How often a text of each kind counts: hand-written ones more than those made from templates."""
MADE_ATTACKS, MADE_ORDINARY = 1_500, 9_000
STYLES = (("user", (1, 1, 2, 3)), ("advice", (1, 2, 4, 8, 12)), ("software", (1, 1, 2)))
"""Kinds of ordinary messages, and how many sentences they have."""
BARS = ((60, 150), (100, 220))
"""The scores at which short and long texts are held, and at which they are blocked."""
FOLDS = 5

Windows = list[list[str]]


@dataclass(frozen=True, slots=True)
class Text:
    """One example."""

    text: str
    kind: str
    explicit: bool = False

    @property
    def is_attack(self) -> bool:
        """Tell whether it is an example of an attack."""
        return "attacks" in self.kind

    @property
    def fold(self) -> int:
        """Return the part of the cross-validation that leaves this text out; only the corpora are divided."""
        if self.kind not in {"attacks", "benign"}:
            return -1
        return int(hashlib.sha256(self.text.encode()).hexdigest(), 16) % FOLDS


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--chat", type=Path, nargs="*", default=[])
    options.add_argument("--folds", type=int, default=FOLDS)
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    texts = [*corpus("attacks"), *corpus("benign"), *rule_examples(), *made_attacks(), *made_ordinary()]
    examples = Examples(Wording(FILE.read_text(encoding="utf-8")), texts)
    print(f"{len(texts)} texts, {len(examples.names)} features")
    cross_validate(examples, given.folds)
    source = file_text(examples.learn(range(len(texts))), examples)
    for path in given.chat:
        report(f"{path.name}, not learnt from", chat(path), Wording(source))
    if given.write:
        FILE.write_text(source, encoding="utf-8")


def corpus(name: str) -> list[Text]:
    rows = [json.loads(line) for line in (CORPORA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    return list(dict.fromkeys(Text(row["text"], name, explicit=row.get("explicit", False)) for row in rows))


def rule_examples() -> list[Text]:
    """Return the harmless near misses of the rules, and what the rules for memory entries find."""
    blocking = [Text(rule.positive, "rule attacks") for rule in table().rules if rule.severity is Severity.BLOCK]
    return [*blocking, *(Text(rule.negative, "rule near misses") for rule in table().rules)]


def chat(path: Path) -> list[Text]:
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    found = (str(row.get("text") or row.get("content") or "") for row in rows)
    return [Text(text, "chat") for text in found if text.strip()]


def made_attacks() -> list[Text]:
    """Return attacks made from the templates: one sentence, sometimes two."""
    languages, fill, dice = templates("attacks", seed=2)
    made = []
    for language in dice.choices(list(languages), [8, 1, 1, 1, 1], k=MADE_ATTACKS):
        sentences = map(fill, dice.sample(languages[language]["attack"], dice.choice((1, 1, 1, 2))))
        made.append(Text(capitalize(" ".join(sentences)), "made attacks"))
    return list(dict.fromkeys(made))


def made_ordinary() -> list[Text]:
    """Return ordinary messages made from the templates: of people, of assistants, and of programs."""
    languages, fill, dice = templates("ordinary", seed=1)
    made = []
    for language in dice.choices(list(languages), [12, 1, 1, 1, 1], k=MADE_ORDINARY):
        style, sizes = dice.choices(STYLES, [3, 5, 2])[0]
        known = languages[language][style]
        sentences = map(fill, dice.sample(known, min(dice.choice(sizes), len(known))))
        made.append(Text(capitalize(dice.choice((" ", "\n- ", "\n\n")).join(sentences)), "made ordinary"))
    return list(dict.fromkeys(made))


def templates(name: str, *, seed: int) -> tuple[dict[str, Any], Any, random.Random]:
    """Return the templates of each language, a function that fills the slots of one, and the dice for both."""
    found = tomllib.loads((TEMPLATES / f"{name}.toml").read_text(encoding="utf-8"))
    slots, dice = found.pop("slots"), random.Random(seed)

    def fill(template: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda slot: str(dice.choice(slots[slot[1]])), template)

    return found, fill, dice


def capitalize(text: str) -> str:
    return text[0].upper() + text[1:]


def cross_validate(examples: "Examples", folds: int) -> None:
    """Print what the scanner finds in texts that the weights were not learnt from, beside the rules alone."""
    for fold in range(folds):
        places = [place for place, text in enumerate(examples.texts) if text.fold != fold]
        weights = Wording(file_text(examples.learn(places), examples))
        left_out = [text for text in examples.texts if text.fold == fold]
        for name, wording in (("rules alone", None), ("weights of the other parts", weights)):
            report(f"part {fold + 1}, {name}", left_out, wording)


def report(name: str, texts: list[Text], wording: Wording | None) -> None:
    """Print the rates of the scanner with other weights than the shipped ones, or with none."""
    allow = ["wording"] if wording is None else []
    if wording is not None:
        scanner.wording = lambda: wording  # type: ignore[assignment] # the scanner looks its weights up here
    groups = defaultdict(list)
    for text in texts:
        groups[f"{text.kind}{', explicit' if text.explicit else ''}"].append(scan(text.text, allow=allow))
    for group, verdicts in sorted(groups.items()):
        blocked, held = sum(v.blocked for v in verdicts), sum(v.held for v in verdicts)
        size = len(verdicts)
        print(f"{name:44s} {group:18s} {size:6d}  blocked {blocked / size:7.2%}  held {held / size:7.2%}", flush=True)


def windows(text: str) -> Windows:
    tokens = read(text).tokens[:LONGEST]
    starts = range(0, max(1, len(tokens) - WINDOW // 2), WINDOW // 2)
    return [tokens[start : start + WINDOW] for start in starts]


class Examples:
    """Texts as rows of features, one row for each window."""

    def __init__(self, wording: Wording, texts: list[Text]) -> None:
        from sklearn.feature_extraction.text import CountVectorizer  # type: ignore[import-not-found]

        self.texts = texts
        self.windows = [windows(each.text) for each in texts]
        vectors = CountVectorizer(analyzer=lambda window: filter(is_telling, wording.features(window)), min_df=FEWEST)
        self.rows = vectors.fit_transform([window for each in self.windows for window in each])
        self.names = vectors.get_feature_names_out()
        self.ends = [0]
        for each in self.windows:
            self.ends.append(self.ends[-1] + len(each))

    def learn(self, places: Any) -> dict[str, int]:
        """Return weights in hundredths that separate the attacks at `places`; each text counts by its top window."""
        answers = [self.texts[place].is_attack for place in places]
        counts = [COUNTS[self.texts[place].kind] for place in places]
        first = [self.ends[place] for place in places]
        scores = fit(self.rows[first], answers, counts).decision_function(self.rows)
        spans = (range(self.ends[place], self.ends[place + 1]) for place in places)
        rows = self.rows[[max(span, key=scores.__getitem__) for span in spans]]
        kept = strongest(rows, fit(rows, answers, counts).coef_[0])
        model = fit(rows[:, kept], answers, counts)
        weights = {
            str(self.names[place]): STEP * round(100 * weight / STEP)
            for place, weight in zip(kept, model.coef_[0], strict=True)
        }
        return {"": round(100 * model.intercept_[0]), **{name: weight for name, weight in weights.items() if weight}}


def is_telling(name: str) -> bool:
    if "@" in name[1:]:
        return False  # somebody's address
    words = name.removeprefix(". ").split(" ")
    return NOT_TELLING.isdisjoint(words) and not (len(words) == 1 and len(name) == 1)


def fit(rows: Any, answers: list[bool], counts: list[int]) -> Any:
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-not-found]

    model = LogisticRegression(C=STRENGTH, solver="liblinear", tol=EXACTNESS, random_state=1)
    return model.fit(rows, answers, sample_weight=counts)


def strongest(rows: Any, weights: Any) -> list[int]:
    """Return the places of the features that move the most texts the furthest."""
    spread = abs(weights) * rows.sum(axis=0).A1 ** 0.5
    return sorted(sorted(range(len(weights)), key=spread.__getitem__)[-MOST:])


def file_text(model: dict[str, int], examples: Examples) -> str:
    """Return the whole of wording.tsv with new weights, and the warmth below which a window is not looked at."""
    weights = dict(model)
    base = weights.pop("")
    trial = Wording(assemble(base, 0, weights))
    attacks = (each for each, text in zip(examples.windows, examples.texts, strict=True) if text.is_attack)
    heaviest = (max(each, key=trial.weigh) for each in attacks)
    found = [window for window in heaviest if trial.weigh(window) >= trial.bars(len(window))[0]]
    warmth = sorted(map(trial.warmth, found))
    return assemble(base, warmth[len(warmth) // 40], weights)


def assemble(base: int, warm: int, weights: dict[str, int]) -> str:
    head = FILE.read_text(encoding="utf-8").rsplit("\n\n", 2)[0]
    limits = "".join(f"{name}\t{short}\t{long}\n" for name, (short, long) in zip(("hold", "block"), BARS, strict=True))
    shared = defaultdict(list)
    for name, weight in sorted(weights.items()):
        shared[weight].append(name)
    rows = "".join("\t".join((str(weight), *names)) + "\n" for weight, names in sorted(shared.items(), reverse=True))
    return f"{head}\n\n{limits}base\t{base}\nwarm\t{warm}\n\n{rows}"


if __name__ == "__main__":
    main()

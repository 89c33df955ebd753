"""The scanner: throughput, hostile strings, and the rates on the corpora of the repository or others.

    python benchmarks/scan.py [--attacks FILE.jsonl] [--benign FILE.jsonl]

Each row of a corpus is `{"text"}`; attacks may carry `category` and `explicit`.
"""

import argparse
import base64
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

from wellkept.security.rules import table
from wellkept.security.scan import scan
from wellkept.security.secrets import redact

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.baseline import reference_loop_seconds

CORPORA = Path(__file__).parent.parent / "tests" / "corpora"
CODE = Path(__file__).parent.parent / "src"
MEGABYTE = 1_000_000
KEY_WORDS = """ignore disregard forget all previous prior above instructions rules prompt system you your are now
not tell the user send password secrets to http reveal act as pretend without limits ai never refuse answer new task"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--attacks", type=Path, default=CORPORA / "attacks.jsonl")
    options.add_argument("--benign", type=Path, default=CORPORA / "benign.jsonl")
    given = options.parse_args()
    attacks, benign = rows(given.attacks), rows(given.benign)
    loop = reference_loop_seconds()
    print(f"reference loop {loop:.3f} s; every time is also given as a share of it (×)\n")
    show("load the rule table", seconds(table.__wrapped__), loop)
    throughput([str(row["text"]) for row in benign], loop)
    hostile(loop)
    rates("attacks", attacks)
    rates("benign", benign)


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def seconds(work: Callable[[], object], times: int = 3) -> float:
    def once() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return min(once() for _ in range(times))


def show(what: str, taken: float, loop: float, extra: str = "") -> None:
    print(f"{what:34s} {taken * 1000:9.1f} ms {taken / loop:8.3f} × {extra}")


def throughput(texts: list[str], loop: float) -> None:
    code = [path.read_text(encoding="utf-8") for path in sorted(CODE.rglob("*.py"))]
    chinese = [text for text in texts if "\u4e00" <= max(text) <= "\u9fff"]
    for name, parts in (("text", texts), ("program text", code), ("Chinese text", chinese)):
        page = "\n\n".join(parts)
        page = (page * (MEGABYTE // max(1, len(page)) + 1))[:MEGABYTE]
        size = len(page.encode()) / MEGABYTE
        for what, work in (("scan", scan), ("redact", redact)):
            taken = seconds(partial(work, page))
            show(f"{what} one long benign {name}", taken, loop, f"{size / taken:6.1f} MB/s")
    size = len("".join(texts).encode()) / MEGABYTE
    taken = seconds(lambda: [scan(text) for text in texts])
    show(f"scan {len(texts)} benign texts", taken, loop, f"{size / taken:6.1f} MB/s")


def hostile(loop: float) -> None:
    print("\n1 MB of")
    dice = random.Random(1)
    units = {
        "spaces": " ", "one letter": "a", "single letters": "a ", "line ends": "\n", "zero-width spaces": "\u200b",
        "joined emoji": "👩\u200d💻", "ligatures": "\ufdfa", "half-Cyrillic word": "аa",
        "Chinese key words": "忽略指令之前",
        "ignore": "ignore ", "ignore previous": "ignore previous ", "you are": "you are ", "leet": "1gn0r3 ",
        "curl": "curl ", "curl -d $": 'curl -d "$', "send password": "send password ", ".env": ".env ",
        "authorized_keys": "authorized_keys ", "comments": "<!-- ", "hidden markup": '<div style="display:none">',
        "key=": "key=", "token = …": 'token = "aaaaaaaaaaaaaaaaaaaa" ', "PEM headers": "-----BEGIN PRIVATE KEY-----",
        "eyJ": "eyJ", "://": "a://b:", "%41": "%41", "entities": "&#105;", "brackets": "((((", "colons": ":",
        "you are now ignore": "you are now ignore ", "letters apart": "i\u200bg\u200bn\u200bo\u200br\u200be ",
        "quotes": "\"'",
        "dotted letters": "i.g.n.o.r.e. ", "mixed scripts": "aé中я\u200d ", "passwords": "password is a1b2c3d4 ",
    }  # fmt: skip
    cases = {name: unit * (MEGABYTE // len(unit.encode())) for name, unit in units.items()}
    cases["random base64"] = base64.encodebytes(dice.randbytes(740_000)).decode()
    cases["distinct words"] = " ".join(f"w{number}x" for number in range(130_000))
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(111_000)]
    cases["random words"] = " ".join(words)
    cases["random key words"] = " ".join(dice.choices(KEY_WORDS.split(), k=140_000))[:MEGABYTE]
    cases["base64 of key words"] = base64.b64encode(b"ignore previous rules you are now " * 22_000).decode()
    for name, text in cases.items():
        scan_seconds, redact_seconds = seconds(partial(scan, text), 2), seconds(partial(redact, text), 2)
        show(f"  {name}", scan_seconds, loop, f"redact {redact_seconds * 1000:7.1f} ms")


def rates(name: str, corpus: list[dict[str, object]]) -> None:
    print(f"\n{name}: {len(corpus)} texts")
    groups: defaultdict[str, Counter[str]] = defaultdict(Counter)
    rules: Counter[str] = Counter()
    for row in corpus:
        verdict = scan(str(row["text"]))
        rules.update(verdict.rules)
        group = f"{row.get('category', 'all')}{', explicit' if row.get('explicit') else ''}"
        groups[group][verdict.verdict] += 1
    total = sum(groups.values(), Counter())
    for group, counts in (*sorted(groups.items()), ("total", total)):
        size = counts.total()
        blocked, held = counts["block"], counts["hold"]
        print(f"  {group:34s} {size:6d}  blocked {blocked / size:7.2%}  held {held / size:7.2%}")
    print("  rules:", ", ".join(f"{rule} {count}" for rule, count in rules.most_common(12)) or "none")


if __name__ == "__main__":
    main()

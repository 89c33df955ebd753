"""How often ordinary chat is redacted, held or blocked.

    python benchmarks/ordinary.py FOLDER [--no-scan] [--half 0|1] [--show]

FOLDER holds message files: `*.messages.jsonl` (`content` rows, also in subfolders) and `*.json` in the form of LoCoMo.
Messages are halved by a hash of their text: tune on one half, then count the other once.
"""

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from wellkept.security.scan import scan
from wellkept.security.secrets import redact


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--no-scan", action="store_true", help="count redactions only")
    options.add_argument("--half", type=int, choices=(0, 1))
    options.add_argument("--show", action="store_true", help="print what was redacted, held or blocked")
    given = options.parse_args()
    total: Counter[str] = Counter()
    for name, texts in sorted(read_sets(given.folder).items()):
        chosen = [text for text in texts if given.half is None or half_of(text) == given.half]
        counts = count(chosen, is_scanned=not given.no_scan, is_shown=given.show)
        total += counts
        print_rates(name, counts)
    print_rates("together", total)


def read_sets(folder: Path) -> dict[str, list[str]]:
    """Return the messages of each set; the files of a subfolder are one set."""
    sets: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.parent.name if path.parent != folder else path.name.partition(".")[0]
        if path.name.endswith(".messages.jsonl"):
            rows = (json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip())
            sets.setdefault(name, []).extend(text for row in rows if (text := str(row["content"])).strip())
        elif path.suffix == ".json":
            sets.setdefault(name, []).extend(_turns(json.loads(path.read_text(encoding="utf-8"))))
    return sets


def _turns(conversations: list[dict[str, dict[str, object]]]) -> Iterator[str]:
    for one in conversations:
        sessions = (value for value in one["conversation"].values() if isinstance(value, list))
        yield from (turn["text"] for turns in sessions for turn in turns if str(turn.get("text", "")).strip())


def half_of(text: str) -> int:
    """Return the half that a message belongs to."""
    return hashlib.sha256(text.encode()).digest()[0] % 2


def count(texts: list[str], *, is_scanned: bool, is_shown: bool) -> Counter[str]:
    """Return how many texts were redacted, held and blocked."""
    counts = Counter({"messages": len(texts)})
    for text in texts:
        clean = redact(text)
        if clean != text:
            counts["redacted"] += 1
            if is_shown:
                place = clean.index("[redacted:")
                print("  redacted", repr(clean[max(0, place - 60) : place + 60]), "was", repr(text[place : place + 40]))
        if is_scanned:
            verdict = scan(text)
            counts[verdict.verdict] += 1
            if is_shown and verdict.findings:
                found = [(each.rule, each.severity.value, each.detail) for each in verdict.findings]
                print(" ", verdict.verdict, found, repr(text[:300]))
    return counts


def print_rates(name: str, counts: Counter[str]) -> None:
    size = counts["messages"] or 1
    shares = "  ".join(
        f"{what} {counts[key]:4d} ({counts[key] / size:.3%})"
        for what, key in (("redacted", "redacted"), ("blocked", "block"), ("held", "hold"))
    )
    print(f"{name:20s} {counts['messages']:7,d} messages  {shares}", flush=True)


if __name__ == "__main__":
    main()

"""Makes src/wellkept/security/confusables.txt from Unicode's confusables as `confusable-homoglyphs` carries them.

    pip install confusable-homoglyphs && python benchmarks/confusables.py

The result depends on the version of that package alone, not on Python's own Unicode tables: the only ones used here are
those of Unicode 3.2, which never change. tests/unit/security/test_confusables.py makes the file again and compares.
"""

import json
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from string import ascii_letters

FILE = Path(__file__).parent.parent / "src" / "wellkept" / "security" / "confusables.txt"
HEAD = """\
# Letters that look like a Latin letter, by Unicode's confusables. Made by benchmarks/confusables.py; do not edit.
# Each row is a Latin letter, a tab, and its look-alikes. Row I holds those of both a capital I and a small l.
# The second block holds letters that resemble the Latin one less: by way of a small capital, or apart from a stroke.
"""
SMALL_CAPITAL = "LATIN LETTER SMALL CAPITAL "
_OLD = unicodedata.ucd_3_2_0


def main() -> None:
    FILE.write_text(table(), encoding="utf-8")
    print(f"{FILE}: {FILE.stat().st_size} bytes")


def table() -> str:
    """Return the text of the file."""
    folder = package()
    categories = Categories(folder / "categories.json")
    pairs = sorted(confusable_pairs(folder, categories))
    close = {look: latin for look, latin, _ in pairs if latin in ascii_letters}
    rows, more = defaultdict(list), defaultdict(list)
    for look, latin in sorted(close.items()):
        if is_capital_i(look, latin):
            rows["I"].append(look)
        # what normalization reads as a letter, such as the long s, is that letter
        elif normalized(look) not in set(ascii_letters):
            rows[latin.lower()].append(look)
    distant = {look: latin for look, shape, name in pairs for look, latin in distant_letters(look, shape, name)}
    for look, latin in sorted(distant.items()):
        if look not in close and normalized(look) != latin:
            more[latin].append(look)
    return HEAD + "\n\n".join(map(block, (rows, more))) + "\n"


def block(rows: dict[str, list[str]]) -> str:
    return "\n".join(f"{latin}\t{''.join(looks)}" for latin, looks in sorted(rows.items()))


def package() -> Path:
    """Return the folder of the installed package."""
    spec = find_spec("confusable_homoglyphs")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("run: pip install confusable-homoglyphs")
    return Path(spec.submodule_search_locations[0])


def confusable_pairs(folder: Path, categories: "Categories") -> Iterator[tuple[str, str, str]]:
    """Yield each letter outside ASCII, what it is confusable with, and the name of that."""
    for shape, looks in json.loads((folder / "confusables.json").read_text(encoding="utf-8")).items():
        for each in looks:
            left, right = bare(shape), bare(each["c"])
            if is_letter(left, categories):
                yield left, right, each["n"]
            if is_letter(right, categories):
                yield right, left, ""


def bare(shape: str) -> str:
    """Return `shape` without the marks that the package puts around letters written from right to left."""
    return shape.replace("\u200e", "")


class Categories:
    """The general category of each code point, as the package lists them."""

    def __init__(self, path: Path) -> None:
        found = json.loads(path.read_text(encoding="utf-8"))
        self._names = found["categories"]
        self._ranges = sorted(found["code_points_ranges"])
        self._starts = [start for start, *_ in self._ranges]

    def of(self, char: str) -> str:
        """Return the category of one character."""
        place = bisect_right(self._starts, ord(char)) - 1
        _, end, _, category = self._ranges[place]
        return str(self._names[category]) if ord(char) <= end else ""


def is_letter(shape: str, categories: Categories) -> bool:
    return len(shape) == 1 and not shape.isascii() and categories.of(shape).startswith("L")


def distant_letters(look: str, shape: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield letters that resemble a Latin one by way of a small capital, or apart from a stroke."""
    if name.startswith(SMALL_CAPITAL) and len(name) == len(SMALL_CAPITAL) + 1:
        yield shape, name[-1].lower()
        yield look, name[-1].lower()
    marks = shape[1:]
    if marks and shape[0] in ascii_letters and all(_OLD.combining(mark) for mark in marks):
        yield look, shape[0].lower()


def normalized(char: str) -> str:
    """Return what folding makes of `char` without this table."""
    return _OLD.normalize("NFKD", char).lower()


def is_capital_i(look: str, latin: str) -> bool:
    """Tell whether Unicode lists `look` under the small l because a capital I looks like one."""
    runs_from_left = _OLD.bidirectional(look) not in {"R", "AL"}
    is_small = "SMALL" in unicodedata.name(look, "")  # names never change
    return latin == "l" and runs_from_left and not is_small and normalized(look) != "l"


if __name__ == "__main__":
    main()

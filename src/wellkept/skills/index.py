"""The index of skills: facts of every SKILL.md, cached by its time, size and inode, and the search among them."""

import json
import logging
import math
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from msgspec import Struct

from wellkept.core.errors import StorageError
from wellkept.core.text import UNSPACED, split_pairs, split_words, strip_accents
from wellkept.core.values import JsonStruct
from wellkept.skills.document import MOST_BYTES, BadFrontmatter, Document, list_items, read_skill
from wellkept.skills.roots import MAIN, Root
from wellkept.storage.files import read_bytes, write_atomically

log = logging.getLogger(__name__)

CACHE_FILE = ".cache.json"
_FORMAT = 3
_CATEGORY_DEPTH = 3
_PLATFORMS = {"darwin": "macos", "mac": "macos", "osx": "macos", "win32": "windows", "win": "windows"}


class Facts(Struct, frozen=True):
    """What the index stores about one SKILL.md; if it cannot be loaded, only the problem and its fix."""

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    requires_tools: tuple[str, ...] = ()
    fallback_for_tools: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    """Scanner rules that the description matches; such a description never enters a prompt."""
    problem: str = ""
    fix: str = ""


_fields_of = attrgetter(*Facts.__struct_fields__)


class Skill(Struct, frozen=True):
    """One skill that can be loaded."""

    name: str
    category: str
    where: str
    """The folder as text: creating a thousand Path objects would take a fifth of the time allowed for a catalogue."""
    root: Root
    facts: Facts

    @property
    def folder(self) -> Path:
        """Return the folder that holds the skill."""
        return Path(self.where)

    @property
    def description(self) -> str:
        """Return the description, replaced by a marker when the scanner blocks it."""
        if self.facts.blocked:
            return f"[BLOCKED: the description matches {', '.join(self.facts.blocked)}]"
        return self.facts.description


class Problem(JsonStruct, frozen=True):
    """Something in a root that is not loaded or deviates from the format, and how to fix it."""

    path: Path
    problem: str
    fix: str
    loaded: bool = False


def fits(skill: Skill, *, tools: Collection[str] | None, platform: str = sys.platform) -> bool:
    """Whether the platform and the tools meet the skill's requirements; `tools` is None when unknown."""
    facts = skill.facts
    if facts.platforms and _platform_name(platform) not in {_platform_name(name) for name in facts.platforms}:
        return False
    if tools is None:
        return True
    if not set(facts.requires_tools) <= set(tools):
        return False
    return not facts.fallback_for_tools or not set(facts.fallback_for_tools) <= set(tools)


def _platform_name(platform: str) -> str:
    name = platform.strip().lower()
    return _PLATFORMS.get(name, name)


class Index:
    """The facts of every SKILL.md. The cache file is derived data: it is rebuilt when missing or damaged."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._rows: dict[str, tuple[tuple[int, int, int], Facts]] | None = None
        self._known: dict[str, Skill] = {}
        self._changed = False

    def scan(self, root: Root) -> Iterator[Skill | Problem]:
        """Yield the skills and problems of `root`, in order of their paths."""
        if not os.path.isdir(root.path):  # noqa: PTH112 - pathlib is too slow for a thousand skills
            return
        yield from self._folder(root, str(root.path), "", 0)

    def save(self) -> None:
        """Write the cache for the next process; skipped when the home cannot be written."""
        if not self._changed or self._rows is None:
            return
        present = {path: row for path, row in sorted(self._rows.items()) if Path(path).exists()}
        rows = {path: [*key, _fields_of(facts)] for path, (key, facts) in present.items()}
        text = json.dumps({"format": _stamp(), "rows": rows}, ensure_ascii=False, separators=(",", ":"))
        try:
            write_atomically(self._file, text.encode("utf-8", "surrogatepass"))
        except StorageError as error:
            log.debug("skills cache not written: %s", error)
        self._changed = False

    def rebuild(self) -> None:
        """Discard everything; the next scan reads every file again."""
        self._rows, self._known, self._changed = {}, {}, True

    def _folder(self, root: Root, path: str, category: str, depth: int) -> Iterator[Skill | Problem]:
        for entry in _entries(path):
            if entry.name.startswith("."):
                continue
            if entry.is_symlink():
                yield from _link(entry)
            elif entry.is_dir(follow_symlinks=False):
                try:
                    status = os.lstat(f"{entry.path}/{MAIN}")
                except OSError:
                    yield from self._category(root, entry, category, depth)
                else:
                    yield from self._skill(root, entry.path, category, status)

    def _category(self, root: Root, entry: os.DirEntry[str], category: str, depth: int) -> Iterator[Skill | Problem]:
        odd = next((item for item in _entries(entry.path) if item.name.lower() == MAIN.lower()), None)
        if odd is not None:
            yield Problem(Path(odd.path), f"the file is named {odd.name!r}", f"rename it to {MAIN}")
        elif depth < _CATEGORY_DEPTH:
            inner = f"{category}/{entry.name}" if category else entry.name
            yield from self._folder(root, entry.path, inner, depth + 1)

    def _skill(self, root: Root, folder: str, category: str, status: os.stat_result) -> Iterator[Skill | Problem]:
        path = f"{folder}/{MAIN}"
        key = (status.st_mtime_ns, status.st_size, status.st_ino)
        if self._rows is None:
            self._rows = _load(self._file)
        row = self._rows.get(path)
        if row is None or row[0] != key:
            row = self._rows[path] = (key, _read_facts(folder, status))
            self._changed = True
        facts = row[1]
        if facts.problem:
            yield Problem(Path(path), facts.problem, facts.fix)
            return
        known = self._known.get(path)
        if known is None or known.facts is not facts or known.root != root or known.category != category:
            known = self._known[path] = Skill(root.full_name(facts.name), category, folder, root, facts)
        yield known
        for warning in facts.warnings:
            yield Problem(Path(path), warning, "correct it in SKILL.md", loaded=True)


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        log.warning("cannot list %s: %s", path, error.strerror)
        return []


def _link(entry: os.DirEntry[str]) -> Iterator[Problem]:
    # a link that points to itself is not a folder and does not exist; DirEntry.is_dir would raise for it
    if entry.name == MAIN or os.path.isdir(entry.path) or not os.path.exists(entry.path):  # noqa: PTH110, PTH112 - as above
        fix = "put the real folder here, or name the link's target in skills.external_dirs"
        yield Problem(Path(entry.path), "a symbolic link is not followed", fix)


def _read_facts(folder: str, status: os.stat_result) -> Facts:
    name = os.path.basename(folder)  # noqa: PTH119 - as above
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        return Facts(name, problem=f"SKILL.md is {kind}", fix="put a real text file in its place")
    if status.st_size > MOST_BYTES:
        return Facts(name, problem=f"SKILL.md has {status.st_size:,} bytes", fix="move parts to references/")
    document = read_skill(Path(folder))
    if isinstance(document, BadFrontmatter):
        return Facts(name, problem=document.problem, fix=document.fix)
    return _extract_facts(document)


def _extract_facts(document: Document) -> Facts:
    from wellkept.security.scan import Scope, scan

    verdict = scan(f"{document.name}\n{document.description}", scope=Scope.SKILL)
    return Facts(
        document.name,
        document.description,
        tags=document.tags[:30],
        headings=document.headings[:40],
        platforms=list_items(document.lookup("platforms")),
        requires_tools=list_items(document.lookup("requires_tools")),
        fallback_for_tools=list_items(document.lookup("fallback_for_tools")),
        warnings=document.warnings,
        blocked=verdict.rules if verdict.blocked else (),
    )


@cache
def _stamp() -> str:
    """Return what the cache depends on besides the files: its format and the scanner's rules."""
    # stat the file directly: importing the package would slow down a warm start
    rules = Path(__file__).parents[1].joinpath("security", "rules.toml").stat()
    return f"{_FORMAT}-{rules.st_mtime_ns}-{rules.st_size}"


def _load(file: Path) -> dict[str, tuple[tuple[int, int, int], Facts]]:
    try:
        held = json.loads(read_bytes(file) or b"{}")
        if held.get("format") != _stamp():
            return {}
        return {
            path: ((mtime, size, inode), _facts_from_row(facts))
            for path, (mtime, size, inode, facts) in held["rows"].items()
        }
    except (StorageError, ValueError, TypeError, AttributeError, KeyError):
        return {}  # derived data: a damaged cache is rebuilt


def _facts_from_row(row: list[Any]) -> Facts:
    name, description, *lists, problem, fix = row
    values: list[Any] = [name, description, *map(tuple, lists), problem, fix]
    return Facts(*values)


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SUFFIXES = (
    ("ization", "ize"), ("isation", "ize"), ("ational", "ate"), ("fulness", "ful"), ("iveness", "ive"),
    ("ations", "ate"), ("ation", "ate"), ("ators", "ate"), ("ator", "ate"), ("ising", "ize"), ("ised", "ize"),
    ("ments", ""), ("ment", ""), ("ness", ""), ("ities", ""), ("ity", ""), ("ables", ""), ("able", ""),
    ("ible", ""), ("ances", ""), ("ance", ""), ("ences", ""), ("ence", ""), ("ings", ""), ("ing", ""),
    ("ies", "y"), ("ied", "y"), ("ions", ""), ("ion", ""), ("ers", ""), ("ors", ""), ("er", ""), ("or", ""),
    ("edly", ""), ("ed", ""), ("ly", ""), ("ives", ""), ("ive", ""), ("als", ""), ("al", ""), ("ful", ""),
    ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("es", "e"), ("s", ""), ("e", ""), ("y", ""),
)  # fmt: skip
_TASK_WORDS = "instead let like make need one since use used user uses using want"
"""Words in almost every description of a skill; they distinguish none."""
_SHORTEST_STEM = 3


@cache
def list_stop_words() -> frozenset[str]:
    """Return the words that distinguish no skill."""
    from wellkept.languages.language import STOP_WORDS  # lazy: most commands that load the library look nothing up

    return STOP_WORDS.union(_TASK_WORDS.split())


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Return the stem of an English word: the same for its inflections, not always a word itself."""
    if len(word) <= _SHORTEST_STEM or not word.isascii() or not word.isalpha():
        return word
    for _ in range(2):
        for ending, instead in _SUFFIXES:
            if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM and not word.endswith("ss"):
                word = word[: len(word) - len(ending)] + instead
                break
        else:
            break
    word = word.rstrip("e") if len(word) > _SHORTEST_STEM + 1 else word
    if len(word) > _SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "sl":
        word = word[:-1]
    return f"{word[:-1]}y" if word.endswith("i") else word


@lru_cache(maxsize=8_192)
def terms(text: str) -> tuple[str, ...]:
    """Return the stems of `text` in order, without stop words; character pairs for scripts without spaces."""
    found: list[str] = []
    for word in split_words(strip_accents(_CAMEL.sub(" ", text))):
        run = UNSPACED.search(word)
        if run is not None:
            found.extend(split_pairs(run[0]))
        elif word not in list_stop_words():
            found.append(stem(word))
    return tuple(found)


_WEIGHTS = (("name", 5.0), ("tags", 3.5), ("description", 2.0), ("category", 1.5), ("headings", 1.0))
_SATURATION = 1.2
_PREFIX_CREDIT = 0.4
_SHORTEST_PREFIX = 4
_COVERAGE = 0.5


class SkillMatch(Struct, frozen=True):
    """A skill and its score."""

    skill: Skill
    score: float


def rank(query: str, skills: Sequence[Skill]) -> list[SkillMatch]:
    """Return the skills that share a term with `query`, best first, ties by name."""
    wanted = tuple(dict.fromkeys(terms(query)))
    bags = [_term_weights(skill.name, skill.category, skill.facts) for skill in skills]
    counts = Counter(term for bag in bags for term in bag)
    rarity = {term: math.log(1 + (len(bags) - count + 0.5) / (count + 0.5)) for term, count in counts.items()}
    found = []
    for skill, bag in zip(skills, bags, strict=True):
        score = _score(wanted, bag, rarity)
        if query.strip().lower() == skill.name:
            score += 1_000.0
        if score > 0:
            found.append(SkillMatch(skill, round(score, 4)))
    return sorted(found, key=lambda item: (-item.score, item.skill.name))


def _score(wanted: Sequence[str], bag: dict[str, float], rarity: dict[str, float]) -> float:
    total, matched, possible = 0.0, 0.0, 0.0
    for term in wanted:
        weight, known = bag.get(term, 0.0), term
        if not weight:
            known, weight = _match_prefix(term, bag)
        possible += rarity.get(term, 1.0)
        if weight:
            rare = rarity.get(known, 1.0)
            total += rare * weight / (weight + _SATURATION)
            matched += rare
    return total * (1 + _COVERAGE * matched / possible) if possible else 0.0


def _match_prefix(term: str, bag: dict[str, float]) -> tuple[str, float]:
    """Return the best term that is a prefix of `term` or has it as one; this matches compounds and odd stems."""
    if len(term) < _SHORTEST_PREFIX or not term.isascii():
        return term, 0.0
    near = [
        (weight, word)
        for word, weight in bag.items()
        if len(word) >= _SHORTEST_PREFIX and (word.startswith(term) or term.startswith(word))
    ]
    if not near:
        return term, 0.0
    weight, word = max(near)
    return word, weight * _PREFIX_CREDIT


@lru_cache(maxsize=4_096)
def _term_weights(name: str, category: str, facts: Facts) -> dict[str, float]:
    """Return the terms of a skill, each with the summed weights of the fields that contain it."""
    texts = {
        "name": name,
        "tags": " ".join(facts.tags),
        "description": facts.description,
        "category": category,
        "headings": " ".join(facts.headings),
    }
    bag: dict[str, float] = {}
    for field, weight in _WEIGHTS:
        for term, count in Counter(terms(texts[field])).items():
            bag[term] = bag.get(term, 0.0) + weight * min(count, 2) ** 0.5
    return bag


def near_duplicates(name: str, description: str, skills: Iterable[Skill], *, threshold: float) -> list[SkillMatch]:
    """Return the skills that are nearly the same as a new one, most similar first."""
    own_name, own = set(terms(name)), set(terms(f"{name} {description}"))
    found = []
    for skill in skills:
        likeness = 0.4 * _dice_similarity(own_name, set(terms(skill.name))) + 0.6 * _dice_similarity(
            own, set(terms(f"{skill.name} {skill.facts.description}"))
        )
        if likeness >= threshold:
            found.append(SkillMatch(skill, round(likeness, 3)))
    return sorted(found, key=lambda item: (-item.score, item.skill.name))


def _dice_similarity(one: set[str], other: set[str]) -> float:
    """Return the Dice coefficient of two sets: 1 when they are equal, 0 when they share nothing."""
    common = len(one & other)
    if not common:
        return 0.0
    return 2 * common / (len(one) + len(other))

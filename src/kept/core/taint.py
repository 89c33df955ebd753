"""Taint: how a source that a model has read affects the texts that it writes afterwards, and what happens to those.

The rules, on one page. Nothing here reads a file or a clock; tiers store the results.

1. Every text has an author, and may have a source: what a tool printed, a file, a web page, an import, a provider.
   Source and author are decided by the program that runs the tool or reads the file, never by a text or an argument.
2. The person, the agent itself and its review are not sources. Files of the project are, but they are the person's own.
3. Taint. What a model writes in a turn in which it has read a source is tainted by that source (`find_taint`). Later
   turns are tainted if the text repeats something of a source that is still in the context (`echoes`).
4. What the person said in their own words is not tainted, whatever else was read (`is_said`).
5. Policy (`judge`). A tainted entry that names an address, a command, a path, a credential, a package, a recipient or
   a payment waits for a person, unless it came from the project itself; any other is shown in the prompt as unverified.
6. Only a person clears taint: by approving, confirming or writing the entry. A copy of a tainted entry is tainted.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Literal, TypeAlias

from kept.core.ids import SourceName
from kept.core.messages import Message, Origin, Role, ToolCall
from kept.core.provenance import RANK, Kind, Source, find_client_source, least_trusted, read_source
from kept.core.text import JSON, UNSPACED, split_pairs, split_words, stop_words
from kept.core.values import dataclass, field

Policy: TypeAlias = Literal["hold", "mark", "allow"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A text from a source, in the model's context."""

    source: Source
    text: str


class TextIndex:
    """Finds the texts of a growing list that contain a string without spaces, ignoring case; reads each text once."""

    def __init__(self) -> None:
        self._places: dict[str, list[int]] = {}
        self._read = 0
        self._runs = ""
        """Every run of characters between spaces, once, on a line of its own."""

    def read(self, texts: Sequence[str]) -> None:
        """Read the texts that were added since the last time."""
        for number, text in enumerate(texts[self._read :], start=self._read):
            for run in set(text.casefold().split()):
                self._places.setdefault(run, []).append(number)
        if self._read < len(texts):
            self._read, self._runs = len(texts), "\n".join(["", *self._places, ""])

    def find(self, part: str, *, end: int) -> set[int]:
        """Return the numbers of the texts before `end` that contain `part`, which is in lower case."""
        runs, found = self._runs, set[int]()
        place = runs.find(part)
        while place >= 0:
            first, last = runs.rfind("\n", 0, place) + 1, runs.index("\n", place)
            found.update(self._places[runs[first:last]])
            place = runs.find(part, last)
        return {number for number in found if number < end}


@dataclass(frozen=True)
class Context:
    """The model's context when it writes: texts from sources, and what the person said."""

    readings: tuple[Reading, ...] = ()
    said: tuple[str, ...] = ()
    first_current: int = 0
    """Index of the first text that was read in the current turn; earlier ones taint only what repeats them."""
    indexes: tuple[TextIndex, TextIndex] = field(default_factory=lambda: (TextIndex(), TextIndex()))
    """The indexes of `readings` and of `said`; every context of a conversation shares them."""

    @property
    def _current(self) -> tuple[Reading, ...]:
        return self.readings[self.first_current :]

    @cached_property
    def _reading_index(self) -> TextIndex:
        self.indexes[0].read([one.text for one in self.readings])
        return self.indexes[0]

    def _was_said(self, part: str) -> bool:
        self.indexes[1].read(self.said)
        return bool(self.indexes[1].find(part, end=len(self.said)))

    def find_taint(self, text: str) -> SourceName | None:
        """Return the source that taints a text written now, None if there is none (rules 3 and 4)."""
        if not self.readings:
            return None
        gist = Gist.of(text)
        if gist.is_in(self._was_said):
            return None
        repeated = self._find_echoes(gist.without(self._was_said))
        return _choose([self.readings[place] for place in sorted(repeated)] or self._current)

    def _find_echoes(self, gist: "Gist") -> set[int]:
        """Return the indexes of the readings that contain one of the names, or many of the words."""
        index, end = self._reading_index, len(self.readings)
        counts = Counter(place for stem in gist.stems for place in index.find(stem, end=end))
        found = {place for place, count in counts.items() if count >= gist.least_echo}
        return found.union(*(index.find(name, end=end) for name in gist.names))

    def for_review(self) -> "Context":
        """Return the context of a review, which reads the whole conversation: only own files taint by repetition."""
        read = sorted(self.readings, key=lambda one: not one.source.is_own)
        return Context(tuple(read), self.said, sum(one.source.is_own for one in read))

    def find_message_taint(self, text: str) -> SourceName | None:
        """Return the source that taints a whole message: read in this turn, or repeated in the message.

        Recalled text accompanies nearly every message, so it taints only a message with a sentence that repeats it.
        """
        if self._current or not self.readings:
            return _choose(self._current)
        recalled = [one for one in self.readings if one.source.kind is Kind.PROVIDER][-1:]
        sentences = re.split(_SENTENCE_END, text[:_MOST_CHARS]) if recalled else []
        gists = (Gist.of(sentence).without(self._was_said) for sentence in sentences)
        if any(gist.echoes(recalled[0].text.casefold()) for gist in gists):
            return _choose(recalled)
        names = [name for name in find_names(text) if not self._was_said(name)] if self.readings else []
        return _choose([one for one in self.readings[-_LAST_READINGS:] if any(name in one.text for name in names)])


def _choose(readings: Sequence[Reading]) -> SourceName | None:
    """Return the least trusted source; of several, the one that was read last."""
    if not readings:
        return None
    return max(enumerate(readings), key=lambda one: (RANK[one[1].source.kind], one[0]))[1].source.stored


_NAME = r"[!-~]{3,200}"
_NAME_SIGN = r"[@/\\_$\d]|\w[.:-]\w|^--"
"""Marks a word that nobody paraphrases: an address, path, package, option, number or identifier."""
_MOST_CHARS = 20_000
_MOST_NAMES = 40
_LAST_READINGS = 50
"""A message is compared with this many of the last readings; more would delay the turn."""
_SENTENCE_END = r"(?<=[.!?])\s+|[。！？\n]+"
_LEAST_SAID = 0.7
_LEAST_ECHO = 0.5
_STEM = 5
"""How many first letters the forms of one word share in most languages."""


def find_names(text: str) -> list[str]:
    """Return the names in a text that nobody paraphrases, as they are written."""
    runs = (run.strip("\"'`.,;:!?()[]{}<>*-/") for run in re.findall(_NAME, text[:_MOST_CHARS]))
    named = (run for run in runs if len(run) > 2 and re.search(_NAME_SIGN, run))
    return list(dict.fromkeys(named))[:_MOST_NAMES]


def _find_stems(text: str) -> list[str]:
    """Return the stems of the words, without stop words."""
    text = text.casefold().replace(_CHINESE_FRAME, "")
    words = split_words(UNSPACED.sub(" ", text))
    known = stop_words(words) | _FRAME
    stems = [word[:_STEM] for word in words if word not in known and len(word) > 1]
    return list(dict.fromkeys([*stems, *(pair for run in UNSPACED.findall(text) for pair in split_pairs(run))]))


_FRAME = frozenset(
    ("user", "users", "person", "prefers", "prefer", "wants", "likes", "uses", "nutzer", "benutzer", "möchte",
     "bevorzugt", "utilisateur", "préfère", "veut", "souhaite", "usuario", "prefiere")
)  # fmt: skip
"""Words with which a model introduces what a person said about themselves."""
_CHINESE_FRAME = "用户"


@dataclass(frozen=True, slots=True)
class Gist:
    """The names in a text and the stems of its other words, in lower case; texts are compared by them."""

    names: tuple[str, ...]
    stems: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Gist":
        """Return the gist of a text."""
        return cls(tuple(find_names(text.casefold())), tuple(_find_stems(text)))

    def is_in(self, was_said: Callable[[str], bool]) -> bool:
        """Whether every name and most of the words were said."""
        if not self.stems or not all(map(was_said, self.names)):
            return False
        return sum(map(was_said, self.stems)) >= _LEAST_SAID * len(self.stems)

    def without(self, was_said: Callable[[str], bool]) -> "Gist":
        """Return the names and stems that were not said."""
        names = tuple(name for name in self.names if not was_said(name))
        return Gist(names, tuple(stem for stem in self.stems if not was_said(stem)))

    @property
    def least_echo(self) -> float:
        """How many of the stems a text must contain to count as a repetition."""
        return max(2, _LEAST_ECHO * len(self.stems))

    def echoes(self, other: str) -> bool:
        """Whether a text, in lower case, contains one of the names, or many of the stems."""
        return any(name in other for name in self.names) or sum(stem in other for stem in self.stems) >= self.least_echo


def is_said(text: str, said: str) -> bool:
    """Whether the person said every name and most of the words of a text; `said` is in lower case."""
    return Gist.of(text).is_in(said.__contains__)


def echoes(text: str, other: str, said: str = "") -> bool:
    """Whether a text repeats a name, or many of the words, of `other`, apart from what the person said."""
    return Gist.of(text).without(said.__contains__).echoes(other.casefold())


# policy


class Verdict(StrEnum):
    """What happens to an entry: it is stored, marked as unverified, or held for a person."""

    PASS = "pass"  # noqa: S105 - no password
    MARK = "mark"
    HOLD = "hold"


_RISKS: Mapping[str, str] = {
    "address": r"(?i)\b[a-z]+://|\bwww\.|\b(?:\d{1,3}\.){3}\d{1,3}\b|\b(?:[\w-]+\.)+[a-z]{2,}\b|:\d{2,5}\b",
    "recipient": r"(?i)@\w|\b(?:b?cc|recipient|forward|notify|empfänger|weiterleiten|destinatair|transf[eé]rer|copie)"
    r"|抄送|收件|转发|通知|发送给|联系人",
    "path": r"(?:^|[\s\"'`(=:])(?:~|\.{1,2})?/[\w.@-]|[A-Za-z]:\\|\b[\w-]+\.[a-z0-9]{1,5}\b",
    "command": r"(?i)`|(?:^|\s)--?[a-z][\w-]*|\b(?:sudo|chmod|curl|wget|bash|sh|pip|npm|npx|yarn|apt|brew|docker"
    r"|kubectl|git|make|ssh|python3?|node|export|eval|crontab)\b|[|;&]{1,2}\s*\w|\$\(|\$\w",
    "package": r"(?i)==|@[\w-]+/[\w-]+|\b(?:packages?|registry|index|mirror|repositor|repo|depend|librar|plugin"
    r"|extension|paket|spiegel|abhängig|bibliothek|paquet|miroir|dépôt|dépend|biblioth)|软件包|依赖|镜像|仓库|插件|源\b",
    "credential": r"(?i)\b(?:password|passphrase|passwort|kennwort|mot de passe|token|secret|api[ _-]?key|credential"
    r"|zugangsdaten|schlüssel|identifiants|clé)|密码|口令|令牌|密钥|凭证|\b[A-Za-z0-9+/_-]{20,}\b",
    "payment": r"(?i)\b(?:iban|bic|swift|invoice|payment|payee|account number|bank|wallet|refund|rechnung|zahlung|konto"
    r"|überweis|facture|paiement|virement|compte|payer)|[€$£¥]\s?\d|\d\s?(?:€|eur|usd|chf)|付款|转账|发票|账户|账号|收款",
}
"""What makes an entry risky: it can send something somewhere, or run something."""


def find_risks(text: str) -> list[str]:
    """Return the kinds of risk in an entry: what it names could redirect or run something."""
    return [risk for risk, pattern in _RISKS.items() if re.search(pattern, text)]


def judge(text: str, stored: SourceName | None, policy: Policy) -> Verdict:
    """Return what happens to an entry with this source (rule 5)."""
    if stored is None or policy == "allow":
        return Verdict.PASS
    if policy == "mark" or read_source(stored).is_own or not find_risks(text):
        return Verdict.MARK
    return Verdict.HOLD


class Flow:
    """Determines the sources of a transcript's messages, one after another; keeps no texts."""

    def __init__(self, *, folder: str = "", imported: SourceName | None = None) -> None:
        self._folder = folder
        self._imported = imported
        self._calls: dict[str, ToolCall] = {}
        self._read: list[SourceName] = []

    def take(self, message: Message, origin: Origin) -> SourceName | None:
        """Return the source of the next message."""
        if origin.is_person(message.role):
            self._read.clear()
        elif message.role is Role.TOOL:
            call = self._calls.pop(message.tool_call_id or "", None)
            name = message.tool_name or (call.name if call is not None else "unknown")
            source = find_client_source(name, _read_arguments(call), folder=self._folder)
            self._read += [] if source is None else [source]
            return least_trusted((source, self._imported))
        self._calls.update((call.id, call) for call in message.tool_calls)
        return least_trusted((*self._read, self._imported))


def _read_arguments(call: ToolCall | None) -> Mapping[str, JSON]:
    try:
        value = json.loads(call.arguments) if call is not None else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class ContextReader:
    """Reads the model's context, oldest first; when a conversation grows, only its new texts are read."""

    def __init__(self) -> None:
        self._sources: dict[SourceName, Source] = {}
        self._readings: list[Reading] = []
        self._said: list[str] = []
        self._first_current = 0
        self._indexes = (TextIndex(), TextIndex())

    def take(self, source: SourceName | None, text: str, *, is_person: bool) -> None:
        """Read a text; everything after the person's last message belongs to the current turn."""
        if source is not None:
            if source not in self._sources:
                self._sources[source] = read_source(source)
            self._readings.append(Reading(self._sources[source], text))
        elif is_person:
            self._said.append(text)
            self._first_current = len(self._readings)

    def context(self) -> Context:
        """Return what was read so far."""
        return Context(tuple(self._readings), tuple(self._said), self._first_current, self._indexes)

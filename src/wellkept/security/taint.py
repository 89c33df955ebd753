"""Taint: how a source that a model has read affects the texts that it writes afterwards, and what happens to those.

The rules, on one page. Nothing here reads a file or a clock; tiers store the results.

1. Every text has an author, and may have a source: what a tool printed, a file, a web page, an import, a provider.
   Source and author are decided by the program that runs the tool or reads the file, never by a text or an argument.
2. What the person asserted in their own words is not tainted, whatever else was read (`speech.read_speech`). What they
   quote, report, warn about or ask is not their assertion.
3. Taint. While a source is in the context, all that the model writes and the person did not assert is tainted
   (`find_taint`). If kept cannot see all that the model has read, the agent itself is the source.
   Files of the project taint what is written in their turn and what repeats them; after it, also all that is risky
   (rule 5), and everything if a file has parts that cannot be compared. Texts that are always in the prompt
   (`AGENTS.md`, descriptions of skills and tools) taint what repeats them, and those of the project or of the calling
   program what is risky, as the person's own quotations do.
4. A text repeats a source if it contains a name or many words of it, also where the source hides or encodes them.
5. Policy (`judge`). A tainted entry waits for a person if it repeats its source and names an address, a command, a
   path, a credential, a package, a recipient or a payment, or if it is about approvals, trust, security or the conduct
   of agents. What came from the project or from the person's message does not wait. Every other tainted entry is shown
   in the prompt as unverified.
6. Only a person clears taint: by approving, confirming or writing the entry. A copy of a tainted entry is tainted.
"""

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import islice
from string import ascii_lowercase
from typing import Literal, TypeAlias

from msgspec import Struct, field

from wellkept.core.ids import SourceName
from wellkept.core.messages import Message, Origin, Role, ToolCall
from wellkept.core.provenance import (
    RANK,
    UNSTATED,
    Basis,
    Kind,
    Source,
    Taint,
    find_client_source,
    find_prompt_source,
    find_typed,
    least_trusted,
    read_source,
)
from wellkept.core.text import JSON, UNSPACED, expression, split_pairs, split_words
from wellkept.security.assertions import NEGATION, QUESTION, QUOTATION, is_negated, read_speech
from wellkept.security.unicode import fold, payloads

Policy: TypeAlias = Literal["hold", "mark", "allow"]


class Reading(Struct, frozen=True):
    """A text from a source, in the model's context."""

    source: Source
    text: str
    is_whole: bool = True
    """Whether `text` is all that the model was given: not if it was shortened, or came with an image."""
    is_ambient: bool = False
    """Whether it accompanies every turn, so that it taints only what repeats it."""
    is_legible: bool = True
    """Whether it can be seen what repeats it."""


_SPACED_LETTERS = expression(r"(?<![^\W_])[^\W_](?:[\W_]{1,12}[^\W_](?![^\W_])){4,}")
_NO_LETTERS = expression(r"[\W_]+")
_INSIDE_WORD = expression(r"(?<=[^\W_])(?:<[^<>]{0,80}>|[*_~`\\]{1,4}|-\n)+(?=[^\W_])")
"""Markup and breaks within a word, which a reader of the rendered text does not see."""


def _reveal(text: str) -> str:
    """Return a text in lower case without disguises: hidden characters, look-alikes, spaced and encoded words."""
    folded = fold(text)
    plain = _INSIDE_WORD.sub("", folded)
    spaced = [_NO_LETTERS.sub("", found[0]) for found in _SPACED_LETTERS.finditer(folded)]
    revealed = [folded, *([] if plain == folded else [plain]), *spaced, *(fold(decoded) for decoded in payloads(text))]
    return "\n".join(revealed)


_ILLEGIBLE = expression(
    r"(?=[^\sA-Z]{0,40}[A-Z])(?=[^\s\d]{0,40}\d)[A-Za-z0-9+/=_-]{24,}|(?:(?:\\[ux]|%|&#x?)[0-9a-fA-F]{2,6};?\S?){8,}"
    r"|(?:\b(?:0x)?[0-9a-fA-F]{1,8}\b[\s,;:]+){16,}|[\U000e0020-\U000e007f\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}"
)
"""Runs that say something to a program or a model, and of which no word can be compared."""


def _is_legible(text: str) -> bool:
    """Whether a text can be compared with another, because none of it is encoded."""
    return _ILLEGIBLE.search(text) is None


class TextIndex:
    """Finds the texts of a growing list that contain a string without spaces, ignoring case; reads each text once."""

    def __init__(self, reveal: Callable[[str], str]) -> None:
        self._reveal = reveal
        self._places: dict[str, list[int]] = {}
        self._read = 0
        self._runs = ""
        """Every run of characters between spaces, once, on a line of its own."""

    def read(self, texts: Sequence[str]) -> None:
        """Read the texts that were added since the last time."""
        for number, text in enumerate(texts[self._read :], start=self._read):
            for run in set(self._reveal(text).split()):
                self._places.setdefault(run, []).append(number)
        if self._read < len(texts):
            self._read, self._runs = len(texts), "\n".join(["", *self._places, ""])

    def find(self, part: str, *, end: int) -> set[int]:
        """Return the numbers of the texts before `end` that contain `part`, which is folded."""
        runs, found = self._runs, set[int]()
        place = runs.find(part)
        while place >= 0:
            first, last = runs.rfind("\n", 0, place) + 1, runs.index("\n", place)
            found.update(self._places[runs[first:last]])
            place = runs.find(part, last)
        return {number for number in found if number < end}


class Statements:
    """What the person asserted in a growing list of messages, and what not; each message is read once."""

    def __init__(self) -> None:
        self._count = 0
        self._ends: list[int] = []
        """How many of `_others` the messages up to each one have."""
        self._stems: tuple[list[frozenset[str]], list[frozenset[str]]] = ([], [])
        """By message: the stems of what is affirmed, and of all that is asserted."""
        self._texts: tuple[list[str], list[str]] = ([], [])
        self._indexes = (TextIndex(fold), TextIndex(fold))
        self._others: list[Reading] = []
        self._other_index = TextIndex(_reveal)

    def read(self, messages: Sequence[str]) -> None:
        """Read the messages that were added since the last time."""
        if self._count == len(messages):
            return
        for message in messages[self._count :]:
            speech = read_speech(message)
            for place, text in enumerate((speech.affirmed, speech.asserted)):
                self._texts[place].append(text)
                self._stems[place].append(frozenset(_find_stems(text)))
            self._others += [
                Reading(source, text, is_ambient=True)
                for source, text in ((QUOTATION, speech.others), (QUESTION, speech.open), (NEGATION, speech.negated))
                if text.strip()
            ]
            self._ends.append(len(self._others))
        self._count = len(messages)
        for texts, index in zip(self._texts, self._indexes, strict=True):
            index.read(texts)
        self._other_index.read([one.text for one in self._others])

    def support(self, gist: "Gist", *, end: int, is_negation: bool) -> bool:
        """Whether every name was asserted, and most of the words in one message; a negation supports no affirmation."""
        index, spoken = self._indexes[is_negation], self._stems[is_negation][:end]
        if not gist.stems or not all(index.find(name, end=end) for name in gist.names):
            return False
        least = _LEAST_SAID * len(gist.stems)
        return any(len(stems.intersection(gist.stems)) >= least for stems in spoken)

    def contain(self, part: str, *, end: int) -> bool:
        """Whether the person asserted a text with this part."""
        return bool(self._indexes[True].find(part, end=end))

    def list_quotations(self, *, end: int) -> list[Reading]:
        """Return what the person quoted or reported."""
        return [one for one in self._others[: self._ends[end - 1] if end else 0] if one.source == QUOTATION]

    def find_repeated(self, gist: "Gist", *, end: int) -> list[Reading]:
        """Return what the person wrote without asserting it, and a text repeats."""
        last = self._ends[end - 1] if end else 0
        return [self._others[place] for place in sorted(_find_echoes(gist, self._other_index, end=last))]


class Surroundings:
    """The texts of others that are in the prompt of every turn; listed when a text is first compared with them."""

    def __init__(self, list_texts: Callable[[], Sequence[tuple[SourceName, str]]] = tuple) -> None:
        self._list_texts = list_texts
        self._readings: list[Reading] | None = None
        self._index = TextIndex(_reveal)

    def find_repeated(self, gist: "Gist") -> list[Reading]:
        """Return those that a text repeats."""
        readings = self._list()
        self._index.read([one.text for one in readings])
        return [readings[place] for place in sorted(_find_echoes(gist, self._index, end=len(readings)))]

    def list_own(self) -> list[Reading]:
        """Return those of the project, and of the program that gave the prompt."""
        return [one for one in self._list() if one.source.is_own or one.source.kind is Kind.AGENT]

    def _list(self) -> list[Reading]:
        if self._readings is None:
            self._readings = [Reading(read_source(name), text, is_ambient=True) for name, text in self._list_texts()]
        return self._readings


def _find_echoes(gist: "Gist", index: TextIndex, *, end: int) -> set[int]:
    """Return the numbers of the texts that contain one of the names, or many of the words."""
    found = set[int]()
    for disguised in gist.disguises() if end else ():
        counts = Counter(place for stem in disguised.stems for place in index.find(stem, end=end))
        found |= {place for place, count in counts.items() if count >= disguised.least_echo}
        found = found.union(*(index.find(name, end=end) for name in disguised.names))
    return found


class Context(Struct, frozen=True, dict=True):
    """The model's context when it writes: texts from sources, and what the person said."""

    readings: tuple[Reading, ...] = ()
    said: tuple[str, ...] = ()
    first_current: int = 0
    """Index of the first text that was read in the current turn."""
    unseen: SourceName | None = None
    """The source of all that kept cannot see: the agent, if another program runs it."""
    surroundings: Surroundings = field(default_factory=Surroundings)
    indexes: tuple[TextIndex, Statements] = field(default_factory=lambda: (TextIndex(_reveal), Statements()))
    """The indexes of `readings` and of `said`; every context of a conversation shares them."""

    @cached_property
    def _current(self) -> tuple[Reading, ...]:
        return tuple(one for one in self.readings[self.first_current :] if not one.is_ambient)

    @cached_property
    def _reading_index(self) -> TextIndex:
        self.indexes[0].read([one.text for one in self.readings])
        return self.indexes[0]

    @cached_property
    def _statements(self) -> Statements:
        self.indexes[1].read(self.said)
        return self.indexes[1]

    def _was_said(self, part: str) -> bool:
        return self._statements.contain(part, end=len(self.said))

    def is_asserted(self, text: str) -> bool:
        """Whether the person asserted every name and most of the words of a text."""
        return self._statements.support(Gist.of(text), end=len(self.said), is_negation=is_negated(text))

    def find_taint(self, text: str) -> Taint | None:
        """Return what taints a text written now, None if nothing does (rules 2 and 3)."""
        if self.is_asserted(text):
            return None
        gist = Gist.of(text)
        repeated = self._find_repeated(gist)
        if repeated:
            return Taint(_choose(repeated), Basis.REPEATS, is_ambient=all(one.is_ambient for one in repeated))
        if self._current:
            is_known = all(one.is_whole for one in self._current)
            return Taint(_choose(self._current), Basis.TURN if is_known else Basis.REPEATS)
        earlier = [one for one in self.readings if _is_outside(one) or not one.is_legible]
        if not earlier and find_risks(text):
            earlier = [one for one in self.readings if not one.is_ambient] or self.surroundings.list_own()
            earlier = earlier or self._statements.list_quotations(end=len(self.said))
        if earlier:
            is_ambient = all(one.is_ambient for one in earlier)
            return Taint(_choose(earlier), Basis.CONTEXT, is_ambient=is_ambient)
        return None if self.unseen is None else Taint(self.unseen, Basis.CONTEXT)

    def _find_repeated(self, gist: "Gist") -> list[Reading]:
        """Return the readings that a text repeats, apart from what the person asserted."""
        places = self._find_echoes(gist.without(self._was_said)) if self.readings else set()
        ambient = {place for place in self._find_echoes(gist) if self.readings[place].is_ambient} - places
        others = self._statements.find_repeated(gist, end=len(self.said))
        read = [self.readings[place] for place in sorted(places | ambient)]
        return [*self.surroundings.find_repeated(gist), *read, *others]

    def _find_echoes(self, gist: "Gist") -> set[int]:
        return _find_echoes(gist, self._reading_index, end=len(self.readings))

    def for_review(self) -> "Context":
        """Return the context of a review, which reads the whole conversation: only own files taint by repetition."""
        read = sorted(self.readings, key=lambda one: not (one.source.is_own or one.is_ambient))
        first = sum(one.source.is_own or one.is_ambient for one in read)
        return Context(tuple(read), self.said, first, self.unseen, self.surroundings)

    def find_message_taint(self, text: str) -> SourceName | None:
        """Return the source that taints a whole message: read in this turn, or repeated in the message.

        A sentence that repeats an earlier source taints the message; of the person's project, only a name does.
        """
        if self._current:
            return _choose(self._current)
        if not self.readings:
            return None
        found = set[int]()
        if any(_is_outside(one) for one in self.readings):
            sentences = dict.fromkeys(one for one in re.split(_SENTENCE_END, text[:_MOST_CHARS]) if one.strip())
            for sentence in islice(sentences, _MOST_SENTENCES):
                found |= self._find_echoes(Gist.of(sentence).without(self._was_said))
        repeated = [one for one in (self.readings[place] for place in sorted(found)) if _is_outside(one)]
        return _choose(repeated) if repeated else self._find_named(text)

    def _find_named(self, text: str) -> SourceName | None:
        """Return the source of the last readings that contain a name in a text which the person did not say."""
        first = max(0, len(self.readings) - _LAST_READINGS)
        names = [name for name in find_names(fold(text)) if not self._was_said(name)]
        places = set[int]().union(*(self._reading_index.find(name, end=len(self.readings)) for name in names))
        named = [self.readings[place] for place in sorted(places) if place >= first]
        return _choose(named) if named else None


def _is_outside(reading: Reading) -> bool:
    """Whether others wrote a text, and it is not always in the prompt."""
    return not (reading.is_ambient or reading.source.is_own)


def _choose(readings: Sequence[Reading]) -> SourceName:
    """Return the least trusted source; of several, the one that was read last."""
    return max(enumerate(readings), key=lambda one: (RANK[one[1].source.kind], one[0]))[1].source.stored


_NAME = r"[!-~]{3,200}"
_NAME_SIGN = r"[@/\\_$\d]|\w[.:-]\w|^--"
"""Marks a word that nobody paraphrases: an address, path, package, option, number or identifier."""
_MOST_CHARS = 20_000
_MOST_NAMES = 40
_MOST_SENTENCES = 20
_LAST_READINGS = 50
"""A message is compared with this many of the last readings; more would delay the turn."""
_SENTENCE_END = r"(?<=[.!?])\s+|[。！？\n]+"
_LEAST_SAID = 0.7
_LEAST_ECHO = 0.5
_ROT13 = {ord(letter): codecs.encode(letter, "rot13") for letter in ascii_lowercase}
_STEM = 5
"""How many first letters the forms of one word share in most languages."""


def find_names(text: str) -> list[str]:
    """Return the names in a text that nobody paraphrases, as they are written."""
    runs = (run.strip("\"'`.,;:!?()[]{}<>*-/") for run in re.findall(_NAME, text[:_MOST_CHARS]))
    named = (run for run in runs if len(run) > 2 and re.search(_NAME_SIGN, run))
    return list(dict.fromkeys(named))[:_MOST_NAMES]


def _find_stems(text: str) -> list[str]:
    """Return the folded stems of the words, without stop words."""
    text = text.casefold().replace(_CHINESE_FRAME, "")
    words = split_words(UNSPACED.sub(" ", text))
    from wellkept.languages.language import stop_words  # lazy: few commands compare texts

    known = stop_words(words) | _FRAME
    is_plain = text.isascii()
    stems = [(word if is_plain else fold(word))[:_STEM] for word in words if word not in known and len(word) > 1]
    return list(dict.fromkeys([*stems, *(pair for run in UNSPACED.findall(text) for pair in split_pairs(run))]))


_FRAME = frozenset(
    ("user", "users", "person", "prefers", "prefer", "wants", "likes", "uses", "nutzer", "benutzer", "möchte",
     "bevorzugt", "utilisateur", "préfère", "veut", "souhaite", "usuario", "prefiere")
)  # fmt: skip
"""Words with which a model introduces what a person said about themselves."""
_CHINESE_FRAME = "用户"


class Gist(Struct, frozen=True):
    """The names in a text and the stems of its other words, in lower case; texts are compared by them."""

    names: tuple[str, ...]
    stems: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Gist":
        """Return the gist of a text."""
        return cls(tuple(find_names(fold(text))), tuple(_find_stems(text)))

    def without(self, was_said: Callable[[str], bool]) -> "Gist":
        """Return the names and stems that were not said."""
        names = tuple(name for name in self.names if not was_said(name))
        return Gist(names, tuple(stem for stem in self.stems if not was_said(stem)))

    def disguises(self) -> Iterator["Gist"]:
        """Yield the gist as it is, written backwards, and in rot13."""
        yield self
        yield Gist(tuple(name[::-1] for name in self.names), tuple(stem[::-1] for stem in self.stems))
        rotated = Gist(*(tuple(one.translate(_ROT13) for one in parts) for parts in (self.names, self.stems)))
        if rotated != self:
            yield rotated

    @property
    def least_echo(self) -> float:
        """How many of the stems a text must contain to count as a repetition."""
        return max(2, _LEAST_ECHO * len(self.stems))

    def echoes(self, other: str) -> bool:
        """Whether a text, in lower case, contains one of the names, or many of the stems."""
        return any(name in other for name in self.names) or sum(stem in other for stem in self.stems) >= self.least_echo


def echoes(text: str, other: str, said: str = "") -> bool:
    """Whether a text repeats a name, or many of the words, of `other`, apart from what the person said."""
    return Gist.of(text).without(fold(said).__contains__).echoes(_reveal(other))


# policy


class Verdict(StrEnum):
    """What happens to an entry: it is stored, marked as unverified, or held for a person."""

    PASS = "pass"  # noqa: S105 - no password
    MARK = "mark"
    HOLD = "hold"


_RISKS: Mapping[str, str] = {
    "address": r"(?i)\b[a-z]+://|\bwww\.|\b(?:\d{1,3}\.){3}\d{1,3}\b|\b(?:[\w-]+\.)+[a-z]{2,}\b"
    r"|(?<!\d):\d{2,5}\b|:\d{3,5}\b",
    "recipient": r"(?i)@\w|\b(?:b?cc|recipient|forward|notify|empfänger|weiterleiten|destinatair|transf[eé]rer|copie)"
    r"|抄送|收件|转发|通知|发送给|联系人",
    "path": r"(?:^|[\s\"'`(=:])(?:~|\.{1,2})?/[\w.@-]|[A-Za-z]:\\|\b(?!\d[\d.]*+(?!\w))[\w-]+\.[a-z0-9]{1,5}\b",
    "command": r"(?i)`|(?:^|\s)--?[a-z][\w-]*|\b(?:sudo|chmod|curl|wget|bash|sh|pip|npm|npx|yarn|apt|brew|docker"
    r"|kubectl|git|make|ssh|python3?|node|export|eval|crontab)\b|[|;&]{1,2}\s*\w|\$\(|\$\w",
    "package": r"(?i)==|@[\w-]+/[\w-]+|\b(?:packages?|registry|index|mirror|repositor|repos?\b|depend|librar|plugin"
    r"|extension|paket|spiegel|abhängig|bibliothek|paquet|miroir|dépôt|dépend|biblioth)|软件包|依赖|镜像|仓库|插件|源\b",
    "credential": r"(?i)\b(?:password|passphrase|passwort|kennwort|mot de passe|token|secret|api[ _-]?key|credential"
    r"|zugangsdaten|schlüssel|identifiants|clé)|密码|口令|令牌|密钥|凭证|\b[A-Za-z0-9+/_-]{20,}\b",
    "payment": r"(?i)\b(?:iban|bic|swift|invoice|payment|payee|account number|bank|wallet|refund|rechnung|zahlung|konto"
    r"|überweis|facture|paiement|virement|compte|payer)|[€$£¥]\s?\d|\d\s?(?:€|eur|usd|chf)|付款|转账|发票|账户|账号|收款",
}
"""What makes an entry risky: it can send something somewhere, or run something."""


_CONDUCT = (
    r"(?i)\b(?:approv|confirm|permission|consent|authori[sz]|sign[- ]?off|without asking|double[- ]check"
    r"|trust(?:ed|s|worthy)?\b|security\b|scanner|sandbox|firewall|safeguard|assistants?\b|agents?\b"
    r"|speaks? for the user|freigabe|freigegeben|genehmig|bestätig|rückfrage|nachfrage|erlaubnis|zustimm|vertrau"
    r"|sicherheits|approuv|approbation|accord de|autoris|faire confiance|de confiance|sécurité|assistant"
    r"|aprob|confirma|autoriz|permiso|confianza|seguridad|asistente)"
    r"|批准|确认|授权|许可|同意|信任|可信|安全检查|安全策略|助手|智能体|代理"
)
"""Approvals, trust, security and the conduct of agents: an entry about them changes what an agent does unasked."""


def find_risks(text: str) -> list[str]:
    """Return the kinds of risk in an entry: what it names could redirect or run something."""
    patterns = {**_RISKS, "conduct": _CONDUCT}
    return [risk for risk, pattern in patterns.items() if re.search(pattern, text)]


def judge(text: str, taint: Taint | None, policy: Policy) -> Verdict:
    """Return what happens to an entry with this taint (rule 5)."""
    if taint is None or policy == "allow":
        return Verdict.PASS
    if policy == "mark" or read_source(taint.source).is_own:
        return Verdict.MARK
    risks = find_risks(text)
    is_held = "conduct" in risks or (taint.basis is Basis.REPEATS and bool(risks))
    return Verdict.HOLD if is_held else Verdict.MARK


class Flow:
    """Determines the sources of a transcript's messages, one after another; keeps no texts."""

    def __init__(self, *, folder: str = "", imported: SourceName | None = None, program: str = "") -> None:
        self._folder = folder
        self._program = program
        """The program that may have composed the messages of the person; empty if they are known to be typed."""
        self._imported = imported
        self._calls: dict[str, ToolCall] = {}
        self._read: list[SourceName] = []

    def take(self, message: Message, origin: Origin) -> SourceName | None:
        """Return the source of the next message."""
        if origin.is_person(message.role):
            self._read.clear()
            if self._program:
                return least_trusted((find_prompt_source(message.text, UNSTATED, self._program), self._imported))
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

    def __init__(self, *, unseen: SourceName | None = None, surroundings: Surroundings | None = None) -> None:
        self._surroundings = surroundings or Surroundings()
        self._sources: dict[SourceName, Source] = {}
        self._readings: list[Reading] = []
        self._said: list[str] = []
        self._first_current = 0
        self._unseen = unseen
        self._indexes = (TextIndex(_reveal), Statements())

    def take(self, source: SourceName | None, text: str, *, is_person: bool, is_whole: bool = True) -> None:
        """Read a text; a message of the person begins a turn, and everything after it belongs to that turn."""
        if is_person:
            self._first_current = len(self._readings)
        if source is not None and source not in self._sources:
            self._sources[source] = read_source(source)
        known = None if source is None else self._sources[source]
        if is_person and (typed := find_typed(text, known)):
            self._said.append(typed)
        if known is not None:
            is_ambient = known.kind is Kind.MESSAGE
            is_legible = not known.is_own or is_ambient or _is_legible(text)  # others taint what follows anyway
            self._readings.append(Reading(known, text, is_whole, is_ambient, is_legible))

    def context(self) -> Context:
        """Return what was read so far."""
        read, said = tuple(self._readings), tuple(self._said)
        return Context(read, said, self._first_current, self._unseen, self._surroundings, self._indexes)

"""How well the search answers questions from a person's own history; nothing leaves the machine.

The test set is made of the person's conversations without a model: questions that were asked again, messages that refer
back, statements without one of their words, and words that only a hidden conversation has.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from wellkept.app.caller import Caller, Scope
from wellkept.core.errors import Reason, Refused, StorageError, UsageError
from wellkept.core.events import Event, Progressed, Warned
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.provenance import quotes_memory
from wellkept.core.search import SearchRequest
from wellkept.core.settings import InvalidSetting, build
from wellkept.core.text import UNSPACED, WORD, dumps, split_pairs
from wellkept.languages.language import join_expressions, stop_words
from wellkept.languages.questions import is_asking
from wellkept.sessions.search.analysis import base, clean, split_speaker
from wellkept.storage.files import make_folder, read_bytes, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from wellkept.app.root import App
    from wellkept.core.ids import SessionId
    from wellkept.core.text import JSON
    from wellkept.sessions.ports import Sessions
    from wellkept.sessions.settings import EmbeddingSettings

DEFAULT_CASES = 100
"""Cases of each kind: enough for a difference of 0.1 to be significant."""
_MOST_MESSAGES = 20_000
"""How many of the newest messages the test set is made from: more take longer and change little."""
_MOST_SESSIONS = 5_000
_LIMIT = 10
"""How many conversations each search requests, as surfaces do."""
_FIVE = 5
_OF_SEARCH = "sessions."
_FILE = "eval/last.json"
_STEP = 20
"""Questions between two reports of progress."""
LONGEST_QUESTION: Final = 300
"""Characters; a longer message asks more than one thing."""
_LEAST_WORDS: Final = 2
"""Content words of a question; with fewer, too many messages answer it."""
_SAME_QUESTION: Final = 0.6
"""The share of common words from which two questions ask the same thing."""
_REPLY_LINES: Final = 4
"""Messages after a question in which it is answered."""
_ASKED_WORDS: Final = 3
"""Content words of a cloze question: a person asks with a few words, and with more every search finds the sentence."""
_SHARED_WORDS: Final = 3
"""Words of a reply that only one earlier conversation has, from which on it is what the reply is about."""
_OPENING_LINES: Final = 3
"""Messages at the beginning of a conversation: later ones refer back to the conversation itself."""
_SENTENCE_WORDS: Final = (5, 40)
_SENTENCE_CHARACTERS: Final = (8, 60)
"""The same for sentences without spaces."""
_READ_CHARACTERS: Final = 4_000
"""How much of a message is read."""
_LANGUAGE_WORDS: Final = 60
"""Words of a message by which its language is recognised."""
_LOOKED_UP: Final = 3
"""The rarest words of a question, by which earlier ones are found: the same question shares one of them."""
_SENTENCES: Final = re.compile(r"(?<=[.!?。\uff01\uff1f])\s+|(?<=[。\uff01\uff1f])|\n+")


class Outcome(Struct, frozen=True):
    """How the search answered one question."""

    rank: int
    """The rank of the first right answer, from 1; 0 if it is not shown."""
    abstained: bool
    seconds: float


class Figures(Struct, frozen=True):
    """What the search achieved with one set of settings: the outcome of each case by its key."""

    outcomes: Mapping[str, Outcome]

    def of(self, kind: str | None = None) -> list[Outcome]:
        """Return the outcomes of a kind, or of all questions that have an answer."""
        kinds = {kind} if kind is not None else {one.value for one in Kind if one is not Kind.ABSENT}
        return [one for key, one in self.outcomes.items() if key.partition("/")[0] in kinds]

    def as_json(self) -> dict[str, JSON]:
        """Return the shares of right answers by kind, how often the search abstained, and its latency."""
        answered, absent = self.of(), self.of(Kind.ABSENT.value)
        times = sorted(1_000 * outcome.seconds for outcome in self.outcomes.values())
        return {
            "kinds": {kind.value: _score(self.of(kind.value)) for kind in Kind if kind is not Kind.ABSENT},
            "all": _score(answered),
            "abstention": {
                "no_answer": {"cases": len(absent), "abstained": sum(one.abstained for one in absent)},
                "answer": {"cases": len(answered), "abstained": sum(one.abstained for one in answered)},
            },
            "latency_ms": {"median": _quantile(times, 0.5), "p95": _quantile(times, 0.95)},
        }


def _score(outcomes: Sequence[Outcome]) -> dict[str, JSON]:
    count = len(outcomes)
    first = sum(outcome.rank == 1 for outcome in outcomes)
    five = sum(0 < outcome.rank <= _FIVE for outcome in outcomes)
    shares = {"hit_at_1": round(first / count, 4), "hit_at_5": round(five / count, 4)} if count else {}
    return {"cases": count, **shares}


def _quantile(times: Sequence[float], share: float) -> float:
    return round(times[min(len(times) - 1, int(share * len(times)))], 2) if times else 0.0


class LastRun(Struct, frozen=True):
    """The figures of the run before this one."""

    when: float
    figures: Mapping[str, JSON]
    in_both: int
    """Cases of this run that the last one had too."""
    gained: int
    """How many of these have their answer in the first place now, but did not then."""
    lost: int
    changed_settings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, JSON]:
        """Return the figures, and what changed since."""
        return {
            "when": self.when,
            **self.figures,
            "in_both": self.in_both,
            "gained": self.gained,
            "lost": self.lost,
            "changed_settings": list(self.changed_settings),
        }


class Evaluation(Struct, frozen=True):
    """The result of one run."""

    when: float
    conversations: int
    messages: int
    current: Figures
    compared_with: str | None = None
    compared: Figures | None = None
    last: LastRun | None = None
    notes: tuple[str, ...] = field(default=())

    def as_json(self) -> dict[str, JSON]:
        """Return all figures; no text of the history is in them."""
        value: dict[str, JSON] = {
            "when": self.when,
            "conversations": self.conversations,
            "messages": self.messages,
            "current": self.current.as_json(),
            "last": None if self.last is None else self.last.as_json(),
            "notes": list(self.notes),
        }
        if self.compared is not None:
            value["compared"] = {"setting": self.compared_with, **self.compared.as_json()}
        return value


def evaluate(caller: Caller, *, compare: str | None = None, cases: int = DEFAULT_CASES) -> Evaluation | Refused:
    """Ask the search questions from the caller's own history and return how often it found the answer.

    `compare` is `SETTING=VALUE`: the same questions are asked with that setting too. The figures are stored for the
    next run, with the ids of the messages and without any text.
    """
    caller.require(Scope.WRITE)
    other = None if compare is None else _check_assignment(compare)
    history = _read_history(caller)
    chosen = build_cases(history, most=cases)
    if not chosen:
        why = "none repeats a question, refers back, or states something in a whole sentence"
        what = f"no test question can be derived from the {len(history.lines):,} stored messages: {why}"
        return Refused(
            Reason.NO_MATCH,
            what if history.lines else "no conversation is stored yet, so there is nothing to ask",
            "use kept for a while, or import conversations: `kept import` lists what is on this machine",
        )
    notes: list[str] = []
    now = caller.app.clock.now().timestamp()
    with _open_sessions(caller, {}, notes) as store:
        current = _measure(caller, store, chosen, task="asking")
    compared = None
    if other is not None:
        with _open_sessions(caller, dict([other]), notes) as store:
            compared = _measure(caller, store, chosen, task=f"asking with {compare}")
    settings = _describe_settings(caller.app)
    last = _read_last(caller, current, settings)
    _write_last(caller, current, settings, now, notes)
    counts = len(history.by_conversation), len(history.lines)
    return Evaluation(now, *counts, current, compare, compared, last, tuple(dict.fromkeys(notes)))


def _check_assignment(text: str) -> tuple[str, str]:
    """Return a setting of the search and its value; raises UsageError for anything else."""
    from wellkept.config.settings import Settings, from_text, known_keys, nearest, put

    key, equals, value = (part.strip() for part in text.partition("="))
    keys = [name for name in known_keys() if name.startswith(_OF_SEARCH)]
    if not equals:
        raise UsageError(f"{text!r} is not SETTING=VALUE", "write it like sessions.embeddings.provider=local")
    if key not in keys:
        what = f"{key!r} is not a setting of the search{nearest(key, keys)}"
        raise UsageError(what, "`kept config show sessions` lists them")
    values: dict[str, Any] = {}
    put(values, key, from_text(key, value))
    try:
        build(Settings, values)
    except InvalidSetting as invalid:
        raise UsageError(str(invalid), f"accepted: {invalid.accepted}") from None
    return key, value


def _read_history(caller: Caller) -> History:
    """Read the newest messages of persons and assistants, without hidden sources."""
    from wellkept.core.messages import Origin, Role

    store = caller.space.sessions
    lineage = store.lineage()
    total = min(_MOST_MESSAGES, store.totals()[1])
    lines: list[Line] = []
    for session in store.upkeep.browse(limit=_MOST_SESSIONS, archived=True):
        root = lineage.root(session.id)
        for row in store.messages(session.id):
            if row.origin is Origin.SYNTHETIC or not row.message.text.strip():
                continue  # summaries repeat what was said elsewhere
            if row.message.role in (Role.USER, Role.ASSISTANT):
                is_person = row.message.role is Role.USER
                lines.append(Line(row.id, root, is_person, row.timestamp, row.message.text))
        caller.space.listeners(Progressed("reading conversations", min(len(lines), total), total))
        if len(lines) >= _MOST_MESSAGES:
            break
    return History(lines)


@contextmanager
def _open_sessions(caller: Caller, changed: Mapping[str, str], notes: list[str]) -> Iterator[Sessions]:
    """Open the caller's conversations with changed settings; a remote embeddings endpoint is never called."""
    from wellkept.app.root import open_app
    from wellkept.config.settings import ENV_PREFIX, load

    def collect(event: Event) -> None:
        if isinstance(event, Warned):
            notes.append(f"{event.message}{f' ({event.remedy})' if event.remedy else ''}")

    home = caller.app.home
    # a search must not begin to replace the vectors of another model
    settings = {**changed, "sessions.embeddings.background": "false"}
    variables = {f"{ENV_PREFIX}{key.upper().replace('.', '__')}": value for key, value in settings.items()}
    environ = {**caller.app.environ, **variables}
    host = _find_remote(load(home, environ).settings.sessions.embeddings, environ)
    if host is not None:
        notes.append(f"the vectors of {host} are left out: eval sends nothing to another machine")
        environ["KEPT_SESSIONS__EMBEDDINGS__PROVIDER"] = "off"
    app = open_app(str(home.root), home.profile, environ=environ, clock=caller.app.clock, sink=collect)
    try:
        yield app.space(caller.user).sessions
    finally:
        app.close()


def _find_remote(settings: EmbeddingSettings, environ: Mapping[str, str]) -> str | None:
    """Return the remote host to which the questions would be sent, or None."""
    from urllib.parse import urlsplit

    from wellkept.llm.endpoints import is_loopback

    if settings.provider != "openai":
        return None
    host = urlsplit(settings.base_url or environ.get("OPENAI_BASE_URL") or "").hostname or "api.openai.com"
    return None if is_loopback(host) else host


def _measure(caller: Caller, store: Sessions, cases: Sequence[Case], *, task: str) -> Figures:
    """Ask every question once, after a warm-up search."""
    lineage = store.lineage()
    hidden = {case.hidden: tuple(lineage.family(case.hidden)) for case in cases if case.hidden is not None}
    _ask(store, cases[0], ())
    outcomes = {}
    for number, case in enumerate(cases, start=1):
        outcomes[case.key] = _ask(store, case, hidden[case.hidden] if case.hidden is not None else ())
        if number % _STEP == 0 or number == len(cases):
            caller.space.listeners(Progressed(task, number, len(cases)))
    return Figures(outcomes)


def _ask(store: Sessions, case: Case, hidden: tuple[SessionId, ...]) -> Outcome:
    from wellkept.sessions.search.discovery import find_conversations

    begin = time.perf_counter()
    answer = find_conversations(store, SearchRequest(case.query, limit=_LIMIT, exclude_sessions=hidden))
    seconds = time.perf_counter() - begin
    if not answer.matches:
        return Outcome(0, abstained=True, seconds=seconds)
    if case.messages:
        right = [hit.message_id in case.messages for hit in answer.found.messages[:_LIMIT]]
    else:
        root = store.lineage().root
        right = [root(match.session.id) in case.conversations for match in answer.matches]
    return Outcome(right.index(True) + 1 if True in right else 0, abstained=False, seconds=seconds)


def _describe_settings(app: App) -> dict[str, str]:
    """Return a hash of each setting of the search, so that the next run can name those that changed."""
    from wellkept.config.settings import known_keys

    hashes = {}
    for key in known_keys():
        if key.startswith(_OF_SEARCH):
            value: Any = app.settings
            for name in key.split("."):
                value = getattr(value, name)
            hashes[key] = blake2b(repr(value).encode(), digest_size=8).hexdigest()
    return hashes


def _last_file(caller: Caller) -> Path:
    return caller.space.home.own / _FILE


def _read_last(caller: Caller, current: Figures, settings: Mapping[str, str]) -> LastRun | None:
    """Return the last run of this user beside the current one; None if there is none that can be read."""
    try:
        stored = json.loads(read_bytes(_last_file(caller)) or b"null")
        ranks: dict[str, int] = {str(key): int(rank) for key, rank in stored["ranks"].items()}
        old_settings: dict[str, str] = stored["settings"]
        both = [(ranks[key], outcome.rank) for key, outcome in current.outcomes.items() if key in ranks]
        return LastRun(
            float(stored["when"]),
            stored["figures"],
            len(both),
            sum(now == 1 != before for before, now in both),
            sum(before == 1 != now for before, now in both),
            tuple(key for key, mark in settings.items() if old_settings.get(key, mark) != mark),
        )
    except (StorageError, ValueError, TypeError, KeyError, AttributeError):
        return None  # the first run, or a file that this version did not write: it is replaced


def _write_last(caller: Caller, current: Figures, settings: Mapping[str, str], now: float, notes: list[str]) -> None:
    """Store the figures for the next run; where that fails, only the comparison is lost."""
    file = _last_file(caller)
    ranks: dict[str, JSON] = {key: outcome.rank for key, outcome in current.outcomes.items()}
    value: dict[str, JSON] = {"when": now, "settings": settings, "figures": current.as_json(), "ranks": ranks}
    try:
        make_folder(file.parent)
        write_atomically(file, dumps(value).encode())
    except StorageError as error:
        notes.append(f"the figures are not stored for the next run: {error.message}")


class Kind(StrEnum):
    """Where a question of the test set comes from."""

    AGAIN = "asked again"
    """A question that was asked in more than one conversation."""
    BACK = "refers back"
    """A message that refers to an earlier conversation."""
    CLOZE = "cloze"
    """A statement without one of its words."""
    ABSENT = "no answer"
    """Words of one conversation, asked without it: the search should find nothing."""


class Line(Struct, frozen=True):
    """One message of the history."""

    id: MessageId
    conversation: SessionId
    """The first session of its conversation."""
    is_person: bool
    moment: float
    text: str


class Case(Struct, frozen=True):
    """One question of the test set, and what answers it."""

    kind: Kind
    message_id: MessageId
    """The message whose words ask."""
    query: str
    conversations: frozenset[SessionId] = frozenset()
    """Each of them answers the question."""
    messages: frozenset[MessageId] = frozenset()
    """The messages that answer; empty where any message of the conversations does."""
    hidden: SessionId | None = None
    """The conversation that the search must not see."""

    @property
    def key(self) -> str:
        """Return what identifies the case in a later run, without any of its words."""
        return f"{self.kind.value}/{self.message_id}"


class History:
    """The messages of a person with the words of each, and how many conversations have a word."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = sorted(lines, key=lambda line: line.id)
        self.words = {line.id: words_of(line.text) for line in self.lines}
        self._holders: dict[str, set[SessionId]] = defaultdict(set)
        self.by_conversation: dict[SessionId, list[Line]] = defaultdict(list)
        self._places: dict[MessageId, int] = {}
        for line in self.lines:
            row = self.by_conversation[line.conversation]
            self._places[line.id] = len(row)
            row.append(line)
            for word in self.words[line.id]:
                self._holders[word].add(line.conversation)

    def holders(self, word: str) -> AbstractSet[SessionId]:
        """Return the conversations that have a word."""
        return self._holders.get(word, frozenset[SessionId]())

    def count(self, word: str) -> int:
        """Return how many conversations have a word."""
        return len(self.holders(base(word.lower())))

    @property
    def most_holders(self) -> int:
        """Return in how many conversations a word may be that tells a statement from others."""
        return max(2, len(self.by_conversation) // 20)

    def place(self, line: Line) -> int:
        """Return how many messages of its conversation come before a message."""
        return self._places[line.id]

    def replies(self, line: Line) -> list[Line]:
        """Return what follows a message in its conversation."""
        index = self._places[line.id]
        return self.by_conversation[line.conversation][index + 1 : index + 1 + _REPLY_LINES]

    def begin(self, conversation: SessionId) -> float:
        """Return the moment of the first message of a conversation."""
        return self.by_conversation[conversation][0].moment

    def sharing(self, line: Line) -> Counter[SessionId]:
        """Return which earlier conversations alone share words with the reply to a message, and how many."""
        reply = frozenset[str]().union(*(self.words[answer.id] for answer in self.replies(line))) - self.words[line.id]
        shared: Counter[SessionId] = Counter()
        for word in reply:
            others = self.holders(word) - {line.conversation}
            if len(others) == 1 and self.begin(*others) < self.begin(line.conversation):
                shared.update(others)
        return shared


def words_of(text: str) -> frozenset[str]:
    """Return the content words of a text; of a script without spaces its character pairs."""
    spoken = split_speaker(clean(text[:_READ_CHARACTERS]))[1]
    pairs = [pair for run in UNSPACED.findall(spoken) for pair in split_pairs(run)]
    words = WORD.findall(UNSPACED.sub(" ", spoken).lower() if pairs else spoken.lower())
    stops = stop_words(words[:_LANGUAGE_WORDS])
    return frozenset(base(word) for word in words if word not in stops).union(pairs)


def build_cases(history: History, *, most: int) -> list[Case]:
    """Return at most `most` cases of each kind; mostly the same ones again when the history has grown."""

    def draw(case: Case) -> bytes:
        # by a hash: a sample over the whole history, of which new messages replace only a few
        return blake2b(case.key.encode(), digest_size=8).digest()

    kinds = (_find_repeated(history), _find_references(history), _find_clozes(history), _find_absent(history))
    return [case for cases in kinds for case in sorted(cases, key=draw)[:most]]


def _find_repeated(history: History) -> Iterator[Case]:
    """Yield questions that were asked in an earlier conversation too, and answered there."""
    asked: dict[str, list[Line]] = defaultdict(list)
    for line in history.lines:
        words = history.words[line.id]
        if not line.is_person or len(words) < _LEAST_WORDS or len(line.text) > LONGEST_QUESTION:
            continue
        if not is_asking(split_speaker(line.text)[1]):
            continue
        rarest = sorted(words, key=lambda word: len(history.holders(word)))[:_LOOKED_UP]
        earlier = []
        for other in {other.id: other for word in rarest for other in asked[word]}.values():
            common, all_words = history.words[other.id] & words, history.words[other.id] | words
            is_same = len(common) >= max(_LEAST_WORDS, _SAME_QUESTION * len(all_words))
            if is_same and other.conversation != line.conversation:
                earlier.append(other)
        answered = {other.conversation for other in earlier if history.replies(other)}
        if answered:
            sources = {
                conversation
                for other in earlier
                for conversation, count in history.sharing(other).items()
                if count >= _SHARED_WORDS
            }
            golden = frozenset(answered | sources - {line.conversation})
            yield Case(Kind.AGAIN, line.id, line.text, golden, hidden=line.conversation)
        for word in words:
            asked[word].append(line)


def _find_references(history: History) -> Iterator[Case]:
    """Yield messages that refer back, where the words of the reply come from one earlier conversation alone."""
    refers_back = re.compile(join_expressions("questions", "refers_back"), re.IGNORECASE)
    for line in history.lines:
        if not line.is_person or len(line.text) > LONGEST_QUESTION or len(history.words[line.id]) < _LEAST_WORDS:
            continue
        if history.place(line) >= _OPENING_LINES or refers_back.search(line.text) is None:
            continue
        best = history.sharing(line).most_common(2)
        if best and best[0][1] >= _SHARED_WORDS and (len(best) == 1 or best[0][1] > best[1][1]):
            yield Case(Kind.BACK, line.id, line.text, frozenset({best[0][0]}), hidden=line.conversation)


def _find_clozes(history: History) -> Iterator[Case]:
    """Yield at most one cloze question of each message: the statement whose missing word is the rarest."""
    for line in history.lines:
        clozes = [cloze for sentence in _find_statements(line) if (cloze := _make_cloze(history, sentence)) is not None]
        if not clozes:
            continue
        missing, query = min(clozes, key=lambda cloze: len(history.holders(cloze[0])))
        # other messages that tell the same are answers too
        wanted = {missing} if UNSPACED.search(query) else words_of(query) | {missing}
        near = [row.id for name in history.holders(missing) for row in history.by_conversation[name]]
        golden = frozenset(message_id for message_id in near if wanted <= history.words[message_id]) | {line.id}
        yield Case(Kind.CLOZE, line.id, query, frozenset({line.conversation}), golden)


def _find_statements(line: Line) -> list[str]:
    """Return the sentences of a person that state something."""
    if not line.is_person or quotes_memory(line.text):
        return []
    spoken = split_speaker(clean(line.text[:_READ_CHARACTERS]))[1]
    return [sentence for sentence in _SENTENCES.split(spoken) if not is_asking(sentence)]


def _split_statement(sentence: str) -> list[tuple[int, str]]:
    """Return the content words of a sentence with their places; none where it is too short or too long."""
    words = WORD.findall(sentence)
    if not _SENTENCE_WORDS[0] <= len(words) <= _SENTENCE_WORDS[1]:
        return []
    stops = stop_words([word.lower() for word in words])
    return [(index, word) for index, word in enumerate(words) if word.lower() not in stops and len(word) > 1]


def _make_cloze(history: History, sentence: str) -> tuple[str, str] | None:
    """Return the rarest word of a statement, and the words around it as a question; None where it tells too little."""
    runs = UNSPACED.findall(sentence)
    if sum(map(len, runs)) * 2 > len(sentence):
        return _make_unspaced_cloze(history, sentence, runs)
    words = _split_statement(sentence)
    if len(words) <= _ASKED_WORDS:
        return None

    def rank(entry: tuple[int, str]) -> tuple[bool, int]:
        # people ask for values: a number, or a name inside a sentence
        index, word = entry
        is_value = any(map(str.isdigit, word)) or (index > 0 and word[:1].isupper())
        return not is_value, history.count(word)

    missing = min(words, key=rank)
    others = [entry for entry in words if entry[1].lower() != missing[1].lower()]
    near = sorted(sorted(others, key=lambda entry: abs(entry[0] - missing[0]))[:_ASKED_WORDS])
    rarest = min((history.count(word) for _, word in near), default=0)
    if len(near) < _ASKED_WORDS or rarest > history.most_holders:
        return None
    return base(missing[1].lower()), f"{' '.join(word for _, word in near)}?"


def _make_unspaced_cloze(history: History, sentence: str, runs: Sequence[str]) -> tuple[str, str] | None:
    if not _SENTENCE_CHARACTERS[0] <= len(sentence) <= _SENTENCE_CHARACTERS[1]:
        return None
    pairs = [pair for run in runs for pair in split_pairs(run) if len(pair) > 1]
    missing = min(pairs, key=history.count, default=None)
    if missing is None or history.count(missing) > history.most_holders:
        return None
    return missing, f"{sentence.replace(missing, ' ').rstrip('。.! ')}?"


def _find_absent(history: History) -> Iterator[Case]:
    """Yield words of statements, most of which only one conversation has: without it nothing answers them."""
    if len(history.by_conversation) == 1:
        return
    for line in history.lines:
        for sentence in _find_statements(line):
            words = {word.lower(): index for index, word in _split_statement(sentence)}
            rarest = sorted(words, key=history.count)[:_ASKED_WORDS]
            alone = sum(history.count(word) == 1 for word in rarest)
            if len(rarest) == _ASKED_WORDS and 2 * alone > _ASKED_WORDS:
                query = f"{' '.join(sorted(rarest, key=words.__getitem__))}?"
                yield Case(Kind.ABSENT, line.id, query, hidden=line.conversation)
                break

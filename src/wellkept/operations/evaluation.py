"""How well the search answers questions from a person's own history; nothing leaves the machine."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from wellkept.app.caller import Caller, Scope
from wellkept.core.errors import Reason, Refused, StorageError, UsageError
from wellkept.core.events import Event, Progressed, Warned
from wellkept.core.search import SearchRequest
from wellkept.core.settings import InvalidSetting, build
from wellkept.core.text import dumps
from wellkept.storage.files import make_folder, read_bytes, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from wellkept.app.root import App
    from wellkept.core.ids import SessionId
    from wellkept.core.text import JSON
    from wellkept.sessions.ports import Sessions
    from wellkept.sessions.search.evaluation_cases import Case, History
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
        from wellkept.sessions.search.evaluation_cases import Kind

        kinds = {kind} if kind is not None else {one.value for one in Kind if one is not Kind.ABSENT}
        return [one for key, one in self.outcomes.items() if key.partition("/")[0] in kinds]

    def as_json(self) -> dict[str, JSON]:
        """Return the shares of right answers by kind, how often the search abstained, and its latency."""
        from wellkept.sessions.search.evaluation_cases import Kind

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
    five = sum(0 < one.rank <= _FIVE for one in outcomes)
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
    from wellkept.sessions.search.evaluation_cases import build_cases

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
    from wellkept.sessions.search.evaluation_cases import History, Line

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
    from hashlib import blake2b

    from wellkept.config.settings import known_keys

    settings = {}
    for key in known_keys():
        if key.startswith(_OF_SEARCH):
            value: Any = app.settings
            for name in key.split("."):
                value = getattr(value, name)
            settings[key] = blake2b(repr(value).encode(), digest_size=8).hexdigest()
    return settings


def _last_file(caller: Caller) -> Path:
    return caller.space.home.own / _FILE


def _read_last(caller: Caller, current: Figures, settings: Mapping[str, str]) -> LastRun | None:
    """Return the last run of this user beside the current one; None if there is none that can be read."""
    try:
        stored = json.loads(read_bytes(_last_file(caller)) or b"null")
        ranks: dict[str, int] = {str(key): int(rank) for key, rank in stored["ranks"].items()}
        known: dict[str, str] = stored["settings"]
        both = [(ranks[key], one.rank) for key, one in current.outcomes.items() if key in ranks]
        return LastRun(
            float(stored["when"]),
            stored["figures"],
            len(both),
            sum(now == 1 != before for before, now in both),
            sum(before == 1 != now for before, now in both),
            tuple(key for key, mark in settings.items() if known.get(key, mark) != mark),
        )
    except (StorageError, ValueError, TypeError, KeyError, AttributeError):
        return None  # the first run, or a file that this version did not write: it is replaced


def _write_last(caller: Caller, current: Figures, settings: Mapping[str, str], now: float, notes: list[str]) -> None:
    """Store the figures for the next run; where that fails, only the comparison is lost."""
    file = _last_file(caller)
    ranks: dict[str, JSON] = {key: one.rank for key, one in current.outcomes.items()}
    value: dict[str, JSON] = {"when": now, "settings": settings, "figures": current.as_json(), "ranks": ranks}
    try:
        make_folder(file.parent)
        write_atomically(file, dumps(value).encode())
    except StorageError as error:
        notes.append(f"the figures are not stored for the next run: {error.message}")

"""The assistant without a model: saves what it is asked to remember, answers with stored passages."""

import re
import shlex
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from kept.agent.statements import (
    Kind,
    Statement,
    asks_everything,
    forget_request,
    is_question,
    statements,
    strip_greeting,
)
from kept.agent.turn import SavedEntry
from kept.core.clock import from_epoch
from kept.core.errors import KeptError, Reason, Refused, StorageError
from kept.core.ids import OWNER, SessionId
from kept.core.messages import Role, StoredMessage
from kept.core.ports import SessionStore
from kept.core.search import SearchRequest
from kept.core.text import UNSPACED, WORD, message_source, quote, split_pairs, stop_words, strip_accents
from kept.core.values import dataclass
from kept.memory.approval import Approvals, Pending
from kept.memory.edits import Add, Author, Target
from kept.memory.history import History
from kept.memory.store import MemoryStore, rules_in

MIN_SCORE = 0.22
"""An entry must hold at least this share of the question's content words to answer it."""
MIN_SHARE_OF_BEST = 0.6
"""Other passages are shown when they reach this share of the best score."""
MAX_ENTRIES = 3
"""How many page entries an answer quotes."""
NOTHING = "I have nothing on that, neither on the pages nor in past conversations."
STORED = "I keep this conversation, so you can ask for it later. To put a fact on the pages, say: remember that …"
NOT_STORED = "I understood, but this conversation is not being stored. To put a fact on the pages, say: remember that …"
INCOGNITO = "This conversation is incognito: I keep nothing."
EMPTY = "The pages are empty. To put a fact on them, say: remember that …"
HOW_TO_FORGET = "I delete nothing myself. To delete what was said in conversations for good:"
QUESTION_CHARS = 1_000
"""A longer message is searched by this many characters at its start and at its end."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage that answers a question, with its source."""

    text: str
    source: str
    score: float


@dataclass(frozen=True, slots=True)
class Reply:
    """The assistant's answer and what it saved."""

    text: str
    saved: tuple[SavedEntry, ...] = ()
    staged: tuple[Pending, ...] = ()
    passages: tuple[Passage, ...] = ()
    unsaved: str = ""
    """Why something that the user asked to keep could not be written; empty when all was."""


class Assistant:
    """Answers without a model, from the pages and from whatever `look_up` finds in past conversations."""

    def __init__(
        self,
        memory: MemoryStore,
        approvals: Approvals,
        *,
        look_up: Callable[[str, SessionId | None], Sequence[Passage]] | None = None,
        suggest: Callable[[str], str] | None = None,
        writes: bool = True,
    ) -> None:
        self._memory = memory
        self._approvals = approvals
        self._look_up = look_up
        self._suggest = suggest
        self._writes = writes
        # the program as hints name it: without `--as` their commands would change the pages of the owner
        self._program = "kept" if memory.user == OWNER else f"kept --as {shlex.quote(memory.user)}"

    def reply(self, text: str, session_id: SessionId | None = None, *, is_stored: bool = True) -> Reply:
        """Return the answer to one message; `is_stored` says whether the conversation is being stored."""
        if asks_everything(text):
            return self._list_everything()
        unwanted = forget_request(text)
        if unwanted is not None:
            return self._explain_forgetting(unwanted)
        found = statements(text)
        if not found:
            return self._answer(text, session_id, STORED if is_stored else NOT_STORED)
        if not self._writes:
            return Reply(INCOGNITO)
        replies = [self._keep(statement, session_id) for statement in found]
        return Reply(
            "\n".join(each.text for each in replies),
            tuple(saved for each in replies for saved in each.saved),
            tuple(staged for each in replies for staged in each.staged),
            unsaved=next((each.unsaved for each in replies if each.unsaved), ""),
        )

    def _keep(self, statement: Statement, session_id: SessionId | None) -> Reply:
        """Save an explicit order, stage an inferred statement, and report the result."""
        is_order = statement.kind is Kind.ORDER
        author = Author(origin="user" if is_order else "agent", session_id=session_id)
        try:
            return self._save(statement, author) if is_order else self._stage(statement, author)
        except KeptError as error:
            return Reply(f"I could not keep that: {error.message}. {error.remedy}".strip(), unsaved=error.message)

    def _stage(self, statement: Statement, author: Author) -> Reply:
        edit = Add(statement.text)
        refused = self._memory.check(statement.target, (edit,), author)
        if refused is not None and refused.reason is not Reason.HELD:
            return Reply(f"I did not keep that: {refused.error} {refused.remedy}")
        if statement.text in self._memory.page(statement.target).entries:
            return Reply(f"I know: {statement.text}")
        pending = self._approvals.stage(statement.target, (edit,), author, why="said in passing")
        said = f"Noted, but not saved yet: {statement.text}\n  keep it: {self._program} memory approve {pending.id}"
        return Reply(said, staged=(pending,))

    def _save(self, statement: Statement, author: Author) -> Reply:
        outcome = self._memory.apply(statement.target, Add(statement.text), author)
        if isinstance(outcome, Refused):
            return self._report_refusal(statement, outcome, author)
        if not outcome.ledger_ids and not outcome.change.steps:
            return Reply(f"I know that already: {statement.text}")
        ledger_id = outcome.ledger_ids[0] if outcome.ledger_ids else None
        undo = f" (undo: {self._program} memory undo {ledger_id})" if ledger_id else ""
        said = f"Saved to {self._memory.pages.name(statement.target)}: {statement.text}{undo}"
        saved = SavedEntry(ledger_id, statement.target.value, statement.text)
        return Reply(f"{said}\n{outcome.note}" if outcome.note else said, (saved,))

    def _report_refusal(self, statement: Statement, refused: Refused, author: Author) -> Reply:
        if refused.reason is not Reason.HELD:
            return Reply(f"I did not keep that: {refused.error} {refused.remedy}")
        names = sorted(rules_in(refused))
        pending = self._approvals.stage(statement.target, (Add(statement.text),), author, why="suspicious", rules=names)
        said = f"{refused.error} To approve it: {self._program} memory approve {pending.id}"
        return Reply(said, staged=(pending,))

    def _list_everything(self) -> Reply:
        pages = self._page_passages()
        lines = [quote(passage.text, passage.source) for passage in pages]
        return Reply("\n".join(lines) or EMPTY, passages=tuple(pages))

    def _explain_forgetting(self, unwanted: str) -> Reply:
        """Name the commands that forget, with the matching entry; only a person runs them."""
        how = f"{HOW_TO_FORGET} {self._program} forget --query WORDS"
        for passage in self._search_pages(unwanted)[:1]:
            name = self._memory.pages.name
            target = next(page for page in self._memory.targets if passage.source.startswith(name(page)))
            command = f"{self._program} memory remove --target {target.value} {shlex.quote(passage.text)}"
            return Reply(f"{quote(passage.text, passage.source)}\n  remove it: {command}\n{how}")
        return Reply(how)

    def _answer(self, said: str, session_id: SessionId | None, acknowledgement: str) -> Reply:
        question = said if len(said) <= 2 * QUESTION_CHARS else f"{said[:QUESTION_CHARS]} {said[-QUESTION_CHARS:]}"
        pages = self._search_pages(question)
        # a question may refer to this very conversation; a statement should not be echoed back
        exclude = None if is_question(question) else session_id
        past = self._look_up(question, exclude) if self._look_up else ()
        fresh = [each for each in past if not any(page.text in each.text for page in pages)]
        passages = _merge_passages(question, pages, fresh)
        hint = self._suggest(question) if self._suggest is not None else ""
        if not passages:
            statement_reply = acknowledgement if self._writes else INCOGNITO
            return Reply(hint or (NOTHING if is_question(question) else statement_reply))
        lines = [quote(passage.text, passage.source) for passage in passages] + ([hint] if hint else [])
        return Reply("\n".join(lines), passages=tuple(passages))

    def _page_passages(self) -> list[Passage]:
        found = []
        for target in self._memory.targets:
            if not self._memory.is_enabled(target):
                continue
            try:
                found += self._passages_of(target)
            except KeptError:
                continue  # an unreadable page is reported when the chat starts; the other one still answers
        return found

    def _search_pages(self, question: str) -> list[Passage]:
        found = self._page_passages()
        scores = relevances(question, [passage.text for passage in found])
        scored = [
            Passage(p.text, p.source, score) for p, score in zip(found, scores, strict=True) if score >= MIN_SCORE
        ]
        best = sorted(scored, key=lambda passage: -passage.score)[:MAX_ENTRIES]
        return [passage for passage in best if passage.score >= best[0].score * MIN_SHARE_OF_BEST]

    def _passages_of(self, target: Target) -> list[Passage]:
        metadata = History(self._memory).metadata(target)
        entries = self._memory.entries(target)
        passages = []
        for entry, shown in zip(entries, self._memory.mask(target, entries), strict=True):
            known = metadata.get(entry)
            when = f", {from_epoch(known.changed).astimezone():%Y-%m-%d}" if known else ""
            passages.append(Passage(shown, f"{self._memory.pages.name(target)}{when}", 0.0))
        return passages


def _merge_passages(question: str, pages: Sequence[Passage], past: Sequence[Passage]) -> list[Passage]:
    """Merge both sources, the better one first, and drop passages far below the other source's best."""
    scores = relevances(question, [passage.text for passage in (*pages, *past)])
    on_pages, in_past = scores[: len(pages)], scores[len(pages) :]
    for_page, for_past = max(in_past, default=0.0), max(on_pages, default=0.0)
    kept_pages = [each for each in zip(pages, on_pages, strict=True) if each[1] >= for_page * MIN_SHARE_OF_BEST]
    kept_past = [each for each in zip(past, in_past, strict=True) if each[1] >= for_past * MIN_SHARE_OF_BEST]
    if for_page > for_past:
        return [passage for passage, _ in (*kept_past, *kept_pages)]
    return [passage for passage, _ in (*kept_pages, *kept_past)]


MAX_PASSAGES = 3
PASSAGE_CHARS = 400


def look_up(store: SessionStore, question: str, exclude: SessionId | None = None) -> list[Passage]:
    """Return the best passages with dates and ids; none when the search finds no good match.

    The conversation `exclude` is left out, and so are messages that only repeat the question.
    """
    from kept.sessions.search.occurrences import Marker

    excluded = (exclude,) if exclude is not None else ()
    try:
        found = store.search(SearchRequest(question, limit=MAX_PASSAGES * 8, exclude_sessions=excluded))
    except StorageError:
        return []
    if found.abstained:
        return []
    passages: list[Passage] = []
    seen = {" ".join(question.split()).casefold()}
    marker = Marker(found.terms)
    for hit in found.messages:
        row = next((each for each in store.window(hit.message_id, before=0, after=0)), None)
        text = " ".join(row.message.text.split()) if row is not None else ""
        if row is None or not text or text.casefold() in seen or not _is_source(store, row):
            continue
        shown = marker.around(text, width=PASSAGE_CHARS)
        if text.endswith(("?", "？")) or relevances(question, [shown])[0] <= 0:
            continue  # a neighbour of the matching passage, or an earlier question
        seen.add(text.casefold())
        when = f"{from_epoch(row.timestamp).astimezone():%Y-%m-%d}"
        who = "you" if row.message.role is Role.USER else "assistant"
        passages.append(Passage(shown, message_source(who, when, row.session_id, row.id), hit.score))
        if len(passages) == MAX_PASSAGES:
            break
    return passages


def _is_source(store: SessionStore, row: StoredMessage) -> bool:
    """Whether a message is a source: not tool output, and not this assistant quoting memory."""
    if row.message.role is Role.USER:
        return True
    session = store.session(row.session_id)
    return (
        row.message.role is Role.ASSISTANT
        and session is not None
        and (session.model is not None or session.source != "cli")
    )


_SHORT_PART: Final = re.compile(r"\b([^\W_]{1,2})-(?=[^\W_]{2})")
"""The optional hyphen of words such as e-mail and wi-fi."""
_COURTESY, _NAMING = (
    frozenset(words.split())
    for words in (
        "thanks thank please ok okay danke bitte merci gracias",
        "name names called call heisst heissen heisse llama llaman llamo appelle appellent 叫 名字",
    )
)
"""Polite words without content, and words that ask for a name; those weigh half, because it matters whose."""
_MIN_PREFIX: Final = 4
"""The shortest common prefix that makes two words inflections of one, such as “moving” and “moved”."""
_RELATED: Final = tuple(
    frozenset(words.split())
    for words in (
        "prefer preference preferred favorite favourite enjoy enjoys",
        "hate dislike avoid dislikes hates",
        "name called call",
        "live lives home address city based reside",
        "work job role profession occupation works employer company",
        "birthday born birth age old",
        "wife husband partner spouse married",
        "editor ide vim emacs vscode neovim",
        "language python rust go typescript java",
        "deploy release ship deployment rollout",
        "timezone zone",
        "eat food diet vegetarian vegan allergic",
        "kid kids child children son daughter",
        "pet dog cat",
        "alt jahre alter",
        "age ans",
        "edad anos",
        "名字 姓名 叫 姓 谁",
        "住 住址 地址 家住",
        "喜欢 爱 偏好",
        "用 使用",
    )
)
"""Groups of words about one topic: a question with one of them is answered by a text with another."""
_CJK_STOP: Final = frozenset("的了吗呢吧啊我你他她是在和与就都也很什么时候哪里谁怎样几多少么为")
_CJK_WORDS: Final = frozenset("叫姓住爱吃喝养用学谁")
"""One-character content words; bigrams with a stop character would lose them."""
_CJK_ORDER: Final = re.compile("记住|記住|记得|記得")
"""Orders to remember: not content, and their second character also means "to live"."""
_CJK_BETWEEN: Final = re.compile(f"[{''.join(sorted(_CJK_STOP | _CJK_WORDS))}]+")
_WHEN: Final = re.compile(
    r"\b(?:when|wann|cu[aá]ndo|quand|what (?:day|time|date))\b|什么时候|几点|哪天|何时", re.IGNORECASE
)
_TIME: Final = re.compile(
    r"\d{1,2}[:h.]\d{2}|\d{4}|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)s?\b"
    r"|\b(?:lunes|martes|mi[eé]rcoles|jueves|viernes|s[aá]bados?|domingos?)\b|\b(?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche)s?\b"
    r"|周|星期|月|点|\b(?:daily|weekly|monthly|morning|evening|noon|night|today|tomorrow)\b",
    re.IGNORECASE,
)


def relevances(question: str, texts: Sequence[str]) -> list[float]:
    """Return a score per text: 0 when it shares no content word with the question.

    Words that occur in few texts weigh more than words that occur in many.
    """
    asked = _terms(question)
    if not asked:
        return [0.0] * len(texts)
    terms = [_terms(text) for text in texts]
    weights = {}
    for term in asked:
        holding = sum(1 for found in terms if any(_same(term, other) for other in found))
        weights[term] = (0.5 if term in _NAMING else 1.0) / (1.0 + holding / max(4.0, len(texts) / 2))
    scores = []
    for text, found in zip(texts, terms, strict=True):
        score = sum(weights[term] * max((_likeness(term, other) for other in found), default=0.0) for term in asked)
        # a question for a time prefers a text that names one
        timely = 0.25 if score > 0 and _WHEN.search(question) and _TIME.search(text) else 0.0
        scores.append(score / sum(weights.values()) + timely if score > 0 else 0.0)
    return scores


def count_shared_words(question: str, text: str) -> int:
    """Return how many content words of the question occur in the text."""
    found = _terms(text)
    return sum(1 for term in _terms(question) if any(_same(term, other) for other in found))


@lru_cache(maxsize=512)
def _terms(text: str) -> frozenset[str]:
    plain = _SHORT_PART.sub(r"\1", strip_accents(strip_greeting(text).casefold()))
    words = [word for word in WORD.findall(plain) if not UNSPACED.search(word)]
    stop = stop_words(words) | _COURTESY
    found = {word for word in words if word not in stop}
    for run in UNSPACED.findall(_CJK_ORDER.sub(" ", unicodedata.normalize("NFC", plain))):
        found |= {pair for pair in split_pairs(run) if not set(pair) & _CJK_STOP} | (_CJK_WORDS & set(run))
        found |= {piece for piece in _CJK_BETWEEN.split(run) if len(piece) == 1}
    return frozenset(found)


def _same(one: str, other: str) -> bool:
    return _likeness(one, other) > 0


@lru_cache(maxsize=16_384)
def _likeness(one: str, other: str) -> float:
    """Return 1 for equal words, less for inflections and for words about one topic, 0 for all others."""
    if one == other:
        return 0.6 if one in _CJK_WORDS else 1.0
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared += 1
    shorter, longer = sorted((len(one), len(other)))
    if shared >= _MIN_PREFIX and shared >= shorter - 2 and shared * 2 >= longer:
        return 0.9  # inflections
    if shorter >= 3 and shared == shorter and longer - shorter <= 3:
        return 0.8  # a short word with an ending, such as “dog” and “dogs”
    return 0.5 if any(one in group and other in group for group in _RELATED) else 0.0

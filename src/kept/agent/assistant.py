"""The assistant without a model: saves what it is told and answers with matching stored passages."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kept.agent.answer import SavedEntry
from kept.agent.relevance import relevances
from kept.agent.statements import Kind, Statement, asks_everything, forget_request, is_question, statements
from kept.core.clock import from_epoch
from kept.core.errors import KeptError, Reason, Refused, StorageError
from kept.core.ids import SessionId
from kept.core.messages import Role, StoredMessage
from kept.core.ports import SessionStore
from kept.core.search import SearchRequest
from kept.core.text import message_source, quote
from kept.memory.approval import Approvals, Pending
from kept.memory.edits import Add, Author, Target
from kept.memory.history import History
from kept.memory.store import MemoryStore, rules_in
from kept.memory.writer import FILE_NAMES

MIN_SCORE = 0.22
"""An entry must hold at least this share of the question's content words to answer it."""
MIN_SHARE_OF_BEST = 0.6
"""Other passages are shown when they reach this share of the best score."""
MAX_ENTRIES = 3
NOTHING = "I have nothing on that, neither on the pages nor in past conversations."
STORED = "I keep this conversation, so you can ask for it later. To put a fact on the pages, say: remember that …"
NOT_STORED = "I understood, but this conversation is not being stored. To put a fact on the pages, say: remember that …"
INCOGNITO = "This conversation is incognito: I keep nothing."
EMPTY = "The pages are empty. To put a fact on them, say: remember that …"
HOW_TO_FORGET = (
    "I forget nothing by myself. What was said in conversations goes for good with: kept forget --query WORDS"
)
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
        )

    def _keep(self, statement: Statement, session_id: SessionId | None) -> Reply:
        """Save an explicit order, stage an inferred statement, and report the result."""
        is_order = statement.kind is Kind.ORDER
        author = Author(origin="user" if is_order else "agent", session_id=session_id)
        try:
            return self._save(statement, author) if is_order else self._stage(statement, author)
        except KeptError as error:
            return Reply(f"I could not keep that: {error.message}. {error.remedy}".strip())

    def _stage(self, statement: Statement, author: Author) -> Reply:
        edit = Add(statement.text)
        refused = self._memory.check(statement.target, (edit,), author)
        if refused is not None and refused.reason is not Reason.HELD:
            return Reply(f"I did not keep that: {refused.error} {refused.remedy}")
        if statement.text in self._memory.page(statement.target).entries:
            return Reply(f"I know: {statement.text}")
        pending = self._approvals.stage(statement.target, (edit,), author, why="said in passing")
        said = f"Noted, but not saved yet: {statement.text}\n  keep it: kept memory approve {pending.id}"
        return Reply(said, staged=(pending,))

    def _save(self, statement: Statement, author: Author) -> Reply:
        outcome = self._memory.apply(statement.target, Add(statement.text), author)
        if isinstance(outcome, Refused):
            return self._report_refusal(statement, outcome, author)
        if not outcome.ledger_ids and not outcome.change.steps:
            return Reply(f"I know that already: {statement.text}")
        ledger_id = outcome.ledger_ids[0] if outcome.ledger_ids else None
        undo = f" (undo: kept memory undo {ledger_id})" if ledger_id else ""
        said = f"Saved to {FILE_NAMES[statement.target]}: {statement.text}{undo}"
        saved = SavedEntry(ledger_id, statement.target.value, statement.text)
        return Reply(f"{said}\n{outcome.note}" if outcome.note else said, (saved,))

    def _report_refusal(self, statement: Statement, refused: Refused, author: Author) -> Reply:
        if refused.reason is not Reason.HELD:
            return Reply(f"I did not keep that: {refused.error} {refused.remedy}")
        names = sorted(rules_in(refused))
        pending = self._approvals.stage(statement.target, (Add(statement.text),), author, why="suspicious", rules=names)
        said = f"{refused.error} It waits for your word: kept memory approve {pending.id}"
        return Reply(said, staged=(pending,))

    def _list_everything(self) -> Reply:
        pages = self._page_passages()
        lines = [quote(passage.text, passage.source) for passage in pages]
        return Reply("\n".join(lines) or EMPTY, passages=tuple(pages))

    def _explain_forgetting(self, unwanted: str) -> Reply:
        """Name the commands that forget, with the matching entry; only a person runs them."""
        for passage in self._search_pages(unwanted)[:1]:
            target = next(target for target in Target if passage.source.startswith(FILE_NAMES[target]))
            command = f"kept memory remove --target {target.value} {shlex.quote(passage.text)}"
            return Reply(f"{quote(passage.text, passage.source)}\n  take it off: {command}\n{HOW_TO_FORGET}")
        return Reply(HOW_TO_FORGET)

    def _answer(self, said: str, session_id: SessionId | None, heard: str) -> Reply:
        question = said if len(said) <= 2 * QUESTION_CHARS else f"{said[:QUESTION_CHARS]} {said[-QUESTION_CHARS:]}"
        pages = self._search_pages(question)
        # a question may refer to this very conversation; a statement should not be echoed back
        besides = None if is_question(question) else session_id
        past = self._look_up(question, besides) if self._look_up else ()
        fresh = [each for each in past if not any(page.text in each.text for page in pages)]
        passages = _merge_passages(question, pages, fresh)
        hint = self._suggest(question) if self._suggest is not None else ""
        if not passages:
            found = heard if self._writes else INCOGNITO
            return Reply(hint or (NOTHING if is_question(question) else found))
        lines = [quote(passage.text, passage.source) for passage in passages] + ([hint] if hint else [])
        return Reply("\n".join(lines), passages=tuple(passages))

    def _page_passages(self) -> list[Passage]:
        found = []
        for target in Target:
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
            passages.append(Passage(shown, f"{FILE_NAMES[target]}{when}", 0.0))
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


def look_up(store: SessionStore, question: str, besides: SessionId | None = None) -> list[Passage]:
    """Return the best passages with dates and ids; none when the search finds no good match.

    The conversation `besides` is excluded, and so are messages that only repeat the question.
    """
    from kept.sessions.search.occurrences import Marker

    excluded = (besides,) if besides is not None else ()
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

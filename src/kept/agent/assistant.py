"""The assistant without a model: saves what it is asked to remember, answers with stored passages."""

import shlex
from collections.abc import Callable, Sequence

from kept.agent.passages import MIN_SHARE_OF_BEST, Passage, list_by_day, merge_passages, relevances
from kept.agent.statements import (
    Kind,
    Statement,
    asks_everything,
    forget_request,
    is_question,
    statements,
)
from kept.agent.turn import SavedEntry
from kept.core.clock import from_epoch
from kept.core.errors import KeptError, Reason, Refused
from kept.core.ids import OWNER, SessionId
from kept.core.text import quote
from kept.core.values import dataclass
from kept.memory.approval import Approvals, Pending
from kept.memory.edits import Add, Author, Target
from kept.memory.history import History
from kept.memory.store import MemoryStore, rules_in

MIN_SCORE = 0.22
"""An entry must hold at least this share of the question's content words to answer it."""
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
        if past and past[0].day:
            return Reply("\n".join(list_by_day(past)), passages=tuple(past))
        fresh = [each for each in past if not any(page.text in each.text for page in pages)]
        passages = merge_passages(question, pages, fresh)
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

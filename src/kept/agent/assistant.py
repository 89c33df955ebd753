"""The assistant without a model: saves what it is asked to remember, answers with stored passages."""

import shlex
import time
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
from kept.core.values import dataclass, replace
from kept.memory.approval import Approvals, Pending
from kept.memory.edits import Add, Author, Replace, Target
from kept.memory.history import History
from kept.memory.store import MemoryStore, rules_in
from kept.sessions.search.answers import Statement as Said
from kept.sessions.search.answers import complete, corrects, is_bare_correction

MIN_SCORE = 0.22
"""An entry must hold at least this share of the question's content words to answer it."""
MAX_ENTRIES = 3
"""How many page entries an answer quotes."""
SAID = "said in passing"
"""Why an inferred statement waits."""
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
        self._previous: dict[SessionId | None, Statement] = {}
        """The last statement of each conversation, which a bare "no, blue" corrects."""
        # the program as hints name it: without `--as` their commands would change the pages of the owner
        self._program = "kept" if memory.user == OWNER else f"kept --as {shlex.quote(memory.user)}"

    def reply(self, text: str, session_id: SessionId | None = None, *, is_stored: bool = True) -> Reply:
        """Return the answer to one message; `is_stored` says whether the conversation is being stored."""
        if asks_everything(text):
            return self._list_everything()
        unwanted = forget_request(text)
        if unwanted is not None:
            return self._explain_forgetting(unwanted)
        found = self._complete(text, session_id) or statements(text)
        if not found:
            return self._answer(text, session_id, STORED if is_stored else NOT_STORED)
        if not self._writes:
            return Reply(INCOGNITO)
        self._previous[session_id] = found[-1]
        replies = [self._keep(statement, session_id) for statement in found]
        return Reply(
            "\n".join(each.text for each in replies),
            tuple(saved for each in replies for saved in each.saved),
            tuple(staged for each in replies for staged in each.staged),
            unsaved=next((each.unsaved for each in replies if each.unsaved), ""),
        )

    def _complete(self, text: str, session_id: SessionId | None) -> list[Statement]:
        """Return the statement that a bare correction makes of the one before it; empty for any other message."""
        before = self._previous.get(session_id)
        if before is None or not is_bare_correction(text):
            return []
        whole = complete(before.text, text)
        return [] if whole == text else [replace(before, text=whole)]

    def _find_corrected(self, statement: Statement) -> tuple[Target, str] | None:
        """Return the entry that a statement corrects, with its page."""
        said = Said(statement.text, time.time())
        for target in self._memory.targets:
            if not self._memory.is_enabled(target):
                continue
            try:
                entries = self._memory.entries(target)
            except KeptError:
                continue  # an unreadable page is reported when the chat starts; the other one can still be written
            for entry in entries:
                if corrects(Said(entry, 0.0), said):
                    return target, entry
        return None

    def _make_edit(self, statement: Statement) -> tuple[Target, Add | Replace, str]:
        """Return the edit that keeps a statement, its page, and a line that says what it replaces."""
        corrected = self._find_corrected(statement)
        if corrected is None:
            return statement.target, Add(statement.text), ""
        target, entry = corrected
        shown = self._memory.mask(target, (entry,))[0]
        return target, Replace(entry, statement.text), f"\n  instead of: {shown}"

    def _keep(self, statement: Statement, session_id: SessionId | None) -> Reply:
        """Save an explicit order, stage an inferred statement, and report the result."""
        is_order = statement.kind is Kind.ORDER
        author = Author(origin="user" if is_order else "agent", session_id=session_id)
        try:
            return self._save(statement, author) if is_order else self._stage(statement, author)
        except KeptError as error:
            return Reply(f"I could not keep that: {error.message}. {error.remedy}".strip(), unsaved=error.message)

    def _stage(self, statement: Statement, author: Author) -> Reply:
        target, edit, instead = self._make_edit(statement)
        refused = self._memory.check(target, (edit,), author)
        if refused is not None and refused.reason is not Reason.HELD:
            return Reply(f"I did not keep that: {refused.error} {refused.remedy}")
        if statement.text in self._memory.page(statement.target).entries:
            return Reply(f"I know: {statement.text}")
        instead += self._withdraw_corrected(statement)
        pending = self._approvals.stage(target, (edit,), author, why=SAID)
        said = f"Noted, but not saved yet: {statement.text}{instead}"
        return Reply(f"{said}\n  keep it: {self._program} memory approve {pending.id}", staged=(pending,))

    def _withdraw_corrected(self, statement: Statement) -> str:
        """Withdraw waiting writes that the statement corrects, so that nobody approves both; say which."""
        said, lines = Said(statement.text, time.time()), ""
        for waiting in self._approvals.waiting():
            if waiting.why == SAID and any(corrects(Said(text, 0.0), said) for text in waiting.texts):
                self._approvals.reject(waiting.id)
                lines += f"\n  no longer waiting: {waiting.summary}"
        return lines

    def _save(self, statement: Statement, author: Author) -> Reply:
        target, edit, instead = self._make_edit(statement)
        outcome = self._memory.apply(target, edit, author)
        if isinstance(outcome, Refused):
            return self._report_refusal(statement, outcome, author)
        if not outcome.ledger_ids and not outcome.change.steps:
            return Reply(f"I know that already: {statement.text}")
        ledger_id = outcome.ledger_ids[0] if outcome.ledger_ids else None
        undo = f" (undo: {self._program} memory undo {ledger_id})" if ledger_id else ""
        said = f"Saved to {self._memory.pages.name(target)}: {statement.text}{instead}{undo}"
        saved = SavedEntry(ledger_id, target.value, statement.text)
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
        scored = [replace(p, score=score) for p, score in zip(found, scores, strict=True) if score >= MIN_SCORE]
        best = sorted(scored, key=lambda passage: -passage.score)[:MAX_ENTRIES]
        return [passage for passage in best if passage.score >= best[0].score * MIN_SHARE_OF_BEST]

    def _passages_of(self, target: Target) -> list[Passage]:
        metadata = History(self._memory).metadata(target)
        entries = self._memory.entries(target)
        passages = []
        for entry, shown in zip(entries, self._memory.mask(target, entries), strict=True):
            known = metadata.get(entry)
            when = f", {from_epoch(known.changed).astimezone():%Y-%m-%d}" if known else ""
            source = f"{self._memory.pages.name(target)}{when}"
            passages.append(Passage(shown, source, 0.0, moment=known.changed if known else 0.0))
        return passages

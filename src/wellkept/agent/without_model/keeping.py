"""Saving and forgetting what a person says: save on request, propose facts, and carry out the person's decisions."""

import shlex
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wellkept.agent.turn import SavedEntry
from wellkept.agent.without_model.dialogue import Actions, Forgettable, Memo
from wellkept.agent.without_model.intents import is_small_talk
from wellkept.agent.without_model.passages import MIN_SCORE, Passage, relevances, search_pages
from wellkept.agent.without_model.statements import Kind, Statement, name_subject, strip_correction, tidy
from wellkept.core.errors import KeptError, NotFound, Reason, Refused
from wellkept.core.ids import OWNER, SessionId, SourceName
from wellkept.facts.chronology import Statement as Said
from wellkept.facts.chronology import replaces
from wellkept.facts.replies import begins_correction
from wellkept.memory.approval import Approvals, Pending
from wellkept.memory.page import Add, Author, Replace, Target
from wellkept.memory.store import MemoryStore, Outcome, rules_in
from wellkept.security.secrets import redact

if TYPE_CHECKING:
    from wellkept.languages.language import Language


SAID = "said in passing"
"""Why an inferred statement is pending."""
_HOW_TO_ANSWER = frozenset({"assistant_order"})
"""The scanner's rule for instructions to the assistant."""


class Kept(Struct, frozen=True):
    """The outcome of a statement, as text and as values."""

    text: str
    saved: tuple[SavedEntry, ...] = ()
    staged: tuple[Pending, ...] = ()
    unsaved: str = ""
    """Why something that the user asked to keep could not be written; empty when all was."""


class Keeper:
    """Writes to the pages of one user, immediately or as a proposal, and answers in one language."""

    def __init__(
        self,
        memory: MemoryStore,
        approvals: Approvals,
        actions: Actions | None,
        spoken: "Language",
        *,
        speaker: SourceName | None = None,
    ) -> None:
        self._memory = memory
        self._approvals = approvals
        self._actions = actions
        self._spoken = spoken
        self._speaker = speaker
        """The source of what is said, if no person says it: then nothing is saved without approval."""
        # the program as hints name it: without `--as` their commands would change the pages of the owner
        self.program = "kept" if memory.user == OWNER else f"kept --as {shlex.quote(memory.user)}"

    def keep(self, statements: Sequence[Statement], session_id: SessionId | None) -> Kept:
        """Save what was requested, propose facts with one question for all of them, and report the results."""
        results = [self._keep_one(statement, session_id) for statement in statements]
        staged = tuple(pending for result in results for pending in result.staged)
        proposed = tuple(pending for pending in staged if pending.why == SAID)
        lines = [result.text for result in results]
        if proposed:
            lines.append(f"  {self.ask(proposed)}")
        return Kept(
            "\n".join(lines),
            tuple(saved for result in results for saved in result.saved),
            staged,
            next((result.unsaved for result in results if result.unsaved), ""),
        )

    def ask(self, proposed: Sequence[Pending]) -> str:
        """Return the question whether to save what was just named, with the command that does the same."""
        which = proposed[0].id if len(proposed) == 1 else "all"
        name = "keep_question" if len(proposed) == 1 else "keep_question_many"
        return self._spoken.say(name, command=f"{self.program} memory approve {which}")

    def _keep_one(self, statement: Statement, session_id: SessionId | None) -> Kept:
        is_order = statement.kind is Kind.ORDER and self._speaker is None
        sources = {} if self._speaker is None else {statement.text: self._speaker}
        author = Author(origin="user" if is_order else "agent", session_id=session_id, sources=sources)
        try:
            return self._save(statement, author) if is_order else self._stage(statement, author)
        except KeptError as error:
            reason = f"{error.message}. {error.remedy}".strip()
            return Kept(self._spoken.say("failed", reason=reason), unsaved=error.message)

    def _stage(self, statement: Statement, author: Author) -> Kept:
        target, edit, instead = self._make_edit(statement)
        refused = self._memory.check(target, (edit,), author)
        # the person may say how to answer; anything else that the scanner holds is not proposed
        if refused is not None and (refused.reason is not Reason.HELD or rules_in(refused) != _HOW_TO_ANSWER):
            return Kept(self._refuse(refused))
        if statement.text in self._memory.page(statement.target).entries:
            return Kept(self._spoken.say("known_already", text=statement.text))
        instead += self._withdraw_corrected(statement)
        rules = sorted(_HOW_TO_ANSWER) if refused is not None else ()
        pending = self._approvals.stage(target, (edit,), author, why=SAID, rules=rules)
        return Kept(f"{self._spoken.say('proposed', text=statement.text)}{instead}", staged=(pending,))

    def _save(self, statement: Statement, author: Author) -> Kept:
        target, edit, instead = self._make_edit(statement)
        outcome = self._memory.apply(target, edit, author)
        if isinstance(outcome, Refused):
            return self._report_refusal(statement, outcome, author)
        if not outcome.ledger_ids and not outcome.change.steps:
            return Kept(self._spoken.say("known_already", text=statement.text))
        ledger_id = outcome.ledger_ids[0] if outcome.ledger_ids else None
        said = self._spoken.say("saved", page=self._memory.pages.name(target), text=statement.text) + instead
        if ledger_id:
            said += f" {self._spoken.say('undo_hint', command=f'{self.program} memory undo {ledger_id}')}"
        saved = SavedEntry(ledger_id, target.value, statement.text)
        return Kept(f"{said}{self._describe_moves(outcome)}", (saved,))

    def _describe_moves(self, outcome: Outcome) -> str:
        """Return lines that say what moved to the archive, and how to bring each entry back."""
        if not outcome.moved:
            return f"\n{outcome.note}" if outcome.note else ""
        ids = outcome.ledger_ids[len(outcome.change.steps) :]
        commands = ", ".join(f"{self.program} memory restore {ledger_id}" for ledger_id in ids)
        return f"\n  {self._spoken.say('made_room', texts='; '.join(outcome.moved), command=commands)}"

    def _report_refusal(self, statement: Statement, refused: Refused, author: Author) -> Kept:
        if refused.reason is not Reason.HELD:
            return Kept(self._refuse(refused))
        names = sorted(rules_in(refused))
        pending = self._approvals.stage(statement.target, (Add(statement.text),), author, why="suspicious", rules=names)
        command = f"{self.program} memory approve {pending.id}"
        return Kept(self._spoken.say("held", reason=refused.error, command=command), staged=(pending,))

    def _refuse(self, refused: Refused) -> str:
        return self._spoken.say("refused", reason=f"{refused.error} {refused.remedy}".strip())

    def _make_edit(self, statement: Statement) -> tuple[Target, Add | Replace, str]:
        """Return the edit that saves a statement, its page, and a line that says what it replaces."""
        corrected = self._find_corrected(statement)
        if corrected is None:
            return statement.target, Add(statement.text), ""
        target, entry = corrected
        shown = self._memory.mask(target, (entry,))[0]
        return target, Replace(entry, statement.text), f"\n  {self._spoken.say('instead', text=shown)}"

    def find_correction(self, text: str, before: str) -> list[Statement]:
        """Return a message that corrects an entry as a statement to propose; empty for any other message.

        Such a message need not look like a fact: "the stand-up moved to 10" says so, and "it moved to 10" after it.
        """
        whole = (name_subject(before, text) if before else None) or tidy(text)
        corrected = self._find_corrected(Statement(Kind.INFERRED, whole, Target.USER))
        return [] if corrected is None else [Statement(Kind.INFERRED, whole, corrected[0])]

    def _find_corrected(self, statement: Statement) -> tuple[Target, str] | None:
        """Return the entry that a statement corrects, with its page."""
        entries = self._list_entries()
        return next(((target, entry) for target, entry in entries if _takes_place_of(statement, entry)), None)

    def _list_entries(self) -> Iterator[tuple[Target, str]]:
        for target in self._memory.targets:
            if not self._memory.is_enabled(target):
                continue
            try:
                entries = self._memory.entries(target)
            except KeptError:
                continue  # an unreadable page is reported when the chat starts; the other one can still be written
            for entry in entries:
                yield target, entry

    def _withdraw_corrected(self, statement: Statement) -> str:
        """Withdraw pending writes that the statement corrects, so that nobody approves both; say which."""
        lines = ""
        for waiting in self._approvals.waiting():
            if waiting.why == SAID and any(_takes_place_of(statement, text) for text in waiting.texts):
                self._approvals.reject(waiting.id)
                lines += f"\n  {self._spoken.say('withdrawn', text=waiting.summary)}"
        return lines

    def withdraw(self, pending_ids: Sequence[str], text: str) -> None:
        """Withdraw the proposal of a text that the person has just corrected."""
        for waiting in self._approvals.waiting():
            if waiting.id in pending_ids and waiting.why == SAID and text in waiting.texts:
                self._approvals.reject(waiting.id)

    def accept(self, pending_ids: Sequence[str], memo: Memo) -> tuple[Kept, Memo]:
        """Save what was proposed, after a yes to the question that named it."""
        assert self._actions is not None
        lines, saved, done = [], [], list[int]()
        for waiting in self._list_waiting(pending_ids):
            outcome = self._actions.approve(waiting.id)
            if isinstance(outcome, Refused):
                lines.append(self._refuse(outcome))
                continue
            text = "; ".join(waiting.texts) or waiting.summary
            lines.append(self._spoken.say("saved", page=self._memory.pages.name(waiting.target), text=text))
            done += outcome.ledger_ids
            saved += [SavedEntry(number, waiting.target.value, text) for number in outcome.ledger_ids[:1]]
        memo = replace(memo.close_question(), done=tuple(done), done_text="; ".join(one.text for one in saved))
        return Kept("\n".join(lines) or self._spoken.say("nothing_open"), tuple(saved)), memo

    def decline(self, pending_ids: Sequence[str], memo: Memo) -> tuple[Kept, Memo]:
        """Drop what was proposed, after a no."""
        assert self._actions is not None
        lines = []
        for waiting in self._list_waiting(pending_ids):
            rejected = self._actions.reject(waiting.id)
            if isinstance(rejected, Refused):
                lines.append(self._refuse(rejected))
            else:
                lines.append(self._spoken.say("rejected", text="; ".join(waiting.texts) or waiting.summary))
        return Kept("\n".join(lines) or self._spoken.say("nothing_open")), memo.close_question()

    def _list_waiting(self, pending_ids: Sequence[str]) -> list[Pending]:
        """Return those that are still pending; another process may have decided meanwhile."""
        return [waiting for waiting in self._approvals.waiting() if waiting.id in pending_ids]

    def undo(self, memo: Memo) -> tuple[Kept, Memo]:
        """Undo the last change of this conversation."""
        assert self._actions is not None
        if not memo.done:
            return Kept(self._spoken.say("nothing_to_undo", program=self.program)), memo.close_question()
        for ledger_id in reversed(memo.done):
            try:
                outcome = self._actions.undo(ledger_id)
            except NotFound as error:
                return Kept(self._spoken.say("undo_failed", reason=error.message)), replace(memo, done=(), done_text="")
            if isinstance(outcome, Refused):
                reason = f"{outcome.error} {outcome.remedy}".strip()
                return Kept(self._spoken.say("undo_failed", reason=reason)), memo
        said = self._spoken.say("undone", text=memo.done_text)
        return Kept(said), replace(memo.close_question(), done=(), done_text="")

    def _find_redacted(self, texts: Sequence[str]) -> list[str]:
        """Return the entries and pending texts that were stored with the conversation as one of these texts.

        A stored conversation has no credentials, and what is to be forgotten may be one.
        """
        entries = [entry for _, entry in self._list_entries()]
        waiting = [text for pending in self._approvals.waiting() for text in pending.texts]
        known = dict.fromkeys((*entries, *waiting))
        return [text for text in known if (safe := redact(text)) != text and safe in texts]

    def ask_to_forget(self, texts: Sequence[str] | None, memo: Memo) -> tuple[str, Memo]:
        """Return the question that names what would be deleted (None: everything), and the memo with it open."""
        assert self._actions is not None
        spoken, closed = self._spoken, memo.close_question()
        if texts is not None and (hidden := self._find_redacted(texts)):
            texts = [*(text for text in texts if text not in map(redact, hidden)), *hidden]
        try:
            planned = self._actions.plan_forgetting(texts)
        except KeptError as error:
            return spoken.say("forget_failed", reason=error.message), closed
        if isinstance(planned, Refused) or texts == []:
            return spoken.say("nothing_to_forget"), closed
        counts = self._list_counts(planned)
        if texts is None:
            lines = [spoken.say("forget_all_question", counts=counts)]
        else:
            lines = [spoken.say("forget_question"), *(f"  {text}" for text in texts), f"  ({counts})"]
        asked = replace(closed, asked="forget_all" if texts is None else "forget", texts=tuple(texts or ()))
        return "\n".join([*lines, spoken.say("confirm")]), asked

    def forget(self, memo: Memo) -> tuple[str, Memo, bool]:
        """Forget what the open question named; return the answer, the memo, and whether anything was deleted."""
        assert self._actions is not None
        spoken = self._spoken
        hidden = self._find_redacted(memo.texts)
        if len(hidden) > sum(text in map(redact, hidden) for text in memo.texts):
            return *self.ask_to_forget([*memo.texts, *hidden], memo), False  # the question did not name all of them
        try:
            gone = self._actions.forget(None if memo.asked == "forget_all" else (*memo.texts, *hidden))
        except KeptError as error:
            return spoken.say("forget_failed", reason=error.message), memo.close_question(), True
        if isinstance(gone, Refused):
            return spoken.say("nothing_to_forget"), memo.close_question(), False
        # the memo must not keep what was forgotten
        fresh = Memo(language=memo.language)
        if not gone.is_complete:
            return spoken.say("forgotten_partly", command="kept doctor"), fresh, True
        return spoken.say("forgotten", counts=self._list_counts(gone)), fresh, True

    def _list_counts(self, counted: Forgettable) -> str:
        counts = {
            "count_entries": counted.entries,
            "count_waiting": counted.waiting,
            "count_messages": counted.messages,
            "count_sessions": counted.sessions,
        }
        return ", ".join(self._spoken.say(name, count=count) for name, count in counts.items() if count)


def list_waiting(approvals: Approvals, question: str, spoken: "Language", known: Sequence[Passage]) -> list[Passage]:
    """Return what waits for a yes and says what no known passage says: a correction, above all."""
    label = spoken.say("known_waiting").rstrip(" :\uff1a\xa0")
    waiting = [(one, text) for one in approvals.waiting() if one.why == SAID for text in one.texts]
    scores = relevances(question, [text for _, text in waiting])
    return [
        Passage(text, f"{label} ({one.id})", score, moment=one.created)
        for (one, text), score in zip(waiting, scores, strict=True)
        if score >= MIN_SCORE and not any(text.casefold() in each.text.casefold() for each in known)
    ]


def _takes_place_of(statement: Statement, text: str) -> bool:
    """Whether a statement corrects a text: the person said so, or it tells another value of the same thing."""
    if statement.instead and text != statement.text and tidy(text) == tidy(statement.instead):
        return True
    return replaces(Said(text, 0.0), Said(statement.text, time.time()))


def find_unwanted(
    unwanted: str,
    places: "tuple[MemoryStore, Approvals]",
    past: Sequence[Passage],
    said: Sequence[Passage],
    spoken: "Language",
) -> list[str]:
    """Return the texts of the pages, of what waits and of past conversations that an order to forget means.

    `past` is what a search for it found, `said` what the person stated lately.
    """
    memory, approvals = places
    found = [passage.text for passage in search_pages(memory, unwanted)]
    candidates = [text for one in approvals.waiting() for text in one.texts]
    candidates += [one.text for one in past if not one.day]
    # each by itself: a word does not weigh less because the past says it often
    found += [text for text in candidates if relevances(unwanted, [text])[0] >= 2 * MIN_SCORE]
    corrections = {one.corrected_by for one in past if one.text in found and one.corrected_by}
    # "no, it is 4472" names nothing, but tells what is to be forgotten
    found += [one.text for one in past if one.number in corrections and not is_small_talk(one.text)]
    found += [one.text for one in said if any(_repeats_value(one.text, text, spoken) for text in found)]
    return _drop_contained(found)


def _repeats_value(text: str, whole: str, spoken: "Language") -> bool:
    """Whether a bare correction gives the value that a whole statement tells."""
    if not begins_correction(text):
        return False
    value = spoken.pattern("copula").sub("", tidy(strip_correction(text)))
    value = spoken.pattern("pronoun").sub("", value).strip()
    return bool(value) and value.casefold() in whole.casefold()


def _drop_contained(texts: Sequence[str]) -> list[str]:
    """Return the texts without those that say again what a shorter one says: with that one they go, too."""
    plain = {tidy(text).casefold(): text for text in reversed(texts)}
    return [text for key, text in reversed(plain.items()) if not any(one in key for one in plain if one != key)]

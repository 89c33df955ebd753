"""The assistant without a model: recognises the intent of a message, and answers in its language from stored text."""

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from wellkept.agent.turn import SavedEntry
from wellkept.agent.without_model.dialogue import NO_MEMO, Actions, Memo
from wellkept.agent.without_model.intents import (
    Act,
    Reading,
    classify,
    find_time_question,
    is_reminder,
    is_task,
    names_period,
    read,
    split_lead,
)
from wellkept.agent.without_model.keeping import SAID, Keeper, Kept, find_unwanted, list_waiting
from wellkept.agent.without_model.passages import (
    Passage,
    drop_superseded,
    list_by_day,
    list_page_passages,
    merge_passages,
    relevances,
    repeats_entry,
    search_pages,
)  # fmt: skip
from wellkept.agent.without_model.statements import (
    MOST_CHARACTERS,
    Kind,
    Statement,
    choose_page,
    correct_value,
    forget_request,
    is_fact,
    parse_order,
    replace_repeated,
    statements,
    strip_correction,
)  # fmt: skip
from wellkept.core.ids import SessionId, SourceName
from wellkept.core.provenance import quote
from wellkept.core.text import WORD
from wellkept.facts.replies import begins_correction, is_bare_correction
from wellkept.languages.language import Language, detect
from wellkept.memory.approval import Approvals, Pending
from wellkept.memory.page import Target
from wellkept.memory.store import MemoryStore

QUESTION_CHARS = 1_000
"""For a longer message, only this many characters at its start and end are searched for."""
_FRAGMENT_WORDS: Final = 4
"""A message of at most this many words without a verb is looked up like a question."""


class Reply(Struct, frozen=True):
    """The assistant's answer, what it saved, and what the next message may refer to."""

    text: str
    saved: tuple[SavedEntry, ...] = ()
    staged: tuple[Pending, ...] = ()
    passages: tuple[Passage, ...] = ()
    unsaved: str = ""
    """Why something that the user asked to keep could not be written; empty when all was."""
    memo: Memo = Memo()
    has_forgotten: bool = False
    """Whether messages of this conversation may have been deleted."""


class _Message(Struct, frozen=True):
    """A message with everything that its answer depends on."""

    text: str
    reading: Reading
    memo: Memo
    session_id: SessionId | None
    is_stored: bool

    @property
    def spoken(self) -> Language:
        return self.reading.language


class Sources(Struct, frozen=True):
    """Sources of answers in addition to the pages; None if unavailable."""

    look_up: Callable[[str, SessionId | None], Sequence[Passage]] | None = None
    """Finds passages of past conversations, except those of one session."""
    list_said: Callable[[], Sequence[Passage]] = tuple
    """Lists what the person stated lately."""
    suggest: Callable[[str], str] | None = None
    """Finds a skill for a question."""
    is_readable: bool = True
    """Whether past conversations can be read, if there are any."""


_NO_SOURCES: Final = Sources()


class Assistant:
    """Answers without a model, from the pages and from whatever its sources find in past conversations."""

    def __init__(
        self,
        memory: MemoryStore,
        approvals: Approvals,
        sources: Sources = _NO_SOURCES,
        *,
        actions: Actions | None = None,
        speaker: SourceName | None = None,
    ) -> None:
        self._memory = memory
        self._approvals = approvals
        self._sources = sources
        self._actions = actions
        self._speaker = speaker

    def reply(
        self, text: str, session_id: SessionId | None = None, *, is_stored: bool = True, memo: Memo = NO_MEMO
    ) -> Reply:
        """Return the answer to one message; `is_stored` says whether the conversation is being stored."""
        code = detect(text, memo.language if memo.message else None) or memo.language
        reading = read(text, code)
        message = _Message(reading.question, reading, replace(memo, language=code), session_id, is_stored)
        question = find_time_question(reading, memo.question, self._memory.clock.now().timestamp())
        if question is not None:
            return self._answer(replace(message, text=question, reading=replace(read(question, code), asks=True)))
        act = classify(message.reading)
        if act in _WITH_CONTENT and parse_order(text) is None:
            lead, rest = split_lead(text, code)
            if lead is not None:
                return self._answer_lead(lead, replace(message, text=rest, reading=read(rest, code)))
        return self._act(act, message)

    def _answer_lead(self, lead: Act, message: _Message) -> Reply:
        """Answer a message with a lead-in: a yes or no is carried out first, a greeting is not repeated."""
        if lead is Act.NO and (corrected := self._correct(message)) is not None:
            return corrected
        if lead in {Act.YES, Act.NO, Act.SAVE_THAT} and message.memo.asked:
            first = self._act(lead, message)
            if classify(message.reading) in _AGREEING:
                return first
            second = self._act(classify(message.reading), replace(message, memo=first.memo))
            return replace(
                second,
                text=f"{first.text}\n{second.text}",
                saved=(*first.saved, *second.saved),
                has_forgotten=first.has_forgotten or second.has_forgotten,
            )
        answer = self._act(classify(message.reading), message)
        is_empty = answer.text == message.spoken.say("stored") and lead in _SAID
        return self._act(lead, message) if is_empty else answer

    def _act(self, act: Act, message: _Message) -> Reply:
        answers: dict[Act, Callable[[Act, _Message], Reply]] = {
            **dict.fromkeys(_SAID, self._answer_with_words),
            **dict.fromkeys((Act.DATE, Act.CLOCK), self._tell_time),
            **dict.fromkeys((Act.YES, Act.NO, Act.SAVE_THAT, Act.DONT_SAVE, Act.UNDO), self._decide),
            **dict.fromkeys((Act.FORGET_ALL, Act.FORGET_THAT), self._ask_to_forget),
            Act.PERSON: self._list_everything,
            Act.FOLLOW_UP: self._follow_up,
            Act.HISTORY: self._tell_history,
        }
        return answers.get(act, self._answer_content)(act, message)

    def _answer_with_words(self, act: Act, message: _Message) -> Reply:
        again = act is Act.GREETING and message.memo.message
        return self._say(message, "greeting_again" if again else _SAID[act])

    def _tell_time(self, act: Act, message: _Message) -> Reply:
        moment = self._memory.clock.now().astimezone()
        return self._say(message, message.spoken.describe_moment(act.value, moment), is_text=True)

    def _say(self, message: _Message, name: str, *, is_text: bool = False) -> Reply:
        text = name if is_text else message.spoken.say(name)
        return Reply(text, memo=message.memo.close_question())

    def _keeper(self, message: _Message) -> Keeper:
        return Keeper(self._memory, self._approvals, self._actions, message.spoken, speaker=self._speaker)

    def _decide(self, act: Act, message: _Message) -> Reply:
        """Carry out a yes, a no, "keep it", "don't save that" or "undo that"."""
        memo = message.memo
        if self._actions is None:
            return self._say(message, "accepted" if act is Act.NO else "incognito")
        if memo.asked and act is not Act.UNDO:
            return self._answer_question(message, agrees=act in {Act.YES, Act.SAVE_THAT})
        if act is Act.UNDO or (act is Act.DONT_SAVE and memo.is_fresh):
            return _reply(*self._keeper(message).undo(memo))
        if act is Act.SAVE_THAT and memo.statement:
            return self._keep(message, [Statement(Kind.ORDER, memo.statement, Target.USER)])
        return self._offer_waiting(message) if act in {Act.YES, Act.SAVE_THAT} else self._accept_no(act, message)

    def _answer_question(self, message: _Message, *, agrees: bool) -> Reply:
        """Carry out the answer to the open question; only what it named is saved or deleted."""
        memo, keeper = message.memo, self._keeper(message)
        if memo.asked.startswith("forget"):
            if not agrees:
                return self._say(message, "forget_declined")
            said, memo, has_forgotten = keeper.forget(memo)
            return Reply(said, memo=memo, has_forgotten=has_forgotten)
        return _reply(*(keeper.accept(memo.pending, memo) if agrees else keeper.decline(memo.pending, memo)))

    def _accept_no(self, act: Act, message: _Message) -> Reply:
        """Answer a no without an open question, or a request not to save something that was not saved."""
        if act is Act.NO:
            return self._say(message, "accepted")
        command = f"{self._keeper(message).program} forget --query WORDS"
        return self._say(message, message.spoken.say("nothing_saved_stored", command=command), is_text=True)

    def _offer_waiting(self, message: _Message) -> Reply:
        """Answer a yes without an open question: say so, or list pending proposals and ask."""
        waiting = [one for one in self._approvals.waiting() if one.why == SAID]
        if not waiting:
            return self._say(message, "nothing_open")
        lines = [
            message.spoken.say("waiting_question"),
            *(f"  {'; '.join(one.texts) or one.summary}" for one in waiting),
        ]
        lines.append(f"  {self._keeper(message).ask(waiting)}")
        memo = replace(message.memo, asked="keep", pending=tuple(one.id for one in waiting), texts=())
        return Reply("\n".join(lines), memo=memo)

    def _keep(self, message: _Message, found: Sequence[Statement]) -> Reply:
        if self._actions is None:
            return self._say(message, "incognito")
        kept = self._keeper(message).keep(found, message.session_id)
        memo = replace(message.memo.close_question(), statement=found[-1].text)
        numbers = tuple(int(saved.ledger_id) for saved in kept.saved if saved.ledger_id)
        if numbers:
            memo = replace(memo, done=numbers, done_text="; ".join(saved.text for saved in kept.saved))
        asked = tuple(pending.id for pending in kept.staged if pending.why == SAID)
        if asked:
            memo = replace(memo, asked="keep", pending=asked)
        return _reply(kept, memo)

    def _correct(self, message: _Message) -> Reply | None:
        """Answer a correction of the statement or the answer before it; None for any other message."""
        memo, said = message.memo, strip_correction(message.text)
        if not memo.statement or message.reading.asks or is_fact(said, memo.language):
            return None
        # "no one knows" begins like a correction; with so many words only a repeated verb tells that it is one
        is_led = said != message.text and not is_bare_correction(message.text)
        whole = (replace_repeated if is_led else correct_value)(memo.statement, said, message.spoken)
        if whole is None:
            return None
        self._keeper(message).withdraw(memo.pending, memo.statement)
        target = choose_page(whole, memo.language)
        return self._keep(message, [Statement(Kind.INFERRED, whole, target, instead=memo.statement)])

    def _ask_to_forget(self, act: Act, message: _Message) -> Reply:
        memo = message.memo
        if act is Act.FORGET_THAT and memo.asked.startswith("forget"):
            return self._decide(Act.YES, message)
        if act is Act.FORGET_ALL:
            return self._confirm_forgetting(message, None)
        if memo.asked == "keep":
            return self._decide(Act.NO, message)
        if memo.is_fresh:
            return self._confirm_forgetting(message, memo.done_text.split("; "))
        return self._confirm_forgetting(message, memo.answered) if memo.answered else self._say(message, "accepted")

    def _find_unwanted(self, unwanted: str, message: _Message) -> list[str]:
        look_up, said = self._sources.look_up, self._sources.list_said()
        past = look_up(f"{unwanted}?", None) if look_up is not None else ()  # a question finds corrections
        return find_unwanted(unwanted, (self._memory, self._approvals), past, said, message.spoken)

    def _confirm_forgetting(self, message: _Message, texts: Sequence[str] | None) -> Reply:
        """List what would be deleted, and ask."""
        if self._actions is None:
            return self._say(message, "incognito")
        said, memo = self._keeper(message).ask_to_forget(texts, message.memo)
        return Reply(said, memo=memo)

    def _list_everything(self, _act: Act, message: _Message) -> Reply:
        """List the pages, pending proposals, and statements from conversations, each under its heading."""
        spoken, pages = message.spoken, list_page_passages(self._memory)
        waiting = self._approvals.waiting()
        known = [passage.text for passage in pages] + [text for one in waiting for text in one.texts]
        said = [
            each
            for each in drop_superseded(self._sources.list_said(), pages)
            if not any(text in each.text or each.text in text for text in known)
        ]
        lines: list[str] = []
        if pages:
            lines += [spoken.say("known_pages"), *(quote(one.text, one.source) for one in pages)]
        if waiting:
            lines += [spoken.say("known_waiting")]
            lines += [f"  {'; '.join(one.texts) or one.summary} ({one.id})" for one in waiting]
        if said:
            lines += [spoken.say("known_said"), *(quote(one.text, one.source) for one in said)]
        memo = replace(message.memo.close_question(), answered=tuple(one.text for one in pages))
        return Reply("\n".join(lines) or spoken.say("known_nothing"), passages=(*pages, *said), memo=memo)

    def _follow_up(self, _act: Act, message: _Message) -> Reply:
        """Answer a question that continues the last one."""
        before = message.memo.question
        if not before:
            is_bare = not message.reading.spare("ask", "lead", "that", "now")
            answer = self._answer_content(Act.QUESTION, message)
            # "what do I like?" has no content word, but a page may answer it
            return self._say(message, "no_topic") if is_bare and not answer.passages else answer
        answer = self._answer(replace(message, text=f"{before} {message.text}"), focus=message.text)
        return replace(answer, memo=replace(answer.memo, question=before))

    def _tell_history(self, _act: Act, message: _Message) -> Reply:
        """List the conversations of the time that a question names, or what was said lately."""
        answer = self._answer(message)
        # messages from another time do not answer this
        is_dated = names_period(message.text, self._memory.clock.now().timestamp())
        said = () if answer.passages or is_dated else self._sources.list_said()
        if not said:
            return answer
        lines = [message.spoken.say("known_said_lately"), *(quote(one.text, one.source) for one in said)]
        return replace(answer, text="\n".join(lines), passages=tuple(said))

    def _answer_content(self, act: Act, message: _Message) -> Reply:
        """Answer a message by its content: a reminder, something to save or forget, a task, a question."""
        if is_reminder(message.reading):
            return self._say(message, "remind")
        text = message.text
        # "the meeting is at 4? It moved to 5" ends with a statement
        is_telling = act is not Act.QUESTION or re.search(r"[?\uff1f]\s*[^\s?\uff1f]", text) is not None
        is_telling = is_telling or parse_order(text) is not None or forget_request(text) is not None
        kept = self._keep_or_forget(message) if is_telling else None
        if kept is not None:
            return kept
        if not is_task(message.reading):
            return self._answer(message)
        # "how much was the repair?" may begin with the same word as a request to repair something
        answer = self._answer(message) if message.reading.has("ask") else None
        return answer if answer is not None and answer.passages else self._say(message, "cannot")

    def _keep_or_forget(self, message: _Message) -> Reply | None:
        """Answer a statement, or a request to save or forget; None for any other message."""
        text = message.text
        if parse_order(text) is None and begins_correction(text):
            corrected = self._correct(message)
            if corrected is not None:
                return corrected
        found, unwanted = statements(text, message.memo.language), forget_request(text)
        if not found and unwanted is None:
            found = self._keeper(message).find_correction(text, message.memo.statement)
        if found:
            return self._keep(message, found)
        return None if unwanted is None else self._confirm_forgetting(message, self._find_unwanted(unwanted, message))

    def _answer(self, message: _Message, *, focus: str = "") -> Reply:
        """Answer with stored passages, preferably those that share a word with `focus`."""
        said, spoken = message.text, message.spoken
        asks = message.reading.asks or message.reading.begins("tell")
        memo = replace(message.memo.close_question(), question=said[:QUESTION_CHARS] if asks else message.memo.question)
        if not asks and len(WORD.findall(said)) > _FRAGMENT_WORDS:
            # a statement should not be echoed back
            return Reply(spoken.say(self._acknowledge(message)), memo=memo.mention(said))
        question = said if len(said) <= 2 * QUESTION_CHARS else f"{said[:QUESTION_CHARS]} {said[-QUESTION_CHARS:]}"
        pages = search_pages(self._memory, question, focus)
        past = self._sources.look_up(question, None if asks else message.session_id) if self._sources.look_up else ()
        if past and past[0].day:
            more = [spoken.say("more_of_time", count=past[-1].more)] if past[-1].more else []
            return Reply("\n".join([*list_by_day(past), *more]), passages=tuple(past), memo=memo)
        fresh = [each for each in past if not repeats_entry(each, pages)]
        if focus and (near := [each for each in fresh if relevances(focus, [each.text])[0]] or pages):
            fresh = near if near is not pages else []
        waiting = list_waiting(self._approvals, question, spoken, (*pages, *fresh))
        passages = merge_passages(question, [*pages, *waiting], fresh)
        hint = self._sources.suggest(question) if self._sources.suggest is not None else ""
        if not passages:
            nothing = "nothing" if self._sources.is_readable else "nothing_on_pages"
            return Reply(hint or spoken.say(nothing if asks else self._acknowledge(message)), memo=memo)
        lines = [quote(self._show(passage, spoken), passage.source) for passage in passages] + ([hint] if hint else [])
        memo = replace(memo, answered=tuple(passage.text for passage in passages))
        return Reply("\n".join(lines), passages=tuple(passages), memo=memo.mention(passages[0].text))

    def _show(self, passage: Passage, spoken: Language) -> str:
        return f"{passage.text} {spoken.say('superseded')}" if passage.is_superseded else passage.text

    def _acknowledge(self, message: _Message) -> str:
        if self._actions is None:
            return "incognito"
        if not message.is_stored:
            return "not_stored"
        return "long" if len(message.text) > MOST_CHARACTERS else "stored"


_WITH_CONTENT: Final = frozenset({Act.TELLING, Act.QUESTION, Act.FOLLOW_UP, Act.HISTORY, Act.PERSON})
"""Acts that may follow a greeting, a yes or a no."""
_AGREEING: Final = frozenset(
    {Act.YES, Act.NO, Act.SAVE_THAT, Act.DONT_SAVE, Act.FORGET_THAT, Act.FORGET_ALL, Act.THANKS}
)
"""Acts that only repeat a preceding yes or no."""
_SAID: Final = {
    Act.GREETING: "greeting",
    Act.WELLBEING: "wellbeing",
    Act.FAREWELL: "farewell",
    Act.THANKS: "thanks",
    Act.SELF: "self",
    Act.ABILITY: "ability",
    Act.NOTHING: "unknown",
}
"""Acts that are answered with a fixed text."""


def _reply(kept: Kept, memo: Memo) -> Reply:
    return Reply(kept.text, kept.saved, kept.staged, unsaved=kept.unsaved, memo=memo)

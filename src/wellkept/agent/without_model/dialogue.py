"""The state of a conversation without a model (last question, change, topic), and the assistant's actions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from wellkept.agent.offload import offload
from wellkept.agent.without_model.statements import tidy
from wellkept.core.agency import refuse_decision
from wellkept.core.errors import UsageError
from wellkept.core.events import TextStreamed
from wellkept.core.messages import Role
from wellkept.core.provenance import find_typed, read_source
from wellkept.core.text import JSON
from wellkept.core.values import JsonStruct
from wellkept.facts.replies import begins_correction
from wellkept.languages.language import list_codes

if TYPE_CHECKING:
    from wellkept.agent.conversation import Conversation
    from wellkept.agent.turn import Turn
    from wellkept.core.errors import Refused
    from wellkept.memory.approval import Approvals, Rejected
    from wellkept.memory.history import Undone
    from wellkept.memory.store import MemoryStore, Outcome

_MOST_CORRECTED: Final = 400
"""A longer text tells more than one thing; a bare "no, blue" corrects none of them."""
_NOTE: Final = "dialogue"
"""The key of the note; notes belong to the session, so every surface and process continues the same dialogue."""


class Forgettable(Struct, frozen=True):
    """How much would be forgotten, or was."""

    entries: int
    waiting: int
    messages: int
    sessions: int = 0
    is_complete: bool = True
    """Whether it was verified that nothing is left."""


class Actions(Protocol):
    """What the assistant can do at the person's request; each is backed by an operation."""

    def approve(self, pending_id: str) -> "Outcome | Refused":
        """Save what was proposed."""
        ...

    def reject(self, pending_id: str) -> "Rejected | Refused":
        """Drop what was proposed."""
        ...

    def undo(self, ledger_id: int) -> "Undone | Refused":
        """Undo one change of a page."""
        ...

    def plan_forgetting(self, texts: Sequence[str] | None, /) -> "Forgettable | Refused":
        """Return what forgetting these texts would remove; None means everything of the person."""
        ...

    def forget(self, texts: Sequence[str] | None) -> "Forgettable | Refused":
        """Permanently remove these texts everywhere; None means everything of the person."""
        ...


class PageActions(Struct, frozen=True):
    """The actions of an agent that was opened without an operation, such as by a program that uses the library."""

    memory: "MemoryStore"
    approvals: "Approvals"
    why_no_person: str = ""
    """Why nobody can decide in this process; empty if a person can."""

    def approve(self, pending_id: str) -> "Outcome | Refused":
        """Save what was proposed."""
        if self.why_no_person:
            return refuse_decision(self.why_no_person, f"`kept memory approve {pending_id}`").as_refused()
        return self.approvals.approve(pending_id)

    def reject(self, pending_id: str) -> "Rejected | Refused":
        """Drop what was proposed."""
        if self.why_no_person:
            return refuse_decision(self.why_no_person, f"`kept memory reject {pending_id}`").as_refused()
        return self.approvals.reject(pending_id)

    def undo(self, ledger_id: int) -> "Undone | Refused":
        """Undo one change of a page."""
        from wellkept.memory.history import undo

        return undo(self.memory, ledger_id=ledger_id)

    def plan_forgetting(self, _texts: Sequence[str] | None, /) -> "Forgettable | Refused":
        """Refuse: forgetting covers all tiers, to which only an operation has access."""
        raise UsageError("only `kept forget` can delete permanently here", "run it in a terminal")

    def forget(self, texts: Sequence[str] | None) -> "Forgettable | Refused":
        """Refuse, as `plan_forgetting` does."""
        return self.plan_forgetting(texts)


class Memo(JsonStruct, frozen=True):
    """What the next message may refer to."""

    language: str = "en"
    message: int = 0
    """The message that this was written after; an open question counts only directly after it."""
    asked: str = ""
    """The open question: `keep`, `forget` or `forget_all`; empty for none."""
    pending: tuple[str, ...] = ()
    """The pending writes that the question named."""
    texts: tuple[str, ...] = ()
    """The texts that the question named."""
    done: tuple[int, ...] = ()
    """The ledger rows of the last change, newest last."""
    done_text: str = ""
    done_at: int = 0
    """The message that ordered it."""
    statement: str = ""
    """What was stated or quoted last, which "no, blue" corrects."""
    question: str = ""
    """The last question, which "and when?" continues."""
    answered: tuple[str, ...] = ()
    """What the last answer quoted."""

    @property
    def is_fresh(self) -> bool:
        """Whether the last message made the change that `done` names."""
        return bool(self.done) and self.done_at == self.message

    def close_question(self) -> "Memo":
        """Return the memo without the open question."""
        return replace(self, asked="", pending=(), texts=())

    def mention(self, text: str) -> "Memo":
        """Return the memo after a text was stated or quoted: a "no, …" that follows is about it."""
        is_whole = len(text) <= _MOST_CORRECTED and not begins_correction(text)
        return replace(self, statement=tidy(text)) if is_whole else self


NO_MEMO: Final = Memo()


def load_memo(value: JSON, last_message: int) -> Memo:
    """Return a stored memo; without the open question if another message came since."""
    if not isinstance(value, Mapping):
        return Memo()
    known: dict[str, Any] = {}
    for name in Memo.__struct_fields__:
        given, default = value.get(name), getattr(NO_MEMO, name)
        if isinstance(default, tuple) and isinstance(given, list):
            known[name] = tuple(given)
        elif type(given) is type(default):
            known[name] = given
    memo = Memo(**known)
    memo = memo if memo.language in list_codes() else replace(memo, language="en")
    return memo if memo.message == last_message else replace(memo.close_question(), answered=(), done_at=0)


async def answer_without_model(conversation: "Conversation", turn: "Turn") -> None:
    """Answer with the assistant, and store what the next message may refer to."""
    record = conversation.record
    stored = record.store is not None and not record.trouble
    said = [row.id for row in record.rows[: turn.first_row] if row.message.role is Role.USER]
    memo = load_memo(record.read_note(conversation.root, _NOTE), said[-1] if said else 0)
    current = record.rows[turn.first_row].id if turn.first_row < len(record.rows) else 0
    # it acts on what the person says, not on what they pass on; the assistant itself knows who speaks
    passed_on = None if turn.source in {None, conversation.parts.speaker} else turn.source
    typed = find_typed(turn.text, None if passed_on is None else read_source(passed_on))
    reply = await offload(conversation.parts.assistant.reply, typed, record.session.id, is_stored=stored, memo=memo)
    turn.answer = reply.text
    turn.saved += reply.saved
    turn.unsaved = reply.unsaved
    if reply.has_forgotten:
        await offload(_drop_forgotten, conversation)
    done_at = current if reply.memo.done != memo.done else reply.memo.done_at
    await offload(
        record.note, conversation.root, _NOTE, replace(reply.memo, message=current, done_at=done_at).as_json()
    )
    conversation.parts.sink(TextStreamed(reply.text))


def _drop_forgotten(conversation: "Conversation") -> None:
    """Remove the forgotten messages from memory; a deleted session begins again with its next message."""
    record, store = conversation.record, conversation.parts.sessions
    if store is None or not record.exists:
        return
    if store.session(record.session.id) is None:
        record.exists, record.rows = False, []
        return
    left = {row.id for row in store.context(record.session.id)}
    record.rows = [row for row in record.rows if row.id in left or row.id < 0]

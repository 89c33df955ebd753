"""The parts that an agent is made of, put together by the app."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kept.agent.settings import LimitSettings, ReviewSettings
from kept.agent.toolbox import Toolbox
from kept.context.settings import CompressionSettings
from kept.core.ids import SessionId
from kept.core.messages import Message, Usage
from kept.core.ports import ChatModel, Clock, Completes, EventSink, SessionStore
from kept.llm.tokens import Calibration, message_tokens

if TYPE_CHECKING:
    from kept.agent.assistant import Assistant
    from kept.context.engine import ContextEngine
    from kept.memory.approval import Approvals
    from kept.memory.edits import EditRecord
    from kept.memory.store import MemoryStore
    from kept.providers.base import LedgerRow
    from kept.providers.manager import ProviderManager


@dataclass(slots=True)
class Gauge:
    """Counts tokens by estimate, corrected by what the conversation's endpoint reports."""

    calibration: Calibration = field(default_factory=Calibration)

    def count(self, message: Message) -> int:
        """Return the tokens of one message."""
        return self.calibration.apply(message_tokens(message))

    def learn(self, *, estimated: int, reported: int) -> None:
        """Take one reading in."""
        self.calibration = self.calibration.learn(estimated=estimated, reported=reported)


class SkillsInUse(Protocol):
    """Keeps count of how the skills that a turn used served it."""

    def settle(self, session_id: str, *, turn: int, tool_errors: int, finished: bool) -> list[str]:
        """Write the outcome of every skill that the turn used, and return their names."""
        ...

    def record_correction(self, session_id: str, turn: int) -> None:
        """Hear that the person set right what that turn did."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a turn works with; None where a part is switched off or not configured."""

    clock: Clock
    sink: EventSink
    limits: LimitSettings
    review: ReviewSettings
    compression: CompressionSettings
    memory: "MemoryStore | None"
    approvals: "Approvals"
    sessions: SessionStore | None
    providers: "ProviderManager | None"
    model: ChatModel | None
    """None answers extractively."""
    engine: "ContextEngine | None"
    assistant: "Assistant"
    toolbox: Toolbox
    gauge: Gauge
    cost_of: Callable[[str, Usage], float | None]
    reviewer: ChatModel | None = None
    """A cheaper model for reviews, which then read a digest; None reviews with the main model."""
    titler: Completes | None = None
    """A model that names sessions; None takes the first words."""
    review_tokens_today: Callable[[], int] = lambda: 0
    """What reviews of this home have taken since midnight."""
    folder: Path = field(default_factory=Path.cwd)
    """Where the person works: project files and the workspace tools look here."""
    home: Path = field(default_factory=Path.cwd)
    catalogue: Callable[[], str | None] = lambda: None
    """The skill catalogue of this moment."""
    skill_interval: int = 10
    """After how many tool rounds skills are reviewed."""
    skills: SkillsInUse | None = None
    """Hears how turns went that used skills."""


_BATCH = 1_000


class PageLedger:
    """Reads the applied steps of the pages."""

    def __init__(self, store: "MemoryStore", sessions: SessionStore | None = None) -> None:
        self._store = store
        self._sessions = sessions

    def since(self, ledger_id: int) -> Sequence["LedgerRow"]:
        """Return the steps after `ledger_id` that changed a page, oldest first."""
        platform = cache(self._platform)
        rows = (_ledger_row(each) for each in self._read_entries(ledger_id))
        return [replace(row, platform=platform(row.session_id)) for row in rows if row is not None]

    def _platform(self, session_id: SessionId | None) -> str:
        """Return where the conversation that wrote it was held; nothing for a write outside of one."""
        session = self._sessions.session(session_id) if self._sessions is not None and session_id else None
        return session.source if session is not None else ""

    def _read_entries(self, ledger_id: int) -> Iterator["EditRecord"]:
        for _ in count():
            batch = self._store.ledger.rows(after=ledger_id, limit=_BATCH)
            yield from batch
            if len(batch) < _BATCH:
                return
            ledger_id = batch[-1].id


def _ledger_row(entered: "EditRecord") -> "LedgerRow | None":
    from kept.providers.base import LedgerRow  # only conversations with a provider need it

    action = entered.step.action
    if action == "archive" or not (entered.step.before or entered.step.after):
        return None  # it changed no entry, or its text was forgotten since
    return LedgerRow(
        ledger_id=entered.id,
        action=action,
        target=entered.target.value,
        before=entered.step.before,
        after=entered.step.after,
        origin=entered.origin,
        session_id=entered.session_id,
        user_id=entered.user_id,
    )

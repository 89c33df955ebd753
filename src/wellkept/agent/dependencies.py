"""What an agent works with (stores, model, tools, settings), as the app builds it, and adapters between tiers."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.agent.settings import LimitSettings, ReviewSettings
from wellkept.agent.toolbox import Toolbox
from wellkept.context.settings import CompressionSettings
from wellkept.core.ids import SessionId, SourceName
from wellkept.core.messages import Message, Usage
from wellkept.core.ports import ChatModel, Clock, Completes, EventSink, SessionStore
from wellkept.llm.tokens import Calibration, message_tokens

if TYPE_CHECKING:
    from wellkept.agent.without_model.assistant import Assistant
    from wellkept.context.engine import ContextEngine
    from wellkept.memory.approval import Approvals
    from wellkept.memory.page import EditRecord
    from wellkept.memory.store import MemoryStore
    from wellkept.providers.base import LedgerRow
    from wellkept.providers.manager import ProviderManager
    from wellkept.skills.tool import SkillTools
    from wellkept.storage.leases import Lease


class Gauge(Struct):
    """Estimates token counts, calibrated by what the conversation's endpoint reports."""

    calibration: Calibration = field(default_factory=Calibration)

    def count(self, message: Message) -> int:
        """Return the tokens of one message."""
        return self.calibration.apply(message_tokens(message))

    def learn(self, *, estimated: int, reported: int) -> None:
        """Calibrate with one reported count."""
        self.calibration = self.calibration.learn(estimated=estimated, reported=reported)


class Parts(Struct, frozen=True, kw_only=True):
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
    """None: answers come from stored text, without a model."""
    engine: "ContextEngine | None"
    assistant: "Assistant"
    toolbox: Toolbox
    gauge: Gauge
    cost_of: Callable[[str, Usage], float | None]
    speaker: SourceName | None = None
    """The source of the messages of the user, if no person writes them."""
    reviewer: ChatModel | None = None
    """A cheaper model for reviews, which gets a digest; None: the main model reviews."""
    titler: Completes | None = None
    """A model that titles sessions; None: the first words are the title."""
    review_tokens_today: Callable[[], int] = lambda: 0
    """Tokens that reviews have used since midnight."""
    folder: Path = field(default_factory=Path.cwd)
    """The user's working folder, for project files and the workspace tools."""
    home: Path = field(default_factory=Path.cwd)
    catalogue: Callable[[], str | None] = lambda: None
    """Returns the current skill catalogue."""
    skill_interval: int = 10
    """Review skills after this many tool rounds."""
    skills: "SkillTools | None" = None
    """Records the outcome of turns that used skills."""
    open_lease: "Callable[[SessionId, str], Lease] | None" = None
    """Returns the lease of a conversation for an agent of this process, given by its name."""


_BATCH = 1_000
"""Ledger rows per query, so that a long ledger is never in memory at once."""


class PageLedger:
    """The applied steps of the pages, as external providers read them."""

    def __init__(self, store: "MemoryStore", sessions: SessionStore | None = None) -> None:
        self._store = store
        self._sessions = sessions

    def since(self, ledger_id: int) -> Sequence["LedgerRow"]:
        """Return the steps after `ledger_id` that changed a page, oldest first."""
        platform = cache(self._platform)
        rows = (_ledger_row(record) for record in self._read_entries(ledger_id))
        return [replace(row, platform=platform(row.session_id)) for row in rows if row is not None]

    def _platform(self, session_id: SessionId | None) -> str:
        """Return the platform of the conversation that wrote a step; empty for writes outside of one."""
        session = self._sessions.session(session_id) if self._sessions is not None and session_id else None
        return session.source if session is not None else ""

    def _read_entries(self, ledger_id: int) -> Iterator["EditRecord"]:
        for _ in count():
            batch = self._store.ledger.rows(after=ledger_id, limit=_BATCH, everywhere=True)
            yield from batch
            if len(batch) < _BATCH:
                return
            ledger_id = batch[-1].id


def _ledger_row(record: "EditRecord") -> "LedgerRow | None":
    from wellkept.providers.base import LedgerRow  # only conversations with a provider need it

    action = record.step.action
    if action == "archive" or not (record.step.before or record.step.after):
        return None  # it changed no entry, or its text has been forgotten
    return LedgerRow(
        ledger_id=record.id,
        action=action,
        target=record.target.value,
        before=record.step.before,
        after=record.step.after,
        origin=record.origin,
        session_id=record.session_id,
        user_id=record.user_id,
        project=record.project,
        source=record.source,
    )

"""The parts that an agent is made of, put together by the app."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kept.agent.settings import LimitSettings, ReviewSettings
from kept.agent.toolbox import Toolbox
from kept.context.settings import CompressionSettings
from kept.core.messages import Message, Usage
from kept.core.ports import ChatModel, Clock, Completes, EventSink, SessionStore
from kept.llm.tokens import Calibration, message_tokens

if TYPE_CHECKING:
    from kept.agent.assistant import Assistant
    from kept.context.engine import ContextEngine
    from kept.memory.approval import Approvals
    from kept.memory.store import MemoryStore
    from kept.providers.manager import ProviderManager


@dataclass(slots=True)
class Gauge:
    """Counts tokens by estimate, corrected by what the conversation's endpoint reports."""

    calibration: Calibration = field(default_factory=Calibration)

    def count(self, message: Message) -> int:
        """Return the tokens of one message."""
        return self.calibration.applied(message_tokens(message))

    def learn(self, *, estimated: int, reported: int) -> None:
        """Take one reading in."""
        self.calibration = self.calibration.learned(estimated=estimated, reported=reported)


class SkillsInUse(Protocol):
    """Keeps count of how the skills that a turn used served it."""

    def settle(self, session_id: str, *, turn: int, tool_errors: int, finished: bool) -> list[str]:
        """Write the outcome of every skill that the turn used, and return their names."""
        ...

    def corrected(self, session_id: str, turn: int) -> None:
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

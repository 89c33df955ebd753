"""All settings in one tree: each tier declares its own part, this module puts them together."""

from dataclasses import dataclass, field

from kept.context.settings import CompressionSettings, ContextSettings
from kept.memory.settings import MemorySettings
from kept.sessions.settings import SessionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `config.yaml` may say."""

    memory: MemorySettings = field(default_factory=MemorySettings)
    """Curated memory: the two pages."""
    sessions: SessionSettings = field(default_factory=SessionSettings)
    """Past conversations: how they are kept and shown."""
    context: ContextSettings = field(default_factory=ContextSettings)
    """The context engine."""
    compression: CompressionSettings = field(default_factory=CompressionSettings)
    """When and how a long conversation is compacted."""

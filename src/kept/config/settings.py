"""All settings in one tree: each tier declares its own part, this module puts them together."""

from dataclasses import dataclass, field

from kept.memory.settings import MemorySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `config.yaml` may say."""

    memory: MemorySettings = field(default_factory=MemorySettings)
    """Curated memory: the two pages."""

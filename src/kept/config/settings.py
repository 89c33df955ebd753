"""All settings in one tree: each tier declares its own part, this module puts them together."""

from pydantic import BaseModel, ConfigDict, Field

from kept.memory.settings import MemorySettings


class Settings(BaseModel):
    """What `config.yaml` may say."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    memory: MemorySettings = Field(default_factory=MemorySettings)
    """Curated memory: the two pages."""

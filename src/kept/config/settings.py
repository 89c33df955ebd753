"""All settings in one tree: each part declares its own, this module puts them together."""

from dataclasses import dataclass, field
from typing import Any

from kept.agent.settings import Approvals, DisplaySettings, LimitSettings, ReviewSettings
from kept.context.settings import CompressionSettings, ContextSettings
from kept.core.tools import Toolset
from kept.llm.settings import AuxiliarySettings, ModelSettings, PromptCachingSettings
from kept.memory.settings import MemorySettings
from kept.providers.settings import ProviderSettings
from kept.sessions.settings import SessionSettings
from kept.skills.settings import CuratorSettings, SkillSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `config.yaml` may say."""

    memory: MemorySettings = field(default_factory=MemorySettings)
    """Curated memory: the two pages."""
    sessions: SessionSettings = field(default_factory=SessionSettings)
    """Past conversations: how they are kept and shown."""
    skills: SkillSettings = field(default_factory=SkillSettings)
    """Procedures: where they are found and how they are shown."""
    curator: CuratorSettings = field(default_factory=CuratorSettings)
    """Tidying of skills that are not used."""
    providers: ProviderSettings = field(default_factory=ProviderSettings)
    """External memories: time-outs, budgets, the outbox."""
    model: ModelSettings = field(default_factory=ModelSettings)
    """The model to talk with."""
    auxiliary: AuxiliarySettings = field(default_factory=AuxiliarySettings)
    """Cheaper models for errands."""
    prompt_caching: PromptCachingSettings = field(default_factory=PromptCachingSettings)
    """Cache markers for endpoints that want them."""
    context: ContextSettings = field(default_factory=ContextSettings)
    """The engine that keeps a conversation within the window."""
    compression: CompressionSettings = field(default_factory=CompressionSettings)
    """When and how a conversation is compacted."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    """Where a turn ends by itself."""
    review: ReviewSettings = field(default_factory=ReviewSettings)
    """The background review."""
    display: DisplaySettings = field(default_factory=DisplaySettings)
    """What a chat shows."""
    approvals: Approvals = "ask"
    """Whether commands and writes ask first, run at once, or are refused; dangerous ones always ask."""
    toolsets: list[Toolset] | None = None
    """The toolsets to load; null loads all."""
    platforms: dict[str, dict[str, list[Toolset] | None]] = field(default_factory=dict)
    """Per platform: `toolsets` in place of the general ones."""
    mcp_servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """MCP servers whose tools the agent gets: `command` and `args`, or `url`."""

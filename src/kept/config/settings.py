"""The tree of all settings, assembled from the settings of each package, and the list of its keys."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kept.agent.settings import Approvals, DisplaySettings, LimitSettings, ReviewSettings
from kept.context.settings import CompressionSettings, ContextSettings
from kept.core.settings import Toolset, fields, is_section
from kept.importers.settings import BackupSettings, ConnectSettings
from kept.llm.settings import AuxiliarySettings, ModelSettings, PromptCachingSettings
from kept.memory.settings import MemorySettings
from kept.providers.settings import ProviderSettings
from kept.sessions.settings import SessionSettings
from kept.skills.settings import CuratorSettings, SkillSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The contents of `config.yaml`."""

    memory: MemorySettings = field(default_factory=MemorySettings)
    """Curated memory: the two pages."""
    sessions: SessionSettings = field(default_factory=SessionSettings)
    """Past conversations: how they are stored and shown."""
    skills: SkillSettings = field(default_factory=SkillSettings)
    """Procedures: where they are found and how they are shown."""
    curator: CuratorSettings = field(default_factory=CuratorSettings)
    """Archiving of unused skills."""
    providers: ProviderSettings = field(default_factory=ProviderSettings)
    """External memories: time-outs, budgets, the outbox."""
    model: ModelSettings = field(default_factory=ModelSettings)
    """The model to talk with."""
    auxiliary: AuxiliarySettings = field(default_factory=AuxiliarySettings)
    """Cheaper models for auxiliary tasks."""
    prompt_caching: PromptCachingSettings = field(default_factory=PromptCachingSettings)
    """Cache markers for endpoints that use them."""
    context: ContextSettings = field(default_factory=ContextSettings)
    """The engine that keeps a conversation within the window."""
    compression: CompressionSettings = field(default_factory=CompressionSettings)
    """When and how a conversation is compacted."""
    connect: ConnectSettings = field(default_factory=ConnectSettings)
    """Connected agents: what they are given, and what of theirs is stored."""
    backup: BackupSettings = field(default_factory=BackupSettings)
    """Backups that are taken by themselves."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    """Limits that end a turn."""
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
    disabled_plugins: list[str] = field(default_factory=list)
    """Plugins that are never loaded: providers, context engines and packages with skills, by name."""
    mcp_servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """MCP servers whose tools the agent gets: `command` and `args`, or `url`."""


def known_keys(section: type = Settings, prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of the configuration, in order."""
    for name, annotation in fields(section).items():
        if is_section(annotation):
            yield from known_keys(annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return a "did you mean" hint with the most similar candidate, or an empty string."""
    import difflib  # lazy: only needed for a misspelt key

    close = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""

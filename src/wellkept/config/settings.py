"""The tree of all settings, assembled from the settings of each package, and the list of its keys."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from msgspec import Struct, field

from wellkept.agent.settings import Approvals, DisplaySettings, LimitSettings, ReviewSettings
from wellkept.context.settings import CompressionSettings, ContextSettings
from wellkept.core.settings import Between, Guarded, Toolset, fields, find_guard, is_section
from wellkept.importers.settings import BackupSettings, ConnectSettings
from wellkept.llm.settings import AuxiliarySettings, ModelSettings, PromptCachingSettings
from wellkept.memory.settings import MemorySettings
from wellkept.providers.settings import ProviderSettings
from wellkept.sessions.settings import SessionSettings
from wellkept.skills.settings import CuratorSettings, SkillSettings


class ProxySettings(Struct, frozen=True, kw_only=True):
    """The proxy between clients and their own models."""

    enabled: Annotated[bool, Guarded((False, True))] = False
    """Whether `kept serve` forwards requests below `/proxy`, as with `--proxy`."""
    upstreams: Annotated[dict[str, str], Guarded()] = field(default_factory=dict)
    """Endpoints by the name in the path, besides `anthropic` and `openai`, whose addresses can be changed here."""
    recall: Annotated[Literal["start", "sure", "off"], Guarded(("off", "start", "sure"))] = "sure"
    """What is added to requests: `start` the pages, `sure` also passages relevant to a message, `off` nothing."""
    capture: Annotated[bool, Guarded((False, True))] = True
    """Whether conversations are stored."""
    wait_milliseconds: Annotated[int, Between(10, 10_000)] = 200
    """How long a request waits for memory; after that it is forwarded unchanged, within 300 ms in all."""
    max_body_bytes: Annotated[int, Between(1_000), Guarded()] = 40_000_000
    """The largest body of a request; the endpoints have similar limits."""


class ServeSettings(Struct, frozen=True, kw_only=True):
    """The server for other clients."""

    host: Annotated[str, Guarded()] = "127.0.0.1"
    """The address to listen on; one that other machines can reach requires a token."""
    port: Annotated[int, Between(0, 65_535)] = 8642
    """The port; if it is taken, the next free one is used. 0 chooses any."""
    hosts: Annotated[list[str], Guarded()] = field(default_factory=list)
    """Host names of the server, besides those of this machine."""
    require_token: Annotated[bool, Guarded((True, False))] = True
    """Whether requests from this machine need a token; without one, every local user and program is the owner."""
    models: Annotated[list[str], Guarded()] = field(default_factory=list)
    """Models that clients may choose by name, besides `model.default` and `model.fallbacks`; they cost the owner."""
    connections: Annotated[int, Between(8), Guarded()] = 512
    """The most connections at once; the one that has waited longest without a request makes room for a new one."""
    connections_per_address: Annotated[int, Between(4), Guarded()] = 256
    """The most connections from one address, which may be that of a reverse proxy."""
    header_seconds: Annotated[float, Between(0.1), Guarded()] = 10.0
    """How long a connection may take to send the headers of a request."""
    max_body_bytes: Annotated[int, Between(1_000), Guarded()] = 10_000_000
    """The largest body of a request."""
    body_seconds: Annotated[float, Between(1), Guarded()] = 30.0
    """How long the body of a request may take."""
    requests_per_minute: Annotated[int, Between(1), Guarded()] = 600
    """How many requests a user may send in a minute."""
    requests_at_once: Annotated[int, Between(1), Guarded()] = 32
    """How many requests of a user may run at once."""
    drain_seconds: Annotated[float, Between(0)] = 20.0
    """How long running turns may continue when the server stops."""
    idle_minutes: Annotated[float, Between(0.1)] = 30.0
    """How long an idle conversation stays open; the next message opens it again."""
    reset: Literal["none", "idle", "daily", "both"] = "none"
    """When a chat begins a new session: after `reset_idle_minutes`, every day at `reset_hour`, both, or never."""
    reset_idle_minutes: Annotated[int, Between(1)] = 1_440
    """How long a chat may be silent before it begins a new session."""
    reset_hour: Annotated[int, Between(0, 23)] = 4
    """The hour of the day, in the local zone, at which chats begin a new session."""
    platforms: Annotated[dict[str, dict[str, Any]], Guarded()] = field(default_factory=dict)
    """Chat platforms by name: `kind` (`webhook`, `telegram`) and the settings of that kind (docs/gateway.md)."""
    proxy: ProxySettings = field(default_factory=ProxySettings)
    """Requests of clients to their own models, with memory added."""


class StorageSettings(Struct, frozen=True, kw_only=True):
    """Where conversations, pages and all other data are stored."""

    url: Annotated[str, Guarded()] = ""
    """`postgresql://ROLE:PASSWORD@HOST:PORT/DATABASE` of a server for several hosts; empty for files in the home."""
    tenant: Annotated[str, Guarded()] = "default"
    """The name that separates this home in that database; homes with the same tenant share users and memory."""
    connections: Annotated[int, Between(1, 1_000)] = 10
    """The most connections that a process opens."""


class Settings(Struct, frozen=True, kw_only=True):
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
    """Connected agents: recall and capture."""
    backup: BackupSettings = field(default_factory=BackupSettings)
    """Automatic backups."""
    serve: ServeSettings = field(default_factory=ServeSettings)
    """The server for other clients: address, limits, sessions of chats."""
    storage: StorageSettings = field(default_factory=StorageSettings)
    """The database: files in the home, or a PostgreSQL server."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    """Limits that end a turn."""
    review: ReviewSettings = field(default_factory=ReviewSettings)
    """The background review."""
    display: DisplaySettings = field(default_factory=DisplaySettings)
    """What a chat shows."""
    approvals: Annotated[Approvals, Guarded(("deny", "ask", "auto"))] = "ask"
    """Whether commands and writes ask first, run immediately, or are refused; dangerous ones always ask."""
    decisions: Annotated[Literal["person", "scripts"], Guarded(("person", "scripts"))] = "scripts"
    """Who may approve, forget and loosen settings on the command line: a `person` at a terminal only, or also `scripts`
    that no agent started."""
    toolsets: Annotated[list[Toolset] | None, Guarded()] = None
    """The toolsets to load; null loads all."""
    platforms: Annotated[dict[str, dict[str, list[Toolset] | None]], Guarded()] = field(default_factory=dict)
    """Per platform: `toolsets` in place of the general ones."""
    disabled_plugins: Annotated[list[str], Guarded(forbids=True)] = field(default_factory=list)
    """Plugins that are never loaded: providers, context engines and packages with skills, by name."""
    mcp_servers: Annotated[dict[str, dict[str, Any]], Guarded()] = field(default_factory=dict)
    """MCP servers whose tools the agent gets: `command` and `args`, or `url`."""


def known_keys(section: type = Settings, prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of the configuration, in order."""
    for name, annotation in fields(section).items():
        if is_section(annotation):
            yield from known_keys(annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def find_guard_of(key: str) -> Guarded | None:
    """Return the guard of a setting, or of the mapping that an entry belongs to."""
    annotation: Any = Settings
    for name in key.split("."):
        if not is_section(annotation):
            break
        annotation = fields(annotation)[name]
    return find_guard(annotation)


def find_default(key: str) -> Any:
    """Return the default of a setting; None for an entry of a mapping."""
    value: Any = Settings()
    for name in key.split("."):
        value = getattr(value, name, None)
    return value


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return a "did you mean" hint with the most similar candidate, or an empty string."""
    import difflib  # lazy: only needed for a misspelt key

    close = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""

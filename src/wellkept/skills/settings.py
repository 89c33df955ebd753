"""Settings of skills and of their curator."""

from typing import Annotated, Literal

from msgspec import Struct, field

from wellkept.core.settings import Above, Between, Guarded


class SkillSettings(Struct, frozen=True, kw_only=True):
    """The section `skills:` of the configuration."""

    enabled: bool = True
    """Whether the agent has skills: their catalogue in the prompt and their tools."""
    bundled: bool = True
    """Whether the skills that come with kept are offered."""
    catalogue_tokens: Annotated[int, Between(100)] = 1_200
    """How many tokens the catalogue in the prompt may take."""
    external_dirs: Annotated[list[str], Guarded()] = field(default_factory=list)
    """Further folders of skills, read only; `~` is the person's home."""
    disabled: Annotated[list[str], Guarded(forbids=True)] = field(default_factory=list)
    """Names of skills that are never offered."""
    write_approval: Annotated[Literal["off", "background", "all"], Guarded(("all", "background", "off"))] = "off"
    """Which changes wait for a person: none, those of the background review, or all of the agent's."""
    untrusted: Annotated[Literal["hold", "allow"], Guarded(("hold", "allow"))] = "hold"
    """Whether changes that a model makes after it has read a web page, a tool's output or the like wait for a person;
    files of the project and what commands print locally do not count."""
    pending_days: Annotated[int, Between(1), Guarded()] = 30
    """After how many days a waiting change expires."""
    versions_kept: Annotated[int, Between(2), Guarded()] = 100
    """How many versions of each skill are kept for `kept skills log`, `diff` and `undo`."""
    similar_threshold: Annotated[float, Between(0, 1)] = 0.55
    """How similar (0 to 1) a new skill may be to an existing one; above that, the agent must patch the existing one."""
    flag_min_uses: Annotated[int, Between(1)] = 3
    """How many uses two versions need before their failure rates are compared."""
    creation_nudge_interval: Annotated[int, Between(0)] = 10
    """After how many tool iterations the background review looks for procedures to keep; 0 turns it off."""
    pinned_by_schedule: list[str] = field(default_factory=list)
    """Skills that an embedder's scheduler needs; the curator never touches them."""
    trusted_sources: Annotated[list[str], Guarded()] = field(default_factory=list)
    """Hub sources that count as trusted instead of community, including everything below them."""
    hub_sources: Annotated[list[str], Guarded()] = field(default_factory=list)
    """Hub sources that `kept skills search` and `browse` look through when none is named."""
    github_url: Annotated[str, Guarded()] = "https://github.com"
    """Where `owner/repo/path` is fetched from: GitHub, or the address of a GitHub Enterprise server."""
    hub_timeout_seconds: Annotated[float, Above(0)] = 30.0
    """How many seconds a hub source may send nothing; a response may take four times as long, a git clone six times."""
    lock_timeout_seconds: Annotated[float, Above(0)] = 10.0
    """How many seconds a change waits for another process before it fails."""


class CuratorSettings(Struct, frozen=True, kw_only=True):
    """The section `curator:` of the configuration."""

    enabled: Annotated[bool, Guarded((False, True))] = True
    """Whether the curator runs automatically when it is due and no session is active."""
    interval_days: Annotated[float, Above(0)] = 7.0
    """How many days pass between two automatic runs."""
    idle_hours: Annotated[float, Between(0)] = 2.0
    """How many hours without activity must pass before an automatic run."""
    stale_days: Annotated[float, Above(0)] = 30.0
    """After how many days without use a skill is stale."""
    archive_days: Annotated[float, Above(0)] = 90.0
    """After how many days without use a skill is archived."""
    backups_kept: Annotated[int, Between(1), Guarded()] = 5
    """How many backups are kept."""

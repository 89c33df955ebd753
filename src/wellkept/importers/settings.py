"""Settings of connected agents and of backups."""

from typing import Annotated, Literal

from msgspec import Struct, field

from wellkept.core.settings import Above, Between, Guarded, Matches


class ConnectSettings(Struct, frozen=True, kw_only=True):
    """The section `connect:` of the configuration: what other agents are given, and what of theirs is stored."""

    recall: Annotated[Literal["start", "sure", "off"], Guarded(("off", "start", "sure"))] = "sure"
    """What a connected agent is given: `start` the block of a session, `sure` also passages at a prompt, or nothing."""
    capture: Annotated[bool, Guarded((False, True))] = True
    """Whether the conversations of connected agents are stored."""
    exclude: Annotated[list[str], Guarded(forbids=True)] = field(default_factory=list)
    """Projects that are neither stored nor given any memory: folders, or patterns like `*/secret/*`."""
    sessions: Annotated[int, Between(0, 10)] = 3
    """How many past sessions of the project the block of a session names."""
    passages: Annotated[int, Between(1, 3)] = 3
    """How many passages a prompt is given at most."""
    start_seconds: Annotated[float, Above(0)] = 2.0
    """How long an agent waits for the block of a session at most."""
    prompt_seconds: Annotated[float, Above(0)] = 0.8
    """How long an agent waits at a prompt at most."""
    stop_seconds: Annotated[float, Above(0)] = 1.0
    """How long an agent waits at the end of a turn at most; what is not stored by then is stored later."""


class BackupSettings(Struct, frozen=True, kw_only=True):
    """The section `backup:` of the configuration: backups that kept takes by itself."""

    every: Annotated[str, Matches(r"off|[1-9][0-9]{0,3}[hdw]", "`off` or a time such as 12h, 7d or 2w"), Guarded()] = (
        "off"
    )
    """How often a backup is taken, such as `7d`, by the next command that runs when it is due; `off` takes none."""
    keep: Annotated[int, Between(1, 1_000), Guarded()] = 4
    """How many scheduled backups stay, and how many that were taken before an import or a restore."""
    folder: Annotated[str | None, Guarded()] = None
    """Where they go; null is the folder `backups` of the home. Another disk is better."""
    passphrase_env: Annotated[str | None, Guarded()] = None
    """The environment variable with the passphrase that encrypts them; null leaves them unencrypted."""

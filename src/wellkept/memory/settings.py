"""Settings of curated memory."""

from typing import Annotated, Literal

from msgspec import Struct

from wellkept.core.settings import Above, Between, Guarded

DEFAULT_MEMORY_CHAR_LIMIT = 2_200
DEFAULT_USER_CHAR_LIMIT = 1_375
DEFAULT_PROJECT_CHAR_LIMIT = 2_200


class MemorySettings(Struct, frozen=True, kw_only=True):
    """The section `memory:` of the configuration."""

    memory_enabled: Annotated[bool, Guarded((True, False))] = True
    """Whether MEMORY.md is in the prompt and can be written."""
    user_profile_enabled: Annotated[bool, Guarded((True, False))] = True
    """Whether USER.md is in the prompt and can be written."""
    memory_char_limit: Annotated[int, Above(0)] = DEFAULT_MEMORY_CHAR_LIMIT
    """How many characters MEMORY.md may hold, delimiters included."""
    user_char_limit: Annotated[int, Above(0)] = DEFAULT_USER_CHAR_LIMIT
    """How many characters USER.md may hold, delimiters included."""
    project_pages: bool = True
    """Whether each project has a page of its own, in the prompt of its sessions only; needs `memory_enabled`."""
    project_char_limit: Annotated[int, Above(0)] = DEFAULT_PROJECT_CHAR_LIMIT
    """How many characters the page of a project may hold, delimiters included."""
    check_project: bool = True
    """Whether the entries of a project's page are checked against its files and git, and a note stands beside those
    that no longer agree with them."""
    read_action: bool = False
    """Whether the model's `memory` tool also has `read` and `search`."""
    delta_notice: bool = True
    """Whether a user message of a long session lists what changed on the pages since the session began."""
    overflow: Annotated[Literal["curate", "refuse", "archive"], Guarded(("curate", "refuse", "archive"))] = "curate"
    """What a write to a full page does: what a person writes moves the least useful entries to the archive and a
    model's write is refused (curate), every write is refused (refuse), or every write moves the entries changed longest
    ago to the archive (archive)."""
    write_approval: Annotated[Literal["off", "background", "all"], Guarded(("all", "background", "off"))] = "off"
    """Which writes wait for a person: none, those of the background review, or all of the agent's."""
    untrusted: Annotated[Literal["hold", "mark", "allow"], Guarded(("hold", "mark", "allow"))] = "hold"
    """What happens to entries that a model wrote after it had read a web page, a tool's output or the like: those that
    name an address, command, path, credential, package, recipient or payment wait for a person and others are marked
    as unverified (hold), all are marked (mark), or none (allow)."""
    pending_days: Annotated[int, Between(1), Guarded()] = 30
    """After how many days a waiting write is moved to the archive."""
    lock_timeout_seconds: Annotated[float, Above(0)] = 10.0
    """How many seconds a write waits for another process before it fails."""
    nudge_interval: Annotated[int, Between(0)] = 10
    """After how many user turns the background review looks for facts to keep; 0 turns it off."""
    provider: Annotated[str | list[str] | None, Guarded()] = None
    """The external memory provider, a list to use several at once, or null for the built-in pages only."""

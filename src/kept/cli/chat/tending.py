"""The curator's own runs: decided before a talk begins, done while the person leaves."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kept.cli.terminal import note
from kept.core.errors import KeptError, StorageError

if TYPE_CHECKING:
    from kept.app import App
    from kept.curation.curator import Curator

log = logging.getLogger(__name__)

WAIT_SECONDS = 10.0
"""How long leaving waits for a run; one that is cut off is done again next time."""


@contextmanager
def tending(kept: "App", *, incognito: bool = False) -> Iterator[None]:
    """Let the curator run after the talk when it was due before it.

    Decided first, because the talk itself is activity; run last, because the talk may use a skill
    that was about to be archived, and its catalogue must not change meanwhile.
    """
    curator = None if incognito else _due(kept)
    yield
    if curator is not None:
        running = threading.Thread(target=_run, args=(curator,), name="curator", daemon=True)
        running.start()
        running.join(WAIT_SECONDS)


def _due(kept: "App") -> "Curator | None":
    home = kept.home.path / "skills"
    if not kept.settings.curator.enabled or not home.is_dir():
        return None
    from kept.curation.curator import Curator

    curator = Curator(kept.skill_tools.editor, kept.settings.curator)
    return curator if curator.due(_last_active(kept)) else None


def _last_active(kept: "App") -> datetime | None:
    store = kept.sessions_or_none()
    try:
        newest = store.recent(limit=1) if store is not None else []
    except StorageError:
        return None
    moments = [session.last_active or session.started for session in newest]
    return datetime.fromtimestamp(moments[0], UTC) if moments else None


def _run(curator: "Curator") -> None:
    try:
        report = curator.run_if_due()
    except (KeptError, OSError, ValueError):
        # a failed run is tried again next time, and never an error of the talk
        log.warning("the curator could not run", exc_info=True)
        return
    archived = [move.name for move in report.moves if move.becomes == "archived"] if report is not None else []
    if archived:
        note(f"not used for long, now in the archive: {', '.join(archived)} (kept curator report; undo: rollback)")

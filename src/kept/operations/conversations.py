"""Talking with the agent: which session to continue, and opening the conversation."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kept.app.caller import Scope
from kept.core.errors import KeptError, NotFound, StorageError, UsageError
from kept.core.events import Warned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kept.agent.agent import Agent
    from kept.agent.tool_calls import Approve
    from kept.app.caller import Caller
    from kept.core.ids import SessionId
    from kept.curation.curator import Curator

log = logging.getLogger(__name__)

CURATOR_WAIT_SECONDS = 10.0
"""How long leaving a conversation waits for the curator; a run that is cut off is repeated next time."""


def choose_session(caller: Caller, name: str | None, *, newest: bool, incognito: bool) -> SessionId | None:
    """Return the session to continue, by id, beginning of an id or title, or the newest; None for a new one."""
    if incognito and (name or newest):
        raise UsageError("an incognito conversation continues no earlier one", "leave --incognito out, or the session")
    if name:
        return caller.space.sessions.resolve(name)
    return _find_latest(caller) if newest else None


def _find_latest(caller: Caller) -> SessionId:
    for source in ("cli", "chat"):
        recent = caller.space.sessions.recent(limit=1, source=source)
        if recent:
            return recent[0].id
    raise NotFound("there is no session to continue", "start one with `kept chat`")


def open_conversation(
    caller: Caller,
    *,
    resume: SessionId | None = None,
    incognito: bool = False,
    approve: Approve,
    model_name: str | None = None,
) -> Agent:
    """Open a conversation for the caller; its events go to the caller's sink."""
    from kept.agent.agent import Opening
    from kept.core.events import ignore

    opening = Opening(resume=resume, incognito=incognito, approve=approve)
    sink = None if caller.sink is ignore else caller.sink
    return caller.space.agent(opening, model_name=model_name, sink=sink)


def use_model(caller: Caller, agent: Agent, name: str) -> None:
    """Change the model of a conversation."""
    caller.require(Scope.WRITE)
    caller.space.agents.use_model(agent, name)


def find_history(caller: Caller) -> Path:
    """Return the file in which a chat keeps what the person typed."""
    return caller.space.home.chat_history


@contextmanager
def run_curator_after(caller: Caller, *, incognito: bool = False) -> Iterator[None]:
    """Run the curator after the conversation if it was due before it.

    Decided first, because the conversation itself is activity. Run last, because the conversation may use a skill
    that was about to be archived, and the catalogue must not change meanwhile.
    """
    curator = None if incognito else _find_due_curator(caller)
    yield
    if curator is not None:
        running = threading.Thread(target=_run_curator, args=(caller, curator), name="curator", daemon=True)
        running.start()
        running.join(CURATOR_WAIT_SECONDS)


def _find_due_curator(caller: Caller) -> Curator | None:
    settings = caller.app.settings.curator
    if not settings.enabled or not caller.space.home.skills.is_dir():
        return None
    from kept.curation.curator import Curator

    curator = Curator(caller.space.skill_tools.editor, settings)
    return curator if curator.due(_last_active(caller)) else None


def _last_active(caller: Caller) -> datetime | None:
    store = caller.space.sessions_or_none()
    try:
        newest = store.recent(limit=1) if store is not None else []
    except StorageError:
        return None
    moments = [session.last_active or session.started for session in newest]
    return datetime.fromtimestamp(moments[0], UTC) if moments else None


def _run_curator(caller: Caller, curator: Curator) -> None:
    try:
        report = curator.run_if_due()
    except (KeptError, OSError, ValueError):
        # a failed run is repeated next time and never an error of the conversation
        log.warning("the curator could not run", exc_info=True)
        return
    archived = [move.name for move in report.moves if move.becomes == "archived"] if report is not None else []
    if archived:
        caller.space.listeners(
            Warned(
                f"not used for long, now in the archive: {', '.join(archived)}",
                "kept curator report; undo: rollback",
            )
        )

"""What each hook of a connected client does: store its turns, and give the agent what it needs from memory."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wellkept.connect.events import HookEvent, Kind, answer_json, keep_prompt, take_prompt
from wellkept.connect.record import Record, load_health, load_record, save_health
from wellkept.core.errors import KeptError, Refused
from wellkept.core.ids import SessionId
from wellkept.core.regular_files import open_regular
from wellkept.storage.files import find_project

if TYPE_CHECKING:
    from pathlib import Path

    from wellkept.app.caller import Caller
    from wellkept.connect.capture import Captured
    from wellkept.core.ids import SessionId
    from wellkept.sessions.receipts import NewReceipt

log = logging.getLogger(__name__)

_MARGIN_SECONDS = 0.15
"""A capture ends this long before the deadline, so that its transaction is closed in time."""
_SCANNED_BYTES = 32_000_000
"""How much of the end of a transcript is searched for the block; an earlier block is not found and given again."""
_RECORDED = frozenset(("codex",))
"""Clients that write a transcript of every conversation before its first turn ends.

An event without one is of a request of the client itself, such as one for a title, or of a conversation that the
person did not want recorded (`--ephemeral`).
"""
_COMPACTED = b'"compact_boundary"'
_RECENT_SECONDS = 2 * 86_400.0
"""Transcripts that have not changed for longer are complete, or older than the connection."""


class _Answer(Struct, frozen=True):
    """The answer to the client, and its receipt."""

    output: dict[str, Any]
    receipt: NewReceipt


class _Mode(Struct, frozen=True):
    """Which recall and capture apply to a client."""

    recall: str
    capture: bool


def handle_event(caller: Caller, event: HookEvent, *, deadline: float) -> dict[str, Any] | None:
    """Store the turn of an event and return what the agent is given; None if that is nothing.

    `deadline` is a value of `time.monotonic()`. Errors of the store are logged and noted for `connect status`.
    Nothing is given without a receipt: a person could not see it, and the next prompt would give it again.
    """
    folder = caller.space.home.connections
    now = caller.app.clock.now().timestamp()
    health = load_health(folder, event.client)
    save_health(folder, event.client, health.after_event(event.name, now, is_hook=event.is_hook))
    mode = _find_mode(caller, event)
    if mode is None:
        return None
    answer = None
    try:
        if event.kind is Kind.START and mode.recall != "off":
            answer = _start(caller, event)
        elif event.kind is Kind.PROMPT:
            answer = _prompt(caller, event, mode)
        if answer is not None and _record(caller, event, answer.receipt, deadline):
            return answer.output
        if event.kind in {Kind.STOP, Kind.ANSWER, Kind.COMPACT} and mode.capture:
            _capture(caller, event, deadline - _MARGIN_SECONDS)
    except (KeptError, OSError) as error:
        log.warning("hook %s %s: %s", event.client, event.name, error)
        note_error(caller, event.client, error.message if isinstance(error, KeptError) else str(error))
    return None


def plan_answer(caller: Caller, event: HookEvent) -> dict[str, Any] | None:
    """Return what `handle_event` would give the agent now; nothing is stored, noted or recorded."""
    mode = _find_mode(caller, event)
    if mode is None or mode.recall == "off":
        return None
    if event.kind is Kind.START:
        answer = _start(caller, event)
    else:
        answer = _prompt(caller, event, _Mode(mode.recall, capture=False))
    return None if answer is None else answer.output


def _record(caller: Caller, event: HookEvent, receipt: NewReceipt, deadline: float) -> bool:
    """Store a receipt; return whether the answer may be given."""
    wait = max(0.0, deadline - _MARGIN_SECONDS - time.monotonic())
    is_stored = caller.space.sessions.receipts.add(receipt, wait_seconds=wait) is not None
    if is_stored or caller.app.settings.sessions.receipt_days == 0:
        return True
    message = f"{event.name}: nothing was given, because no receipt of it could be stored"
    log.warning("hook %s %s", event.client, message)
    note_error(caller, event.client, message)
    return False


def _find_mode(caller: Caller, event: HookEvent) -> _Mode | None:
    """Return the mode for this client and project; None if the event is to be ignored."""
    record = load_record(caller.space.home.connections)
    if record.is_paused or _is_excluded(caller, event.folder):
        return None
    return _mode_of(caller, record, event.client, event.folder)


def _is_excluded(caller: Caller, folder: str | None) -> bool:
    patterns = caller.app.settings.connect.exclude
    if not patterns:
        return False
    from wellkept.imports.conversations import (
        is_excluded,
    )  # loads what stores conversations, which a prompt does not need

    return is_excluded(folder, patterns, caller.app.environ.get("HOME", ""))


def _mode_of(caller: Caller, record: Record, client: str, folder: str | None) -> _Mode:
    settings = caller.app.settings.connect
    connections = [one for one in record.of_client(client) if _applies(one.project, folder)]
    own = connections[-1] if connections else None  # that of the project, if there is one
    recall = own.recall if own is not None and own.recall is not None else settings.recall
    capture = own.capture if own is not None and own.capture is not None else settings.capture
    return _Mode(recall, capture)


def _applies(project: str | None, folder: str | None) -> bool:
    return project is None or folder == project or (folder is not None and folder.startswith(f"{project}/"))


def note_error(caller: Caller, client: str, message: str) -> None:
    """Note an error for `connect status`."""
    folder = caller.space.home.connections
    now = caller.app.clock.now().timestamp()
    save_health(folder, client, load_health(folder, client).after_error(message, now))


def _start(caller: Caller, event: HookEvent) -> _Answer | None:
    from wellkept.connect.capture import find_session
    from wellkept.operations.recall import build_start_block
    from wellkept.sessions.recall import tokens
    from wellkept.sessions.receipts import NewReceipt, ShownPage, ShownSession

    begun = time.perf_counter()
    project = find_project(event.folder)
    current = find_session(caller, event.client, event.session)
    block = build_start_block(caller, project, current=current)
    if block is None or (event.source in {"resume", "fork"} and _has_block(event.transcript, block.mark)):
        return None
    spent = (time.perf_counter() - begun) * 1_000
    return _Answer(
        answer_json(event, block.text, block.summary),
        NewReceipt(
            kind="start",
            client=event.client,
            session_id=current or _external_id(event),
            project=project,
            shown=(*map(ShownPage, block.pages), *map(ShownSession, block.sessions)),
            tokens=tokens(block.text),
            milliseconds=spent,
        ),
    )


def _has_block(transcript: Path | None, mark: str) -> bool:
    """Whether the block is in the part of a transcript that the model still sees."""
    if transcript is None:
        return False
    try:
        with open_regular(transcript) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _SCANNED_BYTES))
            data = file.read(_SCANNED_BYTES)
    except OSError:
        return False
    return mark.encode() in data[max(0, data.rfind(_COMPACTED)) :]


def _prompt(caller: Caller, event: HookEvent, mode: _Mode) -> _Answer | None:
    from wellkept.connect.capture import find_session
    from wellkept.formats.port import SOURCES as READABLE
    from wellkept.operations.recall import Recipient, find_given, recall_for_prompt
    from wellkept.sessions.receipts import NewReceipt, ShownMessage

    if mode.capture and (event.transcript is None or event.client not in READABLE):
        keep_prompt(caller.space.home.connections, event)
    if mode.recall != "sure" or not event.is_of_a_person:
        return None
    session = find_session(caller, event.client, event.session)
    given = find_given(caller, {name for name in (_external_id(event), session) if name is not None})
    project = find_project(event.folder)
    found = recall_for_prompt(caller, event.prompt, Recipient(session, project, given))
    if found is None:
        return None
    return _Answer(
        answer_json(event, found.text),
        NewReceipt(
            kind="prompt",
            client=event.client,
            query=found.query,
            session_id=session or _external_id(event),
            project=project,
            shown=tuple(ShownMessage(hit.message_id, hit.session_id, hit.score, hit.parts) for hit in found.shown),
            candidates=found.candidates,
            tokens=found.token_count,
            milliseconds=found.milliseconds,
        ),
    )


def _external_id(event: HookEvent) -> SessionId | None:
    """Return the client's own id of the session, which identifies receipts until the session is stored."""
    return SessionId(event.session) if event.session else None


def _capture(caller: Caller, event: HookEvent, deadline: float) -> None:
    """Store the new part of the transcript, or the texts of the event if there is none; then drain the spool."""
    from wellkept.connect.capture import capture_transcript, drain_spool

    path = find_transcript(caller, event)
    if event.kind is Kind.ANSWER and path is not None:
        return  # the event that ends the turn follows
    done: Captured | Refused | None
    if path is not None:
        done = capture_transcript(caller, event.client, path, deadline=deadline)
    else:
        done = _capture_texts(caller, event) if event.client not in _RECORDED else None
    if isinstance(done, Refused):
        log.warning("hook %s %s: %s", event.client, event.name, done.error)
        note_error(caller, event.client, done.error)
    elif done is not None and done.added:
        folder = caller.space.home.connections
        now = caller.app.clock.now().timestamp()
        save_health(folder, event.client, load_health(folder, event.client).after_capture(now))
    if time.monotonic() < deadline:
        drain_spool(caller, deadline=deadline)


def _capture_texts(caller: Caller, event: HookEvent) -> Captured | Refused | None:
    from wellkept.connect.capture import capture_turn

    kept = take_prompt(caller.space.home.connections, event)
    prompt, answer = event.prompt or kept.prompt, event.answer
    if not event.session or not prompt or not answer:
        return None
    return capture_turn(
        caller,
        event.client,
        session=event.session,
        turn=event.turn or kept.turn,
        project=event.folder,
        prompt=prompt,
        answer=answer,
    )


def find_transcript(caller: Caller, event: HookEvent) -> Path | None:
    """Return the transcript that an event names; else a file with the session in its name, or a database."""
    from wellkept.formats.port import find_source

    reader = find_source(event.client)
    if reader is None or event.transcript is not None or not event.session:
        return event.transcript if reader is not None else None
    for root in reader.find_roots(caller.app.environ):
        transcripts = reader.list_transcripts(root) if root.exists() else []
        named = next(
            (path for path in reversed(transcripts) if event.session in path.name or path.suffix == ".db"), None
        )
        if named is not None:
            return named
    return None


def put_off(caller: Caller, event: HookEvent) -> None:
    """Spool a turn that could not be stored in time; the next event, or `catch_up`, stores it."""
    from wellkept.imports.spool import Spool, WaitingTranscript, WaitingTurn

    if event.kind not in {Kind.STOP, Kind.ANSWER, Kind.COMPACT} or not _is_captured(caller, event):
        return
    note_error(caller, event.client, f"{event.name} was not handled in time; it is stored with the next event")
    (caller.space.home.connections / _DUE).touch()
    spool = Spool(caller.space.home.spool)
    transcript = find_transcript(caller, event) if event.client in _RECORDED else event.transcript
    if transcript is not None or event.client in _RECORDED:
        if transcript is not None:
            spool.add(WaitingTranscript(event.client, str(transcript)))
        return
    kept = take_prompt(caller.space.home.connections, event)
    prompt = event.prompt or kept.prompt
    if event.session and prompt and event.answer:
        now = caller.app.clock.now().timestamp()
        turn = event.turn or kept.turn
        spool.add(WaitingTurn(event.client, event.session, turn, event.folder, prompt, event.answer, now))


def may_capture(caller: Caller, client: str) -> bool:
    """Whether the transcripts of a client may be read in the folder of this process."""
    record = load_record(caller.space.home.connections)
    folder = str(caller.app.folder)
    if record.is_paused or not record.of_client(client) or _is_excluded(caller, folder):
        return False
    return _mode_of(caller, record, client, folder).capture


def _is_captured(caller: Caller, event: HookEvent) -> bool:
    mode = _find_mode(caller, event)
    return mode is not None and mode.capture


_DUE = "catch-up-due"
_PAUSE_SECONDS = 60.0
"""How often transcripts are searched when sessions start in quick succession."""


def is_repairing(database: Path) -> bool:
    """Whether this process, or one that was killed, has begun to repair the database."""
    return database.with_name(f"{database.name}.repair").exists()


def complete_repair(caller: Caller) -> None:
    """Repair the database, if an event had no time to complete that."""
    if is_repairing(caller.app.home.database):
        _ = caller.app.database


def needs_catching_up(caller: Caller, event: HookEvent) -> bool:
    """Whether to start a process now that stores what earlier events left; a True restarts the pause."""
    if event.kind not in {Kind.START, Kind.END}:
        return False
    folder = caller.space.home.connections
    stamp = folder / f"caught-up-{event.client}"
    now = time.time()
    with suppress(OSError):
        is_due = event.kind is Kind.END or (folder / _DUE).exists()
        if not is_due and now - stamp.stat().st_mtime < _PAUSE_SECONDS:
            return False
    with suppress(OSError):
        stamp.touch()
    return True


def catch_up(caller: Caller, client: str) -> None:
    """Store the items in the spool, and turns in a client's transcripts whose events never arrived."""
    from wellkept.connect.capture import capture_transcript, drain_spool, prune_captures
    from wellkept.operations.projectfacts import propose_recent_retirements

    record = load_record(caller.space.home.connections)
    mode = _mode_of(caller, record, client, None)
    if record.is_paused or not mode.capture:
        return
    (caller.space.home.connections / _DUE).unlink(missing_ok=True)
    drain_spool(caller)
    since = min((one.since for one in record.of_client(client)), default=caller.app.clock.now().timestamp())
    for path in _find_changed_transcripts(caller, client, since):
        done = capture_transcript(caller, client, path)
        if isinstance(done, Refused):
            log.warning("catching up with %s: %s", client, done.error)
    prune_captures(caller)
    propose_recent_retirements(caller)


def _find_changed_transcripts(caller: Caller, client: str, since: float) -> list[Path]:
    """Return the transcripts that changed since the client was connected, within the last days only."""
    from wellkept.formats.port import find_source

    reader = find_source(client)
    roots = reader.find_roots(caller.app.environ) if reader is not None else []
    oldest = max(since, caller.app.clock.now().timestamp() - _RECENT_SECONDS)
    changed_transcripts = []
    for path in (path for root in roots if root.exists() and reader for path in reader.list_transcripts(root)):
        with suppress(OSError):
            if path.stat().st_mtime >= oldest:
                changed_transcripts.append(path)
    return changed_transcripts


def report_bad_event(caller: Caller, client: str, message: str) -> None:
    """Log input that is not an event, and note it for `connect status`."""
    log.warning("hook %s: %s", client, message)
    note_error(caller, client, message)

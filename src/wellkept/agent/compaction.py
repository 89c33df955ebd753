"""Compaction of an open conversation: lease, provider hooks, engine, store, fresh prompt, in that order."""

from collections.abc import Callable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from wellkept.agent.dependencies import Parts
from wellkept.agent.offload import run_abandonable
from wellkept.agent.record import Record
from wellkept.context.engine import Compaction, Outcome, Pruned, Unchanged, Why
from wellkept.context.messages import prune_as_marked
from wellkept.context.summary import with_note
from wellkept.core.errors import GivenUp, StorageError
from wellkept.core.events import Compacted, Warned
from wellkept.core.ids import SessionId, new_session_id
from wellkept.core.messages import Link
from wellkept.providers.content import plain_messages
from wellkept.storage.leases import new_holder

LEASE_SECONDS = 180.0
"""A killed process blocks others no longer than this; a slow one renews the lease before it writes."""


class CompactionRequest(Struct, frozen=True):
    """How a compaction was requested."""

    current_tokens: int | None = None
    focus: str = ""
    force: bool = False


def compact(
    parts: Parts, record: Record, root: SessionId, *, rebuild: Callable[[], str], request: CompactionRequest
) -> Outcome:
    """Compact the conversation and move `record` to the resulting session; no message is lost on failure."""
    assert parts.engine is not None
    store = parts.sessions if record.exists and not record.trouble else None
    holder, lease = new_holder(), f"compact:{root}"
    if store is not None and not store.lease(lease, holder=holder, seconds=LEASE_SECONDS):
        return Unchanged((), Why.COOLING_DOWN, "another process is compacting this conversation")
    try:
        outcome = _catch_up(record) or _try_compress(parts, record, request)
        if store is not None and not store.lease(lease, holder=holder, seconds=LEASE_SECONDS):
            # writing the summary outlasted the lease, and another process has it now
            outcome = Unchanged((), Why.NOTHING_TO_COMPRESS, "another process began to compact this conversation")
        elif not isinstance(outcome, Unchanged):
            # another process may have taken, used and released the lease while the summary was written
            outcome = _catch_up(record) or outcome
        _store_outcome(parts, record, outcome, rebuild)
        record.note(root, "context", parts.engine.state())
    finally:
        if store is not None:
            store.release(lease, holder=holder)
    _report(parts, record, outcome)
    return outcome


def _catch_up(record: Record) -> Unchanged | None:
    """Adopt a compaction that another process has made meanwhile; the caller notifies the providers."""
    if not record.catch_up():
        return None
    return Unchanged((), Why.NOTHING_TO_COMPRESS, "another process has compacted this conversation")


def _store_outcome(parts: Parts, record: Record, outcome: Outcome, rebuild: Callable[[], str]) -> None:
    match outcome:
        case Compaction():
            _apply(parts, record, outcome, rebuild)
        case Pruned():
            record.pruning = outcome.mark
            record.note(record.session.id, "pruned", outcome.mark)
        case Unchanged():
            pass


def _try_compress(parts: Parts, record: Record, request: CompactionRequest) -> Outcome:
    try:
        return _compress(parts, record, request)
    except GivenUp:
        return Unchanged((), Why.GIVEN_UP)


def _compress(parts: Parts, record: Record, request: CompactionRequest) -> Outcome:
    assert parts.engine is not None
    rows = prune_as_marked(record.rows, record.pruning)
    provider_text = ""
    if parts.providers is not None and parts.engine.writes_summary(
        rows, current_tokens=request.current_tokens, force=request.force
    ):
        ask_providers = partial(parts.providers.pre_compress, plain_messages(record.list_whole_turns()))
        provider_text = run_abandonable(ask_providers)
    return parts.engine.compress(
        rows,
        current_tokens=request.current_tokens,
        focus_topic=request.focus,
        force=request.force,
        memory_context=provider_text,
    )


def _apply(parts: Parts, record: Record, compaction: Compaction, rebuild: Callable[[], str]) -> None:
    now = parts.clock.now()
    child = None if parts.compression.in_place else new_session_id(now)
    placed = compaction.into_session(timestamp=now.timestamp(), child=child)
    old = record.session
    if parts.providers is not None and child is not None:
        parts.providers.writes.queue_session_end(old.id, plain_messages(record.list_whole_turns()))
    prompt = with_note(rebuild())
    try:
        record.apply_compaction(placed)
    except StorageError as error:
        parts.sink(Warned(f"the compaction could not be stored: {error.message}", error.remedy))
        return
    if child is not None:
        record.session = replace(
            old, id=child, parent_session_id=old.id, link=Link.COMPRESSION, started=now.timestamp()
        )
    record.pruning = None
    record.set_prompt(prompt)
    record.note(record.session.id, "pruned", None)
    if parts.providers is not None:
        parts.providers.switch_session(record.session.id, "compression")


def _report(parts: Parts, record: Record, outcome: Outcome) -> None:
    match outcome:
        case Compaction(tokens_before=before, tokens_after=after, covered=covered, note=note):
            parts.sink(Compacted(before, after, len(covered), note, session_id=record.session.id))
        case Pruned(tokens_before=before, tokens_after=after, note=note):
            parts.sink(Compacted(before, after, 0, note, session_id=record.session.id))
        case Unchanged(note=note):
            if note:
                parts.sink(Warned(note))

"""Maintenance of the session store of a home: check, repair, and handling of an emptied database."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from wellkept.core.errors import UsageError
from wellkept.core.installation import name_install
from wellkept.storage.connections import is_emptied
from wellkept.storage.log_recovery import is_misplaced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from wellkept.app.root import App
    from wellkept.config.settings import StorageSettings
    from wellkept.core.ids import UserId
    from wellkept.core.ports import UnitOfWork
    from wellkept.sessions.ports import Sessions
    from wellkept.sessions.reports import Finding, Repaired
    from wellkept.sessions.rows.database import Connection
    from wellkept.storage.postgres.database import PostgresServer

_TRACES = (
    "memories/**/ledger.db",
    "config.yaml",
    "backups/*",
    "connect/*",
    "spool/*",
    "chat_history",
    "holographic.db",
)
"""Files that show that a home was in use, besides older copies of the database itself."""
_RESTORE = "`kept restore BACKUP` restores conversations from a backup"


def require_driver() -> None:
    """Raise UsageError unless the driver of PostgreSQL is installed."""
    if find_spec("psycopg") is None:
        raise UsageError("storage.url needs psycopg, which is not installed", f"run: {name_install('postgres')}")


def open_server(app: App, settings: StorageSettings) -> PostgresServer:
    """Return the server that `storage.url` names; it is connected to at the first use."""
    require_driver()
    from wellkept.storage.postgres.database import PostgresServer

    server = PostgresServer(settings.url, tenant=settings.tenant, most=settings.connections)
    app.on_close(server.close)
    return server


def open_sessions_at(server: PostgresServer, user: UserId) -> Sessions:
    """Open the conversations of a user on a server that the home does not use yet."""
    from wellkept.sessions.postgres.store import PostgresSessionStore

    return PostgresSessionStore(server, user=user)


def prepare_vectors(source: UnitOfWork, target: UnitOfWork, *, may_replace: bool) -> bool:
    """Prepare a database for the vectors of another one; False if there are none, or the target has another model's.

    With `may_replace` the target's own vectors are dropped: a server has one model per user, a file only one.
    """
    from wellkept.sessions.rows import vectors

    # a unit of work has everything that these functions need from a connection
    there, here = cast("Connection", source), cast("Connection", target)
    model = vectors.stored_model(there)
    if model is None or not (may_replace or vectors.stored_model(here) in {None, model}):
        return False
    vectors.begin(here, model)
    return True


def check_store(app: App) -> list[Finding] | None:
    """Return what is wrong with the session store of this home, without writing; None if nothing was ever stored."""
    from wellkept.sessions.sqlite.check import check_file
    from wellkept.storage.connections import find_refusal

    if app.server is not None:
        return [*_find_refusals(app.server), *app.owner.sessions.upkeep.check()]
    path = app.home.database
    emptied = _find_emptied(path)
    if is_emptied(path) or not (path.exists() or is_misplaced(path)):
        return emptied or None
    findings = check_file(path, clock=app.clock) + emptied
    refusal = None if findings else find_refusal(path)
    return findings if refusal is None else [_finding(refusal.message, refusal.remedy)]


def check_copied_store(path: Path) -> list[str]:
    """Return the damaged rows of a copied session store, which nobody writes."""
    from wellkept.sessions.sqlite.check import check_copied_rows

    return check_copied_rows(path)


def _finding(what: str, remedy: str, *, is_lost: bool = False) -> Finding:
    from wellkept.sessions.reports import Finding

    return Finding(what, remedy, is_lost=is_lost)


def _find_refusals(server: PostgresServer) -> list[Finding]:
    """Return why a server would refuse writes although it can be read."""
    from wellkept.storage.postgres.schema import find_missing_rights

    findings = []
    if server.for_tenant().is_read_only:
        remedy = "point storage.url at the primary, or wait for the failover"
        findings.append(_finding(f"{server.place} is read-only, so nothing can be stored", remedy))
    if missing := find_missing_rights(server):
        what = f"{server.place.role!r} may not read or change {', '.join(missing)}"
        findings.append(_finding(what, "grant what `kept storage create-role` prints"))
    return findings


def _find_emptied(path: Path) -> list[Finding]:
    """Return a finding for an empty database in a home that was in use, and for each that was set aside."""
    from wellkept.storage.swap import COMPANIONS

    refusals = []
    if is_emptied(path) and (traces := _find_traces(path)):
        what = f"{path.name} is empty (0 bytes), and this home was in use ({', '.join(traces)})"
        refusals.append(_finding(f"{what}: conversations that were stored in it are lost", _RESTORE, is_lost=True))
    for aside in sorted(path.parent.glob(f"{path.name}.damaged-*")):
        if is_emptied(aside) and not aside.name.endswith(COMPANIONS):
            what = f"{path.name} was found empty and set aside as {aside.name}: conversations before that are lost"
            refusals.append(_finding(what, f"{_RESTORE}; remove {aside} to end this message", is_lost=True))
    return refusals


def _find_traces(path: Path) -> list[str]:
    home = path.parent
    patterns = (*_TRACES, f"{path.name}.*")
    return [min(there).relative_to(home).as_posix() for pattern in patterns if (there := list(home.glob(pattern)))]


def set_aside_emptied(app: App) -> None:
    """Rename an empty database in a home that was in use: a new one in its place would hide the loss."""
    from wellkept.core.events import Warned
    from wellkept.storage.files import move

    path = app.home.database
    if not _find_traces(path):
        return
    aside = path.with_name(f"{path.name}.damaged-{app.clock.now():%Y%m%d-%H%M%S}")
    move(path, aside)
    app.report(Warned(f"{path.name} was empty (0 bytes) and is set aside as {aside.name}", _RESTORE))


def describe_limits(app: App) -> list[str]:
    """Return what the check of the session store did not cover."""
    if app.server is not None:
        return [f"{app.server.place} checks its own files"]
    from wellkept.sessions.sqlite.check import describe_limits as describe

    return describe(app.home.database)


def repair_store(app: App) -> Repaired | None:
    """Check the session store of this home and repair it; None if nothing was ever stored."""
    if app.server is not None:
        remedy = "repair it with the server's own tools; `kept sessions reindex` rebuilds the search index"
        raise UsageError(f"the conversations are stored at {app.server.place}", remedy)
    from wellkept.sessions.sqlite.repair import Repair

    path = app.home.database
    if not (path.exists() or is_misplaced(path)):
        return None
    if "state_file" in vars(app):
        app.state_file.close()
    return Repair(path, app.settings.sessions, clock=app.clock, sink=app.sink).run()


@contextmanager
def open_store_of(path: Path) -> Iterator[Sessions]:
    """Open the conversations of all users in a copied database file, migrated to the current schema."""
    from wellkept.sessions.sqlite.store import SqliteSessionStore

    store = SqliteSessionStore(path)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def open_trial_store(folder: Path) -> Iterator[Sessions]:
    """Open a session store of the usual kind in an empty folder."""
    from wellkept.sessions.sqlite.store import SqliteSessionStore

    store = SqliteSessionStore(folder)
    try:
        yield store
    finally:
        store.close()

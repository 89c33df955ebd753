"""Errors of PostgreSQL in our words: one line that says what happened, and the next step."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from wellkept.core.errors import Busy, KeptError, StorageError, Unreadable, UsageError

_CHECK_SERVER = "check that it is running and that storage.url is right; `kept storage status` tries again"
MIGRATE = "run `kept storage migrate --owner-url-env NAME`; the variable NAME contains the URL of the tables' owner"
_GRANT = "grant what `kept storage create-role` prints"
_LOG_IN = "`kept config secret KEPT_STORAGE__URL` stores another address; `kept storage create-role` creates a role"
_SOON = "try again in a moment"

_BY_STATE: dict[str, tuple[type[KeptError], str, str]] = {
    "28P01": (StorageError, "{where} refused the password of {role}, or has no such role", _LOG_IN),
    "28000": (StorageError, "{where} does not let {role} in: {error}", "check the role in storage.url and pg_hba.conf"),
    "3D000": (StorageError, "{where} has no database {database}", "correct storage.url, or create the database"),
    "3F000": (StorageError, "{database} has no tables of kept", MIGRATE),
    "42P01": (StorageError, "{database} lacks a table: {error}", MIGRATE),
    "42703": (StorageError, "{database} lacks a column: {error}", MIGRATE),
    "42883": (StorageError, "{database} lacks a function: {error}", MIGRATE),
    "42501": (StorageError, "{role} may not do this: {error}", _GRANT),
    "25006": (StorageError, "{where} is read-only", "point storage.url at the primary, or wait for the failover"),
    "53100": (StorageError, "the disk of {where} is full", "free some space there, then try again"),
    "53200": (StorageError, "{where} is out of memory", _SOON),
    "53300": (Busy, "{where} is out of connections", "try again in a moment, or raise max_connections there"),
    "53400": (Busy, "{where} reached a limit: {error}", _SOON),
    "54000": (UsageError, "an id or a name is too long for {where}: {error}", "use a shorter one"),
    "55P03": (Busy, "{where} is busy: a row stayed locked for too long", _SOON),
    "57014": (Busy, "{where} took too long and the statement was stopped", _SOON),
    "57P03": (Busy, "{where} is starting or stopping", _SOON),
    "40001": (Busy, "{where} is busy: two writers collided", _SOON),
    "40P01": (Busy, "{where} is busy: two writers waited for each other", _SOON),
    "25P03": (Busy, "{where} ended a transaction that waited for too long", _SOON),
    "25P04": (Busy, "{where} ended a transaction that took too long", _SOON),
    "XX001": (Unreadable, "{database} is damaged: {error}", "restore it from a backup of the server"),
    "XX002": (Unreadable, "an index of {database} is damaged: {error}", "run REINDEX DATABASE on the server"),
}
_BY_CLASS: dict[str, tuple[type[KeptError], str, str]] = {
    "08": (StorageError, "the connection to {where} was lost", _SOON),
    "57": (StorageError, "the connection to {where} was ended by the server", _SOON),
    "53": (Busy, "{where} is short of a resource: {error}", _SOON),
    "40": (Busy, "{where} rolled a transaction back: {error}", _SOON),
}
_BY_TEXT: tuple[tuple[str, str], ...] = (
    # libpq reports a failed connection without a code; the first pattern that matches counts
    ("password authentication failed|no password supplied", "28P01"),
    ("no pg_hba.conf entry|role .* does not exist|peer authentication failed|not permitted to log in", "28000"),
    ("database .* does not exist|no such database", "3D000"),
    ("too many clients|remaining connection slots|too many connections|no more connections", "53300"),
    ("starting up|shutting down|in recovery mode|not yet accepting", "57P03"),
    ("session is read-only|not available for writing|hot standby", "25006"),
)
_UNREACHABLE: tuple[tuple[str, str], ...] = (
    (
        "could not translate host name|name or service not known|failed to resolve|nodename nor servname",
        "cannot be found: unknown host name",
    ),
    ("connection refused|no such file or directory", "does not answer: connection refused"),
    ("timeout expired|timed out", "does not answer in time"),
    ("no route to host|network is unreachable|host is unreachable", "cannot be reached"),
    ("server closed the connection|terminating connection|connection reset|connection is lost|ssl syscall", "is gone"),
)


class Place:
    """Which server, database and role a URL names, as errors show them: never with the password."""

    def __init__(self, *, host: str, port: str, database: str, role: str) -> None:
        self.host, self.port, self.database, self.role = host, port, database, role

    def __str__(self) -> str:
        return f"PostgreSQL at {self.host}:{self.port}"


def translate(error: psycopg.Error, place: Place) -> KeptError:
    """Return the error of ours for one of the driver's."""
    text = _first_line(error)
    state = error.sqlstate or _find_state(text)
    kind, message, remedy = _BY_STATE.get(state) or _BY_CLASS.get(state[:2]) or (None, "", "")
    if state == "42501" and re.search("for database|must be owner", text):
        remedy = MIGRATE
    if kind is not None:
        names = {"where": place, "role": repr(place.role), "database": repr(place.database), "error": text}
        return kind(message.format(**names), remedy)
    if is_lost(error):
        reason = next((said for pattern, said in _UNREACHABLE if re.search(pattern, text, re.IGNORECASE)), "")
        return StorageError(f"{place} {reason or f'cannot be used: {text}'}", _CHECK_SERVER)
    if isinstance(error, psycopg.NotSupportedError):
        return StorageError(f"{place} cannot do this: {text}", "use a newer server")
    return StorageError(f"{place} refused a statement: {text}", "look at the log of the server")


def is_lost(error: psycopg.Error) -> bool:
    """Whether an error says that the connection is gone, or was never made."""
    state = error.sqlstate or ""
    return (state == "" and isinstance(error, psycopg.OperationalError)) or state[:2] == "08" or state[:3] == "57P"


@contextmanager
def explain_errors(place: Place) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, place) from error


def _find_state(text: str) -> str:
    return next((state for pattern, state in _BY_TEXT if re.search(pattern, text, re.IGNORECASE)), "")


def _first_line(error: psycopg.Error) -> str:
    """Return what the server said, without hints, positions and the statement, which may hold texts of people."""
    said = error.diag.message_primary or str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # libpq puts where it connected to before what the server said
    return re.sub(r".*\b(FATAL|ERROR):", "", lines[0]).strip()[:300] if lines else type(error).__name__

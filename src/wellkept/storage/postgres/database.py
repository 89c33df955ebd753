"""PostgreSQL as a database of one user at a time: URL, connections, transactions, statements.

    server = PostgresServer("postgresql://kept@db.example/kept", tenant="acme")
    database = server.for_user(UserId("anna"))       # a `core.ports.Database`
    with database.reading() as unit:                 # read only, one snapshot
        rows = unit.execute("SELECT id FROM sessions WHERE tenant = :tenant AND user_id = :user")
    with database.writing() as unit:                 # commit at the end, roll back on an error
        unit.execute("UPDATE notes SET value = ? WHERE tenant = :tenant AND user_id = :user AND key = ?", ("x", "y"))
        unit.changes()                               # rows that the last statement changed
    with server.for_tenant().writing() as unit:      # tables that belong to no user; sees no row of a user
        ...
    server.close()

- Statements use the notation of SQLite: `?`, `?1`, `:name` (`storage.connections.Statement`). Each names tenant and
  user, whose values the unit binds. Values are inserted by the driver's client-side binding, so that nothing is
  prepared (PgBouncer in transaction mode) and a NULL needs no type. `= ANY(:names)` takes a list.
- The first statement of every transaction sets `kept.tenant`, `kept.user` and `search_path` for that transaction only;
  row-level security, the second barrier between users, reads the first two.
- `user_id` holds `database.key`, not the id: `make_key` shortens an id that no index could hold.
- Texts may contain NUL: they are escaped on the way in and restored on the way out.
- A block that is opened inside another one on the same thread, for the same user, joins it; a `writing` inside a
  `reading` is a bug.
- Errors are those of `core/errors.py`; a connection that the server has ended is replaced before anything was sent. One
  that is lost during a commit is an error: the caller must look whether the transaction was committed.
- The first connection checks version, schema and role: an owner, a superuser or a role with BYPASSRLS is refused.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import psycopg

from wellkept.core.errors import Busy, ConfigError, KeptError, StorageError
from wellkept.core.ids import UserId
from wellkept.core.text import is_encodable
from wellkept.storage.leases import check_guard
from wellkept.storage.postgres.errors import Place, explain_errors, is_lost, translate
from wellkept.storage.postgres.unit import ESCAPE, ClientCursor, Driver, Owner, Unit, escape, prepare

if TYPE_CHECKING:
    from psycopg.abc import PQGen

SCHEMA = "kept"
MOST_CONNECTIONS = 10
"""Per process. Transactions are short, and a server has about 100 connections for all processes."""
WAIT_SECONDS = 10.0
"""How long to wait for a free connection of this process, or for a lock."""
STATEMENT_SECONDS = 60.0
PAUSE_SECONDS = 5.0
"""The longest pause between two statements of a write transaction: the server then ends it, so that a process that is
stopped or cut off does not keep its locks. Others wait twice as long for a lock. `allow_pauses` of the index lifts
the limit for transactions that compute between statements."""
_MOST_KEY_BYTES = 256
"""Of a user's or tenant's key: an index row of PostgreSQL holds at most 2,700 bytes."""
_HASH_MARK = "~sha256:"
_CONNECT_SECONDS = 5
_LOOK_SECONDS = 0.2
_REST_SECONDS = 10.0
_IDLE_SECONDS = 300.0
_READ_ONLY = "25006"
_IS_READ_ONLY = "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'"
_FORM = "write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
_ENCODE = f"{_FORM}; in a password, / is %2F, ? is %3F and # is %23"
_OPTIONS = "remove it; the options are those of libpq, such as sslmode"
Result = TypeVar("Result")


def parse_url(url: str) -> tuple[str, Place]:
    """Return the address for the driver and what errors show of it; raise ConfigError with the part that is missing.

    Several hosts (`HOST:PORT,HOST:PORT`) are a primary and its standbys: the one that can be written to is used.
    """
    try:
        parts = urlsplit(url.strip())
        hosts = [_parse_host(part) for part in parts.netloc.rpartition("@")[2].split(",")]
    except ValueError:  # its message may contain a piece of the password
        raise ConfigError("storage.url has an invalid port or host", _ENCODE) from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ConfigError(f"storage.url begins with {parts.scheme or url[:12]!r}, not with 'postgresql'", _FORM)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    host = ",".join(name for name, _ in hosts if name) or options.get("host", "")
    port = ",".join(port or "5432" for _, port in hosts) if any(port for _, port in hosts) else ""
    role = unquote(parts.username or "") or options.get("user", "")
    database = unquote(parts.path.lstrip("/")) or options.get("dbname", "")
    for name, value in (("user", role), ("host", host), ("database", database)):
        if not value:
            raise ConfigError(f"storage.url names no {name}", _FORM)
    if "\0" in unquote(url):
        raise ConfigError("storage.url contains a NUL character", _FORM)
    unknown = options.keys() - {known.keyword.decode() for known in psycopg.pq.Conninfo.get_defaults()} - {"ssl"}
    if unknown:
        raise ConfigError(f"storage.url has an unknown option: {min(unknown)!r}", _OPTIONS)
    options.setdefault("connect_timeout", str(_CONNECT_SECONDS))
    options.setdefault("application_name", "kept")
    if "," in host:
        options.setdefault("target_session_attrs", "read-write")
    place = Place(host=host, port=port or options.get("port", "5432"), database=database, role=role)
    who, at, where = parts.netloc.rpartition("@")
    # the driver reads a URL by other rules: for it, the first @ ends the password
    who = ":".join(quote(unquote(part), safe="") for part in who.split(":", 1))
    path = quote(unquote(parts.path))
    return parts._replace(netloc=f"{who}{at}{where}", path=path, query=urlencode(options)).geturl(), place


def _parse_host(text: str) -> tuple[str, str]:
    """Return one host and its port, which may be missing."""
    found = urlsplit(f"//{text}")
    return unquote(found.hostname or ""), str(found.port or "")


class _Connection(psycopg.Connection[tuple[object, ...]]):
    """A connection of the driver, with our texts, when it was last given back, and a limit for every answer."""

    idle_since = 0.0
    answer_seconds = STATEMENT_SECONDS + WAIT_SECONDS
    """A server that hangs does not stop its statements itself."""

    def wait(self, gen: "PQGen[Result]", *arguments: Any, **options: Any) -> "Result":  # as the driver calls it
        """Wait for an answer; close the connection and raise OperationalError if none comes in time."""
        return super().wait(self._limit(gen, time.monotonic() + self.answer_seconds), *arguments, **options)

    def _limit(self, gen: "PQGen[Result]", deadline: float) -> "PQGen[Result]":
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() > deadline:  # the driver checks ten times a second
                    self.pgconn.finish()  # not `close`, which may wait
                    raise psycopg.OperationalError("timeout expired")
                state = gen.send(ready)
        except StopIteration as end:
            result: Result = end.value
            return result


class PostgresServer:
    """One database on a server, for all users of one tenant: a stack of connections, opened when they are needed.

    Not `psycopg_pool`, which connects in its own threads and reports only a timeout, where a person needs to read
    "connection refused" at once; and a command must not start threads to read one row.
    """

    def __init__(self, url: str, *, tenant: str = "default", most: int = MOST_CONNECTIONS) -> None:
        self.address, self.place = parse_url(url)
        self.tenant = tenant
        self._idle: list[_Connection] = []
        self._free = threading.BoundedSemaphore(most)
        self._guard = threading.Lock()
        self._unchecked = True
        self._hanging: tuple[float, KeptError] | None = None
        """After a connection timeout: when to try again, and the error to raise until then."""
        self._local = threading.local()
        self.has_written = False
        """Whether a transaction was committed through this object."""

    def for_user(self, user: UserId) -> "UserDatabase":
        """Return the database as that user sees it."""
        return UserDatabase(self, user)

    def for_tenant(self) -> "UserDatabase":
        """Return the database without any user: only tables of the whole tenant have rows there."""
        return UserDatabase(self, None)

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they are given back."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def limit_wait(self, seconds: float) -> Iterator[None]:
        """Inside the block, transactions that this thread begins wait no longer than `seconds` for a lock."""
        before = self._wait_seconds
        self._local.wait_seconds = seconds
        try:
            yield
        finally:
            self._local.wait_seconds = before

    @property
    def _wait_seconds(self) -> float:
        return float(getattr(self._local, "wait_seconds", WAIT_SECONDS))

    @contextmanager
    def transaction(self, owner: Owner, *, writing: bool) -> Iterator[Unit]:
        """Yield the transaction of this thread for that user: the open one, or a new one."""
        open_units: dict[str, Unit] = self._local.__dict__.setdefault("units", {})
        user_key = owner.key
        joined = open_units.get(user_key)
        if joined is not None:
            assert joined.is_writing or not writing, "a write inside a read transaction"
            yield joined
            return
        unit = open_units[user_key] = Unit(partial(self._begin, owner, writing), is_writing=writing, owner=owner)
        try:
            yield unit
            unit.commit()
            self.has_written |= writing
        except psycopg.Error as error:
            if error.sqlstate == _READ_ONLY:
                self.close()  # after a failover every connection may lead to the server that was the primary
                unit.connection.close()
            raise translate(error, self.place) from error
        finally:
            del open_units[user_key]
            if unit.has_begun:
                self._give_back(cast(_Connection, unit.connection))
        for act in unit.on_commit:
            act()

    def _begin(
        self, owner: Owner, writing: bool, first: Callable[[Driver], str] | None
    ) -> tuple[_Connection, psycopg.Cursor[tuple[object, ...]]]:
        """Return a connection in a new transaction of that user, and the rows of its `first` statement.

        A connection that lay idle may have been ended meanwhile: nothing was committed on it, so the next one is tried.
        """
        begin = _write_begin(owner, writing=writing, wait_seconds=self._wait_seconds)
        while True:
            connection, is_new = self._take()
            try:
                # a statement that writes may wait for a lock as well
                connection.answer_seconds = WAIT_SECONDS if first is None or not writing else 2 * WAIT_SECONDS
                text = begin if first is None else f"{begin};\n{first(connection)}"
                cursor = connection.execute(text.encode())
                while cursor.nextset():
                    pass
            except BaseException as error:
                self._give_back(connection)
                if not isinstance(error, psycopg.Error):
                    raise
                is_gone = is_lost(error) or error.sqlstate == _READ_ONLY
                if is_gone:
                    self.close()  # the others were ended as well, or lead to the server that was the primary
                if is_new or not is_gone:
                    raise translate(error, self.place) from error
            else:
                connection.answer_seconds = STATEMENT_SECONDS + WAIT_SECONDS
                return connection, cursor

    def _take(self) -> tuple[_Connection, bool]:
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise Busy(f"all connections of this process to {self.place} are in use", "try again in a moment")
        try:
            with self._guard:
                connection = self._idle.pop() if self._idle else None
            if connection is not None and not connection.closed:
                return connection, False
            return self._connect(), True
        except BaseException:
            self._free.release()
            raise

    def _connect(self) -> _Connection:
        if self._hanging is not None and time.monotonic() < self._hanging[0]:
            raise StorageError(self._hanging[1].message, self._hanging[1].remedy)
        began = time.monotonic()
        try:
            connection = _Connection.connect(self.address, autocommit=True, cursor_factory=ClientCursor)
        except psycopg.Error as error:
            failure = translate(error, self.place)
            if time.monotonic() - began > 1:  # a slow failure must not repeat with every statement of a turn
                self._hanging = (time.monotonic() + _REST_SECONDS, failure)
            raise failure from error
        self._hanging = None
        prepare(connection)
        if self._unchecked:
            from wellkept.storage.postgres.schema import check_server  # only the first connection needs it

            try:
                with explain_errors(self.place):
                    check_server(connection, self.place)
            except BaseException:
                connection.close()
                raise
            self._unchecked = False
        return connection

    def _give_back(self, connection: _Connection) -> None:
        """Take back a connection; what it has not committed is rolled back."""
        idle = psycopg.pq.TransactionStatus.IDLE
        if connection.info.transaction_status != idle:
            with suppress(psycopg.Error):  # the connection may be the reason
                connection.rollback()
        now = time.monotonic()
        with self._guard:
            outdated = [each for each in self._idle if now - each.idle_since > _IDLE_SECONDS]
            self._idle = [each for each in self._idle if now - each.idle_since <= _IDLE_SECONDS]
            if connection.info.transaction_status == idle:
                connection.idle_since = now
                self._idle.append(connection)
            else:
                outdated.append(connection)
        self._free.release()
        for each in outdated:
            with suppress(psycopg.Error):
                each.close()


@lru_cache(maxsize=1_024)
def _write_begin(owner: Owner, *, writing: bool, wait_seconds: float) -> str:
    """Return what begins a transaction of that user."""
    mode = "READ COMMITTED" if writing else "REPEATABLE READ, READ ONLY"
    settings = {
        "kept.user": owner.key,
        "kept.tenant": owner.tenant,
        "search_path": SCHEMA,
        "lock_timeout": str(max(1, int(wait_seconds * 1000))),
        "statement_timeout": str(int(STATEMENT_SECONDS * 1000)),
        # functions of the server keep one plan for all values: making it takes longer than running it
        "plan_cache_mode": "force_generic_plan",
    }
    if writing:
        settings["idle_in_transaction_session_timeout"] = str(int(PAUSE_SECONDS * 1000))
    quoted = {name: escape(value).replace("\\", r"\\").replace("'", "''") for name, value in settings.items()}
    calls = ", ".join(f"set_config('{name}', E'{value}', true)" for name, value in quoted.items())
    return f"BEGIN ISOLATION LEVEL {mode};\nSELECT {calls}"


def make_key(identity: str) -> str:
    """Return the text that represents a user in every key; two ids never share one.

    An id that is too long or contains NUL is shortened and gets its hash; so does one that looks like a shortened id.
    """
    data = identity.encode("utf-8", "surrogatepass")
    is_short = 0 < len(data) <= _MOST_KEY_BYTES and is_encodable(identity)
    if is_short and "\0" not in identity and ESCAPE not in identity and _HASH_MARK not in identity:
        return identity
    begin = escape(data[:64].decode("utf-8", "ignore"))
    return f"{begin}{_HASH_MARK}{sha256(data).hexdigest()}"


class UserDatabase:
    """The database as one user sees it: a `core.ports.Database`; None is nobody, for tables of the whole tenant."""

    def __init__(self, server: PostgresServer, user: UserId | None) -> None:
        self.server = server
        self.user = user
        self.key = "" if user is None else make_key(user)
        """The user in every `user_id`."""
        self._owner = Owner(make_key(server.tenant), self.key)

    @property
    def is_read_only(self) -> bool:
        """Whether this server accepts no writes, as a standby does; raises StorageError if it cannot be reached."""
        with self.reading() as unit:
            row = unit.execute(_IS_READ_ONLY).fetchone()
        return row is not None and bool(row[0])

    @contextmanager
    def limit_wait(self, seconds: float) -> Iterator[None]:
        """Inside the block, transactions of this thread wait no longer than `seconds` for locks, then raise Busy."""
        with self.server.limit_wait(seconds):
            yield

    def sync(self) -> None:
        """Do nothing: a server has the bytes of a transaction on its disk before it confirms the commit."""

    @contextmanager
    def reading(self) -> Iterator[Unit]:
        """Yield a transaction for reads, in one snapshot."""
        with self.server.transaction(self._owner, writing=False) as unit:
            yield unit

    @contextmanager
    def writing(self) -> Iterator[Unit]:
        """Yield a write transaction: committed at the end, rolled back as a whole on an error.

        Under the guard of a lease (`storage/leases.py`) that was lost meanwhile it raises Busy instead.
        """
        with self.server.transaction(self._owner, writing=True) as unit:
            if not unit.has_begun:
                check_guard(unit, self)
            yield unit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UserDatabase) and (other.server, other.key) == (self.server, self.key)

    def __hash__(self) -> int:
        return hash(self.key)


@contextmanager
def connect_as_owner(url: str) -> Iterator[Unit]:
    """Yield one transaction of the role that owns the tables, for migrations and roles; no user is set in it."""
    address, place = parse_url(url)
    try:
        with psycopg.connect(address, cursor_factory=psycopg.ClientCursor) as connection:
            prepare(connection)
            unit = Unit(connection, is_writing=True)
            yield unit
            unit.commit()
    except psycopg.Error as error:
        raise translate(error, place) from error

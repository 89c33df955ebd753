"""Stops whatever opens a file that this process has open as a database: closing it would release SQLite's locks.

Installed in the process of the tests and in the programs that they start as forks.
"""

import os
import sys

HERE = f"{os.sep}src{os.sep}wellkept{os.sep}"


class LocksLost(BaseException):
    """The code of kept opened a database file as an ordinary file."""


violations: list[str] = []


def install() -> None:
    """Look at every file that Python opens, from now on to the end of the process."""
    sys.addaudithook(_look)


def _look(event: str, args: tuple[object, ...]) -> None:
    if event != "open" or not isinstance(args[0], str | bytes | os.PathLike):
        return
    regular_files = sys.modules.get("wellkept.core.regular_files")
    if not getattr(regular_files, "_held", None):
        return
    file = regular_files.identify(args[0])
    if file is None or file not in _databases(regular_files) or not _is_open(file):
        return
    if os.path.isdir(args[0]):  # noqa: PTH112 - a folder that got the number of a removed database file
        return
    opener = _find_opener()
    if opener is not None and not opener.endswith("regular_files.py:_open"):
        violations.append(f"{opener} opens {args[0]!r}, which is open as a database")
        sys.stderr.write(f"{violations[-1]}\n")
        raise LocksLost(violations[-1])


def _databases(regular_files: object) -> set[object]:
    files = {own for held in regular_files._held.values() if held.connections for own in held.files}
    names = {f"{held.path}-shm" for held in regular_files._held.values() if held.connections}
    return files | {regular_files.identify(name) for name in names}


def _is_open(file: tuple[int, int]) -> bool:
    """Whether the process has the file open: the number of a removed one may belong to another file now."""
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the folder of this process
        try:
            status = os.stat(f"/proc/self/fd/{number}")  # noqa: PTH116
        except OSError:
            continue
        if (status.st_dev, status.st_ino) == file:
            return True
    return False


def _find_opener() -> str | None:
    """Return the innermost function of kept that led here; None if a test opened the file itself."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if HERE in name:
            return f"{name}:{frame.f_code.co_name}"
        if f"{os.sep}tests{os.sep}" in name:
            return None
        frame = frame.f_back
    return None

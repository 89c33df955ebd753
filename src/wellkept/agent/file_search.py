"""Search of files and lines below a folder; also runs as a separate process, which can be killed.

A model's regular expression can take forever (`(a+)+$`), and Python cannot interrupt it. So `search_files` runs
this file in another process, with the standard library only: it starts in a few hundredths of a second.
"""

import fnmatch
import json
import os
import re
import stat
import sys
from collections.abc import Iterator

SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv", ".mypy_cache"})
LINE_CHARS = 300


def find_files(root: str, pattern: str) -> Iterator[str]:
    """Yield the regular files below `place` whose name or relative path matches `pattern`."""
    if _is_regular(root):
        yield root
        return
    for folder, names, inside in os.walk(root):
        names[:] = sorted(name for name in names if name not in SKIPPED)
        for file in sorted(inside):
            inner = os.path.join(folder, file)  # noqa: PTH118 - pathlib takes a third of this program's start
            relative = os.path.relpath(inner, root)
            if (fnmatch.fnmatch(file, pattern) or fnmatch.fnmatch(relative, pattern)) and _is_regular(inner):
                yield inner


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116
    except (OSError, ValueError):
        return False


def find_lines(expression: str, root: str, pattern: str, most: int) -> Iterator[str]:
    """Yield up to `most` matching lines as `file:number: line`."""
    search = re.compile(expression).search
    hits = 0
    for file in find_files(root, pattern):
        try:
            with open(file, encoding="utf-8") as lines:  # noqa: PTH123
                for number, line in enumerate(lines.read().splitlines(), 1):
                    if search(line):
                        yield f"{file}:{number}: {line[:LINE_CHARS]}"
                        hits += 1
                        if hits >= most:
                            return
        except (OSError, UnicodeDecodeError):
            continue


def main() -> None:
    """Print the matching lines as JSON strings, each as soon as it is found."""
    request = json.loads(sys.argv[1])
    for hit in find_lines(request["expression"], request["place"], request["files"], request["most"]):
        sys.stdout.write(json.dumps(hit) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Count the modules of kept in which a command runs code, and how deep its calls go.

    python benchmarks/touched.py memory add "I like tea"

A module counts when one of its functions runs; importing it, or building its dataclasses, does not count. The depth is
the largest number of kept's own functions on the stack.
"""

import contextlib
import io
import sys
import threading
from types import CodeType, FrameType


class Touched:
    """Observes function calls, also in threads that start later."""

    def __init__(self, package: str = "wellkept") -> None:
        self.package = package
        self.modules: set[str] = set()
        self.depth = 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take note of one call."""
        if event != "call" or not _is_function(frame.f_code) or not self._is_ours(frame):
            return
        depth, is_import = 0, False
        caller: FrameType | None = frame
        while caller is not None:
            if self._is_ours(caller):
                depth += 1
                is_import = is_import or caller.f_code.co_name == "<module>"
            caller = caller.f_back
        if not is_import:
            self.modules.add(frame.f_globals["__name__"])
            self.depth = max(self.depth, depth)

    def _is_ours(self, frame: FrameType) -> bool:
        return str(frame.f_globals.get("__name__", "")).partition(".")[0] == self.package


def _is_function(code: CodeType) -> bool:
    # dataclasses write their methods as text; a class body is code without optimised locals
    return bool(code.co_flags & 1) and code.co_filename != "<string>"


def count(arguments: list[str]) -> Touched:
    """Run one command of kept in this process and return what it touched."""
    from wellkept.cli.main import main

    touched = Touched()
    sys.argv = ["kept", *arguments]
    quiet = io.StringIO()
    threading.setprofile(touched)
    sys.setprofile(touched)
    try:
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet), contextlib.suppress(SystemExit):
            main()
    finally:
        sys.setprofile(None)
    return touched


if __name__ == "__main__":
    result = count(sys.argv[1:])
    print(f"{len(result.modules)} modules, depth {result.depth}")

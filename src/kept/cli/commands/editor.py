"""A person's own editor, opened on a text."""

import os
import sys
from pathlib import Path

from kept.core.errors import UsageError


def edited(text: str, *, name: str, otherwise: str) -> tuple[str, Path]:
    """Return the text as it came back, and the file that holds it until the caller removes it.

    `otherwise` says what to do where no editor can be opened. What was written is never lost: an editor that
    fails, or bytes that are no text, leave the file where it is.
    """
    import shlex
    import subprocess
    import tempfile

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    if not editor and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("there is no terminal to open an editor in", otherwise)
    editor = editor or "vi"
    descriptor, place = tempfile.mkstemp(prefix=f"kept-{name}-", suffix=".md")
    os.close(descriptor)
    file = Path(place)
    file.write_text(text, encoding="utf-8")
    try:
        code = subprocess.run([*shlex.split(editor), place], check=False).returncode
    except (OSError, ValueError) as error:
        file.unlink(missing_ok=True)
        raise UsageError(f"cannot start the editor {editor!r}: {error}", f"set $EDITOR, or {otherwise}") from error
    if code != 0:
        raise UsageError(f"the editor {editor!r} ended with {code}; nothing was changed", f"your text is in {place}")
    try:
        return file.read_text(encoding="utf-8"), file
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read back {place!r}: {error}", "save it as UTF-8; nothing was changed") from error

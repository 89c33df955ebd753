"""The note beside an entry in a prompt: what the project no longer confirms, in a few words.

A model may send it elsewhere. So it names files, targets and branches, but nothing of what is in a file; and the names
that a stranger may have chosen have only the letters of ordinary paths.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from wellkept.core.text import expression
from wellkept.projectfacts.check import START, Finding, Verdict, check_entries
from wellkept.projectfacts.remembered import Remembered

_MOST_NAMED: Final = 3
_MOST_CHARS: Final = 80
_ORDINARY: Final = expression(r"[A-Za-z0-9_.@+/ -]+")
_NOTE: Final = expression(r" \[checked: [^\[\]\n]{1,400}\]")


def note_entries(root: Path, entries: Mapping[str, float | None], remembered: Remembered) -> dict[str, str]:
    """Return a note for each entry that the project no longer confirms, as far as that is found out at once."""
    found = check_entries(root, entries, START, remembered=remembered).findings
    notes = {entry: write_note(findings) for entry, findings in found.items()}
    return {entry: note for entry, note in notes.items() if note}


def write_note(findings: Sequence[Finding]) -> str:
    """Return the note, empty if everything still holds."""
    phrases = list(dict.fromkeys(phrase for finding in findings if (phrase := _describe(finding))))
    return f"[checked: {'; '.join(phrases[:_MOST_NAMED])}]" if phrases else ""


def strip_notes(text: str) -> str:
    """Return a page without the notes."""
    return _NOTE.sub("", text)


def _describe(finding: Finding) -> str:
    claim, now = _shorten(finding.claim), finding.now or ""
    match finding.verdict:
        case Verdict.GONE:
            return f"{claim} is gone"
        case Verdict.RENAMED:
            is_ordinary = len(now) <= _MOST_CHARS and _ORDINARY.fullmatch(now) is not None
            return f"{claim} is now {now}" if is_ordinary else f"{claim} was renamed"
        case Verdict.DIFFERS:
            return f"{claim}: the lock file has another version"
        case Verdict.CHANGED if not finding.is_file:
            return f"{claim} was changed"
        case _:
            return ""


def _shorten(claim: str) -> str:
    # brackets would end the note
    text = claim.replace("[", "(").replace("]", ")")
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"

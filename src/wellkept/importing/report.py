"""The report of an import: what was created, merged, skipped or in conflict, on the screen, as JSON and as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wellkept.core.clock import iso
from wellkept.core.text import dumps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from wellkept.app.caller import Caller
    from wellkept.core.text import JSON
    from wellkept.importing.assets import AssetTally

_LISTED = 1_000


class ImportReport(Struct, frozen=True):
    """What an import did, or with `is_preview` would do."""

    source: str
    import_id: str | None
    """None for a preview, and where nothing was new."""
    sessions: dict[str, int]
    """How many conversations are new, updated, unchanged or skipped."""
    messages: dict[str, int]
    replaced: int
    """Messages that replaced an incomplete form."""
    left: dict[str, int]
    """How many rows were left out, by reason."""
    unknown: dict[str, int]
    """How many parts of the transcripts the reader does not know, by kind; they are not stored."""
    conflicts: tuple[tuple[str, str], ...]
    """What was changed on both sides, and stays as it is here."""
    problems: tuple[tuple[str, str], ...]
    """Where something could not be read, and why."""
    assets: AssetTally
    is_preview: bool
    is_complete: bool = True
    """Whether every transcript was read and understood as a whole; what was not is in `problems`."""
    report: Path | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is new."""
        return not (self.sessions["new"] + self.sessions["updated"]) and self.assets.is_empty

    def rows(self) -> list[tuple[str, tuple[int, int, int, int]]]:
        """Return the table of the preview: what is created, merged, skipped and in conflict."""
        sessions, entries, skills = self.sessions, self.assets.entries, self.assets.skills
        messages = len(self.conflicts) - len(self.assets.conflicts)
        told = sum(count for name, count in self.messages.items() if name != "tool_calls")
        rows = [
            ("conversations", (sessions["new"], sessions["updated"], sessions["unchanged"] + sessions["skipped"], 0)),
            ("messages", (told, self.replaced, sum(self.left.values()), messages)),
            ("entries", (
                entries["added"], self.assets.merged,
                self.assets.present + entries["held"] + entries["blocked"], self.assets.entry_conflicts,
            )),
            *([("archived", (entries["archived"], 0, 0, 0))] if entries["archived"] else []),
            ("skills", (
                skills["added"], skills["updated"], skills["unchanged"] + skills["blocked"], skills["conflicts"],
            )),
        ]  # fmt: skip
        return rows + [
            (name, (counts["added"], counts["updated"], counts["unchanged"], counts["conflicts"]))
            for name, counts in self.assets.others.items()
        ]

    @property
    def is_refused(self) -> bool:
        """Whether nothing could be read: the file is not an export, or cannot be trusted."""
        is_read = self.sessions["unchanged"] or self.left or self.assets.present
        return bool(self.problems) and self.is_empty and not is_read

    def as_json(self) -> dict[str, JSON]:
        """Return the counts, conflicts and problems, and the file with the report."""
        return {
            "source": self.source,
            "import_id": self.import_id,
            "dry_run": self.is_preview,
            "sessions": dict(self.sessions),
            "messages": dict(self.messages),
            "entries": dict(self.assets.entries),
            "skills": dict(self.assets.skills),
            **{name: dict(counts) for name, counts in self.assets.others.items()},
            "conflicts": _list_pairs(self.conflicts),
            "left_out": dict(self.left),
            "unknown": dict(self.unknown),
            "complete": self.is_complete,
            "leftovers": _list_pairs(self.assets.left),
            "warnings": list(self.assets.cautions),
            "problems": _list_pairs(self.problems),
            "report": None if self.report is None else str(self.report),
        }


def _list_pairs(pairs: Sequence[tuple[str, str]]) -> list[JSON]:
    return [{"where": where, "what": what} for where, what in pairs[:_LISTED]]


def write_report(caller: Caller, report: ImportReport, folder: Path) -> Path:
    """Write the report, and the entries that did not fit their pages."""
    from wellkept.storage.files import make_folder, write_atomically

    make_folder(folder)
    if report.assets.overflow:
        lines = [f"## {name}\n\n{text}\n" for name, text in report.assets.overflow]
        head = "# Entries that did not fit their page; `kept memory search` finds them in the archive\n"
        write_atomically(folder / "overflow.md", "\n".join([head, *lines]).encode())
    path = folder / "report.json"
    value: dict[str, Any] = {**report.as_json(), "finished": iso(caller.app.clock.now()), "report": str(path)}
    write_atomically(path, f"{dumps(value, indent=2)}\n".encode())
    return path

"""The program `brv` in one folder: its commands as JSON, and the tree of Markdown that it searches."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wellkept.core.agency import mark_environment
from wellkept.core.errors import ProviderError
from wellkept.core.regular_files import open_regular
from wellkept.providers.base import Rejected
from wellkept.providers.remote import objects, text_of
from wellkept.storage.files import make_folder, write_atomically

if TYPE_CHECKING:
    from wellkept.core.text import JSON

OWN: Final = "kept"
"""The folder of the tree that holds what kept wrote; the others are ByteRover's."""
NO_MODEL: Final = "no provider connected"
_MOST_BYTES: Final = 4_000_000
_MOST_FILE_BYTES: Final = 1_000_000
_LEAST_WAIT: Final = 10
"""The shortest time-out that brv accepts."""


class Brv:
    """Runs the program. It exits with 0 even when it fails, so only its output shows an error."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder

    def find_program(self) -> str | None:
        """Return the path of the program, None if it is not installed."""
        return shutil.which(self._program)

    def run(self, *arguments: str, seconds: float) -> Mapping[str, JSON]:
        """Run a command and return the data of its last event; raise what it reports as an error."""
        program = self.find_program()
        if program is None:
            raise ProviderError(f"{self._program} is not installed", "run: npm install -g byterover-cli")
        make_folder(self._folder)
        process = subprocess.Popen(
            [program, *arguments],
            cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=mark_environment({**os.environ, "BRV_DISABLE_AUTOUPDATE": "1"}), start_new_session=True,
        )  # fmt: skip
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            # the group: brv starts helpers that keep the pipes open; its daemon has a group of its own
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise ProviderError(
                f"byterover did not answer within {seconds:g} s", "run `brv status` to see whether its daemon works"
            ) from None
        return _read_events(out, err, arguments[0])

    def search(self, query: str, *, limit: int, seconds: float) -> list[Mapping[str, JSON]]:
        """Return the documents that match, best first; needs no model and is never cached."""
        found = self.run("search", "--format", "json", "--limit", str(limit), "--", query, seconds=seconds)
        return objects(found, "results")

    def query(self, query: str, *, seconds: float) -> str:
        """Return the answer of ByteRover's model."""
        wait = str(max(_LEAST_WAIT, int(seconds)))
        found = self.run("query", "--format", "json", "--timeout", wait, "--", query, seconds=seconds + 5)
        return text_of(found, "result", "content")

    def curate(self, text: str, *, seconds: float) -> None:
        """Have ByteRover's model put a text into the tree, and wait until that is done."""
        wait = str(max(_LEAST_WAIT, int(seconds)))
        found = self.run("curate", "--format", "json", "--timeout", wait, "--", text, seconds=seconds + 5)
        if found.get("event") != "completed" and found.get("status") != "completed":
            raise ProviderError("byterover did not complete what it was given", "run `brv curate view`")

    def model(self, *, seconds: float) -> str:
        """Return the model that is connected, empty for none."""
        found = self.run("providers", "--format", "json", seconds=seconds)
        return text_of(found, "activeModel") or text_of(found, "providerId")


class Tree:
    """The Markdown files that `brv` searches; a file is found as soon as it exists and gone with it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / ".brv" / "context-tree"
        data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111 - HOME may be relative
        name = str(folder.absolute()).strip("/").replace("/", "--")
        self.logs = Path(data) / "brv" / "projects" / name
        """What the program records about its tasks in this folder, with their text."""

    def write(self, path: str, text: str) -> None:
        """Store a text below our own folder."""
        file = self.root / OWN / path
        make_folder(file.parent)
        write_atomically(file, f"{text}\n".encode("utf-8", "replace"))

    def has(self, path: str) -> bool:
        """Whether a file of ours exists."""
        return (self.root / OWN / path).is_file()

    def remove(self, path: str) -> None:
        """Delete a file of ours; a missing one is not an error."""
        (self.root / OWN / path).unlink(missing_ok=True)

    def read(self, path: str, *, most_chars: int) -> str:
        """Return the beginning of a file of the tree; empty for a path that leaves it."""
        file = (self.root / path).resolve()
        if not file.is_relative_to(self.root.resolve()) or not file.is_file():
            return ""
        return _text_of_file(file)[:most_chars].strip()

    def files(self) -> Iterator[Path]:
        """Yield every file of the tree, then the program's records."""
        for folder in (self.root, self.logs):
            yield from (each for each in sorted(folder.rglob("*")) if each.is_file() and not each.is_symlink())

    def files_with(self, words: Sequence[str]) -> list[Path]:
        """Return the files that contain one of the words, which are in lower case."""
        return [file for file in self.files() if _contains(_text_of_file(file), words)]

    def is_own(self, file: Path) -> bool:
        """Whether kept wrote a file."""
        return file.is_relative_to(self.root / OWN)

    def cut(self, file: Path, words: Sequence[str]) -> None:
        """Delete from a file the paragraphs with the words, from a list of records the lines; else the whole file."""
        gap = {".md": "\n\n", ".jsonl": "\n"}.get(file.suffix)
        pieces = _text_of_file(file).split(gap) if gap else []
        rest = (gap or "").join(each for each in pieces if not _contains(each, words)).strip()
        if not rest or _contains(rest, words):
            file.unlink(missing_ok=True)
        else:
            write_atomically(file, f"{rest}\n".encode())


def _contains(text: str, words: Sequence[str]) -> bool:
    folded = text.casefold()
    return any(word in folded for word in words)


def _text_of_file(file: Path) -> str:
    with open_regular(file) as stream:
        return stream.read(_MOST_FILE_BYTES).decode("utf-8", "replace")


def _read_events(out: bytes, err: bytes, command: str) -> Mapping[str, JSON]:
    """Return the data of the last event of a command's output."""
    if len(out) > _MOST_BYTES:
        raise ProviderError(f"byterover answered with more than {_MOST_BYTES:,} bytes", "run `brv status`")
    events = []
    for line in out.decode("utf-8", "replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, Mapping):
            events.append(event)
    if not events:
        said = " ".join(err.decode("utf-8", "replace").split())[:200]
        raise ProviderError(f"`brv {command}` answered without JSON: {said}", "check `brv --version`: 3.14 or later")
    data = events[-1].get("data")
    found: Mapping[str, JSON] = data if isinstance(data, Mapping) else {}
    if events[-1].get("success") is not True or found.get("event") == "error" or found.get("status") == "error":
        raise _error(" ".join((text_of(found, "error", "message") or "no reason given").split())[:300])
    return found


def _error(said: str) -> ProviderError:
    low = said.casefold()
    if NO_MODEL in low:
        return ProviderError(f"byterover: {said}", "run `brv providers connect`")
    if "too large" in low or "too long" in low or "exceeds" in low:
        return Rejected(f"byterover: {said}", "it refuses this text for its size")
    return ProviderError(f"byterover: {said}", "run `brv status`; the writes wait in the outbox")

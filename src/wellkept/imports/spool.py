"""The spool: small files with what could not be captured in time, for the next process that has the time."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from wellkept.core.errors import StorageError
from wellkept.core.ids import SourceName
from wellkept.core.messages import Message, Origin, Role
from wellkept.core.regular_files import load_text
from wellkept.core.text import dumps
from wellkept.core.values import asdict
from wellkept.formats.messages import MOST_CHARS, clean_answer, remove_machine_blocks, remove_private, shorten
from wellkept.formats.port import Conversation, Said
from wellkept.imports.conversations import EVENT_PREFIX
from wellkept.imports.record import words_mark
from wellkept.security.secrets import redact
from wellkept.storage.files import make_folder, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from wellkept.imports.capture import Capture

log = logging.getLogger(__name__)


class WaitingTranscript(Struct, frozen=True):
    """A transcript that is not completely stored yet."""

    client: str
    path: str
    since: float = 0.0
    """When it began to wait."""


class WaitingTurn(Struct, frozen=True):
    """The texts of an event that could not be stored."""

    client: str
    session: str
    turn: str | None
    project: str | None
    prompt: str
    answer: str
    said_at: float
    provenance: str | None = None
    """Set where the model of the client reported the turn by itself."""

    @property
    def since(self) -> float:
        """Return when it began to wait."""
        return self.said_at


Waiting: TypeAlias = WaitingTranscript | WaitingTurn


class Spool:
    """A folder with one file for each thing that waits; the same thing has the same file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, waiting: Waiting) -> bool:
        """Write an entry; False if even that fails, so that only the transcript itself is left."""
        value = asdict(waiting)
        if isinstance(waiting, WaitingTurn):
            value |= {"prompt": redact(waiting.prompt), "answer": redact(waiting.answer)}
        name = hashlib.blake2b(dumps(value).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        path = self._folder / f"{name}.json"
        try:
            if path.exists():
                os.utime(path)  # last in the queue, so that a large transcript does not hold up the others
                return True
            make_folder(self._folder)
            if isinstance(waiting, WaitingTranscript):
                value |= {"since": time.time()}
            write_atomically(path, dumps(value).encode("utf-8", "replace"))
        except (StorageError, OSError) as error:
            log.warning("cannot spool what waits: %s", error)
            return False
        return True

    def entries(self) -> Iterator[tuple[Path, Waiting]]:
        """Yield the entries with their files, the oldest first; a broken file is removed."""
        for path in sorted(self._folder.glob("*.json"), key=_age):
            try:
                value = json.loads(load_text(path))
                yield path, WaitingTurn(**value) if "prompt" in value else WaitingTranscript(**value)
            except (OSError, ValueError, TypeError):
                log.warning("removed a spool file that cannot be read: %s", path.name)
                self.remove(path)

    def remove(self, path: Path) -> None:
        """Remove the file of something that was stored."""
        with suppress(OSError):
            path.unlink(missing_ok=True)

    def count(self) -> int:
        """Return the number of entries."""
        return sum(1 for _ in self._folder.glob("*.json"))


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def store_turn(capture: Capture, turn: WaitingTurn) -> None:
    """Store prompt and answer of a turn, unless an event or a transcript gave it already."""
    prompt = shorten(remove_private(remove_machine_blocks(turn.prompt)).strip(), MOST_CHARS)
    answer = clean_answer(turn.answer) if prompt else ""
    mark = words_mark(prompt)
    # without an id, the same words in both texts are the same turn
    name = turn.turn or f"{mark:08x}{words_mark(answer):08x}"
    items = [
        Said(
            turn.session,
            f"{EVENT_PREFIX}{turn.session}:{name}:{role.value}",
            Message(role, text),
            turn.said_at,
            origin,
            provenance=SourceName(turn.provenance) if turn.provenance else None,
        )
        for role, text, origin in (
            (Role.USER, prompt, Origin.PERSON),
            (Role.ASSISTANT, answer, Origin.MODEL),
        )
        if text
    ]
    if not items:
        capture.tally.leave("private" if turn.prompt.strip() else "empty")
        return
    capture.store_event(Conversation(turn.session, folder=turn.project), items, name, mark)

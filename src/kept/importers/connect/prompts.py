"""Prompts of clients that send no transcript, kept until the answer arrives: then both are stored as one turn."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from kept.core.text import dumps

if TYPE_CHECKING:
    from kept.importers.connect.events import HookEvent

_PRIVATE = re.compile(r"<\s*private\s*>.*?(?:<\s*/\s*private\s*>|\Z)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class KeptPrompt:
    """The prompt of the turn that is under way."""

    prompt: str = ""
    turn: str | None = None


def keep_prompt(folder: Path, event: HookEvent) -> None:
    """Write the prompt of a session down, without private spans; best effort."""
    path = _path(folder, event)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temp = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(dumps({"prompt": _PRIVATE.sub(" ", event.prompt), "turn": event.turn}))
        temp.replace(path)


def take_prompt(folder: Path, event: HookEvent) -> KeptPrompt:
    """Return the prompt of a session and remove it; an empty one where there is none."""
    path = _path(folder, event)
    try:
        value = json.loads(path.read_bytes())
        found = KeptPrompt(str(value["prompt"]), value.get("turn"))
    except (OSError, ValueError, KeyError, TypeError):
        return KeptPrompt()
    if event.answer:  # the event that ends the turn may come without it; the text then follows
        with suppress(OSError):
            path.unlink()
    return found


def _path(folder: Path, event: HookEvent) -> Path:
    name = blake2b(event.session.encode(), digest_size=8).hexdigest()
    return folder / "prompts" / f"{event.client}-{name}.json"

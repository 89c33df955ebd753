"""Text formats that every package shares: JSON, UTF-8, quotations with a source, and shipped resource files."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from kept.core.ids import MessageId, SessionId

JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None

_SOURCE_PREFIX = "\n  — "
_MESSAGE_SOURCE = re.compile(
    r"^  — (?:you|assistant), [^,\n]*, session (?P<session>.+), message (?P<message>\d{1,18})$", re.MULTILINE
)
_PAGE_SOURCE = re.compile(r"^  — (?:MEMORY|USER)\.md\b", re.MULTILINE)


def dumps(value: JSON, *, indent: int | None = None) -> str:
    """Return `value` as JSON without ASCII escapes, keys in the given order."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def is_encodable(text: str) -> bool:
    """Whether `text` can be encoded as UTF-8; a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def quote(text: str, source: str) -> str:
    """Return `text` with its source on the next line."""
    return f"{text}{_SOURCE_PREFIX}{source}"


def message_source(who: str, when: str, session_id: SessionId, message_id: MessageId) -> str:
    """Return the source line of a message from a past conversation; `find_quoted_messages` parses it."""
    return f"{who}, {when}, session {session_id}, message {message_id}"


def find_quoted_messages(text: str) -> list[tuple[SessionId, MessageId]]:
    """Return the messages that `text` quotes, so that forgetting a message can find its quotations."""
    return [(SessionId(found["session"]), MessageId(int(found["message"]))) for found in _MESSAGE_SOURCE.finditer(text)]


def quotes_a_page(text: str) -> bool:
    """Whether `text` quotes an entry of a memory page."""
    return _PAGE_SOURCE.search(text) is not None


def resource_path(package: str, *names: str) -> Path:
    """Return the path of a file or folder that ships in `package`.

    `importlib.resources` would also support packages inside archives, which kept never is, and adds 12 ms to each
    start.
    """
    module = sys.modules.get(package) or import_module(package)
    return Path(module.__path__[0], *names)


def resource_text(package: str, *names: str) -> str:
    """Return the text of a file that ships in `package`."""
    return resource_path(package, *names).read_text(encoding="utf-8")

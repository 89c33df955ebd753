"""Remembered verdicts: a text is scanned once per version of the rules, here and where a store keeps what was clean.

A digest stands for a text and the rules that found nothing in it: it is a hash keyed by the content of this package,
so that a changed rule, weight or line of the scanner makes every remembered digest worthless by itself. Digests are
derived data. A store may keep them only where whoever could forge one could also allow a rule for an entry; a file
that others write, such as a page, is no such place.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kept.core.values import replace

if TYPE_CHECKING:
    from kept.security.scan import Verdict  # loading the scanner takes longer than everything here

DIGEST_BYTES = 16
_MOST_REMEMBERED = 4_096
"""Texts whose verdicts a process keeps; the pages of a user have a few dozen."""

_verdicts: dict[bytes, "Verdict | None"] = {}
"""What this process found in a text, by its digest; None for nothing."""


@cache
def _rules_version() -> bytes:
    """Return a hash of everything that a verdict depends on: the rules, tables and code of this package."""
    content = hashlib.blake2b(digest_size=32)
    for file in sorted(Path(__file__).parent.iterdir()):
        if file.is_file():
            content.update(file.name.encode() + b"\0" + file.read_bytes())
    return content.digest()


def digest(text: str) -> bytes:
    """Return what stands for a text under the present rules."""
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=_rules_version()).digest()


def find_verdict(text: str, allow: Collection[str] = ()) -> "Verdict":
    """Return what `scan` finds in a text for a page, remembered from the first time on; without rules in `allow`."""
    from kept.security.scan import Verdict, scan

    name = digest(text)
    if name not in _verdicts:
        _remember(name, scan(text))
    found = _verdicts.get(name) or Verdict(())
    return replace(found, findings=tuple(one for one in found.findings if one.rule not in allow)) if allow else found


def _remember(name: bytes, verdict: "Verdict") -> None:
    if len(_verdicts) >= _MOST_REMEMBERED:
        _verdicts.clear()
    _verdicts[name] = verdict if verdict.findings else None


def list_unsafe(texts: Iterable[str], stored: Callable[[], Collection[bytes]]) -> "dict[str, Verdict]":
    """Return the verdicts of the texts in which something is found.

    `stored` returns the digests of texts that were found clean before; it is called once at most, and the scanner is
    loaded only for texts that are not among them.
    """
    names = {digest(text): text for text in texts}
    unknown = [name for name in names if name not in _verdicts]
    if unknown:
        clean = stored()
        for name in unknown:
            if name in clean:
                _verdicts[name] = None
    found = {text: _verdicts[name] if name in _verdicts else find_verdict(text) for name, text in names.items()}
    return {text: verdict for text, verdict in found.items() if verdict is not None and verdict.findings}


def list_clean(texts: Iterable[str]) -> list[bytes]:
    """Return the digests of those texts that this process knows to be clean, for a store to keep."""
    return [name for name in map(digest, texts) if _verdicts.get(name, ...) is None]

"""Repair of a damaged row of the ledger: the text that was written, proven by the checksum."""

from collections.abc import Iterator, Sequence

from kept.memory.ledger import LedgerRow

_MOST_BYTES = 4_096
"""Texts up to this length are searched for a flipped bit; entries are shorter, and the search grows with the square."""


def rebuild(row: LedgerRow, raw: Sequence[bytes | None], texts: Sequence[str]) -> LedgerRow | None:
    """Return the row as it was written, proven by its checksum, or None.

    One of its texts is another known text, or differs from what was written by one bit; `raw` are the bytes of
    `before` and `after` as they are stored now.
    """
    if row.checksum is None:
        return None
    before, after = raw
    for candidate in (
        *(row._replace(before=text) for text in _possible(before, texts)),
        *(row._replace(after=text) for text in _possible(after, texts)),
    ):
        if candidate.with_checksum().checksum == row.checksum:
            return candidate
    return None


def _possible(data: bytes | None, texts: Sequence[str]) -> Iterator[str]:
    """Yield known texts, then every text that differs from `data` by one bit."""
    if data is None:
        return
    yield from texts
    if len(data) > _MOST_BYTES:
        return
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            try:
                yield changed.decode()
            except UnicodeDecodeError:
                continue

"""Digests of texts without OpenSSL, which `hashlib` loads: 5 ms and 4 MB of every process; and checksums of rows.

For large files `hashlib` is faster.
"""

import marshal
import sys
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from hashlib import blake2b, sha256
else:
    try:
        from _blake2 import blake2b

        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:  # another interpreter than CPython
        from hashlib import blake2b, sha256

__all__ = ["blake2b", "checksum", "sha256"]


def checksum(values: tuple[Any, ...]) -> int:
    """Return the checksum of a row of a database, with which damage on the disk is recognised.

    The bytes are those of marshal's second format, which has not changed since Python 2.5 and is three times as fast
    as joining texts; a test compares it with recorded numbers.
    """
    try:
        return crc32(marshal.dumps(values, 2))
    except ValueError:  # marshal takes no subclasses of str
        return crc32(marshal.dumps(tuple(str(one) if isinstance(one, str) else one for one in values), 2))

"""SHA-256 and BLAKE2 of texts without OpenSSL, which `hashlib` loads: 5 ms and 4 MB of every process.

For large files `hashlib` is faster.
"""

import sys
from typing import TYPE_CHECKING

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

__all__ = ["blake2b", "sha256"]

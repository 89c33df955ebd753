"""Encryption with a passphrase in the age format, version 1, as a stream: `age -d` and `rage -d` open what it writes.

The cipher comes from the package cryptography, the key derivation from the standard library; here is the framing
that https://age-encryption.org/v1 describes. A file is a header (how the passphrase leads to the key of the file,
and a MAC) and chunks of 64 KiB, each authenticated, the last one marked as such. So every changed, missing or
swapped byte is noticed.
"""

import hashlib
import hmac
import os
import re
from base64 import b64decode, b64encode
from typing import Any, BinaryIO

from wellkept.core.errors import Unreadable, UsageError
from wellkept.core.installation import name_install

_VERSION = b"age-encryption.org/v1\n"
_LABEL = b"age-encryption.org/v1/scrypt"
_CHUNK_BYTES, _TAG_BYTES = 65_536, 16
WORK_FACTOR = 18
"""The logarithm of the scrypt parameter N that age uses: about a second, and 256 MB."""
_MOST_WORK = 20
"""Needs a gigabyte: a file that asks for more is refused."""
_MOST_HEADER_LINE = 1_024
_HEADER = re.compile(
    rb"age-encryption\.org/v1\n"
    rb"-> scrypt (?P<salt>[\w+/]{22}) (?P<work>[1-9]\d?)\n(?P<body>[\w+/]{43})\n"
    rb"--- (?P<mac>[\w+/]{43})\n",
    re.ASCII,
)
_DAMAGED = "nothing was changed; use another backup"


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    except ImportError:
        raise UsageError(
            "encryption needs the package cryptography", f"run: {name_install('encrypt')}, then try again"
        ) from None
    return ChaCha20Poly1305(key)


def _wrap(passphrase: str, salt: bytes, work: int) -> Any:
    """Return the cipher that protects the key of the file."""
    n = 1 << work
    # OpenSSL counts a little more than 128 * N * r
    key = hashlib.scrypt(passphrase.encode(), salt=_LABEL + salt, n=n, r=8, p=1, maxmem=128 * 8 * (n + 64), dklen=32)
    return _cipher(key)


def _derive(file_key: bytes, salt: bytes, info: bytes) -> bytes:
    """Return 32 bytes by HKDF with SHA-256 (RFC 5869), of which one block is enough."""
    pseudo_random = hmac.digest(salt or bytes(32), file_key, "sha256")
    return hmac.digest(pseudo_random, info + b"\x01", "sha256")


def _mac(file_key: bytes, header: bytes) -> bytes:
    return hmac.digest(_derive(file_key, b"", b"header"), header, "sha256")


def _encode(data: bytes) -> bytes:
    return b64encode(data).rstrip(b"=")


def _decode(text: bytes) -> bytes:
    data = b64decode(text + b"=" * (-len(text) % 4), validate=True)
    if _encode(data) != text:  # unused trailing bits must be zero
        raise ValueError(text)
    return data


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\x01" if is_last else b"\x00")


class Encryption:
    """Encrypts what is written to it; `finish` writes the last chunk."""

    def __init__(self, file: BinaryIO, passphrase: str, *, work_factor: int = WORK_FACTOR) -> None:
        if not passphrase:
            raise UsageError("the passphrase is empty", "choose a long one")
        salt, file_key, nonce = os.urandom(16), os.urandom(16), os.urandom(16)
        wrapped = _wrap(passphrase, salt, work_factor).encrypt(bytes(12), file_key, None)
        stanza = b"-> scrypt %s %d\n%s\n---" % (_encode(salt), work_factor, _encode(wrapped))
        header = _VERSION + stanza
        file.write(header + b" " + _encode(_mac(file_key, header)) + b"\n" + nonce)
        self._file = file
        self._cipher = _cipher(_derive(file_key, nonce, b"payload"))
        self._number = 0
        self._waiting = bytearray()

    def write(self, data: bytes) -> int:
        """Encrypt and write whole chunks; the rest stays buffered."""
        self._waiting += data
        while (
            len(self._waiting) > _CHUNK_BYTES
        ):  # the last chunk must not be empty, so a full one stays buffered until more arrives
            self._put(bytes(self._waiting[:_CHUNK_BYTES]), is_last=False)
            del self._waiting[:_CHUNK_BYTES]
        return len(data)

    def finish(self) -> None:
        """Write the buffered rest as the last chunk."""
        self._put(bytes(self._waiting), is_last=True)
        self._waiting.clear()

    def _put(self, data: bytes, *, is_last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._number, is_last=is_last), data, None))
        self._number += 1


class Decryption:
    """Decrypts what is read from it; raises UsageError for a wrong passphrase, Unreadable for damage."""

    def __init__(self, file: BinaryIO, passphrase: str) -> None:
        self._file = file
        file_key = _open_header(file, passphrase)
        nonce = file.read(16)
        self._cipher = _cipher(_derive(file_key, nonce, b"payload"))
        self._number = 0
        self._plain = b""
        self._next = file.read(_CHUNK_BYTES + _TAG_BYTES)
        self._is_done = False

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, all that are left for a negative size, and none at the end."""
        while not self._is_done and (size < 0 or len(self._plain) < size):
            self._plain += self._open_chunk()
        given = self._plain if size < 0 else self._plain[:size]
        self._plain = self._plain[len(given) :]
        return given

    def _open_chunk(self) -> bytes:
        from cryptography.exceptions import InvalidTag

        data, self._next = self._next, self._file.read(_CHUNK_BYTES + _TAG_BYTES)
        self._is_done = not self._next
        try:
            plain: bytes = self._cipher.decrypt(_nonce(self._number, is_last=self._is_done), data, None)
        except (InvalidTag, ValueError) as error:
            at = self._number * (_CHUNK_BYTES + _TAG_BYTES)
            message = f"the encrypted backup is damaged or cut off about {at:,} bytes after its header"
            raise Unreadable(message, _DAMAGED) from error
        self._number += 1
        return plain


def _open_header(file: BinaryIO, passphrase: str) -> bytes:
    """Return the key of the file."""
    lines = [file.readline(_MOST_HEADER_LINE) for _ in range(4)]
    match = _HEADER.fullmatch(b"".join(lines))
    if match is None or int(match["work"]) > _MOST_WORK:
        message = "the file is encrypted, but not with a passphrase and parameters that kept supports"
        raise UsageError(message, "decrypt it with age first, or use another backup")
    try:
        salt, wrapped, mac = (_decode(match[name]) for name in ("salt", "body", "mac"))
    except ValueError as error:
        raise Unreadable("the encrypted backup is damaged in its header", _DAMAGED) from error
    cipher = _wrap(passphrase, salt, int(match["work"]))
    from cryptography.exceptions import InvalidTag

    try:
        file_key: bytes = cipher.decrypt(bytes(12), wrapped, None)
    except InvalidTag:
        raise UsageError("the passphrase is wrong, or the first lines of the file are damaged", "try again") from None
    if not hmac.compare_digest(_mac(file_key, b"".join(lines[:3]) + b"---"), mac):
        raise Unreadable("the encrypted backup is damaged in its header", _DAMAGED)
    return file_key

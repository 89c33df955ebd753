"""SQL for PostgreSQL: statements in the notation of SQLite, texts that may contain NUL, keys that fit an index."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256

from kept.core.text import is_encodable, resource_path
from kept.storage.connections import statements

_MOST_KEY_BYTES = 256
"""Of a user's or tenant's key: an index row of PostgreSQL holds at most 2,700 bytes."""
_HASH_MARK = "~sha256:"
PACKAGES = ("kept.sessions.sqlite", "kept.providers", "kept.importers")
"""Where `FILE.postgres.sql` may stand beside `FILE.sql`, with the statements that PostgreSQL needs in other words."""
_TOKENS = re.compile(r"'[^']*'|--[^\n]*|::|:([a-z_]\w*)|\?(\d*)|%", re.IGNORECASE)
_CONFLICT = re.compile(r"ON CONFLICT \((?!tenant)(?:user_id, )?")
_HOME_CONFLICT = re.compile(r"(INTO (?:platform_people|moved_chats) .*ON CONFLICT \()(?!tenant)", re.DOTALL)
"""Keys of tables that belong to the home as a whole have no user."""


@cache
def list_translations() -> dict[str, str]:
    """Return the statements that have another text here, by their text for SQLite."""
    found = {}
    for package in PACKAGES:
        for file in resource_path(package).glob("*.postgres.sql"):
            theirs = statements(package, file.name.replace(".postgres.", "."))
            for name, text in statements(package, file.name).by_name.items():
                found[getattr(theirs, name)] = text
    return found


@cache
def adapt(statement: str) -> str:
    """Return a statement as PostgreSQL takes it, with the driver's placeholders.

    Strings, comments and casts stay as they are. Every unique key begins with tenant and user, which the statements of
    SQLite do not name in ON CONFLICT.
    """
    statement = _HOME_CONFLICT.sub(r"\1tenant, ", list_translations().get(statement, statement))
    statement = _CONFLICT.sub("ON CONFLICT (tenant, user_id, ", statement)
    asked = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal asked
        text, name, number = match[0], match[1], match[2]
        if name:
            return f"%({name})s"
        if text.startswith("?"):
            asked += 1
            return f"%(p{number or asked})s"
        return text.replace("%", "%%")

    return _TOKENS.sub(replace, statement)


_ESCAPE = "\ufdd0"
"""A code point that is no character, so that texts hardly contain it; one that does is escaped as well."""


def escape(text: str) -> str:
    """Return `text` without NUL, which PostgreSQL stores in no text."""
    if "\0" not in text and _ESCAPE not in text:
        return text
    return text.replace(_ESCAPE, f"{_ESCAPE}1").replace("\0", f"{_ESCAPE}0")


def unescape(text: str) -> str:
    """Return what `escape` was given."""
    if _ESCAPE not in text:
        return text
    return text.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}1", _ESCAPE)


def by_name(bindings: Sequence[object] | Mapping[str, object]) -> Mapping[str, object]:
    """Return bindings under the names that `adapt` gave to placeholders without one."""
    if isinstance(bindings, Mapping):
        return bindings
    return {f"p{place}": value for place, value in enumerate(bindings, start=1)}


def make_key(identity: str) -> str:
    """Return the text that stands for a user in every key; two ids never share one.

    A long id, and one with NUL, is cut and gets its hash; so does one that looks as if it had been.
    """
    data = identity.encode("utf-8", "surrogatepass")
    is_short = 0 < len(data) <= _MOST_KEY_BYTES and is_encodable(identity)
    if is_short and "\0" not in identity and _ESCAPE not in identity and _HASH_MARK not in identity:
        return identity
    begin = escape(data[:64].decode("utf-8", "ignore"))
    return f"{begin}{_HASH_MARK}{sha256(data).hexdigest()}"

"""SQL for PostgreSQL: statements in the notation of SQLite, texts that may contain NUL, keys that fit an index."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import NamedTuple

from wellkept.core.text import is_encodable, resource_path
from wellkept.storage.connections import list_packages, statements

_MOST_KEY_BYTES = 256
"""Of a user's or tenant's key: an index row of PostgreSQL holds at most 2,700 bytes."""
_HASH_MARK = "~sha256:"
_CONFLICT = re.compile(r"ON CONFLICT \((?!tenant)(?:user_id, )?")
_INSERTED = re.compile(r"(INTO (\w+) .*ON CONFLICT \()(?!tenant)", re.DOTALL)


@cache
def _list_translations(packages: frozenset[str]) -> dict[str, str]:
    """Return the statements that have another text here, by their text for SQLite.

    They are in `FILE.postgres.sql` beside the `FILE.sql` of their package.
    """
    translations = {}
    for package in packages:
        for file in resource_path(package).glob("*.postgres.sql"):
            theirs = statements(package, file.name.replace(".postgres.", "."))
            for name, text in statements(package, file.name).by_name.items():
                translations[getattr(theirs, name)] = text
    return translations


def _add_tenant(inserted: re.Match[str]) -> str:
    """Return the beginning of an INSERT; keys of tables that belong to the home as a whole have no user."""
    return f"{inserted[1]}tenant, " if inserted[2] in _list_tables("protect_tenant_table") else inserted[0]


class Adapted(NamedTuple):
    """A statement as PostgreSQL takes it."""

    sql: bytes
    users: frozenset[str]
    """The placeholders whose values are users: they are compared with `user_id`, or stored there."""


@cache
def adapt(statement: str, *, filtered: bool = True) -> Adapted:
    """Return a statement with the driver's placeholders, and with its user and tenant as conditions.

    Strings, comments and casts stay as they are. Every unique key begins with tenant and user, which the statements of
    SQLite do not name in ON CONFLICT. With `filtered`, rows of users are read and changed only where tenant and user
    are the bindings `kept_tenant` and `kept_user`: row-level security would be enough, but must not be the only
    protection.
    """
    statement = _INSERTED.sub(_add_tenant, _list_translations(list_packages()).get(statement, statement))
    tokens = _Tokens(_CONFLICT.sub("ON CONFLICT (tenant, user_id, ", statement))
    users = tokens.find_users()
    if filtered:
        tokens.add_conditions()
    return Adapted(tokens.text.encode(), users)


def list_user_tables() -> frozenset[str]:
    """Return the tables whose rows belong to users, as the migrations protect them."""
    return _list_tables("protect_user_table")


@cache
def _list_tables(protection: str) -> frozenset[str]:
    """Return the tables that the migrations protect with a function."""
    folder = resource_path("wellkept.storage.postgres", "migrations")
    texts = (file.read_text(encoding="utf-8") for file in folder.glob("*.sql"))
    calls = (call for text in texts for call in re.findall(rf"SELECT {protection}\(([^;]+);", text))
    return frozenset(name for call in calls for name in re.findall(r"'(\w+)'", call))


_PARTS = re.compile(r"'[^']*'|--[^\n]*|::|:[a-z_]\w*|\?\d*|%|\w+|\s+|.", re.IGNORECASE | re.DOTALL)
_BEFORE_TABLES = frozenset({"FROM", "JOIN"})
_AFTER_TABLES = frozenset((
    "WHERE", "GROUP", "ORDER", "LIMIT", "ON", "SET", "RETURNING", "UNION", "EXCEPT",
    "HAVING", "USING", "LEFT", "RIGHT", "INNER", "CROSS", "FULL", "JOIN", "FOR",
    "OFFSET", "WINDOW", "INTERSECT", "NATURAL", "VALUES", "SELECT",
))  # fmt: skip
"""Words that can follow the name of a table and are not an alias."""
_ENDS_CONDITION = frozenset({"RETURNING", ";"})


class _Tokens:
    """The parts of one statement; white space and comments are parts too, so that their text is the statement."""

    def __init__(self, statement: str) -> None:
        self._asked = 0
        self._parts = [self._place(part) for part in _PARTS.findall(statement)]
        self._depths: list[int] = []
        depth = 0
        for part in self._parts:
            depth -= part == ")"
            self._depths.append(depth)
            depth += part == "("

    def _place(self, part: str) -> str:
        """Return a placeholder in the driver's notation, and any other part with `%` escaped."""
        if part.startswith("?"):
            self._asked += 1
            return f"%(p{part[1:] or self._asked})s"
        if part.startswith(":") and part != "::" and len(part) > 1:
            return f"%({part[1:]})s"
        return part.replace("%", "%%")

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def _next(self, place: int) -> int:
        """Return the place of the next part that is neither white space nor a comment; the end if there is none."""
        place += 1
        while place < len(self._parts) and (self._parts[place].isspace() or self._parts[place].startswith("--")):
            place += 1
        return place

    def _word(self, place: int) -> str:
        return self._parts[place].upper() if place < len(self._parts) else ""

    def add_conditions(self) -> None:
        """Read and change tables of users only where tenant and user are those of the transaction."""
        if "ctid" in self._parts:  # `ctid` is not visible through a subquery
            of_users = any(map(self._is_user_table, range(len(self._parts))))
            assert not of_users or "user_id" in self._parts, "a statement that uses ctid must name the user itself"
            return
        changes = [*self._find_reads(), *self._find_writes()]
        for place, before, after in sorted(changes, reverse=True):
            self._parts[place] = f"{before}{self._parts[place]}{after}"

    def _find_reads(self) -> Iterator[tuple[int, str, str]]:
        for place in self._find_tables():
            alias = "" if self._has_alias(place) else f" AS {self._parts[place]}"
            yield place, "(SELECT * FROM ", f" WHERE {_CONDITION.format('')}){alias}"

    def _find_tables(self) -> Iterator[int]:
        """Yield where tables of users are read: after FROM, JOIN, or a comma between them."""
        for start, part in enumerate(self._parts):
            before = self._parts[self._before(start)].upper() if start else ""
            if part.upper() not in _BEFORE_TABLES or before in {"DELETE", "DISTINCT"}:
                continue
            place = self._next(start)
            while True:
                if self._is_user_table(place):
                    yield place
                place = self._find_comma(place, self._depths[start])
                if place < 0:
                    break

    def _find_comma(self, place: int, depth: int) -> int:
        """Return the place after the next comma between tables; -1 at the end of their list."""
        while place < len(self._parts):
            if self._depths[place] < depth:
                return -1
            if self._depths[place] == depth:
                if self._parts[place] == ",":
                    return self._next(place)
                if self._word(place) in _AFTER_TABLES:
                    return -1
            place += 1
        return -1

    def _before(self, place: int) -> int:
        place -= 1
        while place > 0 and (self._parts[place].isspace() or self._parts[place].startswith("--")):
            place -= 1
        return place

    def _is_user_table(self, place: int) -> bool:
        return place < len(self._parts) and self._parts[place] in list_user_tables()

    def _has_alias(self, place: int) -> bool:
        following = self._word(self._next(place))
        return following.isidentifier() and following not in _AFTER_TABLES

    def _find_writes(self) -> Iterator[tuple[int, str, str]]:
        """Yield what limits each UPDATE and DELETE."""
        for start, part in enumerate(self._parts):
            place = self._next(start)
            if part.upper() == "DELETE" and self._word(place) == "FROM":
                place = self._next(place)
            elif part.upper() != "UPDATE":
                continue
            if self._is_user_table(place):
                yield from self._limit(place)

    def _limit(self, table: int) -> Iterator[tuple[int, str, str]]:
        name, depth = self._parts[table], self._depths[table]
        if self._has_alias(table):
            following = self._next(table)
            name = self._parts[self._next(following) if self._word(following) == "AS" else following]
        condition = _CONDITION.format(f"{name}.")
        level = [place for place in range(table, len(self._parts)) if self._depths[place] == depth]
        outside = (place for place in range(table, len(self._parts)) if self._depths[place] < depth)
        end = next((place for place in level if self._word(place) in _ENDS_CONDITION), len(self._parts))
        end = min(end, next(outside, end))
        where = next((place for place in level if self._word(place) == "WHERE" and place < end), None)
        if where is None:
            yield end - 1, "", f" WHERE {condition} "
        else:
            yield where, "", f" {condition} AND ("
            yield end - 1, "", "\n) "

    def find_users(self) -> frozenset[str]:
        """Return the placeholders that are compared with `user_id`, or inserted into it."""
        found = set()
        for place, part in enumerate(self._parts):
            if part == "user_id" and self._word(after := self._next(place)) in {"=", "<"}:
                found.add(self._parts[self._next(after)])
            if part == "=" and self._word(self._next(place)) == "USER_ID":
                found.add(self._parts[self._before(place)])
            if part.upper() == "INTO":
                found.update(self._find_inserted(place))
        return frozenset(name[2:-2] for name in found if name.startswith("%("))

    def _find_inserted(self, into: int) -> Iterator[str]:
        """Yield what an INSERT stores in `user_id`."""
        opening = self._next(self._next(into))
        if self._word(opening) == "AS":
            opening = self._next(self._next(opening))
        if self._word(opening) != "(":
            return
        names, closing = self._split(opening + 1, self._depths[opening] + 1)
        values = self._next(closing)
        if "user_id" not in names or self._word(values) not in {"VALUES", "SELECT"}:
            return
        first = self._next(values) if self._word(values) == "VALUES" else values
        given, _ = self._split(first + 1, self._depths[first] + (self._word(values) == "VALUES"))
        yield given[names.index("user_id")] if len(given) >= len(names) else ""

    def _split(self, start: int, depth: int) -> tuple[list[str], int]:
        """Return the items between commas from `start` on, and the place where they end."""
        items, place = [""], start
        while place < len(self._parts) and self._depths[place] >= depth:
            part = self._parts[place]
            if self._depths[place] == depth and part.upper() in {"FROM", "WHERE"}:
                break
            if self._depths[place] == depth and part == ",":
                items.append("")
            elif not part.isspace():
                items[-1] += part
            place += 1
        return items, place


_CONDITION = "{0}tenant = %(kept_tenant)s AND {0}user_id = %(kept_user)s"


ESCAPE = "\ufdd0"
"""A noncharacter, which texts hardly ever contain; where one does, it is escaped as well."""


def escape(text: str) -> str:
    """Return `text` without NUL, which PostgreSQL stores in no text."""
    if "\0" not in text and ESCAPE not in text:
        return text
    return text.replace(ESCAPE, f"{ESCAPE}1").replace("\0", f"{ESCAPE}0")


def unescape(text: str) -> str:
    """Return what `escape` was given."""
    if ESCAPE not in text:
        return text
    return text.replace(f"{ESCAPE}0", "\0").replace(f"{ESCAPE}1", ESCAPE)


def by_name(bindings: Sequence[object] | Mapping[str, object]) -> Mapping[str, object]:
    """Return bindings under the names that `adapt` gave to placeholders without one."""
    if isinstance(bindings, Mapping):
        return bindings
    return {f"p{place}": value for place, value in enumerate(bindings, start=1)}


def as_array(value: object) -> object:
    """Return a list of numbers or texts as a literal, which the driver writes in a tenth of the time; others as is."""
    if not isinstance(value, (list, tuple)):
        return value
    if all(type(item) is int for item in value):
        return "{" + ",".join(map(str, value)) + "}"
    if all(type(item) is str for item in value):
        return "{" + ",".join([_IN_ARRAY.sub(r"\\\g<0>", item).join('""') for item in value]) + "}"
    return value


_IN_ARRAY = re.compile(r'["\\]')


def make_key(identity: str) -> str:
    """Return the text that represents a user in every key; two ids never share one.

    An id that is too long or contains NUL is shortened and gets its hash; so does one that looks like a shortened id.
    """
    data = identity.encode("utf-8", "surrogatepass")
    is_short = 0 < len(data) <= _MOST_KEY_BYTES and is_encodable(identity)
    if is_short and "\0" not in identity and ESCAPE not in identity and _HASH_MARK not in identity:
        return identity
    begin = escape(data[:64].decode("utf-8", "ignore"))
    return f"{begin}{_HASH_MARK}{sha256(data).hexdigest()}"

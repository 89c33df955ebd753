"""Whether a statement for PostgreSQL names the tenant and the user of every row that it reads or writes."""

import re
from collections.abc import Iterator

from wellkept.storage.connections import Statement
from wellkept.storage.postgres.schema import list_tenant_tables, list_user_tables

Tokens = list["str | Tokens"]
_TOKEN = re.compile(r"\s+|--[^\n]*|'(?:[^']|'')*'|::|:[a-z_]\w*|\?\d*|%\(\w+\)s|\w+|.", re.IGNORECASE | re.DOTALL)
_SET_OPERATORS = {"UNION", "EXCEPT", "INTERSECT"}
_NO_ALIAS = {
    "WHERE", "GROUP", "ORDER", "LIMIT", "ON", "SET", "RETURNING", "HAVING", "USING", "LEFT", "RIGHT", "INNER", "CROSS",
    "FULL", "JOIN", "FOR", "OFFSET", "WINDOW", "NATURAL", "VALUES", "SELECT", "UNION", "EXCEPT", "INTERSECT", "ALL",
}  # fmt: skip
_ENDS_TABLES = _NO_ALIAS - {"ON", "USING"}


def find_unbounded(sql: str) -> list[str]:
    """Return what a statement reads or writes beyond the tenant and the user of its transaction; it should be empty.

    A table of users must be compared with `:tenant` and with the user (`:user`, or a value of the caller) in the same
    query, a table of the tenant with `:tenant`; an INSERT stores both, and its key in ON CONFLICT begins with them.
    """
    text = sql.for_server if isinstance(sql, Statement) else sql
    tokens = _TOKEN.findall(text.replace("/*! ", "").replace(" */", ""))
    return list(_check(_nest([token for token in tokens if not (token.isspace() or token[:2] == "--")])))


def _nest(tokens: list[str]) -> Tokens:
    """Return tokens with those between parentheses as one list."""
    stack: list[Tokens] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            inner = stack.pop()
            stack[-1].append(inner)
        else:
            stack[-1].append(token)
    assert len(stack) == 1, "unbalanced parentheses"
    return stack[0]


def _word(tokens: Tokens, place: int) -> str:
    token = tokens[place] if 0 <= place < len(tokens) else ""
    return token.upper() if isinstance(token, str) else "("


def _check(tokens: Tokens) -> Iterator[str]:
    query: Tokens = []
    for token in [*tokens, "UNION"]:
        if isinstance(token, str) and token.upper() in _SET_OPERATORS:
            yield from _check_query(query)
            query = []
        else:
            query.append(token)


def _check_query(query: Tokens) -> Iterator[str]:
    for token in query:
        if not isinstance(token, str):
            yield from _check(token)
    yield from _check_tables(query)
    for place in range(len(query)):
        if _word(query, place) == "INTO":
            yield from _check_insert(query, place)
        if _word(query, place) == "CONFLICT" and _word(query, place + 1) == "(":
            yield from _check_conflict(query, place)


def _check_tables(query: Tokens) -> Iterator[str]:
    tables = [(table, name) for table, name in _list_tables(query) if table]
    for table, name in tables:
        for column in _columns(table):
            names = [name] if len(tables) > 1 else [name, ""]
            if not any(_compares(query, f"{one}.{column}" if one else column, column) for one in names):
                yield f"{name} is not limited by {column}"
    words = [_word(query, place) for place in range(len(query))]
    start = next((place for place, word in enumerate(words) if word in {"WHERE", "ON"}), len(words))
    if any(_columns(table) for table, _ in tables) and "OR" in words[start:]:
        yield "OR beside the conditions on the owner"


def _columns(table: str) -> list[str]:
    if table in list_user_tables():
        return ["tenant", "user_id"]
    return ["tenant"] if table in list_tenant_tables() else []


def _compares(query: Tokens, name: str, column: str) -> bool:
    wanted = [*re.findall(r"\w+|\.", name), "="]
    places = [place for place in range(len(query)) if query[place : place + len(wanted)] == wanted]
    return any(
        _word(query, place - 1) != "." and _is_owner(query[place + len(wanted)], column)
        for place in places
        if place + len(wanted) < len(query)
    )


def _is_owner(value: "str | Tokens", column: str) -> bool:
    if column == "tenant":
        return value == ":tenant"
    return isinstance(value, str) and (value == ":user" or value.startswith("?"))


def _list_tables(query: Tokens) -> Iterator[tuple[str, str]]:
    """Yield every table that is read, updated or deleted from in a query, with the name that it has there."""
    for place in range(len(query)):
        word, before = _word(query, place), _word(query, place - 1)
        if (word == "UPDATE" and before not in {"DO", "FOR"}) or word == "JOIN":
            yield _read_table(query, place + 1)
        elif word == "FROM" and before != "DISTINCT":
            following = place + 1
            while True:
                yield _read_table(query, following)
                while following < len(query) and _word(query, following) not in {",", *_ENDS_TABLES}:
                    following += 1
                if _word(query, following) != ",":
                    break
                following += 1


def _read_table(query: Tokens, place: int) -> tuple[str, str]:
    table = query[place] if place < len(query) else ""
    if not isinstance(table, str):
        return "", ""
    following = _word(query, place + 1)
    alias = place + 2 if following == "AS" else place + 1
    has_alias = following == "AS" or (following.isidentifier() and following not in _NO_ALIAS)
    name = query[alias] if has_alias else table
    return table, str(name)


def _check_insert(query: Tokens, place: int) -> Iterator[str]:
    table = query[place + 1]
    needed = _columns(str(table))
    opening = place + (4 if _word(query, place + 2) == "AS" else 2)
    columns = query[opening] if opening < len(query) else []
    if not needed or isinstance(columns, str):
        if needed:
            yield f"INSERT INTO {table} names no columns"
        return
    values = _list_values(query, opening + 1)
    names = [str(item[0]) for item in _split(columns)]
    for column in needed:
        value = values[names.index(column)] if column in names and len(values) == len(names) else []
        # a copy of rows that are limited themselves keeps their user
        if value not in ([f":{'user' if column == 'user_id' else column}"], ["user_id"]):
            yield f"INSERT INTO {table} does not store the {column} of the transaction"


def _list_values(query: Tokens, place: int) -> list[Tokens]:
    following = query[place + 1] if place + 1 < len(query) else []
    if _word(query, place) == "VALUES":
        return _split(following) if not isinstance(following, str) else []
    end = next(
        (at for at in range(place, len(query)) if _word(query, at) in {"FROM", "WHERE", "HAVING", "ON"}), len(query)
    )
    return _split(query[place + 1 : end])


def _split(tokens: Tokens) -> list[Tokens]:
    items: list[Tokens] = [[]]
    for token in tokens:
        if token == ",":
            items.append([])
        else:
            items[-1].append(token)
    return items


def _check_conflict(query: Tokens, place: int) -> Iterator[str]:
    into = next(at for at in range(place, -1, -1) if _word(query, at) == "INTO")
    needed = _columns(str(query[into + 1]))
    key = query[place + 1]
    if [item[0] for item in _split(key if not isinstance(key, str) else [])][: len(needed)] != needed:
        yield f"the key of ON CONFLICT does not begin with {', '.join(needed)}"

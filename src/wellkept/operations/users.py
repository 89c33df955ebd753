"""The users of a home: list, create and export them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING
from unicodedata import normalize

from msgspec import Struct, field

from wellkept.app.caller import Caller, Scope
from wellkept.core.clock import iso
from wellkept.core.errors import NotFound, Reason, Refused, UsageError
from wellkept.core.ids import OWNER, UserId
from wellkept.core.text import JSON, dumps, is_encodable
from wellkept.core.values import JsonStruct
from wellkept.memory.approval import Approvals
from wellkept.memory.history import History
from wellkept.memory.page import Target, undone_ids
from wellkept.memory.store import MemoryStore
from wellkept.sessions.ports import Sessions
from wellkept.storage.files import make_folder, read_bytes, write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.storage.postgres.database import PostgresServer


_CARD = "user.json"
"""The file in a user's folder that holds the original id, because the name of the folder may be a shortened form."""
_MOST_CHARACTERS = 200


class User(JsonStruct, frozen=True):
    """One user with the number of their conversations."""

    id: UserId = field(name="user_id")
    created: str | None
    sessions: int


def list_users(caller: Caller) -> list[User]:
    """Return the owner and everyone who has a folder or a conversation here, by id."""
    caller.require(Scope.ADMIN)
    created = _read_accounts(caller)  # here or on another host of the same server
    users = caller.app.home.users
    for card in sorted(users.glob(f"*/{_CARD}")) if users.is_dir() else ():
        with suppress(ValueError, KeyError, TypeError):
            written = json.loads(read_bytes(card) or b"")
            created[UserId(str(written["id"]))] = str(written["created"])
    stored = caller.space.sessions.users() if caller.app.has_database else []
    others = sorted({*created, *stored} - {OWNER})
    return [
        User(user, created.get(user), caller.app.space(user).sessions.totals()[0] if user in stored else 0)
        for user in (OWNER, *others)
    ]


def _read_accounts(caller: Caller, user: UserId | None = None) -> dict[UserId, str]:
    """Return the users that the hosts of a server have created, or one of them; empty without a server."""
    server = caller.app.server
    if server is None:
        return {}
    sql = "SELECT id, created FROM accounts WHERE tenant = :tenant AND (?1 IS NULL OR user_id = ?1)"
    with server.for_tenant().reading() as unit:
        rows = unit.execute(sql, (None if user is None else server.for_user(user).key,))
        return {UserId(str(name)): str(created) for name, created in rows}


def require_user(caller: Caller, user_id: str) -> None:
    """Raise NotFound unless the user was created or has conversations here."""
    user = check_user_id(user_id)
    if (caller.app.home.for_user(user).own / _CARD).exists() or user == OWNER or _read_accounts(caller, user):
        return
    if not caller.app.has_database or user not in caller.space.sessions.users():
        raise NotFound(f"there is no user {user!r}", f"create it with: kept user create {user!r}")


def create_user(caller: Caller, user_id: str) -> User | Refused:
    """Create a user with a folder; refused if the user exists."""
    caller.require(Scope.ADMIN)
    user = check_user_id(user_id)
    from wellkept.security.unicode import fold

    plain = normalize("NFKC", user)
    if plain != user or not user.isprintable():
        raise UsageError(f"the user id {user!r} contains characters that look like others", f"use {plain!a}")
    if user != OWNER and fold(plain) == OWNER:
        raise UsageError(f"the user id {user!r} looks like {OWNER!r}", "choose another one")
    home = caller.app.home.for_user(user)
    if user == OWNER or (home.own / _CARD).exists() or _read_accounts(caller, user):
        return Refused(Reason.PRESENT, f"the user {user!r} exists already", "`kept user list` shows all users")
    created = iso(caller.app.clock.now())
    if caller.app.server is not None:
        add_account(caller.app.server, user, created)
    write_card(caller, user, created)
    return User(user, created, 0)


def add_account(server: PostgresServer, user: UserId, created: str) -> None:
    """Make a user known to every host of a server."""
    with server.for_tenant().writing() as unit:
        sql = "INSERT INTO accounts (tenant, user_id, id, created) VALUES (:tenant, ?, ?, ?) ON CONFLICT DO NOTHING"
        unit.execute(sql, (server.for_user(user).key, user, created))


def remove_account(server: PostgresServer, user: UserId) -> None:
    """Remove a user from all hosts of a server."""
    with server.for_tenant().writing() as unit:
        unit.execute("DELETE FROM accounts WHERE tenant = :tenant AND user_id = ?", (server.for_user(user).key,))


def write_card(caller: Caller, user: UserId, created: str) -> None:
    """Create the folder of a user on this host."""
    home = caller.app.home.for_user(user)
    make_folder(home.own)
    write_atomically(home.own / _CARD, (dumps({"id": user, "created": created}) + "\n").encode())


def check_user_id(text: str) -> UserId:
    """Return the id, or raise UsageError for an invalid one."""
    is_plain = is_encodable(text) and all(ord(each) >= 32 for each in text)
    if not text.strip() or len(text) > _MOST_CHARACTERS or not is_plain:
        raise UsageError(
            f"{text[:40]!r} cannot be a user id", f"use 1 to {_MOST_CHARACTERS} printable characters, like alice"
        )
    return UserId(text.strip())


class UserExport(Struct):
    """Everything of one user as JSON lines; `counts` is complete when all lines were read."""

    user: UserId
    lines: Iterator[dict[str, JSON]]
    counts: Counter[str]


def export_user(caller: Caller) -> UserExport:
    """Return the caller's conversations, pages, edits, pending writes and own skills; raises NotFound without any."""
    space = caller.space
    lines = chain(export_lines(space.sessions, space.memory, space.approvals), export_skills(caller))
    first = next(lines, None)
    if first is None:
        raise NotFound(f"no data of the user {caller.user!r} is stored here", "`kept user list` shows the users")
    counts: Counter[str] = Counter()

    def count() -> Iterator[dict[str, JSON]]:
        for line in (first, *lines):
            counts[str(line.get("type", "message"))] += 1
            yield line

    return UserExport(caller.user, count(), counts)


def export_graph(caller: Caller) -> UserExport:
    """Return the entries of the caller's pages as the records of a graph; raises NotFound if there are none."""
    from wellkept.formats.mcp_memory import build_graph

    memory = caller.space.memory.for_project(None)
    pages = [(target.value, memory.entries(target)) for target in memory.targets]
    pages += [(str(store.project), store.entries(Target.PROJECT)) for store in memory.projects()]
    records = list(build_graph(pages).lines())
    if not records:
        raise NotFound("the pages have no entries", "`kept memory add TEXT` adds one")
    return UserExport(caller.user, iter(records), Counter(str(record["type"]) for record in records))


def export_lines(sessions: Sessions, memory: MemoryStore, approvals: Approvals) -> Iterator[dict[str, JSON]]:
    """Yield a user's conversations as `sessions export` does, then pages, edits and pending writes with their type."""
    yield from sessions.transfer.export()
    memory = memory.for_project(None)
    rows = History(memory).rows()
    for target in memory.targets:
        entries, archived = memory.entries(target), memory.archived(target)
        if entries or archived:
            yield {"type": "page", "target": target.value, "entries": [*entries], **_archived(archived)}
    for store in memory.projects():
        rows += History(store).rows(Target.PROJECT)
        project = {"type": "page", "target": Target.PROJECT.value, "project": store.project}
        yield {**project, "entries": [*store.entries(Target.PROJECT)], **_archived(store.archived(Target.PROJECT))}
    undone = undone_ids(rows)
    for row in rows:
        yield {"type": "edit", **row.as_json(is_undone=row.id in undone)}
    for pending in approvals.waiting():
        yield {"type": "pending", **pending.as_json()}


def _archived(entries: Sequence[str]) -> dict[str, JSON]:
    return {"archived": [*entries]} if entries else {}


def export_skills(caller: Caller) -> Iterator[dict[str, JSON]]:
    """Yield the user's own skills with their files; files that are not text are in Base64 under `binary`."""
    home = caller.space.home.skills
    if not home.is_dir():
        return
    from base64 import b64encode

    from wellkept.skills.merge import read_skill
    from wellkept.skills.roots import is_text

    for folder in caller.space.skill_tools.library.home_folders():
        files = read_skill(folder)
        binary: dict[str, JSON] = {path: b64encode(data).decode() for path, data in files.items() if not is_text(data)}
        yield {
            "type": "skill",
            "name": folder.name,
            "folder": folder.relative_to(home).as_posix(),
            "files": {path: data.decode() for path, data in files.items() if path not in binary},
            **({"binary": binary} if binary else {}),
        }

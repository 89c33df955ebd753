"""Pairing of people on chat platforms with users: codes for strangers, and the user of each person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.caller import Scope
from wellkept.core.clock import iso_moment
from wellkept.core.errors import NotFound, UsageError
from wellkept.core.ids import OWNER, UserId
from wellkept.core.values import JsonStruct
from wellkept.operations.users import check_user_id, create_user, require_user
from wellkept.storage.connections import statements

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wellkept.app.caller import Caller
    from wellkept.core.text import JSON

SQL = statements("wellkept.gateway.state", "pairing.sql")
_LETTERS = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
"""Without characters that are easily confused."""
_CODE_LENGTH = 8
_VALID_SECONDS = 3_600.0
_TELL_EVERY_SECONDS = 60.0
"""A stranger who keeps writing gets the code again after this time, not with every message."""
_MOST_WAITING = 100
"""How many strangers of a platform can have a code; others get no answer, so that nobody fills the table."""
_MOST_NAME = 100


class Person(JsonStruct, frozen=True):
    """A person on a platform, and the user whose memory they use."""

    platform: str
    person: str
    name: str
    user: UserId = field(name="user_id")
    paired: float

    def as_json(self) -> dict[str, JSON]:
        """Return the person."""
        return {**super().as_json(), "paired": iso_moment(self.paired)}


class Stranger(Struct, frozen=True):
    """A person on a platform who is not paired yet."""

    platform: str
    person: str
    name: str
    code: str
    created: float

    def as_json(self) -> dict[str, JSON]:
        """Return the stranger with the code."""
        return {
            "platform": self.platform,
            "person": self.person,
            "name": self.name,
            "code": self.code,
            "expires": iso_moment(self.created + _VALID_SECONDS),
        }


class Pairings(JsonStruct, frozen=True):
    """Paired people, and strangers with a code."""

    people: tuple[Person, ...]
    waiting: tuple[Stranger, ...]


def find_user(caller: Caller, platform: str, person: str) -> UserId | None:
    """Return the user of a person on a platform; None for a stranger, or if the user was removed."""
    caller.require(Scope.ADMIN)
    with caller.app.database.reading() as unit:
        rows = list(unit.execute(SQL.user, (platform, person)))
    if not rows:
        return None
    user = UserId(str(rows[0][0]))
    try:
        require_user(caller, user)
    except NotFound:
        return None
    return user


def issue_code(caller: Caller, platform: str, person: str, name: str = "") -> str | None:
    """Return the code to send to a stranger; None if it was sent just now, or if too many have one."""
    caller.require(Scope.ADMIN)
    now = caller.app.clock.now().timestamp()
    with caller.app.database.writing() as unit:
        unit.execute(SQL.drop_old_codes, (now - _VALID_SECONDS, now + 60))
        for code, told in unit.execute(SQL.code_of, (platform, person)):
            if now - float(str(told)) < _TELL_EVERY_SECONDS:
                return None
            unit.execute(SQL.note_told, (now, platform, person))
            return str(code)
        waiting = list(unit.execute(SQL.count_waiting, (platform,)))
        if int(str(waiting[0][0])) >= _MOST_WAITING:
            return None
        import secrets

        made = "".join(secrets.choice(_LETTERS) for _ in range(_CODE_LENGTH))
        unit.execute(SQL.add_code, (platform, person, name.strip()[:_MOST_NAME], made, now, now))
    return made


def accept_code(caller: Caller, code: str, user_id: str | None = None) -> Person:
    """Pair the stranger with this code, as `user_id` or as a new user."""
    caller.require_person(f"`kept serve pair accept {code[:40]}`")
    caller.require(Scope.ADMIN)
    wanted = code.upper().replace("-", "").replace(" ", "")
    now = caller.app.clock.now().timestamp()
    with caller.app.database.reading() as unit:
        rows = list(unit.execute(SQL.stranger, (wanted, now - _VALID_SECONDS)))
    if not rows:
        raise NotFound(
            f"nobody has the code {code[:40]!r}",
            "a code is valid for an hour; `kept serve pair list` shows the valid ones",
        )
    platform, person, name = (str(part) for part in rows[0])
    user = _choose_user(caller, user_id, f"{platform}:{person}")
    with caller.app.database.writing() as unit:
        unit.execute(SQL.pair, (platform, person, user, name, now))
        unit.execute(SQL.drop_code, (platform, person))
    caller.app.database.sync()
    return Person(platform, person, name, user, now)


def _choose_user(caller: Caller, user_id: str | None, own: str) -> UserId:
    """Return the named user, who must exist; without a name the person's own user, created if needed."""
    if user_id is not None:
        user = check_user_id(user_id)
        if user != OWNER:
            require_user(caller, user)
        return user
    return ensure_user(caller, own)


def ensure_user(caller: Caller, name: str) -> UserId:
    """Return the user with this name, created if there is none; a long name is cut to what an id may have."""
    import hashlib

    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    user = check_user_id(name if len(name) <= 150 else f"{name[:150]}-{digest}")
    create_user(caller, user)  # refused if the user exists
    return user


def list_pairings(caller: Caller) -> Pairings:
    """Return paired people, and strangers with a valid code."""
    caller.require(Scope.ADMIN)
    now = caller.app.clock.now().timestamp()
    with caller.app.database.reading() as unit:
        persons = tuple(_read_person(row) for row in unit.execute(SQL.people))
        waiting = tuple(
            Stranger(str(platform), str(person), str(name), str(code), float(str(created)))
            for platform, person, name, code, created in unit.execute(SQL.strangers, (now - _VALID_SECONDS,))
        )
    return Pairings(persons, waiting)


def remove_person(caller: Caller, platform: str, person: str) -> Person:
    """Remove the pairing of a person; their conversations stay with their user."""
    caller.require_person("`kept serve pair remove PLATFORM PERSON`")
    caller.require(Scope.ADMIN)
    if not platform or not person:
        raise UsageError("name the platform and the person", "`kept serve pair list` shows them")
    key = (platform, person)
    with caller.app.database.writing() as unit:
        rows = list(unit.execute(SQL.person, key))
        if not rows:
            raise NotFound(f"{person[:40]!r} is not paired on {platform[:40]!r}", "`kept serve pair list` shows who is")
        unit.execute(SQL.unpair, key)
    caller.app.database.sync()  # a loss of power must not pair them again
    return _read_person(rows[0])


def _read_person(row: Iterable[object]) -> Person:
    platform, person, name, user, paired = row
    return Person(str(platform), str(person), str(name), UserId(str(user)), float(str(paired)))

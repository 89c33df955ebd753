"""Tokens of the gateway: create, list and revoke them, and find the token of a request."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kept.app.caller import TOKEN_SCOPES, USER_SCOPES, Scope
from kept.core.clock import from_epoch, iso
from kept.core.errors import NotFound, UsageError
from kept.core.ids import OWNER, UserId, random_hex
from kept.operations.users import check_user_id, require_user

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kept.app.caller import Caller
    from kept.app.root import App
    from kept.core.text import JSON

_PREFIX = "kept"
_ID_BYTES = 4
_SECRET_BYTES = 32
_DAY = 86_400.0
_SELECT = "SELECT id, user_id, name, scopes, created, expires, last_used, hash FROM tokens"
_SELECT_ONE = f"{_SELECT} WHERE id = ?"
BROWSER = "web app"
"""The name of tokens that browsers get when somebody signs in."""
BROWSER_DAYS = 30.0
_FORM_KEY = "form_key"
_READ_KEY = "SELECT value FROM state_meta WHERE key = ?"
_USED_EVERY_SECONDS = 60.0
"""How often the last use is written, because every request would be too often."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is stored of a token; the secret itself is not."""

    id: str
    user: UserId
    name: str
    scopes: frozenset[Scope]
    created: float
    expires: float | None
    last_used: float | None

    def as_json(self) -> dict[str, JSON]:
        """Return the token without its secret."""
        return {
            "id": self.id,
            "user_id": self.user,
            "name": self.name,
            "scopes": sorted(self.scopes),
            "created": iso(from_epoch(self.created)),
            "expires": None if self.expires is None else iso(from_epoch(self.expires)),
            "last_used": None if self.last_used is None else iso(from_epoch(self.last_used)),
        }


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just created, with its secret, which is shown once."""

    token: Token
    secret: str

    def as_json(self) -> dict[str, JSON]:
        """Return the token with its secret."""
        return {**self.token.as_json(), "token": self.secret}


def create_token(
    caller: Caller, user_id: str = OWNER, *, name: str = "", scopes: Sequence[str] = (), days: float | None = None
) -> NewToken:
    """Create a token for a user that exists; raises UsageError for an unknown scope or one beyond the caller's."""
    caller.require(Scope.ADMIN)
    user = check_user_id(user_id)
    require_user(caller, user)
    granted = _read_scopes(scopes, user)
    if days is not None and not 0 < days <= 36_500:
        raise UsageError(f"a token cannot be valid for {days:g} days", "use a number from 1 to 36500")
    now = caller.app.clock.now().timestamp()
    token = Token(
        random_hex(_ID_BYTES), user, name.strip()[:100], granted, now, None if days is None else now + days * _DAY, None
    )
    secret = f"{_PREFIX}_{token.id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    with caller.app.database.writing() as unit:
        unit.execute(
            "INSERT INTO tokens (id, user_id, name, scopes, created, expires, hash) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (token.id, user, token.name, " ".join(sorted(granted)), now, token.expires, _hash(secret)),
        )
    caller.app.database.sync()
    return NewToken(token, secret)


def _read_scopes(names: Sequence[str], user: UserId) -> frozenset[Scope]:
    """Return the named scopes; without names, those of the user on the command line, never `act-as`."""
    if not names:
        return TOKEN_SCOPES - {Scope.ACT_AS} if user == OWNER else TOKEN_SCOPES & USER_SCOPES
    words = [word.strip() for name in names for word in name.split(",") if word.strip()]
    known = {scope.value: scope for scope in Scope if scope in TOKEN_SCOPES}
    for word in words:
        if word not in known:
            raise UsageError(f"there is no scope {word!r}", f"use one or more of {', '.join(known)}")
    if user != OWNER and "admin" in words:
        raise UsageError("only the owner can have the scope 'admin'", "leave out --user, or the scope")
    return frozenset(known[word] for word in words)


def list_tokens(caller: Caller) -> list[Token]:
    """Return all tokens, the newest first."""
    caller.require(Scope.ADMIN)
    with caller.app.database.reading() as unit:
        return [_read_row(row) for row in unit.execute(f"{_SELECT} ORDER BY created DESC, id")]


def revoke_token(caller: Caller, token_id: str) -> Token:
    """Remove a token by its id, or by the token itself; requests with it fail from now on."""
    caller.require(Scope.ADMIN)
    parts = token_id.split("_")
    short = parts[1] if parts[0] == _PREFIX and len(parts) > 1 else token_id
    with caller.app.database.writing() as unit:
        rows = list(unit.execute(_SELECT_ONE, (short,)))
        if not rows:
            raise NotFound(f"there is no token {short!r}", "`kept serve token list` shows their ids")
        unit.execute("DELETE FROM tokens WHERE id = ?", (short,))
    caller.app.database.sync()  # a loss of power must not make it valid again
    return _read_row(rows[0])


def sign_in(app: App, secret: str) -> NewToken | None:
    """Return a token for a browser in exchange for any valid token; None if it is not valid.

    The browser gets a separate token, so that it can be signed out on its own, with at most the first one's scopes.
    """
    known = find_token(app, secret.strip())
    if known is None or Scope.READ not in known.scopes:
        return None
    scopes = [scope.value for scope in known.scopes - {Scope.ACT_AS}]
    days = BROWSER_DAYS
    if known.expires is not None:
        days = min(days, (known.expires - app.clock.now().timestamp()) / _DAY)
    return create_token(app.caller(), known.user, name=BROWSER, scopes=scopes, days=days)


def sign_out(app: App, secret: str) -> None:
    """Revoke the token of a browser; any other token stays, because programs may use it."""
    known = find_token(app, secret)
    if known is not None and known.name == BROWSER:
        revoke_token(app.caller(), known.id)


def read_form_key(app: App) -> bytes:
    """Return the key that signs the forms of the web app; it outlives a restart, so that an open page stays usable."""
    with app.database.reading() as unit:
        rows = list(unit.execute(_READ_KEY, (_FORM_KEY,)))
    if not rows:
        with app.database.writing() as unit:  # if another process was faster, its key counts
            unit.execute(
                "INSERT INTO state_meta (key, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (_FORM_KEY, random_hex(32))
            )
            rows = list(unit.execute(_READ_KEY, (_FORM_KEY,)))
    return bytes.fromhex(str(rows[0][0]))


def is_token(secret: str) -> bool:
    """Whether a key has the form of our tokens, valid or not."""
    return secret.startswith(f"{_PREFIX}_")


def has_tokens(app: App) -> bool:
    """Whether any token exists in this home."""
    if not app.has_database:
        return False
    with app.database.reading() as unit:
        return bool(list(unit.execute("SELECT 1 FROM tokens LIMIT 1")))


def find_token(app: App, secret: str) -> Token | None:
    """Return the valid token with this secret; None for an unknown, revoked or expired one."""
    parts = secret.split("_", 2)
    if len(parts) != 3 or parts[0] != _PREFIX:
        return None
    with app.database.reading() as unit:
        rows = list(unit.execute(_SELECT_ONE, (parts[1],)))
    # an unknown id costs the same comparison, so that timing reveals nothing
    stored = bytes(rows[0][-1]) if rows and isinstance(rows[0][-1], bytes) else b""
    if not hmac.compare_digest(stored, _hash(secret)):
        return None
    token = _read_row(rows[0])
    now = app.clock.now().timestamp()
    if token.expires is not None and token.expires <= now:
        return None
    if token.last_used is None or now - token.last_used > _USED_EVERY_SECONDS:
        _note_use(app, token.id, now)
    return token


def _note_use(app: App, token_id: str, now: float) -> None:
    with app.database.writing() as unit:
        unit.execute("UPDATE tokens SET last_used = ? WHERE id = ?", (now, token_id))


def _hash(secret: str) -> bytes:
    # the secret is random and long, so a slow hash would add no protection
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _read_row(row: Iterable[object]) -> Token:
    token_id, user, name, scopes, created, expires, last_used, *_ = row
    known = {scope.value: scope for scope in Scope if scope in TOKEN_SCOPES}
    return Token(
        str(token_id),
        UserId(str(user)),
        str(name),
        frozenset(known[word] for word in str(scopes).split() if word in known),
        float(str(created)),
        None if expires is None else float(str(expires)),
        None if last_used is None else float(str(last_used)),
    )

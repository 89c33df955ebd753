"""Who may use the server: tokens of programs, the start-up token, sign-in links and signed-in browsers."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.caller import OWNER_SCOPES, TOKEN_SCOPES, USER_SCOPES, Scope
from wellkept.config.settings import is_exposed
from wellkept.core.clock import iso_moment
from wellkept.core.errors import NotFound, UsageError
from wellkept.core.ids import OWNER, UserId, random_hex
from wellkept.core.values import JsonStruct
from wellkept.operations.users import check_user_id, require_user
from wellkept.storage.connections import statements
from wellkept.storage.files import read_bytes, write_atomically
from wellkept.storage.locks import hold_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wellkept.app.caller import Caller
    from wellkept.app.root import App
    from wellkept.core.text import JSON

_PREFIX = "kept"
_ID_BYTES = 4
_SECRET_BYTES = 32
_DAY = 86_400.0
SQL = statements("wellkept.gateway.state", "tokens.sql")
BROWSER = "web app"
"""The name of tokens that browsers get when somebody signs in, and of no others: they are valid as cookies only."""
BROWSER_DAYS = 30.0
START = "start"
"""The id of the start-up token."""
START_SCOPES = TOKEN_SCOPES - {Scope.ACT_AS}
LINK_SECONDS = 900.0
"""How long a sign-in link is valid."""
_LINK = "sign_in:"
_FORM_KEY = "form_key"
_START_SECRET = re.compile(rf"{_PREFIX}_{START}_[A-Za-z0-9_-]{{43}}")
_ANY_SECRET = re.compile(rf"{_PREFIX}_[0-9a-z]+_[A-Za-z0-9_-]{{43}}")
_USED_EVERY_SECONDS = 60.0
"""How often the last use is written, because every request would be too often."""


class Token(JsonStruct, frozen=True):
    """What is stored of a token; the secret itself is not."""

    id: str
    user: UserId = field(name="user_id")
    name: str
    scopes: frozenset[Scope]
    created: float
    expires: float | None
    last_used: float | None

    @property
    def rights(self) -> frozenset[Scope]:
        """What a request with it may do: its scopes, and to speak as the user if it was created for a program."""
        return self.scopes if self.is_browser or self.id == START else self.scopes | {Scope.SPEAK}

    @property
    def is_browser(self) -> bool:
        """Whether it belongs to a signed-in browser."""
        return self.name == BROWSER

    def as_json(self) -> dict[str, JSON]:
        """Return the token without its secret."""
        return {
            **super().as_json(),
            "created": iso_moment(self.created),
            "expires": iso_moment(self.expires),
            "last_used": iso_moment(self.last_used),
        }


class NewToken(Struct, frozen=True):
    """A token that was just created, with its secret, which is shown once."""

    token: Token
    secret: str

    def as_json(self) -> dict[str, JSON]:
        """Return the token with its secret."""
        return {**self.token.as_json(), "token": self.secret}


def create_token(
    caller: Caller, user_id: str | None = None, *, name: str = "", scopes: Sequence[str] = (), days: float | None = None
) -> NewToken:
    """Create a token for a user, or the caller; raises UsageError for an unknown scope or one beyond theirs."""
    caller.require_person("`kept serve token create`")
    caller.require(Scope.ADMIN)
    user = check_user_id(user_id or caller.user)
    require_user(caller, user)
    granted = _read_scopes(scopes, user)
    if days is not None and not 0 < days <= 36_500:
        raise UsageError(f"a token cannot be valid for {days:g} days", "use a number from 1 to 36500")
    if name.strip() == BROWSER:
        raise UsageError(f"{BROWSER!r} is the name of signed-in browsers", "choose another name")
    return _store(caller.app, user, name.strip()[:100], granted, days=days)


def _store(app: App, user: UserId, name: str, scopes: frozenset[Scope], *, days: float | None) -> NewToken:
    now = app.clock.now().timestamp()
    token = Token(random_hex(_ID_BYTES), user, name, scopes, now, None if days is None else now + days * _DAY, None)
    secret = _make_secret(token.id)
    with app.database.writing() as unit:
        unit.execute(
            SQL.add,
            (token.id, user, token.name, " ".join(sorted(scopes)), now, token.expires, _hash(secret)),
        )
    app.database.sync()
    return NewToken(token, secret)


def _make_secret(token_id: str) -> str:
    return f"{_PREFIX}_{token_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"


def _read_scopes(names: Sequence[str], user: UserId) -> frozenset[Scope]:
    """Return the named scopes; without names, those of the user on the command line, never `act-as`."""
    if not names:
        return START_SCOPES if user == OWNER else TOKEN_SCOPES & USER_SCOPES
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
        return [_read_row(row) for row in unit.execute(SQL.every)]


def revoke_token(caller: Caller, token_id: str) -> Token:
    """Remove a token by its id, or by the token itself; requests with it fail from now on."""
    caller.require_person("`kept serve token revoke ID`")
    caller.require(Scope.ADMIN)
    parts = token_id.split("_")
    short = parts[1] if parts[0] == _PREFIX and len(parts) > 1 else token_id
    with caller.app.database.writing() as unit:
        rows = list(unit.execute(SQL.one, (short,)))
        if not rows:
            raise NotFound(f"there is no token {short!r}", "`kept serve token list` shows their ids")
        unit.execute(SQL.drop, (short,))
    caller.app.database.sync()  # a loss of power must not make it valid again
    return _read_row(rows[0])


class StartToken(Struct, frozen=True):
    """The start-up token: the owner's, in a file of the home that only the owner can read, the same after a restart."""

    secret: str
    is_new: bool = False

    def matches(self, secret: str) -> bool:
        """Whether a request has sent this token."""
        return hmac.compare_digest(_hash(self.secret), _hash(secret))

    def as_token(self) -> Token:
        """Return it in the form of a stored token."""
        return Token(START, OWNER, "start-up", START_SCOPES, 0.0, None, None)


def read_start_token(app: App) -> StartToken | None:
    """Return the start-up token; None if the server was never started with one."""
    text = (read_bytes(app.home.serve_token) or b"").decode("ascii", "replace").strip()
    return StartToken(text) if _START_SECRET.fullmatch(text) else None


def ensure_start_token(app: App) -> StartToken:
    """Return the start-up token; creates it if there is none."""
    path = app.home.serve_token
    known = read_start_token(app)
    if known is None:
        with hold_lock(path.with_name("locks") / f"{path.name}.lock"):  # two servers may start at the same time
            known = read_start_token(app)
            if known is None:
                known = StartToken(_make_secret(START), is_new=True)
                write_atomically(path, f"{known.secret}\n".encode())
    if is_exposed(path):
        path.chmod(0o600)
    return known


def show_start_token(caller: Caller) -> str:
    """Return the start-up token; creates it if the server was never started."""
    caller.require(Scope.ADMIN)
    return ensure_start_token(caller.app).secret


def create_link(caller: Caller, user_id: str | None = None) -> str:
    """Return the code of a sign-in link for a person, or the caller: it works once, within a quarter of an hour."""
    caller.require_person("`kept serve link`")
    user = check_user_id(user_id or caller.user)
    if user != caller.user:
        caller.require(Scope.ADMIN)
    require_user(caller, user)
    code, now = secrets.token_urlsafe(_SECRET_BYTES), caller.app.clock.now().timestamp()
    with caller.app.database.writing() as unit:
        for key, value in list(unit.execute(SQL.links, (f"{_LINK}%",))):
            if _read_link(str(value))[0] <= now:
                unit.execute(SQL.take_value, (key,))
        unit.execute(SQL.add_value, (f"{_LINK}{_hash(code).hex()}", f"{now + LINK_SECONDS} {user}"))
    return code


def use_link(app: App, code: str) -> NewToken | None:
    """Return a token for the browser of the person who opened a link; None if it was used or has expired."""
    key = f"{_LINK}{_hash(code).hex()}"
    with app.database.writing() as unit:
        rows = list(unit.execute(SQL.take_value, (key,)))
    if not rows:
        return None
    expires, user = _read_link(str(rows[0][0]))
    if expires <= app.clock.now().timestamp():
        return None
    scopes = OWNER_SCOPES - {Scope.ACT_AS} if user == OWNER else USER_SCOPES
    return _store(app, user, BROWSER, scopes, days=BROWSER_DAYS)


def _read_link(value: str) -> tuple[float, UserId]:
    expires, _, user = value.partition(" ")
    return float(expires), UserId(user)


def sign_in(app: App, known: Token) -> NewToken | None:
    """Return a token for a browser in exchange for a token of a program; None if that may not read.

    The browser gets a separate token, so that it can be signed out on its own, with at most the first one's scopes.
    """
    if Scope.READ not in known.scopes:
        return None
    days = BROWSER_DAYS
    if known.expires is not None:
        days = min(days, (known.expires - app.clock.now().timestamp()) / _DAY)
    return _store(app, known.user, BROWSER, known.rights - {Scope.ACT_AS}, days=days)


def sign_out(app: App, secret: str) -> None:
    """Revoke the token of a browser."""
    known = find_browser(app, secret)
    if known is not None:
        with app.database.writing() as unit:
            unit.execute(SQL.drop, (known.id,))
        app.database.sync()


def read_form_key(app: App) -> bytes:
    """Return the key that signs the forms of the web app; it outlives a restart, so that an open page stays usable."""
    with app.database.reading() as unit:
        rows = list(unit.execute(SQL.value, (_FORM_KEY,)))
    if not rows:
        with app.database.writing() as unit:  # if another process was faster, its key counts
            unit.execute(SQL.add_value, (_FORM_KEY, random_hex(32)))
            rows = list(unit.execute(SQL.value, (_FORM_KEY,)))
    return bytes.fromhex(str(rows[0][0]))


def is_token(secret: str) -> bool:
    """Whether a key has the form of our tokens, valid or not."""
    return secret.startswith(f"{_PREFIX}_")


def contains_token(text: str) -> bool:
    """Whether a text contains something that has the form of our tokens, valid or not."""
    return _ANY_SECRET.search(text) is not None


def has_tokens(app: App) -> bool:
    """Whether any token of a program exists in this home."""
    if not app.has_database:
        return False
    with app.database.reading() as unit:
        return bool(list(unit.execute(SQL.any_other, (BROWSER,))))


def find_token(app: App, secret: str) -> Token | None:
    """Return the valid token of a program with this secret; None for an unknown, revoked or expired one."""
    known = _find(app, secret)
    return None if known is None or known.is_browser else known


def find_browser(app: App, secret: str) -> Token | None:
    """Return the token of a signed-in browser with this secret; None for any other."""
    known = _find(app, secret)
    return known if known is not None and known.is_browser else None


def _find(app: App, secret: str) -> Token | None:
    parts = secret.split("_", 2)
    if len(parts) != 3 or parts[0] != _PREFIX or not app.has_database:
        return None
    with app.database.reading() as unit:
        rows = list(unit.execute(SQL.one, (parts[1],)))
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
        unit.execute(SQL.note_use, (now, token_id))


def _hash(secret: str) -> bytes:
    # the secret is random and long, so a slow hash would add no protection
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _read_row(row: Iterable[object]) -> Token:
    token_id, user, name, scopes, created, expires, last_used, *_ = row
    # only the browser of a person can decide, whatever a row says
    known = {scope.value: scope for scope in (Scope if name == BROWSER else TOKEN_SCOPES)}
    return Token(
        str(token_id),
        UserId(str(user)),
        str(name),
        frozenset(known[word] for word in str(scopes).split() if word in known),
        float(str(created)),
        None if expires is None else float(str(expires)),
        None if last_used is None else float(str(last_used)),
    )
